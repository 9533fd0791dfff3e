"""Sequences of requests whose answers record.py records. Each request names its object and its operations."""
import json


def w(obj, *ops, **kw):
    return {"object": obj, "write": True, "ops": list(ops), **kw}


def r(obj, *ops, **kw):
    return {"object": obj, "ops": list(ops), **kw}


def op(what, /, **kw):
    return {"op": what, **kw}


def wr(off, data, **kw):
    return op("write", off=off, data=data, **kw)


def rd(off=0, len=65536, **kw):
    return op("read", off=off, len=len, **kw)


STAT = op("stat")
BIG = 128 << 20
EQ, NE, GT, GTE, LT, LTE = range(1, 7)


def state(obj):
    """Requests that show the whole object."""
    return [
        r(obj, STAT, rd(0, 65536)),
        r(obj, op("getxattrs"), op("omap-get-vals", max=1000)),
    ]


def fill(byte, count):
    return {"fill": byte, "count": count}


def seq(name, *steps):
    flat = []
    for s in steps:
        flat.extend(s if isinstance(s, list) else [s])
    return {"name": name, "steps": json.loads(json.dumps(flat))}


def cls(c, m, data=None, **kw):
    return op("call", **{"class": c, "method": m, "in": data}, **kw)


def enc(*parts):
    """An argument of a class method: an envelope around text, numbers of one byte, and raw bytes."""
    body = b""
    for p in parts:
        if isinstance(p, str):
            body += len(p).to_bytes(4, "little") + p.encode()
        elif isinstance(p, int):
            body += bytes([p])
        else:
            body += p
    return {"hex": (b"\x01\x01" + len(body).to_bytes(4, "little") + body).hex()}


def u64(n):
    return n.to_bytes(8, "little")


def lock(kind, cookie, tag="t", flags=0, seconds=0):
    duration = seconds.to_bytes(4, "little") + bytes(4)
    return cls("lock", "lock", enc("l", kind, cookie, tag, "about", duration, flags))


def unlock(cookie):
    return cls("lock", "unlock", enc("l", cookie))


def object_version(number, tag):
    return bytes.fromhex(enc(u64(number), tag)["hex"])


def conditions(*conds):
    """Input of version.inc_conds and check_conds."""
    items = b"".join(bytes.fromhex(enc(object_version(n, tag), op.to_bytes(4, "little"))["hex"]) for op, n, tag in conds)
    return enc(object_version(0, ""), len(conds).to_bytes(4, "little") + items)


