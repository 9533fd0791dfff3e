"""Random sequences of requests, from a seed: the same with every Python.

A step is one of
  {"object": name, "ops": [...], "write": bool, ...}   a request, in the form of pg/tests/operations/sequences.py
  {"snap_create": k}, {"snap_remove": k}               a snapshot, by its number in the sequence
Requests name snapshots by number too: "snaps" is the snapshot context, newest first; "read_snap" is what a read sees.
"""
EQ, NE, GT, GTE, LT, LTE = range(1, 7)
NAMES = ["a", "b", "c", "d"]
KEYS = ["", "a", "b", "c", "ca", "cb", "d"]
#: Objects stay below this many bytes.
SPAN = 70_000


class Random:
    """A small generator of our own."""

    def __init__(self, seed):
        self.x = (seed * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.x >> 33) % n

    def one_in(self, n):
        return self.below(n) == 0

    def pick(self, items):
        return items[self.below(len(items))]

    def weighted(self, table):
        """One of (weight, item)."""
        at = self.below(sum(w for w, _ in table))
        for w, item in table:
            if at < w:
                return item
            at -= w
        raise AssertionError


def op(what, /, **kw):
    return {"op": what, **kw}


def envelope(*parts):
    """A class method's argument: an envelope around texts, small numbers and raw bytes."""
    body = b""
    for p in parts:
        if isinstance(p, str):
            body += len(p).to_bytes(4, "little") + p.encode()
        elif isinstance(p, int):
            body += bytes([p])
        else:
            body += p
    return {"hex": (b"\x01\x01" + len(body).to_bytes(4, "little") + body).hex()}


