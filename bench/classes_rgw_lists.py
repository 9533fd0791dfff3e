"""Scenarios for the lists that class rgw keeps beside the bucket index: garbage, lifecycle, usage and resharding.

In the form of the table in classes_differential.py.
"""
from classes_differential import envelope, listed, text, u32, u64, utime
from classes_queue import chain, gc_info, torn

NONE = None
TAGS = ("a", "b", "c", "")
USERS = ("u", "v", "t$u", "$ns$u", "t$ns$u", "t$", "", "u\0x")


def gc_key(sec, nsec=0):
    return "1_%011d.%09d" % (sec, nsec)


def garbage(m):
    """Entries of old: some expired, one not for long, one torn under each of its keys."""
    omap = {}
    for tag, sec in (("a", 10), ("b", 20), ("d", 2_100_000_000), ("e", 30)):
        info = gc_info(m, tag, utime(sec, 7))
        omap["0_" + tag] = info
        omap[gc_key(sec, 7)] = info
    omap["0_torn"] = m.pick(b"", omap["0_a"][:9])
    omap.update(m.pick({}, {}, {gc_key(25): b"torn"}, {"2_behind": b"x"}))
    return omap


def gc_methods(m):
    tag = lambda: text(m.pick(*TAGS, "d", "e", "torn", "none"))
    later = lambda: u32(m.pick(0, 0, 1000))
    places = ("", "", "", "1_", "0_a", "0_zz", gc_key(10, 7), gc_key(20), "2_", "9")
    return {
        "gc_set_entry": lambda: torn(m, envelope(1, 1, later() + gc_info(m, m.pick(*TAGS, "torn"), m.time()))),
        "gc_set_entry ": lambda: envelope(1, 1, later() + gc_info(m, m.pick(*TAGS), m.time())),
        "gc_defer_entry": lambda: torn(m, envelope(1, 1, later() + tag())),
        "gc_list": lambda: envelope(2, 1, text(m.pick(*places)) + u32(m.pick(0, 1, 2, 3, 1000, 2**32 - 1)) + m.flag()),
        "gc_list ": lambda: envelope(1, 1, text(m.pick(*places)) + u32(m.pick(0, 1, 2))),
        "gc_remove": lambda: torn(m, envelope(1, 1, listed([tag() for _ in range(m.pick(0, 1, 1, 2, 3))]))),
    }


def lc_entry(m, bucket):
    return envelope(1, 1, text(bucket) + u64(m.pick(0, 5, 2**63)) + u32(m.pick(0, 1, 2, 2**32 - 1)))


def lc_omap(m):
    """Entries of this release and of earlier ones, whose entry was a name and a number."""
    omap = {"b%d" % i: lc_entry(m, "b%d" % i) for i in range(4)}
    omap["old"] = text("old") + u32(m.pick(0, 2, 2**32 - 1))
    omap.update(m.pick({}, {}, {"torn": b"\1\1\xff"}, {"zz": b""}))
    return omap


def lc_methods(m):
    bucket = lambda: m.pick("b0", "b1", "b3", "new", "old", "torn", "")
    whole = lambda: m.pick(envelope(2, 2, lc_entry(m, bucket())), envelope(2, 2, lc_entry(m, bucket())),
                           envelope(1, 1, text(bucket()) + u32(m.pick(0, 1, 2**32 - 1))))
    marker = lambda: envelope(1, 1, text(m.pick("", "", "b0", "b1", "b3", "c", "old", "zzz", "torn")))
    version = lambda: m.pick(3, 3, 3, 2, 1, 0, 5)
    return {
        "lc_get_entry": marker, "lc_set_entry": whole, "lc_rm_entry": lambda: torn(m, whole()), "lc_get_next_entry": marker,
        "lc_put_head": lambda: envelope(1, 1, envelope(1, 1, u64(m.pick(0, 5, 2**64 - 1)) + text(m.pick("", "b1")))),
        "lc_get_head": NONE,
        "lc_list_entries": lambda: envelope(
            version(), 1, text(m.pick("", "", "b0", "b3", "old")) + u32(m.pick(0, 1, 3, 9, 2**32 - 1))),
    }


def reshard_entry(m):
    bucket = text(m.pick("x", "y", "z", "")) + text(m.pick("id1", "id2"))
    return envelope(1, 1, m.time() + text(m.pick("", "t")) + bucket + text("new") + u32(m.pick(0, 8)) + u32(m.pick(1, 64)))