SEQUENCES = [
    seq("write and read back", w("a", wr(0, "hello")), state("a"), w("a", wr(3, "LOW!")), state("a"),
        w("a", wr(10, "gap")), state("a"), r("a", rd(0, 3)), r("a", rd(12, 100)), r("a", rd(13, 5)),
        r("a", rd(100, 5))),
    seq("nothing there", r("none", STAT), r("none", rd()), r("none", op("getxattrs")), w("none", op("delete")),
        w("none", op("truncate", off=5)), r("none", STAT), w("none", op("zero", off=0, len=5)), r("none", STAT),
        w("none", op("rmxattr", name="x")), w("none", op("omap-rm-keys", keys=["k"])), w("none", op("omap-clear")),
        w("none", op("omap-rm-key-range", begin="a", end="b")), r("none", STAT), w("none", op("stat-assert")),
        w("none", op("omap-cmp", key="k", cmp=EQ, value="")), r("none", op("omap-get-keys", max=5))),
    seq("empty writes", w("e0", wr(0, "")), state("e0"), w("e1", wr(7, "")), state("e1"), w("e1", wr(3, "")), state("e1"),
        w("e2", op("writefull", data="")), state("e2"), w("e3", op("append", data="")), state("e3")),
    seq("writefull and append", w("f", op("writefull", data="0123456789")), state("f"),
        w("f", op("writefull", data="abc")), state("f"), w("f", op("append", data="def")), state("f"),
        w("f", op("append", data="g"), op("append", data="h")), state("f"), w("f2", op("append", data="new")), state("f2")),
    seq("truncate and zero", w("t", wr(0, "0123456789")), w("t", op("truncate", off=4)), state("t"),
        w("t", op("truncate", off=8)), state("t"), w("t", wr(0, "0123456789")), w("t", op("zero", off=2, len=3)), state("t"),
        w("t", op("zero", off=8, len=2)), state("t"), w("t", op("zero", off=6, len=1000)), state("t"),
        w("t", op("zero", off=6, len=5)), state("t"), w("t", op("zero", off=50, len=5)), state("t"),
        w("t", op("truncate", off=0)), state("t")),
    seq("writesame", w("ws", op("writesame", data="ab", len=6, off=1)), state("ws"),
        w("ws", op("writesame", data="abc", len=7, off=0)), w("ws", op("writesame", data="", len=4, off=0)),
        w("ws", op("writesame", data="abc", len=0, off=0)), state("ws")),
    seq("limits", w("l", wr(BIG - 1, "x")), w("l", op("truncate", off=0)), w("l", wr(BIG, "x")), w("l", wr(BIG - 1, "xy")),
        w("l", wr(2**64 - 1, "xy")), w("l", op("truncate", off=BIG)), w("l", op("truncate", off=BIG - 1)), r("l", STAT),
        w("l", op("zero", off=BIG, len=1)), w("l", op("zero", off=0, len=BIG + 1)), w("l", wr(BIG, "")), w("l", op("truncate", off=0)),
        w("l", op("writesame", data="a", len=BIG + 1, off=0)), w("l", op("setxattr", name="n" * 100, value="v")),
        w("l", op("setxattr", name="n" * 101, value="v")), state("l")),
    seq("create and delete", w("c", op("create", excl=True)), state("c"), w("c", op("create", excl=True)),
        w("c", op("create")), state("c"), w("c", op("delete")), r("c", STAT), w("c", op("delete")), w("c", op("create")),
        w("c", op("setxattr", name="x", value="1")), w("c", op("delete"), op("create")), state("c"),
        w("c", op("delete"), wr(0, "again")), state("c"), w("c", wr(0, "x"), op("delete")), r("c", STAT),
        w("c", op("create"), op("delete")), r("c", STAT)),
    seq("attributes", w("x", op("setxattr", name="a", value="1"), op("setxattr", name="b", value={"hex": "00ff80"})),
        state("x"), r("x", op("getxattr", name="a")), r("x", op("getxattr", name="z")), r("none", op("getxattr", name="a")),
        w("x", op("rmxattr", name="a")), state("x"), w("x", op("rmxattr", name="zz")), state("x"),
        w("x", op("setxattr", name="empty", value="")), state("x"), r("x", op("getxattr", name="empty")),
        w("x", op("setxattr", name="_", value="u"), op("setxattr", name="ss", value="v")), state("x")),
    seq("cmpxattr", w("y", op("setxattr", name="a", value="m")),
        *[r("y", op("cmpxattr", name="a", cmp=c, value=v)) for c in range(0, 8) for v in ("a", "m", "z")],
        r("y", op("cmpxattr", name="none", cmp=EQ, value="")), r("y", op("cmpxattr", name="none", cmp=EQ, value="x")),
        r("none", op("cmpxattr", name="a", cmp=EQ, value="")),
        w("y", op("cmpxattr", name="a", cmp=EQ, value="m"), op("setxattr", name="a", value="n")), state("y"),
        w("y", op("cmpxattr", name="a", cmp=EQ, value="m"), op("setxattr", name="a", value="o")), state("y"),
        w("fresh", op("cmpxattr", name="a", cmp=EQ, value=""), op("create")), r("fresh", STAT),
        w("fresh", op("create"), op("cmpxattr", name="a", cmp=EQ, value="")), r("fresh", STAT)),
    seq("omap", w("o", op("omap-set-vals", vals=[["a", "1"], ["b", "2"], ["c/1", "x"], ["c/2", "y"], ["d", ""]])),
        state("o"), r("o", op("omap-get-keys", max=2)), r("o", op("omap-get-keys", max=2, after="b")),
        r("o", op("omap-get-keys", max=0)), r("o", op("omap-get-keys", max=100, after="d")),
        r("o", op("omap-get-vals", max=10, prefix="c/")), r("o", op("omap-get-vals", max=1, prefix="c/")),
        r("o", op("omap-get-vals", max=2, prefix="c/")), r("o", op("omap-get-vals", max=1, prefix="c/", after="c/1")),
        r("o", op("omap-get-vals", max=10, prefix="a", after="b")), r("o", op("omap-get-vals", max=5, prefix="zz")),
        r("o", op("omap-get-vals-by-keys", keys=["b", "zz", "a"])), r("o", op("omap-get-vals-by-keys", keys=[])),
        w("o", op("omap-rm-keys", keys=["a", "zz"])), state("o"), w("o", op("omap-rm-key-range", begin="b", end="c/2")),
        state("o"), w("o", op("omap-clear")), state("o"), w("o", op("omap-clear")), state("o"),
        w("o", op("omap-set-vals", vals=[])), state("o"), w("o2", op("omap-set-vals", vals=[])), r("o2", STAT)),
    seq("omap-cmp", w("q", op("omap-set-vals", vals=[["k", "m"], ["n", "5"]])),
        *[r("q", op("omap-cmp", key="k", cmp=c, value=v)) for c in range(0, 8) for v in ("a", "m", "z", {"hex": "f0"})],
        r("q", op("omap-cmp", key="none", cmp=EQ, value="")), r("q", op("omap-cmp", key="none", cmp=LT, value="x")),
        w("q", op("omap-cmp", key="k", cmp=EQ, value="x"), op("omap-set-vals", vals=[["k", "changed"]])), state("q"),
        w("q", op("omap-cmp", key="k", cmp=EQ, value="m"), op("omap-set-vals", vals=[["k", "changed"]])), state("q")),
    seq("an error undoes everything", w("u", wr(0, "base")),
        w("u", wr(0, "XXXX"), op("setxattr", name="a", value="1"), op("omap-set-vals", vals=[["k", "v"]]),
          op("cmpxattr", name="none", cmp=EQ, value="no")), state("u"),
        w("u", op("delete"), op("create", excl=True), op("stat-assert"), op("create", excl=True)), state("u"),
        w("u9", op("create"), wr(0, "x"), op("omap-cmp", key="k", cmp=EQ, value="v")), r("u9", STAT)),
    seq("failok", w("fo", wr(0, "x")), w("fo", op("create", excl=True, failok=True), wr(1, "y")), state("fo"),
        w("fo", op("rmxattr", name="zz", failok=True), op("cmpxattr", name="a", cmp=EQ, value="b", failok=True), wr(2, "z")),
        state("fo"), r("fo", op("cmpxattr", name="a", cmp=EQ, value="b", failok=True), STAT),
        w("fo", op("cmpext", off=0, data="no", failok=True), wr(3, "!")), state("fo"),
        w("nofo", op("delete", failok=True), op("setxattr", name="a", value="b")), state("nofo"),
        w("nofo", op("delete"), op("delete", failok=True)), r("nofo", STAT)),
    seq("reads inside writes see what was before", w("rw", wr(0, "old"), op("setxattr", name="a", value="1")),
        w("rw", op("setxattr", name="a", value="2"), op("cmpxattr", name="a", cmp=EQ, value="2")), state("rw"),
        w("rw", op("setxattr", name="a", value="2"), op("cmpxattr", name="a", cmp=EQ, value="1")), state("rw"),
        # A write of the whole object instead makes Ceph's OSD take the old data for damaged, and repair it for ever.
        w("rw", wr(1, "ew"), op("cmpext", off=0, data="oew")), state("rw"),
        w("rw", wr(1, "ew"), op("cmpext", off=0, data="old")), state("rw"),
        w("rw", op("omap-set-vals", vals=[["k", "v"]]), op("omap-cmp", key="k", cmp=EQ, value="v")), state("rw"),
        w("rw", op("delete"), op("stat-assert")), state("rw"), w("rw2", op("create"), op("stat-assert")), r("rw2", STAT)),
    seq("results that stay", w("k", wr(0, "x"), op("setxattr", name="a", value="1")),
        r("k", op("cmpxattr", name="a", cmp=EQ, value="1"), STAT), r("k", STAT, op("cmpxattr", name="a", cmp=EQ, value="1")),
        r("k", op("cmpxattr", name="a", cmp=EQ, value="1"), rd()), r("k", op("cmpxattr", name="a", cmp=EQ, value="1"), op("omap-get-keys", max=1)),
        r("k", op("cmpxattr", name="a", cmp=EQ, value="1"), op("getxattrs")),
        w("k", op("cmpxattr", name="a", cmp=EQ, value="1")), w("k", op("cmpxattr", name="a", cmp=EQ, value="1"), returnvec=True),
        w("k", op("cmpxattr", name="a", cmp=EQ, value="1"), wr(0, "y"), returnvec=True),
        w("k", wr(0, "y"), op("cmpxattr", name="a", cmp=EQ, value="1"), returnvec=True),
        w("k", wr(0, "y"), op("cmpxattr", name="a", cmp=EQ, value="1"))),
    seq("versions", w("v", wr(0, "1")), r("v", STAT), r("v", op("assert-version", version=0)),
        r("v", op("assert-version", version=1)), r("v", op("assert-version", version=2**40)),
        w("v", op("assert-version", version=2**40), wr(0, "2")), r("v", STAT), w("v", wr(0, "3")), r("v", STAT),
        w("v", op("create")), r("v", STAT), w("v", op("truncate", off=1)), r("v", STAT), w("v", op("delete")),
        w("v", op("create")), r("v", STAT), w("vv", op("assert-version", version=1), op("create"))),
    seq("cmpext", w("ce", wr(0, "0123456789")), r("ce", op("cmpext", off=0, data="0123")),
        r("ce", op("cmpext", off=0, data="01x3")), r("ce", op("cmpext", off=8, data={"hex": "38390000"})),
        r("ce", op("cmpext", off=8, data={"hex": "38390001"})), r("ce", op("cmpext", off=100, data={"hex": "0000"})),
        r("ce", op("cmpext", off=100, data="x")), w("ce", op("cmpext", off=0, data="0"), wr(0, "a")),
        w("ce", op("cmpext", off=0, data="0"), wr(0, "b")), state("ce"), w("ce9", op("cmpext", off=0, data={"hex": "00"}), wr(0, "b")),
        w("ce8", op("cmpext", off=0, data={"hex": "0001"}), wr(0, "b")), state("ce9")),
    seq("checksums", w("cs", wr(0, "0123456789abcdef")),
        *[r("cs", op("checksum", kind=k, init=i, off=o, len=n, chunk=c))
          for k, i in ((0, "00000000"), (1, "0000000000000000"), (2, "ffffffff"), (2, "00000000"))
          for o, n, c in ((0, 0, 0), (0, 16, 4), (4, 8, 8), (8, 100, 0), (8, 100, 4), (8, 100, 10), (0, 0, 4), (0, 7, 4), (16, 4, 0), (0, 16, 0))]),
    seq("holes", w("h", wr(0, fill(97, 5000))), w("h", wr(20000, "end")), w("h", op("zero", off=0, len=4096)), r("h", STAT, rd(0, 65536))),
    seq("hello", r("hi", cls("hello", "say_hello")), w("hi", cls("hello", "record_hello", "me")), r("hi", STAT, rd()),
        w("hi", cls("hello", "record_hello", "me")), r("hi", cls("hello", "say_hello")), r("hi", cls("hello", "say_hello", "you")),
        r("hi", cls("hello", "say_hello", fill(120, 101))), w("hi", cls("hello", "turn_it_to_11")), r("hi", cls("hello", "replay")),
        w("hi", cls("hello", "write_return_data")), w("hi", cls("hello", "write_return_data"), returnvec=True),
        w("hi", cls("hello", "write_return_data", "in")), w("hi", cls("hello", "write_return_data", "in"), returnvec=True),
        # On an object of its own: Ceph keeps the refused change in memory, and counts versions on from it.
        w("much", cls("hello", "write_too_much_return_data"), returnvec=True), w("hi", cls("hello", "write_too_much_return_data")),
        w("hi", cls("hello", "bad_reader")), r("hi", cls("hello", "bad_writer")), r("hi", cls("hello", "nothing")),
        w("hi", wr(0, "x"), cls("hello", "say_hello")), r("hi", STAT),
        w("hi", cls("hello", "write_return_data", "in", failok=True), wr(0, "y")), r("hi", rd(0, 2))),
    seq("refcount", w("rc", wr(0, "x")), w("rc", cls("refcount", "get", {"hex": "0101060000000100000061" + "01"})),
        r("rc", cls("refcount", "read", {"hex": "01010100000001"})),
        w("rc", cls("refcount", "put", {"hex": "0101060000000100000062" + "01"})),
        r("rc", cls("refcount", "read", {"hex": "01010100000001"})),
        w("rc", cls("refcount", "put", {"hex": "0101060000000100000061" + "01"})), r("rc", STAT),
        w("rc", cls("refcount", "put", {"hex": "01"}))),
    seq("rbd", r("rb", cls("rbd", "get_all_features")), w("rb", op("create")), r("rb", cls("rbd", "get_all_features")),
        r("rb", cls("rbd", "get_id")), w("rb", cls("rbd", "set_id", {"hex": "020000006131"})), r("rb", cls("rbd", "get_id")),
        w("rb", cls("rbd", "set_id", {"hex": "020000006232"})), w("rb2", cls("rbd", "set_id", {"hex": "020000006232"})),
        w("rb", cls("rbd", "set_id", {"hex": "020000006220"})), w("rb3", wr(0, "text")), r("rb3", cls("rbd", "get_id"))),
    seq("numops", w("no", cls("numops", "add", {"hex": "010000006b" + "03000000312e35"})), state("no"),
        w("no", cls("numops", "mul", {"hex": "010000006b" + "0400000031653130"})), state("no"),
        w("no", cls("numops", "mul", {"hex": "010000006b" + "0100000033"})),
        w("no", cls("numops", "add", {"hex": "010000006b" + "0100000078"})), state("no")),
    seq("locks", w("lk", lock(1, "c")), w("lk", lock(1, "c")), w("lk", lock(1, "c", flags=1)), w("lk", lock(1, "d")),
        w("lk", lock(2, "d")), w("lk", lock(1, "d", flags=2)), w("lk", lock(1, "c", flags=2)), w("lk", lock(1, "c", flags=3)),
        w("lk", lock(1, "c", tag="u", flags=1)), w("lk", lock(0, "c")), w("lk", lock(4, "c")), w("lk", unlock("d")),
        r("lk", cls("lock", "list_locks")), r("lk", cls("lock", "assert_locked", enc("l", 1, "c", "t"))),
        r("lk", cls("lock", "assert_locked", enc("l", 2, "c", "t"))), r("lk", cls("lock", "assert_locked", enc("l", 1, "c", "u"))),
        r("lk", cls("lock", "assert_locked", enc("", 1, "c", "t"))), r("lk", cls("lock", "assert_locked", enc("other", 1, "c", "t"))),
        w("lk", cls("lock", "set_cookie", enc("l", 1, "c", "t", "e"))), w("lk", unlock("c")), w("lk", unlock("e")), w("lk", unlock("e")),
        r("lk", cls("lock", "get_info", enc("l"))), w("lk", lock(2, "a")), w("lk", lock(2, "b")),
        w("lk", cls("lock", "set_cookie", enc("l", 2, "a", "t", "b"))), w("lk", unlock("a")), w("lk", unlock("b")),
        w("lk", cls("lock", "unlock", {"hex": "0101"})), w("eph", lock(3, "c")), r("eph", STAT), w("eph", unlock("c")), r("eph", STAT),
        r("gone", cls("lock", "get_info", enc("l"))), w("gone", unlock("c")), r("gone", cls("lock", "list_locks")),
        w("gone", cls("lock", "set_cookie", enc("l", 1, "c", "t", "e")))),
    seq("object versions", w("ov", cls("version", "set", enc(object_version(7, "tag")))), r("ov", cls("version", "read")),
        *[r("ov", cls("version", "check_conds", conditions(c)))
          for c in ((0, 0, ""), (1, 7, "tag"), (1, 7, "x"), (2, 6, ""), (2, 7, ""), (3, 7, ""), (4, 7, ""), (5, 7, ""), (6, 0, "tag"),
                    (7, 0, "tag"), (9, 0, ""))],
        w("ov", cls("version", "inc_conds", conditions((1, 8, "tag")))), w("ov", cls("version", "inc", conditions())),
        r("ov", cls("version", "read")), w("ov", cls("version", "set", {"hex": "01"})), r("nov", cls("version", "read")),
        w("ov2", op("create")), r("ov2", cls("version", "read")), r("ov2", cls("version", "check_conds", conditions((1, 0, ""))))),
    seq("time indexes", w("ti", cls("timeindex", "add", enc((2).to_bytes(4, "little") + b"".join(
            bytes.fromhex(enc(s.to_bytes(4, "little") + (5000).to_bytes(4, "little"), "x", "v")["hex"]) for s in (30, 10))))),
        *[r("ti", cls("timeindex", "list", enc(bytes(8), "", to.to_bytes(4, "little") + bytes(4), n.to_bytes(4, "little"))))
          for to, n in ((100, 10), (100, 1), (20, 10), (0, 10))],
        w("ti", cls("timeindex", "trim", enc(bytes(8), (15).to_bytes(4, "little") + bytes(4), "", ""))),
        w("ti", cls("timeindex", "trim", enc(bytes(8), (15).to_bytes(4, "little") + bytes(4), "", ""))),
        r("ti", op("omap-get-keys", max=9))),
    # The pool's snapshots have the ids 2 and 3.
    seq("snapshots", w("s", wr(0, "0123456789"), op("setxattr", name="a", value="1")), {"snap_create": 0},
        w("s", wr(2, "XX"), snapc=[2]), r("s", STAT, rd()), r("s", STAT, rd(), op("getxattrs"), read_snap=2), r("s", STAT, read_snap=1),
        w("s", wr(4, "YY"), snapc=[2]), r("s", rd(), read_snap=2), {"snap_create": 0}, w("s", op("delete"), snapc=[3, 2]),
        r("s", STAT), r("s", rd(), read_snap=2), r("s", rd(), read_snap=3), w("s", op("delete"), snapc=[3, 2]),
        w("s", op("rollback", snap=2), snapc=[3, 2]), r("s", STAT, rd(), op("getxattrs")),
        w("s", wr(0, "after"), snapc=[3, 2]), r("s", rd()), r("s", rd(), read_snap=3), r("s", rd(), read_snap=2),
        w("late", wr(0, "late"), snapc=[3, 2]), r("late", rd(), read_snap=2), r("late", rd(), read_snap=3), r("late", rd()),
        w("late", op("rollback", snap=3), snapc=[3, 2]), r("late", STAT),
        w("s", op("create", excl=True), snapc=[3, 2]), w("s", op("rollback", snap=3), snapc=[3, 2]), r("s", STAT, rd()),
        w("om", op("omap-set-vals", vals=[["k", "1"]]), wr(0, "data"), snapc=[2]),
        w("om", op("omap-set-vals", vals=[["k", "2"], ["l", "3"]]), op("truncate", off=2), snapc=[3, 2]), state("om"),
        r("om", STAT, rd(), op("omap-get-vals", max=9), read_snap=3), r("om", rd(), read_snap=2),
        w("om", op("writefull", data="all new"), op("delete"), snapc=[3, 2]), r("om", STAT),
        r("om", STAT, rd(), op("omap-get-vals", max=9), read_snap=3), w("om", op("create", excl=True), snapc=[3, 2]), state("om"),
        r("s", rd(), snapc=[])),
]


