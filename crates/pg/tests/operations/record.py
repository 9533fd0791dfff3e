#!/usr/bin/env python3
"""Records what a real cluster answers to sequences of operations, as a fixture for tests/operations/main.rs.

Usage: record.py CEPH_CONF POOL > recorded.json
POOL must be new, with one placement group: versions in the fixture count from its first write.
"""
import ctypes as C
import json
import sys

from sequences import SEQUENCES

lib = C.CDLL("librados.so.2")
MTIME = 1700000000
FAILOK, EXCL, RETURNVEC = 2, 1, 1024
for name in ("rados_create_write_op", "rados_create_read_op"):
    getattr(lib, name).restype = C.c_void_p
lib.rados_get_last_version.restype = C.c_uint64
lib.rados_get_last_version.argtypes = [C.c_void_p]
u64, size_t, vp = C.c_uint64, C.c_size_t, C.c_void_p


class Timespec(C.Structure):
    _fields_ = [("sec", C.c_long), ("nsec", C.c_long)]


def raw(v):
    """Bytes of a DSL value: text, or {"hex": ...}, or {"fill": byte, "count": n}."""
    if v is None:
        return b""
    if isinstance(v, dict):
        return bytes.fromhex(v["hex"]) if "hex" in v else bytes([v["fill"]]) * v["count"]
    return v.encode()


def arrays(items):
    keep = [C.create_string_buffer(i, max(len(i), 1)) for i in items]
    ptrs = (vp * max(len(items), 1))(*[C.addressof(k) for k in keep])
    lens = (size_t * max(len(items), 1))(*[len(i) for i in items])
    return keep, ptrs, lens


