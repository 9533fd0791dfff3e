"""Plays sequences of generate.py on a cluster, through librados."""
import copy
import ctypes as C
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../pg/tests/operations"))
from record import MTIME, RETURNVEC, Request, lib, size_t, u64, vp  # noqa: E402

HEAD = 2**64 - 2
#: ETIMEDOUT
TIMED_OUT = -110
lib.rados_ioctx_snap_lookup.argtypes = [vp, C.c_char_p, vp]


class Cluster:
    """A connection to a cluster, with a pool of one PG: versions count in one line there."""

    def __init__(self, conf, pool):
        self.conf, self.pool = conf, pool
        self.cluster, self.io = vp(), vp()
        assert lib.rados_create(C.byref(self.cluster), None) == 0
        assert lib.rados_conf_read_file(self.cluster, conf.encode()) == 0
        # Ceph blocks for ever what meets data that it takes for damaged; such a sequence ends there.
        assert lib.rados_conf_set(self.cluster, b"rados_osd_op_timeout", b"15") == 0
        assert lib.rados_connect(self.cluster) == 0, conf
        self.command(f'{{"prefix": "osd pool create", "pool": "{pool}", "pg_num": 1, "autoscale_mode": "off"}}')
        assert lib.rados_wait_for_latest_osdmap(self.cluster) == 0
        r = lib.rados_ioctx_create(self.cluster, pool.encode(), C.byref(self.io))
        assert r == 0, (conf, pool, r)

    def command(self, text):
        cmd = (C.c_char_p * 1)(text.encode())
        out, outlen, err, errlen = vp(), size_t(), vp(), size_t()
        r = lib.rados_mon_command(self.cluster, cmd, size_t(1), None, size_t(0), C.byref(out), C.byref(outlen),
                                  C.byref(err), C.byref(errlen))
        assert r == 0, (self.conf, text, r, C.string_at(err, errlen.value))

    def close(self):
        lib.rados_ioctx_destroy(self.io)
        lib.rados_pool_delete(self.cluster, self.pool.encode())
        lib.rados_shutdown(self.cluster)

    def play(self, steps, namespace, snaps):
        """The answers to the steps, on objects that nobody has used. `snaps` as in Generator."""
        return Player(self.io, namespace, snaps).play(steps)


class Player:
    def __init__(self, io, namespace, snaps):
        self.io, self.namespace = io, namespace
        self.pool_snaps, self.versions = snaps == "pool", snaps == "none"
        lib.rados_ioctx_set_namespace(io, namespace.encode())
        #: Ids of snapshots by their number in the sequence.
        self.ids = {}
        self.context([])
        #: Versions count from the first writes; with several no object has one of the low versions that sequences name.
        for _ in range(3):
            first = self.request({"object": "first", "ops": [{"op": "create"}], "write": True})
        self.base = first["version"]

    def play(self, steps):
        out = []
        for step in steps:
            answer = self.step(step)
            if answer is not None and "version" in answer:
                # Trimming makes versions too, whenever it comes to it.
                answer["version"] = max(answer["version"] - self.base, -1) if self.versions else None
            if answer is not None and answer["result"] == TIMED_OUT:
                break
            out.append(answer)
        if self.pool_snaps:
            # They would be in the next sequence too.
            for number in list(self.ids):
                self.step({"snap_remove": number})
        return out

    def step(self, step):
        """The answer; `None` for a step that names a snapshot that the sequence does not make (any more)."""
        if "snap_create" in step:
            return {"result": self.snap_create(step["snap_create"])}
        if "snap_remove" in step:
            number = step["snap_remove"]
            return {"result": self.snap_remove(number)} if number in self.ids else None
        rolled = [o["snap"] for o in step["ops"] if o["op"] == "rollback"]
        named = [step.get("read_snap")] if step.get("read_snap") else []
        if any(n not in self.ids for n in named + rolled):
            return None
        if "snaps" in step:
            self.context([self.ids[n] for n in step["snaps"] if n in self.ids])
        lib.rados_ioctx_snap_set_read(self.io, u64(self.ids[step["read_snap"]] if named else HEAD))
        return self.rollback(step, rolled[0]) if rolled else self.request(step)

    def context(self, ids):
        """Sets the snapshot context of writes."""
        if self.pool_snaps:
            return
        array = (u64 * max(len(ids), 1))(*ids)
        lib.rados_ioctx_selfmanaged_snap_set_write_ctx(self.io, u64(ids[0] if ids else 0), array, C.c_int(len(ids)))

    def name(self, number):
        return f"{self.namespace}-{number}".encode()

    def snap_create(self, number):
        got = u64(0)
        if self.pool_snaps:
            r = lib.rados_ioctx_snap_create(self.io, self.name(number))
            r = r or lib.rados_ioctx_snap_lookup(self.io, self.name(number), C.byref(got))
        else:
            r = lib.rados_ioctx_selfmanaged_snap_create(self.io, C.byref(got))
        self.ids[number] = got.value
        return r

    def snap_remove(self, number):
        snap = self.ids.pop(number)
        if self.pool_snaps:
            return lib.rados_ioctx_snap_remove(self.io, self.name(number))
        return lib.rados_ioctx_selfmanaged_snap_remove(self.io, u64(snap))

    def rollback(self, step, number):
        obj = step["object"].encode()
        if self.pool_snaps:
            r = lib.rados_ioctx_snap_rollback(self.io, obj, self.name(number))
        else:
            r = lib.rados_ioctx_selfmanaged_snap_rollback(self.io, obj, u64(self.ids[number]))
        return {"result": r}

    def request(self, step):
        request = Request(step.get("write", False))
        ops = copy.deepcopy(step["ops"])
        for o in ops:
            request.add(o)
        result = request.operate(self.io, step["object"].encode(), RETURNVEC if step.get("returnvec") else 0)
        return {"result": result, "version": lib.rados_get_last_version(self.io), "ops": [answer(o) for o in ops]}


def answer(o):
    """What an operation answered; long data as its digest."""
    out = {k: o[k] for k in ("rval", "out", "map", "more", "stat") if k in o}
    if out.get("rval", 0) < 0:
        # librados leaves these as they were.
        out = {"rval": out["rval"]}
    if "stat" in out and out["stat"][1] != MTIME:
        # A rollback takes the clock's time.
        out["stat"] = [out["stat"][0], "now"]
    # Locks, and what methods of hello note, name the client, whose id and address differ.
    if o["op"] == "call" and o["class"] == "lock" and "out" in out:
        out["out"] = len(out["out"])
    if o["op"] == "getxattrs" and "map" in out:
        named = lambda k: bytes.fromhex(k).startswith((b"lock.", b"amplified_by", b"said_by"))
        out["map"] = [[k, "a client" if named(k) else v] for k, v in out["map"]]
    if len(str(out.get("out", ""))) > 200:
        out["out"] = hashlib.sha256(out["out"].encode()).hexdigest() + f" of {len(out['out']) // 2} bytes"
    return out