class Random:
    """A small generator of our own: the same sequences with every Python."""

    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.x >> 33) % n

    def pick(self, items):
        return items[self.below(len(items))]


def random_write(g):
    text = lambda: g.pick(["", "x", "hello", "0123456789", "zzzzzzzzzzzzzzzzzzzz"])
    key = lambda: g.pick(["a", "b", "c", "ca", "d"])
    return g.pick([
        lambda: wr(g.below(24), text()), lambda: op("writefull", data=text()), lambda: op("append", data=text()),
        lambda: op("truncate", off=g.below(30)), lambda: op("zero", off=g.below(30), len=1 + g.below(20)),
        lambda: op("writesame", data="ab", len=2 * g.below(5), off=g.below(9)), lambda: op("create"),
        lambda: op("create", excl=True), lambda: op("delete"), lambda: op("setxattr", name=key(), value=text()),
        lambda: op("rmxattr", name=key()), lambda: op("omap-set-vals", vals=[[key(), text()]]),
        lambda: op("omap-rm-keys", keys=[key()]), lambda: op("omap-rm-key-range", begin=key(), end=key()),
        lambda: op("omap-clear"), lambda: op("cmpxattr", name=key(), cmp=g.pick([EQ, NE, LT, GT]), value=text()),
        lambda: op("omap-cmp", key=key(), cmp=g.pick([EQ, LT, GT]), value=text()), lambda: op("stat-assert"),
        lambda: cls("hello", "write_return_data"), lambda: op("set-alloc-hint", size=100, wsize=10),
    ])()


