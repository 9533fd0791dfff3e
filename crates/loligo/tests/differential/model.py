"""A naive cluster in memory: it answers the sequences of generate.py as a cluster does.

Written from what Ceph documents and does, not from ours. An operation sees the attributes, the omap and the data as they were
before its request, but the size and whether the object exists as the operations before it left them.

When a snapshot is removed, clones go some time later, and with the last of them a removed object that was kept for them.
A client can see whether that has happened. So an object has possible states, and an answer of the cluster leaves those that
fit.
"""
import copy
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../pg/tests/operations"))
from checksums import crc32c, xxh32, xxh64  # noqa: E402
from model_classes import METHODS, Failed  # noqa: E402
from record import MTIME, raw  # noqa: E402

ENOENT, EPERM, EIO, EEXIST, EINVAL, ERANGE, EOVERFLOW, ECANCELED = -2, -1, -5, -17, -22, -34, -75, -125
#: What `cmpext` adds the place of the first difference to.
MAX_ERRNO = 4095
#: Operations of librados's writes that the OSD takes for reads.
GUARDS = ("cmpxattr", "omap-cmp", "cmpext", "stat-assert")


class Body:
    """What an object holds."""

    def __init__(self):
        self.data, self.attrs, self.omap, self.header = bytearray(), {}, {}, b""


class Object:
    """An object's head and its clones."""

    def __init__(self):
        self.exists = self.whiteout = self.has_omap = False
        self.size, self.mtime, self.version = 0, MTIME, 0
        self.body = Body()
        #: The newest snapshot that a write has heard of.
        self.seq = 0
        #: By id: (snapshots that it stands for, the object).
        self.clones = {}

    def present(self):
        return self.exists and not self.whiteout

    def same(self, other):
        """What clones hold never changes: their ids tell."""
        plain = lambda o: {**vars(o), "body": vars(o.body), "clones": list(o.clones)}
        return plain(self) == plain(other)


class Change:
    """A request on its way: the object before it, and the object as the operations so far leave it."""

    def __init__(self, before, snapc):
        self.before, self.now = before, copy.copy(before)
        self.now.body = copy.deepcopy(before.body)
        self.now.clones = dict(before.clones)
        self.snapc, self.changed, self.mtime = snapc, False, MTIME

    def make(self):
        if not self.now.exists:
            self.now.exists, self.changed = True, True
        self.now.whiteout = False

    def resize(self, size):
        data = self.now.body.data
        data.extend(bytes(max(size - len(data), 0)))
        del data[size:]
        self.now.size, self.changed = size, True

    def write(self, off, data):
        self.make()
        if data:
            self.resize(max(self.now.size, off + len(data)))
            self.now.body.data[off:off + len(data)] = data
        elif off > self.now.size:
            self.resize(off)
        self.changed = True

    def write_full(self, data):
        self.make()
        if data or self.now.size:
            self.resize(len(data))
            self.now.body.data[:] = data

    def remove(self):
        n = self.now
        kept = bool(n.clones) or bool(self.snapc and self.snapc[0] > n.seq)
        if not n.exists or (n.whiteout and kept):
            raise Failed(ENOENT)
        # What the request itself has made leaves no trace, but for a removed object that is kept for clones to come.
        self.changed = self.before.exists or kept
        # An omap that was there is still found by the operations behind this one.
        n.body, n.size = Body(), 0
        n.whiteout, n.exists = kept, kept

    def attr(self, name):
        """A stored attribute; `None` without it."""
        if not self.before.exists:
            raise Failed(ENOENT)
        return self.before.body.attrs.get(name)

    def stored_omap(self):
        return self.before.body.omap if self.now.has_omap else {}

    def set_attr(self, name, value):
        self.make()
        self.now.body.attrs[name], self.changed = value, True

    def set_omap(self, vals):
        self.make()
        self.now.body.omap.update(vals)
        self.now.has_omap = self.changed = True

    def cut_omap(self, keep):
        if not self.now.present():
            raise Failed(ENOENT)
        self.now.body.omap = {k: v for k, v in self.now.body.omap.items() if keep(k)}
        self.changed = True

    def finish(self):
        """The object afterwards: what snapshots still see is kept."""
        if not self.changed:
            return self.before
        n, b = self.now, self.before
        newest = self.snapc[0] if self.snapc else 0
        if b.present() and newest > b.seq:
            n.clones[newest] = ([s for s in self.snapc if s > b.seq], b)
        n.seq = max(n.seq, newest)
        n.mtime = self.mtime
        return n if n.exists else Object()


