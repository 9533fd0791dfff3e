"""Scenarios of class `rgw` for classes_differential.py: bucket indexes and conditions on objects.

Ids in the log of an index hold the version of the placement group, as text. So that they are as long as the constant that
stands for them, the pool has one placement group that saw more than 10,000 writes and fewer than 90,000:

  ceph osd pool create p 1; rados -p p bench 20 write -b 16 -O 16 --no-cleanup
  bench/classes_differential.py --pool p --real ceph.conf --only "rgw index" --seeds 0:3 --steps 35 --record rgw.jsonl
  bench/classes_differential.py --pool p --real ceph.conf --only "rgw versions" --seeds 0:3 --steps 35 --record rgw_versions.jsonl
"""
import re

from classes_differential import NONE, envelope, listed, text, u8, u32, u64, utime

# Vectors with a huge count, which entries can hold, abort OSDs of Ceph, and some timeouts are over at once.
# Inputs of these are spoilt on purpose instead.
UNCHANGED = ("bi_put", "obj_store_pg_ver", "guard_bucket_resharding", "bucket_set_tag_timeout")
VERSION = 77777
RANDOM = ((re.compile(rb"[0-9]{11}\.([0-9]{5})\.[0-9]"), b"%d" % VERSION),)
# Attributes whose value is the version of the placement group.
ATTRS = {name: u64(VERSION) for name in (b"user.x", b"user.y", b"user", b"other", b"user.x-tail")}

VERSIONED, CURRENT, DELETE_MARKER, VERSION_MARKER = 1, 2, 4, 8
PLAIN, INSTANCE, HEAD = 1, 2, 3
NAMES = ("a", "b", "dir/x", "dir/y", "dir/sub/z", "dir2/w", "é", "漢/字")


def u16(v):
    return u32(v)[:2]


def packed(v):
    v &= 2**64 - 1
    if v < 0x80:
        return u8(v)
    if v < 0x100:
        return u8(0x81) + u8(v)
    if v <= 0x10000:
        return u8(0x82) + u16(v)
    return u8(0x84) + u32(v) if v <= 0x1000000 else u8(0x88) + u64(v)


def key(name, instance=""):
    return envelope(1, 1, text(name) + text(instance))


def written(pool, epoch):
    return envelope(1, 1, packed(pool) + packed(epoch))


def aged(version, since, compat, fields):
    """A structure as its `version` had it: fields are given with the version that they came with."""
    body = b"".join(value for came, value in fields if came <= version)
    return envelope(version, compat, body) if version >= since else u8(version) + body


def instance_key(name, instance, tail=b""):
    return b"\x801000_" + name.encode() + b"\0i" + instance.encode() + tail


def head_key(name):
    return b"\x801001_" + name.encode()