def random_request(g):
    obj = g.pick(["r1", "r2", "r3"])
    if g.below(4) == 0:
        key = g.pick(["", "a", "b", "c"])
        return r(obj, *[g.pick([STAT, rd(g.below(20), 1 + g.below(20)), op("getxattrs"), op("omap-get-vals", max=1 + g.below(3), after=key),
                                op("omap-get-keys", max=g.below(4)), op("cmpext", off=g.below(9), data="hello", failok=True),
                                op("omap-get-vals", max=2, prefix="c")]) for _ in range(1 + g.below(3))])
    ops = []
    # Behind a write it could meet the damage that Ceph sees where there is none.
    if g.below(8) == 0:
        ops.append(op("cmpext", off=g.below(9), data=g.pick(["hello", "x", "0"])))
    for _ in range(1 + g.below(4)):
        o = random_write(g)
        if g.below(3) == 0:
            o["failok"] = True
        ops.append(o)
    return w(obj, *ops, **({"returnvec": True} if g.below(4) == 0 else {}))


def random_sequence(seed, count):
    g = Random(seed)
    steps = []
    for i in range(count):
        steps.append(random_request(g))
        if i % 4 == 3:
            steps.extend(state(g.pick(["r1", "r2", "r3"])))
    return seq(f"random requests of seed {seed}", *steps)


SEQUENCES.append(random_sequence(1, 300))