class Request:
    """One request: adds operations one after the other and collects their outputs."""

    def __init__(self, write):
        self.write, self.keep, self.collect = write, [], []
        kind = "write" if write else "read"
        self.op = vp(getattr(lib, f"rados_create_{kind}_op")())
        self.prefix = f"rados_{kind}_op_"

    def call(self, name, *args):
        getattr(lib, self.prefix + name)(self.op, *args)

    def rval(self, o):
        r = C.c_int(-9999)
        self.keep.append(r)
        self.collect.append(lambda: o.__setitem__("rval", r.value))
        return C.byref(r)

    def add(self, o):
        o_in = dict(o)
        getattr(self, "op_" + o["op"].replace("-", "_"))(o, o_in)
        flags = (FAILOK if o.get("failok") else 0) | (EXCL if o.get("excl_flag") else 0)
        if flags:
            self.call("set_flags", C.c_int(flags))

    def op_create(self, o, _):
        self.call("create", C.c_int(1 if o.get("excl") else 0), None)

    def op_write(self, o, _):
        d = raw(o["data"])
        self.call("write", d, size_t(len(d)), u64(o["off"]))

    def op_writefull(self, o, _):
        d = raw(o["data"])
        self.call("write_full", d, size_t(len(d)))

    def op_append(self, o, _):
        d = raw(o["data"])
        self.call("append", d, size_t(len(d)))

    def op_writesame(self, o, _):
        d = raw(o["data"])
        self.call("writesame", d, size_t(len(d)), size_t(o["len"]), u64(o["off"]))

    def op_delete(self, o, _):
        self.call("remove")

    def op_truncate(self, o, _):
        self.call("truncate", u64(o["off"]))

    def op_zero(self, o, _):
        self.call("zero", u64(o["off"]), u64(o["len"]))

    def op_set_alloc_hint(self, o, _):
        self.call("set_alloc_hint2", u64(o["size"]), u64(o["wsize"]), C.c_uint32(0))

    def op_setxattr(self, o, _):
        d = raw(o["value"])
        self.call("setxattr", o["name"].encode(), d, size_t(len(d)))

    def op_rmxattr(self, o, _):
        self.call("rmxattr", o["name"].encode())

    def op_cmpxattr(self, o, _):
        d = raw(o["value"])
        self.call("cmpxattr", o["name"].encode(), C.c_uint8(o["cmp"]), d, size_t(len(d)))

    def op_omap_set_vals(self, o, _):
        kk, kp, kl = arrays([raw(k) for k, _ in o["vals"]])
        vk, vps, vl = arrays([raw(v) for _, v in o["vals"]])
        self.keep += [kk, vk]
        self.call("omap_set2", kp, vps, kl, vl, size_t(len(o["vals"])))

    def op_omap_rm_keys(self, o, _):
        kk, kp, kl = arrays([raw(k) for k in o["keys"]])
        self.keep.append(kk)
        self.call("omap_rm_keys2", kp, kl, size_t(len(o["keys"])))

    def op_omap_rm_key_range(self, o, _):
        b, e = raw(o["begin"]), raw(o["end"])
        self.call("omap_rm_range2", b, size_t(len(b)), e, size_t(len(e)))

    def op_omap_clear(self, o, _):
        self.call("omap_clear")

    def op_omap_cmp(self, o, _):
        k, v = raw(o["key"]), raw(o["value"])
        self.call("omap_cmp2", k, C.c_uint8(o["cmp"]), v, size_t(len(k)), size_t(len(v)), self.rval(o))

    def op_stat_assert(self, o, _):
        self.call("assert_exists")

    def op_assert_version(self, o, _):
        self.call("assert_version", u64(o["version"]))

    def op_cmpext(self, o, _):
        d = raw(o["data"])
        self.keep.append(d)
        self.call("cmpext", d, size_t(len(d)), u64(o["off"]), self.rval(o))

    def op_call(self, o, _):
        d = raw(o.get("in"))
        cls, method = o["class"].encode(), o["method"].encode()
        self.keep.append(d)
        if self.write:
            self.call("exec", cls, method, d, size_t(len(d)), self.rval(o))
            return
        buf, n = C.create_string_buffer(65536), size_t(0)
        self.keep += [buf, n]
        self.call("exec_user_buf", cls, method, d, size_t(len(d)), buf, size_t(65536), C.byref(n), self.rval(o))
        self.collect.append(lambda: o.__setitem__("out", buf.raw[: n.value].hex()))

    def op_read(self, o, _):
        buf, n = C.create_string_buffer(max(o["len"], 1 << 20)), size_t(0)
        self.keep += [buf, n]
        self.call("read", u64(o["off"]), size_t(o["len"]), buf, C.byref(n), self.rval(o))
        self.collect.append(lambda: o.__setitem__("out", buf.raw[: n.value].hex()))

    def op_stat(self, o, _):
        size, mtime = u64(0), C.c_long(0)
        self.keep += [size, mtime]
        self.call("stat", C.byref(size), C.byref(mtime), self.rval(o))
        self.collect.append(lambda: o.__setitem__("stat", [size.value, mtime.value]))

    def op_checksum(self, o, _):
        out = C.create_string_buffer(4096)
        init = bytes.fromhex(o["init"])
        self.keep += [out, init]
        self.call("checksum", C.c_int(o["kind"]), init, size_t(len(init)), u64(o["off"]), size_t(o["len"]),
                  size_t(o["chunk"]), out, size_t(4096), self.rval(o))

        def done():
            count = int.from_bytes(out.raw[:4], "little")
            width = 8 if o["kind"] == 1 else 4
            o["out"] = out.raw[: 4 + count * width].hex()
        self.collect.append(done)

    def omap_out(self, o, it, values):
        def done():
            if o["rval"] < 0:
                return
            found = []
            while True:
                k, v, kl, vl = vp(), vp(), size_t(), size_t()
                lib.rados_omap_get_next2(it, C.byref(k), C.byref(v), C.byref(kl), C.byref(vl))
                if not k.value:
                    break
                found.append([C.string_at(k, kl.value).hex(), C.string_at(v, vl.value).hex() if vl.value else ""])
            o["map"] = found if values else [k for k, _ in found]
        self.collect.append(done)

    def op_omap_get_vals(self, o, _):
        it, more = vp(), C.c_ubyte(0)
        self.keep += [it, more]
        self.call("omap_get_vals2", o.get("after", "").encode(), o.get("prefix", "").encode(), u64(o["max"]),
                  C.byref(it), C.byref(more), self.rval(o))
        self.omap_out(o, it, True)
        self.collect.append(lambda: o.__setitem__("more", more.value))

    def op_omap_get_keys(self, o, _):
        it, more = vp(), C.c_ubyte(0)
        self.keep += [it, more]
        self.call("omap_get_keys2", o.get("after", "").encode(), u64(o["max"]), C.byref(it), C.byref(more), self.rval(o))
        self.omap_out(o, it, False)
        self.collect.append(lambda: o.__setitem__("more", more.value))

    def op_omap_get_vals_by_keys(self, o, _):
        it = vp()
        kk, kp, kl = arrays([raw(k) for k in o["keys"]])
        self.keep += [it, kk]
        self.call("omap_get_vals_by_keys2", kp, size_t(len(o["keys"])), kl, C.byref(it), self.rval(o))
        self.omap_out(o, it, True)

    def op_getxattrs(self, o, _):
        it = vp()
        self.keep.append(it)
        self.call("getxattrs", C.byref(it), self.rval(o))

        def done():
            if o["rval"] < 0:
                return
            found = []
            while True:
                k, v, n = C.c_char_p(), vp(), size_t()
                lib.rados_getxattrs_next(it, C.byref(k), C.byref(v), C.byref(n))
                if not k.value:
                    break
                found.append([k.value.hex(), C.string_at(v, n.value).hex() if n.value else ""])
            o["map"] = sorted(found)
        self.collect.append(done)

    def operate(self, io, obj, flags):
        if self.write:
            t = Timespec(MTIME, 0)
            r = lib.rados_write_op_operate2(self.op, io, obj, C.byref(t), C.c_int(flags))
        else:
            r = lib.rados_read_op_operate(self.op, io, obj, C.c_int(flags))
        for f in self.collect:
            f()
        return r