class Maker:
    """Structures of the class, from the differential's maker of values."""

    def __init__(self, m):
        self.m = m

    def pick(self, *values):
        return self.m.pick(*values)

    def name(self):
        return self.pick(*NAMES)

    def versioned_name(self):
        return self.pick("a", "b", "b", "é")

    def instance(self):
        return self.pick("", "v1", "v2", "v3")

    def key(self):
        return key(self.name(), self.pick("", "", "", "v1", "null"))

    def tag(self):
        return self.pick("t1", "t2", "t3")

    def epoch(self):
        return self.pick(0, 1, 2, 5, 300, 70000)

    def written(self):
        return written(self.pick(-1, 3), self.epoch())

    def zones(self):
        return self.pick(listed([]), listed([text("z"), text("z:at"), text("y")]), listed([text("z"), text("z")]))

    def meta(self, version=7):
        size = u64(self.pick(0, 1, 4096, 4097, 1 << 20))
        return aged(version, 3, 3, [
            (1, u8(self.pick(0, 1, 1, 3)) + size + self.m.time() + text("etag") + text("owner") + text("Owner's name")),
            (2, text("text/plain")), (4, size), (5, text("user data")), (6, text(self.pick("", "COLD"))), (7, self.m.flag()),
        ])

    def pending(self):
        one = lambda: text(self.tag()) + envelope(2, 2, u8(0) + utime(self.pick(10, 2**32 - 9), 5) + u8(self.pick(0, 1)))
        return self.pick(listed([]), listed([]), listed([one(), one()]))

    def entry(self, name, instance="", flags=0, epoch=0, version=8, exists=None, pending=None):
        exists = self.m.flag() if exists is None else u8(exists)
        return aged(version, 3, 3, [
            (1, text(name) + u64(self.epoch()) + exists + self.meta() + (pending or self.pending())),
            (2, text(self.pick("", "locator"))), (4, self.written()),
            (5, packed(self.pick(0, 1, 3, 200)) + text(self.tag())), (6, text(instance)), (7, u16(flags)), (8, u64(epoch)),
        ])

    def prepare(self, name=None, op=None):
        k = self.key() if name is None else name
        version = self.pick(7, 7, 7, 1, 2, 3, 4, 5, 6)
        body = [(1, u8(self.pick(0, 0, 1, 2) if op is None else op))]
        body += [(1, text(self.name()))] if version < 5 else []
        body += [(1, text(self.pick("t1", "t1", "t2", "t3", ""))), (2, text("")), (4, self.m.flag()), (5, k),
                 (6, u16(self.pick(0, 1))), (7, self.zones())]
        return aged(version, 3, min(version, 5), body)

    def complete(self, name=None, tag=None, op=None, logged=None, version=None, remove=None):
        version = version or self.pick(9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8)
        body = [(1, u8(self.pick(0, 0, 0, 1, 1, 2, 3) if op is None else op))]
        body += [(1, text(self.name()))] if version < 7 else []
        removed = self.pick([], [], ["a"], ["b", "dir/x", "none"]) if remove is None else remove
        removed = listed([text(n) if 4 <= version < 7 else key(n) for n in removed])
        body += [
            (1, u64(self.epoch()) + self.meta() + text(self.pick("t1", "t1", "t2", "") if tag is None else tag)),
            (2, text(self.pick("", "locator"))), (1, removed), (5, self.written()),
            (6, self.m.flag() if logged is None else u8(logged)), (7, self.key() if name is None else name),
            (8, u16(self.pick(0, 1))), (9, self.zones()),
        ]
        return aged(version, 3, min(version, 7), body)

    def added(self, name, **more):
        """Completion of a change that nobody prepared."""
        return self.complete(key(name), "", 0, version=9, remove=[], **more)

    def stats(self):
        one = lambda version: aged(version, 2, 2, [(1, self.m.size() + self.m.size() + self.m.count()), (3, self.m.size())])
        return listed([u8(c) + one(self.pick(1, 2, 3, 3)) for c in sorted({self.pick(0, 1, 3) for _ in range(2)})])

    def suggestion(self):
        version = self.pick(8, 8, 8, 1, 2, 5, 7)
        op = self.pick(ord("r"), ord("u"), ord("x")) | self.pick(0, 0x80)
        return u8(op) + self.entry(self.name(), "", version=version)

    def list(self):
        version = self.pick(6, 6, 6, 6, 1, 2, 3, 4, 5)
        start = self.pick("", "", "a", "dir/", "dir/x", "dir", "b", "z", "é")
        body = [(1, text(start))] if version < 4 else []
        body += [
            (1, u32(self.pick(0, 1, 2, 3, 4, 1000, 0x7FFFFFFF, 0xFFFFFFFF))),
            (3, text(self.pick("", "", "dir/", "d", "é", "漢", "none"))),
            (4, key(start, self.pick("", "", "v1", "null", "none"))), (5, self.m.flag()),
            (6, text(self.pick("", "/", "/", "ir", "dir/s"))),
        ]
        return aged(version, 2, min(version, 4), body)

    def link(self):
        name, instance = self.versioned_name(), self.instance()
        version = self.pick(5, 5, 5, 5, 1, 2, 3, 4)
        return aged(version, 1, 1, [
            (1, key(name, instance) + text(self.pick("h1", "h1", "h1", "h2")) + u8(self.pick(0, 0, 1)) + text(self.tag())
             + self.meta() + u64(self.pick(0, 0, 0, 1, 3, 9)) + self.m.flag() + u16(self.pick(0, 1))),
            (2, u64(self.pick(0, 0, 20))), (3, self.pick(utime(0), utime(0), utime(20, 5000))), (4, self.m.flag()),
            (5, self.zones()),
        ])

    def unlink(self):
        version = self.pick(3, 3, 3, 1, 2)
        return aged(version, 1, 1, [
            (1, key(self.versioned_name(), self.pick("", "v1", "v2", "v3", "null")) + text(self.tag())
             + u64(self.pick(0, 0, 0, 1, 3, 9)) + self.m.flag() + u16(self.pick(0, 1))),
            (2, text(self.pick("h1", "h2"))), (3, self.zones()),
        ])

    def head_log(self):
        k = key(self.versioned_name(), self.pick("", "", "", "", "v1"))
        return envelope(1, 1, k + u64(self.pick(0, 1, 2, 3, 4, 2**64 - 1)) + text(self.pick("h1", "h1", "h2", "")))

    def clear_head(self):
        return envelope(1, 1, key(self.versioned_name(), self.pick("", "", "", "v1")) + text(self.pick("h1", "h1", "h2", "")))

    def get(self):
        k = key(self.pick("a", "b", "é", "dir/x"), self.pick("", "v1", "v2", "null"))
        return envelope(1, 1, k + u8(self.pick(PLAIN, PLAIN, INSTANCE, INSTANCE, HEAD, 0, 7)))

    def marker(self):
        return self.pick(b"", b"", b"a", b"b", b"\x80", instance_key("a", "v1"), instance_key("b", ""), head_key("a"),
                         b"\x809999_", b"\x81", "é".encode())

    def bi_list(self):
        return envelope(1, 1, u32(self.pick(0, 1, 2, 3, 5, 1000, 2**32 - 1)) + text(self.pick("", "", "", "a", "b", "é"))
                        + text(self.marker()))

    def log_marker(self):
        return text(self.pick("", "", "00000000002.", "00000000004.", "9"))

    def olh(self, name, instance, epoch, logged):
        change = envelope(1, 1, u64(epoch) + u8(1) + text("t1") + key(name, instance) + u8(0))
        log = listed([u64(epoch + i) + listed([change] * 2) for i in range(logged)])
        return envelope(1, 1, key(name, instance) + u8(0) + u64(epoch) + log + text("h1") + u8(1) + u8(self.pick(0, 0, 1)))

    def put(self):
        """An entry of any kind, at times one that no longer decodes, or stands where it does not belong."""
        name, instance = self.versioned_name(), self.instance()
        flags = self.pick(0, VERSIONED, VERSIONED | CURRENT, VERSIONED | DELETE_MARKER, VERSION_MARKER)
        entry = lambda: self.entry(name, instance, flags, self.pick(0, 1, 2, 20), version=self.pick(8, 8, 8, 2, 3, 6))
        plain = self.pick(name.encode(), name.encode() + b"\0v914\0i" + instance.encode())
        kind, at, value = self.pick(
            (PLAIN, plain, entry), (PLAIN, plain, entry), (INSTANCE, instance_key(name, instance), entry),
            (INSTANCE, instance_key(name, instance), entry), (HEAD, head_key(name), lambda: self.olh(name, instance, 3, 2)),
            (INSTANCE, instance_key(name, "", b"\0d"), entry),
        )
        if self.m.rng.random() < 0.1:
            return self.pick(b"", envelope(1, 1, u8(1)), envelope(2, 2, b""), self.raw(kind, at, b"")[:-1])
        if self.m.rng.random() < 0.04:
            return self.raw(kind, at, self.pick(b"", entry()[:-3], b"\xff" * 20))
        return self.raw(kind, at, value())

    def raw(self, kind, at, value):
        return envelope(1, 1, envelope(1, 1, u8(kind) + text(at) + text(value)))

    def odd_put(self):
        """Keys that no name has."""
        at = self.pick(b"a\0", b"a\0v\0i", b"a\0v12x\0i", b"a\0v 7\0i", b"o\0x", b"\x80zz", b"\x800_zz", b"\xff", b"d\0v-1\0i")
        return self.raw(PLAIN, at, self.entry("a", "", pending=listed([])))

    def timeout(self):
        """Seconds that are over before the scenario began, or behind its end."""
        return self.pick(*(envelope(1, 1, u64(s)) for s in (0, 60, 2**32)), envelope(1, 1, u32(9)), b"", envelope(2, 2, u64(9)))