class Generator:
    """Makes the steps of one sequence. `snaps` is "self" for snapshots of the client's own, "pool" for the pool's, "none"."""

    def __init__(self, seed, snaps="self"):
        self.g = Random(seed)
        self.snaps = snaps
        self.made = 0
        #: Snapshots that exist, newest first.
        self.live = []

    def sequence(self, count):
        steps = []
        kinds = [(70, "write"), (40, "read")] + ([] if self.snaps == "none" else [(2, "create"), (1, "remove")])
        while len(steps) < count:
            kind = self.g.weighted(kinds)
            if kind == "write":
                steps.append(self.write())
            elif kind == "read":
                steps.append(self.read())
            elif kind == "create" and len(self.live) < 8:
                self.made += 1
                self.live.insert(0, self.made)
                steps.append({"snap_create": self.made})
            elif kind == "remove" and len(self.live) > 1:
                gone = self.g.pick(self.live)
                self.live.remove(gone)
                steps.append({"snap_remove": gone})
        # At the end everything is looked at, at every snapshot.
        for name in NAMES:
            for snap in [None, *self.live]:
                steps.extend(self.look(name, snap))
        return steps

    def offset(self):
        g = self.g
        return g.weighted([(4, lambda: g.below(40)), (3, lambda: g.below(17) * 4096), (2, lambda: g.below(SPAN))])()

    def data(self):
        g = self.g
        return g.weighted([
            (5, lambda: g.pick(["x", "hello", "0123456789", "zzzzzzzzzzzzzzzzzzzz"])),
            (1, lambda: ""),
            (2, lambda: {"fill": 1 + g.below(255), "count": 1 + g.below(20_000)}),
            (1, lambda: {"fill": 0, "count": 4096}),
        ])()

    def text(self):
        return self.g.pick(["", "x", "hello", "17", "0123456789", {"hex": "00ff80"}])

    def write_op(self):
        g, key = self.g, lambda: self.g.pick(KEYS)
        name = lambda: self.g.pick(KEYS[1:])
        return g.weighted([
            (6, lambda: op("write", off=self.offset(), data=self.data())),
            (2, lambda: op("writefull", data=self.data())),
            (3, lambda: op("append", data=self.data())),
            (2, lambda: op("truncate", off=self.offset())),
            (2, lambda: op("zero", off=self.offset(), len=1 + g.below(9000))),
            (1, lambda: op("writesame", data="ab", len=2 * g.below(3000) + g.below(2), off=self.offset())),
            (1, lambda: op("create", excl=g.one_in(2))),
            (2, lambda: op("delete")),
            (2, lambda: op("setxattr", name=name(), value=self.text())),
            (1, lambda: op("rmxattr", name=name())),
            (3, lambda: op("omap-set-vals", vals=[[key(), self.text()] for _ in range(1 + g.below(3))])),
            (1, lambda: op("omap-rm-keys", keys=[key()])),
            (1, lambda: op("omap-rm-key-range", begin=key(), end=key())),
            (1, lambda: op("omap-clear")),
            (1, lambda: op("cmpxattr", name=name(), cmp=g.below(7), value=self.text())),
            (1, lambda: op("omap-cmp", key=key(), cmp=g.pick([EQ, LT, GT]), value=self.text())),
            (1, lambda: op("stat-assert")),
            (1, lambda: op("set-alloc-hint", size=4096 * g.below(4), wsize=4096)),
            (2, lambda: self.class_write()),
        ])()

    def class_write(self):
        g = self.g
        cookie = g.pick(["c", "d"])
        return op("call", **g.pick([
            {"class": "hello", "method": "record_hello", "in": g.pick(["me", ""])},
            {"class": "hello", "method": "write_return_data"},
            {"class": "numops", "method": g.pick(["add", "mul"]),
             "in": {"hex": (b"\x01\0\0\0n" + (lambda v: len(v).to_bytes(4, "little") + v)(g.pick([b"2", b"1.5", b"x"]))).hex()}},
            {"class": "lock", "method": "lock", "in": envelope("l", 1 + g.below(2), cookie, "t", "why", bytes(8), g.below(3))},
            {"class": "lock", "method": "unlock", "in": envelope("l", cookie)},
            {"class": "refcount", "method": "get", "in": {"hex": "010106000000010000006100"}},
            {"class": "refcount", "method": "put", "in": {"hex": "010106000000010000006100"}},
            {"class": "version", "method": "set", "in": envelope(bytes.fromhex(envelope(g.below(9).to_bytes(8, "little"), "tag")["hex"]))},
            {"class": "log", "method": "add", "in": self.log_entry()},
            {"class": "nothing", "method": "here"},
        ]))

    def log_entry(self):
        """One entry with a key of its own."""
        g = self.g
        time = g.below(4).to_bytes(4, "little") + bytes(4)
        entry = b"\2" + bytes.fromhex(envelope("s", "n", time, "data", "1_" + g.pick("ab"))["hex"])[1:]
        return {"hex": (b"\2" + bytes.fromhex(envelope(b"\1\0\0\0", entry, 1)["hex"])[1:]).hex()}

    def write(self):
        g, name = self.g, self.g.pick(NAMES)
        step = {"object": name, "write": True}
        if self.live and g.one_in(12):
            step["ops"] = [op("rollback", snap=g.pick(self.live))]
        elif g.one_in(20):
            # Alone: it reads data, see below.
            step["ops"] = [op("call", **{"class": "hello", "method": "turn_it_to_11", "failok": g.one_in(2)})]
        else:
            ops = []
            # Not behind a write: Ceph reads the stored data, finds that its checksum is not that of the data that the write
            # brings, and repairs the object for ever.
            if g.one_in(8):
                ops.append(op("cmpext", off=self.offset(), data=g.pick(["hello", "x", {"fill": 0, "count": 9}])))
            for o in (self.write_op() for _ in range(1 + g.below(4))):
                # BlueStore removes the range of keys that is stored, not what the same transaction has set.
                ranged = o["op"] in ("omap-clear", "omap-rm-key-range")
                unseen = ranged and any(before["op"] in ("omap-set-vals", "call") for before in ops)
                # Ceph forgets the first of two removals when the object was made anew between them.
                removes = lambda x: x["op"] == "delete" or x.get("method") == "put"
                again = removes(o) and any(removes(before) for before in ops)
                if not (unseen or again):
                    ops.append(o)
            ops = ops or [op("create")]
            for o in ops:
                if g.one_in(4):
                    o["failok"] = True
            step["ops"] = ops
            if g.one_in(4):
                step["returnvec"] = True
        if self.snaps == "self":
            step["snaps"] = list(self.live)
            if g.one_in(30):
                # A client that has not heard of the newest snapshot.
                step["snaps"] = step["snaps"][1:]
        return step

    def read_op(self):
        g, key = self.g, lambda: self.g.pick(KEYS)
        return g.weighted([
            (3, lambda: op("stat")),
            (6, lambda: op("read", off=self.offset(), len=1 + g.below(SPAN))),
            (2, lambda: op("getxattrs")),
            (2, lambda: op("omap-get-vals", max=g.below(5), after=key(), prefix=g.pick(["", "c"]))),
            (2, lambda: op("omap-get-keys", max=g.below(5), after=key())),
            (2, lambda: op("omap-get-vals-by-keys", keys=[key(), key()])),
            (1, lambda: op("cmpext", off=self.offset(), data=g.pick(["hello", "x", {"fill": 0, "count": 9}]), failok=True)),
            (1, lambda: op("cmpxattr", name=g.pick(KEYS[1:]), cmp=1 + g.below(6), value=self.text())),
            (1, lambda: op("checksum", kind=g.below(3), init="ffffffffffffffff", off=self.offset(), len=g.below(5) * 4096,
                           chunk=g.pick([0, 4096, 512]))),
            (1, lambda: op("assert-version", version=g.below(3))),
            (1, lambda: op("call", **{"class": "hello", "method": "say_hello", "in": g.pick(["you", None])})),
            (1, lambda: op("call", **{"class": "lock", "method": g.pick(["get_info", "list_locks"]), "in": envelope("l")})),
            (1, lambda: op("call", **{"class": "refcount", "method": "read", "in": {"hex": "01010100000001"}})),
            (1, lambda: op("call", **{"class": "version", "method": "read"})),
            (1, lambda: op("call", **{"class": "log", **g.pick([
                {"method": "list", "in": envelope(bytes(8), "", bytes(8), bytes(4))}, {"method": "info", "in": envelope()}])})),
        ])()

    def read(self):
        g, name = self.g, self.g.pick(NAMES)
        snap = g.pick(self.live) if self.live and g.one_in(3) else None
        if g.one_in(4):
            return g.pick(self.look(name, snap))
        ops = [self.read_op() for _ in range(1 + g.below(3))]
        return {"object": name, "ops": ops, "read_snap": snap}

    def look(self, name, snap):
        """Requests that show a whole object."""
        shown = [[op("stat"), op("read", off=0, len=3 * SPAN)], [op("getxattrs"), op("omap-get-vals", max=1000)]]
        return [{"object": name, "ops": ops, "read_snap": snap} for ops in shown]
