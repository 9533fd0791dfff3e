"""Scenarios for classes queue, 2pc_queue and rgw_gc, in the form of the table in classes_differential.py.

An OSD of Ceph that is asked to list from behind a queue's tail reads nothing, for ever, and one whose queue's size has
wrapped aborts: markers stay within the object, sizes below 2**63.
"""
import struct

from classes_differential import envelope, listed, text, u8, u32, u64, utime

NONE = None
HEAD = 1024
# Bytes that 2pc_queue keeps for reservations.
RESERVATIONS = 23552
# A time behind every other one here.
LATE_S = 2_100_000_000


def marker(gen, offset):
    return envelope(1, 1, u64(gen) + u64(offset))


def queue(size, entries=(), urgent_max=0, urgent=b"", front=None):
    """A queue's object, with as many zeros behind it as one read takes."""
    head_size = HEAD + urgent_max
    stored = b"".join(struct.pack("<HQ", 0xBEEF, len(e)) + e for e in entries)
    tail = head_size + len(stored)
    body = u64(head_size) + marker(0, front or head_size) + marker(0, tail) + u64(head_size + size) + u64(urgent_max)
    head = envelope(1, 1, body + text(urgent))
    data = struct.pack("<HQ", 0xDEAD, len(head)) + head
    return (data.ljust(head_size, b"\0") + stored).ljust(head_size + size + 1100, b"\0")


def torn(m, data):
    """Mostly as it is; else cut, with bytes behind it, or of a newer version."""
    cut = data[:m.rng.randrange(len(data))]
    return m.pick(data, data, data, data, data, cut, data + b"more", u8(9) + data[1:], data[:1] + u8(9) + data[2:])