def reshard_methods(m):
    return {
        "reshard_add": lambda: envelope(1, 1, reshard_entry(m)), "reshard_add ": lambda: envelope(1, 1, reshard_entry(m)),
        "reshard_list": lambda: envelope(
            1, 1, u32(m.pick(0, 1, 2, 5, 999, 1000, 2**31, 2**32 - 1)) + text(m.pick("", "", ":x", "t:x", "z"))),
        "reshard_get": lambda: envelope(1, 1, reshard_entry(m)),
        "reshard_remove": lambda: envelope(
            1, 1, text(m.pick("", "t")) + text(m.pick("x", "y", "z", "none")) + text(m.pick("", "id1", "id2"))),
    }


def usage_data(m):
    return u64(m.pick(0, 1, 4096)) + u64(m.pick(0, 7, 2**64 - 1)) + u64(m.pick(1, 2)) + u64(m.pick(0, 1))


def usage_entry(m, version=3):
    kinds = sorted({m.pick("get_obj", "put_obj", "list_bucket", "") for _ in range(m.pick(0, 1, 2, 3))})
    body = text(m.pick(*USERS)) + text(m.pick("x", "y", "", "nul\0cut")) + u64(m.pick(0, 100, 3600, 7200, 2**63))
    body += usage_data(m)
    if version >= 2:
        body += listed([text(k) + envelope(1, 1, usage_data(m)) for k in kinds])
    if version >= 3:
        body += text(m.pick("", "", "", "payer", "p$", "p$q"))
    return envelope(version, 1, body)


def usage_methods(m):
    span = lambda: u64(m.pick(0, 0, 100, 3600)) + u64(m.pick(2**64 - 1, 2**63, 7200, 101, 0))
    who = lambda: text(m.pick("", "", *USERS, "payer"))
    bucket = lambda: text(m.pick("", "", "x", "y", "none"))
    start = lambda: text(m.pick("", "", "", "u_00000003600_x", "00000000100_u_x", "zzz"))
    info = lambda: envelope(1, 1, listed([usage_entry(m, m.pick(3, 3, 3, 2, 1)) for _ in range(m.pick(0, 1, 2, 3))]))
    add = lambda: m.pick(envelope(2, 1, info() + who()), envelope(2, 1, info() + who()), envelope(1, 1, info()))
    return {
        "user_usage_log_add": lambda: torn(m, add()), "user_usage_log_add ": add, "user_usage_log_add  ": add,
        "user_usage_log_read": lambda: m.pick(
            envelope(2, 1, span() + who() + start() + u32(m.pick(0, 1, 2, 5, 2**32 - 1)) + bucket()),
            envelope(1, 1, span() + who() + start() + u32(m.pick(0, 1, 2)))),
        "user_usage_log_trim": lambda: m.pick(
            envelope(3, 2, span() + who() + bucket()), envelope(2, 2, span() + who()), envelope(9, 9, span() + who())),
        "user_usage_log_trim ": lambda: envelope(3, 2, u64(0) + u64(2**64 - 1) + text(m.pick("", "u")) + text(m.pick("", "x"))),
        "usage_log_clear": lambda: m.pick(b"", b"any"),
    }


def usage_omap(m):
    omap = {}
    for i in range(12):
        entry = usage_entry(m)
        omap["%011d_u_x%02d" % (3600 * i, i)] = entry
        omap["u_%011d_x%02d" % (3600 * i, i)] = entry
    omap.update(m.pick({}, {}, {"u_00000003601_torn": b"torn"}))
    return omap


def TABLE(m):
    return {
        "garbage": ("rgw", None, [], gc_methods(m)), "aged garbage": ("rgw", garbage(m), [], gc_methods(m)),
        "lifecycle": ("rgw", None, [], lc_methods(m)), "aged lifecycle": ("rgw", lc_omap(m), [], lc_methods(m)),
        "resharding": ("rgw", None, [], reshard_methods(m)),
        "aged resharding": ("rgw", {":x": reshard_entry(m), "t:y": b"torn", "t:x": reshard_entry(m)}, [], reshard_methods(m)),
        "usage": ("rgw", None, [], usage_methods(m)), "aged usage": ("rgw", usage_omap(m), [], usage_methods(m)),
    }


# A vector that claims a huge size aborts an OSD of Ceph, and only times that are known are made constant:
# `torn` damages these.
UNCHANGED = ("user_usage_log_add", "gc_remove", "gc_set_entry", "gc_defer_entry")
TICKS = True