def whole(m, x):
    """Methods on all of an index."""
    return {
        "bucket_init_index": NONE, "bucket_check_index": NONE, "bucket_rebuild_index": NONE,
        "bucket_set_tag_timeout": x.timeout,
        "bucket_update_stats": lambda: envelope(1, 1, m.flag() + x.stats()),
        "bucket_list": x.list,
    }


def resharding(m):
    # An OSD of Ceph never answers a method that ends with EAGAIN; librados returns bytes of nothing for a
    # positive result.
    state = lambda: envelope(1, 1, envelope(1, 1, u8(m.pick(0, 1, 2, 9)) + m.id() + u32(m.pick(0, 5, -1))))
    return {
        "set_bucket_resharding": state, "clear_bucket_resharding": lambda: envelope(1, 1, b""),
        "guard_bucket_resharding": lambda: m.pick(
            envelope(1, 1, u32(m.pick(-2300, -1, -125, 0))), envelope(1, 1, u32(-5) + b"more"), envelope(1, 1, b""),
            envelope(2, 2, u32(-5)), b"\1\1"),
        "get_bucket_resharding": lambda: envelope(1, 1, b""),
    }


def logged(x):
    return {
        "bi_log_list": lambda: envelope(1, 1, x.log_marker() + u32(x.pick(0, 1, 2, 1000))),
        "bi_log_trim": lambda: envelope(1, 1, x.log_marker() + x.log_marker()),
        "bi_log_resync": NONE, "bi_log_stop": NONE,
    }


def heads(x):
    return {
        "bucket_link_olh": x.link, "bucket_link_olh ": x.link, "bucket_unlink_instance": x.unlink,
        "bucket_read_olh_log": x.head_log, "bucket_trim_olh_log": x.head_log, "bucket_clear_olh": x.clear_head,
    }