def compare(op, order):
    if op not in range(1, 7):
        raise Failed(EINVAL)
    return [order == 0, order != 0, order > 0, order >= 0, order < 0, order <= 0][op - 1]


def sign(a, b):
    return (a > b) - (a < b)


class Ops:
    """The operations. Each returns its result, or `None` to leave that of the operation before it."""

    def create(self, c, o):
        # librados replaces the flag of an exclusive creation by the one that lets it fail.
        if o.get("excl") and not o.get("failok") and c.now.present():
            raise Failed(EEXIST)
        c.make()
        c.changed = True
        return 0

    def write(self, c, o):
        c.write(o["off"], raw(o["data"]))
        return 0

    def writefull(self, c, o):
        c.write_full(raw(o["data"]))
        return 0

    def append(self, c, o):
        c.write(c.now.size, raw(o["data"]))
        return 0

    def writesame(self, c, o):
        data, length = raw(o["data"]), o["len"]
        if length % len(data):
            raise Failed(EINVAL)
        if length:
            c.write(o["off"], data * (length // len(data)))
        return 0

    def truncate(self, c, o):
        if c.now.present():
            c.resize(o["off"])
        return 0

    def zero(self, c, o):
        off, end = o["off"], o["off"] + o["len"]
        if c.now.exists and end >= c.now.size:
            if off >= c.now.size:
                return None
            return self.truncate(c, o)
        if c.now.present():
            c.now.body.data[off:end] = bytes(end - off)
            c.changed = True
        return 0

    def delete(self, c, o):
        c.remove()
        return 0

    def set_alloc_hint(self, c, o):
        c.make()
        c.changed = True
        return 0

    def setxattr(self, c, o):
        c.set_attr(o["name"].encode(), raw(o["value"]))
        return 0

    def rmxattr(self, c, o):
        if not c.now.present():
            raise Failed(ENOENT)
        c.now.body.attrs.pop(o["name"].encode(), None)
        c.changed = True
        return 0

    def cmpxattr(self, c, o):
        stored = c.attr(o["name"].encode()) or b""
        if not compare(o["cmp"], sign(raw(o["value"]), stored)):
            raise Failed(ECANCELED)
        return 1

    def omap_set_vals(self, c, o):
        c.set_omap({raw(k): raw(v) for k, v in o["vals"]})
        return 0

    def omap_rm_keys(self, c, o):
        keys = {raw(k) for k in o["keys"]}
        c.cut_omap(lambda k: k not in keys)
        return 0

    def omap_rm_key_range(self, c, o):
        begin, end = raw(o["begin"]), raw(o["end"])
        c.cut_omap(lambda k: not begin <= k < end)
        return 0

    def omap_clear(self, c, o):
        if not c.now.present():
            raise Failed(ENOENT)
        if c.now.has_omap:
            c.cut_omap(lambda k: False)
            c.now.body.header, c.now.has_omap = b"", False
        return 0

    def omap_cmp(self, c, o):
        if not c.now.present() or (c.now.has_omap and not c.before.exists):
            raise Failed(ENOENT)
        if o["cmp"] not in (1, 3, 5):
            raise Failed(EINVAL)
        signed = lambda v: [b - 256 if b > 127 else b for b in v]
        stored = c.stored_omap().get(raw(o["key"]), b"")
        if not compare(o["cmp"], sign(signed(stored), signed(raw(o["value"])))):
            raise Failed(ECANCELED)
        return None

    def stat_assert(self, c, o):
        if not c.now.present():
            raise Failed(ENOENT)
        return None

    def cmpext(self, c, o):
        want, off = raw(o["data"]), o["off"]
        have = bytes(c.before.body.data[off:off + len(want)]) if c.before.present() else b""
        for i, (x, y) in enumerate(zip(want, have.ljust(len(want), b"\0"))):
            if x != y:
                raise Failed(-MAX_ERRNO - i)
        return 0

    def call(self, c, o):
        method = METHODS[o["class"], o["method"]]
        try:
            code, out = method(c, raw(o.get("in")))
        except Failed as e:
            code, out = e.code, b""
        o["_out"] = out
        if code < 0:
            raise Failed(code)
        return code

    def read(self, c, o):
        length = min(o["len"], max(c.now.size - o["off"], 0))
        o["_out"] = bytes(c.before.body.data[o["off"]:o["off"] + length])
        return 0

    def stat(self, c, o):
        o["stat"] = [c.now.size, c.now.mtime]
        return None

    def assert_version(self, c, o):
        # Every object has a higher version than the sequences name.
        raise Failed(EINVAL if o["version"] == 0 else ERANGE)

    def checksum(self, c, o):
        off, length, chunk, size = o["off"], o["len"], o["chunk"], c.now.size
        if chunk and (length == 0 or length % chunk):
            raise Failed(EINVAL)
        if off == 0 and length == 0:
            length = size
        elif off >= size:
            return 0
        elif off + length > size:
            length = size - off
            if chunk and length % chunk:
                raise Failed(EINVAL)
        data = bytes(c.before.body.data[off:off + length])
        chunk = chunk or len(data)
        width, of = [(4, xxh32), (8, xxh64), (4, crc32c)][o["kind"]]
        seed = int.from_bytes(bytes.fromhex(o["init"])[:width], "little")
        parts = [data[at:at + chunk] for at in range(0, len(data), chunk)] if chunk else []
        o["_out"] = len(parts).to_bytes(4, "little") + b"".join(of(seed, p).to_bytes(width, "little") for p in parts)
        return 0

    def getxattrs(self, c, o):
        o["map"] = sorted([k.hex(), v.hex()] for k, v in c.before.body.attrs.items())
        return 0

    def listed(self, c, o, prefix=b""):
        after = o.get("after", "").encode()
        found = sorted((k, v) for k, v in c.stored_omap().items() if k.startswith(prefix) and (k > after))
        o["more"] = int(len(found) > o["max"])
        return found[:o["max"]]

    def omap_get_vals(self, c, o):
        o["map"] = [[k.hex(), v.hex()] for k, v in self.listed(c, o, o.get("prefix", "").encode())]
        return None

    def omap_get_keys(self, c, o):
        o["map"] = [k.hex() for k, _ in self.listed(c, o)]
        return None

    def omap_get_vals_by_keys(self, c, o):
        keys, stored = {raw(k) for k in o["keys"]}, c.stored_omap()
        o["map"] = [[k.hex(), stored[k].hex()] for k in sorted(keys) if k in stored]
        return None


OPS = Ops()


def run(c, ops):
    """Runs a request's operations: the result, and the operations with theirs under `_rval`."""
    last, ops = 0, copy.deepcopy(ops)
    for o in ops:
        try:
            code = getattr(OPS, o["op"].replace("-", "_"))(c, o)
            last = last if code is None else code
        except Failed as e:
            last = e.code
        o["_rval"] = last
        if last < 0:
            # librados itself lets a hint fail.
            if not (o.get("failok") or o["op"] == "set-alloc-hint"):
                break
            last = 0
    return last, ops


def outputs(o, write, ran):
    """What librados shows of an operation that had a result (`ran`) or not."""
    kind = o["op"]
    if write and kind not in ("cmpext", "omap-cmp", "call"):
        return o
    if kind in ("assert-version", "cmpxattr"):
        return o
    # librados itself fails to decode an answer that is not there.
    decoded = kind in ("stat", "getxattrs") or kind.startswith("omap-get")
    out = {"rval": o["_rval"] if ran else EIO if decoded else 0}
    if kind in ("read", "checksum") or (kind == "call" and not write):
        out["out"] = o.get("_out", b"").hex()
        if kind == "checksum" and not out["out"]:
            out["out"] = "00000000"
    for field in ("stat", "map", "more"):
        if field in o:
            out[field] = o[field]
    return {**o, **out}


class Worlds:
    """The states that an object may be in."""

    def __init__(self):
        self.states = [Object()]

    def spread(self, live):
        """Adds the states in which clones of removed snapshots have gone."""
        for state in list(self.states):
            dead = {k for k, (snaps, _) in state.clones.items() if not any(s in live for s in snaps)}
            if not dead:
                continue
            trimmed = copy.copy(state)
            trimmed.clones = {k: v for k, v in state.clones.items() if k not in dead}
            if trimmed.whiteout and not trimmed.clones:
                trimmed = Object()
            if not any(trimmed.same(other) for other in self.states):
                self.states.append(trimmed)


class Model:
    """Stands beside a `Cluster` of play.py. `plant` names an error to make on purpose."""

    def __init__(self, plant=None):
        self.plant = plant

    def close(self):
        pass

    def play(self, steps, snaps, seen):
        """The answers to the steps; `seen` are those of the cluster, which decide where the model leaves it open."""
        player = Player(snaps, self.plant)
        return [player.step(step, a) for step, a in zip(steps, seen)]


class Player:
    def __init__(self, snaps, plant):
        self.pool_snaps, self.plant = snaps == "pool", plant
        self.ids, self.newest, self.snapc, self.pool_seq = {}, 0, [], 0
        self.worlds = {}

    def step(self, step, seen):
        if "snap_create" in step:
            self.newest += 1
            self.ids[step["snap_create"]] = self.newest
            return {"result": 0}
        if "snap_remove" in step:
            return {"result": 0} if self.ids.pop(step["snap_remove"], None) else None
        named = [step["read_snap"]] if step.get("read_snap") else []
        rolled = [o["snap"] for o in step["ops"] if o["op"] == "rollback"]
        if any(n not in self.ids for n in named + rolled):
            return None
        if self.pool_snaps:
            self.snapc = sorted(self.ids.values(), reverse=True)
        elif "snaps" in step:
            self.snapc = [self.ids[n] for n in step["snaps"] if n in self.ids]
        worlds = self.worlds.setdefault(step["object"], Worlds())
        worlds.spread(set(self.ids.values()))
        snap = self.ids[named[0]] if named else None
        rolled = self.ids[rolled[0]] if rolled else None
        possible = [self.request(step, state, snap, rolled) for state in worlds.states]
        fitting = [p for p in possible if p[0] == seen] or possible[:1]
        worlds.states = [state for _, state in fitting]
        return fitting[0][0]

    def request(self, step, state, snap, rolled):
        """The answer, and the object afterwards."""
        if rolled is not None:
            return self.rollback(state, rolled)
        if any(o.get("class") == "nothing" for o in step["ops"]):
            return self.answer(step, EPERM, step["ops"], False), state
        if all(o["op"] in GUARDS or not step.get("write") for o in step["ops"]):
            found = state if snap is None else self.at(state, snap)
            if found is None or not found.present():
                return self.answer(step, ENOENT, step["ops"], False), state
            result, ops = run(Change(found, []), step["ops"])
            return self.answer(step, result, ops, False), state
        change = Change(state, self.snapc)
        result, ops = run(change, step["ops"])
        after = change.finish() if result >= 0 else state
        if self.plant == "append" and any(o["op"] == "append" for o in ops) and len(after.body.data) > 9000:
            after.body.data[0] ^= 1
        return self.answer(step, result, ops, change.changed), after

    def at(self, state, snap):
        """The object as it was at a snapshot."""
        if snap > state.seq:
            return state
        later = sorted(k for k in state.clones if k >= snap)
        if not later:
            return None
        snaps, found = state.clones[later[0]]
        return found if snap in snaps else None

    def rollback(self, state, snap):
        change = Change(state, self.snapc)
        change.mtime = "now"
        then = self.at(state, snap) if state.exists else None
        if then is state and state.present():
            change.changed = True
        elif then is None or not then.present():
            try:
                change.remove()
            except Failed:
                pass
        else:
            n = change.now
            n.exists, n.whiteout = True, False
            n.body, n.size, n.has_omap = copy.deepcopy(then.body), then.size, then.has_omap
            change.changed = True
        return {"result": 0}, change.finish()

    def answer(self, step, result, ops, changed):
        """What librados shows of a request's result; a change has none but success, unless all of its results are asked for."""
        from play import answer
        write = bool(step.get("write"))
        shown = [outputs(o, write, "_rval" in o) for o in ops]
        if changed and result > 0 and not step.get("returnvec"):
            result = 0
        return {"result": result, "version": None, "ops": [answer(o) for o in shown]}