def single(io, step):
    """Operations that librados has no compound form of."""
    o, obj = step["ops"][0], step["object"].encode()
    if o["op"] == "getxattr":
        buf = C.create_string_buffer(65536)
        r = lib.rados_getxattr(io, obj, o["name"].encode(), buf, size_t(65536))
        if r >= 0:
            o["out"] = buf.raw[:r].hex()
            r = 0
        return r
    if o["op"] == "rollback":
        return lib.rados_ioctx_selfmanaged_snap_rollback(io, obj, u64(o["snap"]))
    raise ValueError(o["op"])


def run(io, step):
    if "snap_create" in step:
        got = u64(0)
        r = lib.rados_ioctx_selfmanaged_snap_create(io, C.byref(got))
        step["snap_create"] = got.value
        return r
    snapc = step.get("snapc")
    if snapc is not None:
        seq = snapc[0] if snapc else 0
        ids = (u64 * max(len(snapc), 1))(*snapc)
        lib.rados_ioctx_selfmanaged_snap_set_write_ctx(io, u64(seq), ids, C.c_int(len(snapc)))
    lib.rados_ioctx_snap_set_read(io, u64(step.get("read_snap", 2**64 - 2)))
    if step["ops"][0]["op"] in ("getxattr", "rollback"):
        step["result"] = single(io, step)
    else:
        request = Request(step.get("write", False))
        for o in step["ops"]:
            request.add(o)
        flags = RETURNVEC if step.get("returnvec") else 0
        step["result"] = request.operate(io, step["object"].encode(), flags)
    step["version"] = lib.rados_get_last_version(io)
    return 0


def main():
    conf, pool = sys.argv[1], sys.argv[2]
    cluster, io = vp(), vp()
    assert lib.rados_create(C.byref(cluster), None) == 0
    assert lib.rados_conf_read_file(cluster, conf.encode()) == 0
    assert lib.rados_connect(cluster) == 0
    assert lib.rados_ioctx_create(cluster, pool.encode(), C.byref(io)) == 0
    for seq in SEQUENCES:
        for step in seq["steps"]:
            print(seq["name"], json.dumps(step)[:150], file=sys.stderr, flush=True)
            r = run(io, step)
            assert r >= 0, (seq["name"], step, r)
    print("[")
    print(",\n".join(
        json.dumps({"name": s["name"], "steps": []})[:-2] + "\n  " +
        ",\n  ".join(json.dumps(step) for step in s["steps"]) + "]}" for s in SEQUENCES))
    print("]")
    lib.rados_ioctx_destroy(io)
    lib.rados_shutdown(cluster)


if __name__ == "__main__":
    main()