def place(m, entry, size, head=HEAD, most=12):
    """A marker at the border of two entries in a queue where all are of one length; now and then no such one."""
    at = entry * m.rng.randrange(most)
    good = "%d/%d" % (at // size, head + at % size)
    return text(m.pick(good, good, good, good, "", "", "0/%d" % head, "0/%d" % head, "1/%d" % head, "x", "0", "0/", "0/5",
                       " 0/%d" % head, "+0/%dz" % head, "99999999999999999999/1", "0/\0", "-1/%d" % head))


def listing(m, place):
    return torn(m, envelope(1, 1, u64(m.pick(0, 1, 2, 3, 100, 2**64 - 1)) + place()))


def queue_methods(m, length, size, places):
    """Calls on a queue in which entries have `length` bytes, mostly."""
    data = lambda: text(bytes(m.pick(length, length, length, length, 0)))
    return {
        "queue_init": lambda: torn(m, envelope(1, 1, u64(size) + u64(m.pick(0, 100)) + text(m.pick("", "urgent", "u" * 1100)))),
        "queue_get_capacity": NONE,
        "queue_enqueue": lambda: torn(m, envelope(1, 1, listed([data() for _ in range(m.pick(0, 1, 1, 2, 3))]))),
        "queue_enqueue ": lambda: envelope(1, 1, listed([text(bytes([m.pick(1, 2)]) * length)] * m.pick(1, 2))),
        "queue_list_entries": lambda: listing(m, places), "queue_list_entries ": lambda: listing(m, places),
        "queue_remove_entries": lambda: torn(m, envelope(1, 1, places())),
    }


def init(size):
    return envelope(1, 1, u64(size) + u64(0) + text(""))


def reservations(sizes):
    return listed([u32(i) + envelope(1, 1, u64(s) + utime(10 * i, 5)) for i, s in sizes])


def two_phase(m, length, size, head):
    small = lambda: u64(m.pick(10, 20, 50, 50, 50, 0, 500, 5000, 2**64 - 1))
    number = lambda: u32(m.pick(*range(1, 9)))
    entry = lambda: text(bytes(m.pick(length, length, length, length, 0)))
    places = lambda: text(m.pick("", "", "0/%d" % head, "0/%d" % (head + length + 10), "x"))
    return {
        "2pc_queue_init": lambda: torn(m, init(size)),
        "2pc_queue_get_capacity": NONE,
        "2pc_queue_reserve": lambda: torn(m, envelope(1, 1, small() + u32(m.pick(1, 1, 2, 0, 0x1999999A)))),
        "2pc_queue_reserve ": lambda: envelope(1, 1, u64(length) + u32(1)),
        "2pc_queue_commit": lambda: torn(m, envelope(1, 1, number() + listed([entry() for _ in range(m.pick(0, 1, 1, 2))]))),
        "2pc_queue_commit ": lambda: envelope(1, 1, number() + listed([entry()])),
        "2pc_queue_abort": lambda: torn(m, envelope(1, 1, number())),
        "2pc_queue_list_reservations": NONE,
        "2pc_queue_list_entries": lambda: listing(m, lambda: text(m.pick("", "", "0/%d" % head, "x"))),
        "2pc_queue_remove_entries": lambda: torn(m, envelope(1, 1, places())),
        "2pc_queue_expire_reservations": lambda: torn(
            m, envelope(1, 1, utime(m.pick(0, 15, 25, LATE_S), m.pick(0, 2**32 - 1)))),
    }


TAGS = ("a", "b", "c", "tag.eight", "tag of more than sixteen bytes", "")


def chain(m):
    obj = lambda: envelope(2, 1, text("p") + text("o") + text(m.pick("", "loc")) + envelope(1, 1, text("o") + text("i")))
    old = envelope(1, 1, text("p") + text("o") + text(""))
    return envelope(1, 1, listed([m.pick(obj(), obj(), old) for _ in range(m.pick(0, 1, 2))]))


def gc_info(m, tag, when):
    return envelope(1, 1, text(tag) + chain(m) + when)


def gc_urgent(tags, asked, in_head, in_xattr=0):
    return envelope(1, 1, listed([text(t) + utime(s) for t, s in tags]) + u32(asked) + u32(in_head) + u32(in_xattr))


def gc_methods(m, places):
    later = lambda: u32(m.pick(0, 0, 1000))
    info = lambda: gc_info(m, m.pick(*TAGS), utime(m.pick(0, 10)))
    return {
        "rgw_gc_queue_init": lambda: torn(m, envelope(1, 1, u64(m.pick(600, 2000)) + u64(m.pick(2, 50)))),
        "rgw_gc_queue_enqueue": lambda: torn(m, envelope(1, 1, later() + info())),
        "rgw_gc_queue_enqueue ": lambda: envelope(1, 1, later() + info()),
        "rgw_gc_queue_list_entries": lambda: torn(
            m, envelope(2, 1, text(m.pick(*places)) + u32(m.pick(0, 1, 2, 3, 1000, 2**32 - 1)) + m.flag())),
        "rgw_gc_queue_list_entries ": lambda: torn(m, envelope(1, 1, text(m.pick(*places)) + u32(m.pick(0, 1, 2)))),
        "rgw_gc_queue_remove_entries": lambda: torn(m, envelope(1, 1, u64(m.pick(0, 1, 1, 2, 3, 2**64 - 1)))),
        "rgw_gc_queue_update_entry": lambda: torn(m, envelope(1, 1, later() + info())),
        "rgw_gc_queue_update_entry ": lambda: envelope(1, 1, later() + info()),
    }


def gc_queue(m):
    """Entries of old, whose tags were put off until before, at and behind their time; and the places of the entries."""
    times = (("a", 10), ("b", 20), ("c", 30), ("a", 40), ("tag.eight", LATE_S), ("", 50))
    entries = [gc_info(m, tag, utime(sec)) for tag, sec in times]
    put_off = m.pick([("a", 10), ("b", 25), ("c", 25)], [("c", 30), ("b", 20), ("a", 40)], [("x%d" % i, i) for i in range(4)])
    head = HEAD + 120
    places = ["", "", "", "0/%d" % head, "x", "0/%d" % (head + 10 + len(entries[0])), "0/%d" % (head + 5)]
    in_xattr = m.pick(0, 0, 1)
    return queue(2000, entries, 120, gc_urgent(put_off, m.pick(3, 5, 9), len(put_off), in_xattr)), places


def TABLE(m):
    length = m.pick(0, 10, 30)
    size = m.pick(200, 210)
    long = m.pick(500, 1014, 1015, 2000)
    held = [(i, m.pick(10, 40)) for i in range(1, m.pick(2, 5, 7))]
    last_id = u32(m.pick(len(held), len(held), 2))
    urgent = envelope(1, 1, u64(sum(s + 10 for _, s in held)) + last_id + reservations(held) + u8(0))
    aged, places = gc_queue(m)
    filled = [bytes([i]) * length for i in range(3)]
    return {
        "queue": ("queue", queue(size, filled), [], queue_methods(m, length, size, lambda: place(m, length + 10, size))),
        "queue of nothing": ("queue", None, [], queue_methods(m, 10, 200, lambda: text(""))),
        "queue made": ("queue", None, [("queue_init", init(200))], queue_methods(m, 10, 200, lambda: text("0/%d" % HEAD))),
        "long queue": ("queue", queue(9000), [("queue_enqueue", envelope(1, 1, listed([text(bytes(long))] * 3)))],
                       queue_methods(m, long, 9000, lambda: place(m, long + 10, 9000, most=4))),
        "torn queue": ("queue", m.pick(
            b"\xad", b"\xad\xdeshort", b"\xef\xbe" + bytes(100), queue(200)[:40], queue(200)[:10] + bytes(2000),
            queue(300, [b"first", b"second"])[:1040] + bytes(1500), b"\xad\xde" + u64(2000) + queue(100)[10:],
            queue(300, [b"x"], 1500, b"u" * 1400), queue(300, [b"x"], 0, b"u" * 900)), [],
            queue_methods(m, 10, 200, lambda: text(m.pick("", "0/1024")))),
        "reservations": ("2pc_queue", None, [("2pc_queue_init", init(m.pick(150, 400, 2000)))],
                         two_phase(m, 20, 300, HEAD + RESERVATIONS)),
        "many reservations": ("2pc_queue", None, [("2pc_queue_init", init(9000))], {
            **{"2pc_queue_reserve" + " " * i: lambda: envelope(1, 1, u64(m.pick(20, 30)) + u32(1)) for i in range(8)},
            "2pc_queue_commit": lambda: envelope(1, 1, u32(m.pick(*range(1, 30))) + listed([text(bytes(20))])),
            "2pc_queue_abort": lambda: envelope(1, 1, u32(m.pick(*range(1, 30)))), "2pc_queue_list_reservations": NONE,
        }),
        "held reservations": ("2pc_queue", queue(900, filled, 250, urgent), [], two_phase(m, length, 900, HEAD + 250)),
        "reservations in a plain queue": ("2pc_queue", queue(300, filled), [], two_phase(m, length, 300, HEAD)),
        "no reservations": ("2pc_queue", None, [], two_phase(m, 10, 300, HEAD + RESERVATIONS)),
        "garbage queue": ("rgw_gc", None, [("rgw_gc_queue_init", envelope(1, 1, u64(m.pick(500, 2000)) + u64(m.pick(2, 50))))],
                          gc_methods(m, ["", "", "0/%d" % (HEAD + 3072), "x"])),
        "aged garbage queue": ("rgw_gc", aged, [], gc_methods(m, places)),
        "garbage in a plain queue": ("rgw_gc", queue(900, m.pick([], [b"no entry"], [gc_info(m, "a", utime(10))])), [],
                                     gc_methods(m, ["", "0/1024"])),
        "no garbage queue": ("rgw_gc", None, [], gc_methods(m, [""])),
    }


# Inputs stay well-formed but for what `torn` does, which harms no OSD of Ceph.
UNCHANGED = ("queue", "2pc_queue", "rgw_gc")
TICKS = True
