"""More scenarios for classes_differential.py, of the plain classes that object storage uses: each method in enough forms that are
good and that are bad. Those of classes_differential.py mix more, and so fail more often."""
import re

from classes_differential import CLIENT, LOCK_S, NONE, envelope, listed, text, u8, u32, u64, utime


# A changed duration of a lock would end at a time that is not told from others.
UNCHANGED = ("lock of a gateway", "lock of a gateway that is new")

# The tag of a first version.
RANDOM = ((re.compile(rb"\x01\x01\x24\0\0\0.{8}\x18\0\0\0([A-Za-z0-9+/]{24})", re.S), b"wxyz012345hijklmMMMMNNNN"),)


def torn(m, make):
    """One input in five is cut off, or has a version of the future."""
    def maker():
        whole = make()
        how = m.rng.random()
        if how < 0.1:
            return whole[:m.rng.randrange(len(whole))]
        return bytes([whole[0], 99]) + whole[2:] if how < 0.2 else whole
    return maker


def user(m):
    bucket = lambda: envelope(9, 8, text(m.pick("a", "b", "c", "")) + text("m1") + text("id") + text("rule"))
    old_bucket = lambda: envelope(7, 3, text(m.pick("a", "b")) + text("data") + text("m") + text("id") + text("index") + text("extra"))
    size = lambda: u64(m.pick(0, 1, 4096, 1 << 20))
    when = lambda: utime(m.pick(0, 10, 20, 30), m.pick(0, 5000, 999_999_999, 2**32 - 1))

    def entry():
        at = when()
        body = text("") + size() + at[:4] + size() + m.pick(bucket, bucket, old_bucket)() + size() + m.flag()
        return m.pick(envelope(9, 5, body + at), envelope(8, 5, body + at + text("placement")), envelope(6, 5, body))

    return {
        "set_buckets_info": lambda: envelope(1, 1, listed([entry() for _ in range(m.pick(0, 1, 1, 2))]) + m.flag() + when()),
        "set_buckets_info ": lambda: envelope(1, 1, listed([entry()]) + u8(1) + when()),
        "complete_stats_sync": lambda: envelope(1, 1, when()),
        "remove_bucket": lambda: envelope(1, 1, m.pick(bucket, old_bucket)()),
        "list_buckets": lambda: m.pick(
            envelope(2, 1, text(m.pick("", "a", "b")) + u32(m.pick(0, 1, 2, 5, -1)) + text(m.pick("", "b", "c"))),
            envelope(1, 1, text(m.pick("", "a")) + u32(m.pick(1, 1000)))),
        "get_header": lambda: envelope(1, 1, b""),
        "reset_user_stats": lambda: envelope(1, 1, when()),
        "reset_user_stats2": lambda: envelope(1, 1, when() + text(m.pick("", "", "a", "z")) + envelope(1, 1, size() + size() + size())),
    }


def lock(m):
    name, kind, tag = text("l"), m.pick(1, 2), text("t")
    cookie = lambda: text(m.pick("c1", "c1", "c1", "c2"))
    kinds = lambda: u8(m.pick(*[kind] * 10, 3 - kind, 9))
    tags = lambda: m.pick(*[tag] * 9, text("u"))
    names = lambda: m.pick(*[name] * 12, text(""), text("m"))
    locked = lambda *more: envelope(1, 1, names() + b"".join(more))
    return {
        "lock": lambda: locked(kinds(), cookie(), tags(), m.name(), utime(m.pick(0, LOCK_S)), u8(m.pick(0, 0, 1, 2))),
        "lock ": lambda: locked(u8(kind), text("c1"), tag, text(""), utime(0), u8(1)),
        "lock  ": lambda: locked(u8(kind), text("c1"), tag, text(""), utime(0), u8(1)),
        "unlock": lambda: locked(cookie()),
        "break_lock": lambda: locked(m.pick(CLIENT, CLIENT, u8(8) + u64(1)), cookie()),
        "break_lock ": lambda: locked(CLIENT, text("c1")),
        "get_info": locked, "list_locks": NONE,
        "assert_locked": lambda: locked(kinds(), cookie(), tags()),
        "assert_locked ": lambda: locked(kinds(), cookie(), tags()),
        "set_cookie": lambda: locked(kinds(), cookie(), tags(), cookie()),
        "set_cookie ": lambda: locked(u8(kind), text("c1"), tag, text("c2")),
        "set_cookie  ": lambda: locked(u8(kind), text("c2"), tag, text("c1")),
    }


def log(m):
    entry = lambda: envelope(2, 1, m.name() + m.name() + m.time() + m.name() + text(m.pick("1_0000000010.000005_x", "1_b", "2_c")))
    marker = lambda: text(m.pick("", "", "1_0000000010", "1_a"))
    return {
        "add": lambda: envelope(2, 1, listed([entry() for _ in range(m.pick(0, 1, 2))]) + m.flag()),
        "list": lambda: envelope(1, 1, m.time() + marker() + m.time() + u32(m.pick(0, 1, -1, 5))),
        "trim": lambda: envelope(2, 1, utime(0) + utime(m.pick(0, 15, 40)) + marker() + text(m.pick("", "1_z", "1_z"))),
        "info": lambda: envelope(1, 1, b""),
    }


def timeindex(m):
    entry = lambda: envelope(1, 1, m.time() + text(m.pick("1a", "2b", "3_c")) + m.name())
    return {
        "add": lambda: envelope(1, 1, listed([entry() for _ in range(m.pick(0, 1, 3))])),
        "list": lambda: envelope(1, 1, m.time() + text(m.pick("", "", "1_0000000010.000005_1a")) + m.time() + u32(m.pick(0, 1, 5, -1))),
        "trim": lambda: envelope(1, 1, utime(m.pick(0, 5)) + utime(m.pick(0, 15, 40)) + text("") + text("")),
    }


def refcount(m):
    tag = lambda: text(m.pick("a", "a", "b", ""))
    return {
        "get": lambda: envelope(1, 1, tag() + m.flag()), "put": lambda: envelope(1, 1, tag() + m.flag()),
        "put ": lambda: envelope(1, 1, text("none") + m.flag()),
        "set": lambda: envelope(1, 1, listed([tag() for _ in range(m.pick(0, 1, 2))])), "read": lambda: envelope(1, 1, m.flag()),
    }


def version(m):
    own = lambda: envelope(1, 1, u64(m.pick(1, 2, 7)) + text(m.pick("t", "t", "u", "")))
    condition = lambda: envelope(1, 1, own() + u32(m.pick(*range(8))))
    conditions = lambda: envelope(1, 1, own() + listed([condition() for _ in range(m.pick(0, 0, 1, 2))]))
    return {
        "set": lambda: envelope(1, 1, own()), "inc": conditions, "inc_conds": conditions, "check_conds": conditions, "read": NONE,
    }


def TABLE(m):
    kinds = {}
    for make in (user, lock, log, timeindex, refcount, version):
        name = make.__name__
        for kind, before in ((name + " of a gateway", b"x"), (name + " of a gateway that is new", None)):
            kinds[kind] = (name, before, [], {
                method: maker and torn(m, maker) for method, maker in make(m).items()
            })
    # Buckets that are none, and more of them than one answer holds.
    damaged = {"a": b"", "b": b"\x09\x05\x02\0\0\0", "c": b"\x02"}
    kinds["user of a gateway with damage"] = ("user", damaged, [], user(m))
    return kinds