def raw(x):
    return {"bi_get": x.get, "bi_list": x.bi_list, "bi_put": x.put}


def objects(m):
    prefix = lambda: text(m.pick("user", "user.", "other", "none", ""))
    return {
        "obj_store_pg_ver": lambda: m.pick(envelope(1, 1, text(m.pick(*sorted(ATTRS)))), b"", envelope(1, 1, u32(9)), b"\1"),
        "obj_check_attrs_prefix": lambda: envelope(1, 1, prefix() + m.flag()),
        "obj_check_mtime": lambda: m.pick(
            envelope(2, 1, m.time() + u8(m.pick(0, 1, 2, 3, 4, 5)) + m.flag()),
            envelope(2, 1, utime(2**32 - 1) + u8(m.pick(0, 1, 2, 3, 4, 5)) + m.flag()),
            envelope(1, 1, m.time() + u8(m.pick(0, 1, 2, 3, 4)))),
        "obj_remove": lambda: envelope(1, 1, m.pick(*[listed([prefix() for _ in range(n)]) for n in (1, 1, 1, 2, 0)])),
    }


def TABLE(m):
    x = Maker(m)
    prepared = {"bucket_prepare_op": x.prepare, "bucket_complete_op": x.complete}
    some = [("bucket_init_index", b"")] + [("bucket_complete_op", x.added(name)) for name in NAMES]
    versions = [("bucket_init_index", b"")]
    for name in ("a", "b"):
        versions.append(("bucket_complete_op", x.added(name, logged=0)))
        for instance in ("v1", "v2", "v3"):
            put = x.raw(INSTANCE, instance_key(name, instance), x.entry(name, instance, exists=1, pending=listed([])))
            versions.append(("bi_put", put))
    every = {**whole(m, x), **resharding(m), **logged(x), **heads(x), **raw(x), **objects(m), **prepared,
             "dir_suggest_changes": x.suggestion}
    everything = {name: make for name, make in every.items() if name not in ("bucket_init_index", "bi_put", "obj_store_pg_ver")}
    return {
        "rgw index": ("rgw", None, some, {**whole(m, x), **prepared, "bucket_prepare_op ": x.prepare,
                                          "bucket_complete_op ": x.complete}),
        "rgw index listing": ("rgw", None, some, {"bucket_list": x.list, "bucket_list ": x.list,
                                                  "bucket_complete_op": x.complete}),
        "rgw index log": ("rgw", None, some, {
            **logged(x), **prepared, "bucket_complete_op ": lambda: x.complete(tag="", logged=1),
            "dir_suggest_changes": lambda: x.suggestion() + x.pick(b"", x.suggestion()),
        }),
        "rgw index suggestions": ("rgw", None, some, {
            "dir_suggest_changes": lambda: x.suggestion() + x.pick(b"", x.suggestion()), "bucket_prepare_op": x.prepare,
            "bi_put": x.put, "bucket_set_tag_timeout": x.timeout,
            "bi_log_list": lambda: envelope(1, 1, text("") + u32(1000)),
        }),
        "rgw index resharding": ("rgw", None, some[:1], resharding(m)),
        "rgw index of anything": ("rgw", None, [], every),
        # The header of another class.
        "rgw index spoilt": ("rgw", None, [("log.add", envelope(2, 1, listed([m.log_entry()]) + u8(1)))], every),
        "rgw index absent": ("rgw", None, [], everything),
        "rgw index objects": ("rgw", b"x", [("obj_store_pg_ver", envelope(1, 1, text("user.x")))], objects(m)),
        "rgw index objects gone": ("rgw", None, [], objects(m)),
        "rgw versions": ("rgw", None, versions, {**heads(x), "bucket_list": x.list, "bi_get": x.get,
                                                 "bucket_check_index": NONE}),
        "rgw versions more": ("rgw", None, versions, {"bucket_link_olh": x.link, "bucket_unlink_instance": x.unlink,
                                                      "bucket_list": x.list}),
        "rgw versions converted": ("rgw", None, versions[:2] + [("bucket_complete_op", x.added("b", logged=1))], {
            **heads(x), **prepared, "bi_list": x.bi_list, "bucket_list": x.list}),
        "rgw versions raw": ("rgw", None, versions, {**raw(x), "bi_put ": x.put, "bi_list ": x.bi_list, "bucket_list": x.list,
                                                     "bucket_check_index": NONE, "bucket_rebuild_index": NONE}),
        "rgw versions odd": ("rgw", None, some, {
            "bi_put": x.odd_put, "bi_list": x.bi_list, "bucket_list": x.list,
            "bi_log_list": lambda: envelope(1, 1, text("") + u32(1000)), "bucket_check_index": NONE,
        }),
    }
