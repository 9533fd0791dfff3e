#!/usr/bin/python3
"""A client of the thrashed cluster: uses objects that others use as well, and its own, and writes down what it saw.

  model.py CONF POOL NAME SEED THREADS OUTPUT [--rate OPS] [--maps POOL]

Runs until its standard input closes, then finishes what is under way, checks its own objects a last time and ends. OUTPUT gets a line of
JSON for each operation on a shared object, and for each fault that it noticed itself; status 1 says that there was one. Times are
the machine's monotonic clock.

Shared objects: registers (whole objects), cells (ranges of an object, overwritten), logs (append), keys of an omap. Own objects: writes
at offsets, truncation, zeroes, removal, attributes and snapshots, compared with a copy in memory.
"""
import argparse
import hashlib
import json
import os
import random
import sys
import threading
import time

import rados

REGISTERS, LOGS, MAPS, KEYS, OWN = 12, 4, 2, 8, 6
BOARDS, CELLS, CELL = 2, 9, 3001  # objects of so many cells of so many bytes, which lie across any chunk's bounds
TOKEN = 24  # bytes of a token in a log
SNAPS = 4  # of a thread's own objects, at once
HEAD = (1 << 64) - 2  # CEPH_NOSNAP


def body(value, size):
    """The bytes that stand for a value: nobody can confuse two of them, and a flipped bit shows."""
    seed = hashlib.sha256(value.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def encode(value, size):
    """An object's or a cell's bytes, 40 more than `size`."""
    return ("%-32s%8d" % (value, size)).encode() + body(value, size)


def decode(data):
    """The value that an object holds; raises ValueError when its bytes are not what was written for that value."""
    value, size = data[:32].decode("ascii").strip(), int(data[32:40])
    if data[40:] != body(value, size):
        raise ValueError("the bytes of %r are not what was written" % value)
    return value


class Worker(threading.Thread):
    def __init__(self, args, cluster, index, out):
        super().__init__()
        self.me, self.rng = "%s.%d" % (args.name, index), random.Random("%s %s %d" % (args.seed, args.name, index))
        self.pause = args.threads / args.rate
        self.io, self.out, self.count, self.ops = cluster.open_ioctx(args.pool), out, 0, 0
        self.ended, self.broken = False, False
        self.maps = cluster.open_ioctx(args.maps or args.pool)
        self.own = cluster.open_ioctx(args.pool)  # has its own snapshot context
        self.model, self.attrs, self.snaps = {}, {}, []

    def unique(self):
        self.count += 1
        return "%s.%d" % (self.me, self.count)

    def fault(self, text):
        self.broken = True
        self.out({"fault": "%s: %s" % (self.me, text), "at": time.monotonic()})

    def timed(self, on, kind, value, call):
        """Runs an operation on a shared object. A read's value is what `call` gives."""
        begin = time.monotonic()
        self.ops += 1
        try:
            seen = call()
        except Exception as e:  # a client's error is a fault, whichever it is
            self.fault("%s of %s failed after %.3f s: %r" % (kind, on, time.monotonic() - begin, e))
            if kind == "write":  # may still have happened
                self.out({"on": on, "kind": kind, "value": value, "begin": begin, "end": None})
            return
        end = time.monotonic()
        self.out({"on": on, "kind": kind, "value": seen if kind == "read" else value, "begin": begin, "end": end})

    def register(self):
        on, value = "register-%d" % self.rng.randrange(REGISTERS), self.unique()
        if self.rng.random() < 0.5:
            size = self.rng.choice([60, 500, 4096, 20000, 65536])
            self.timed(on, "write", value, lambda: self.io.write_full(on, encode(value, size)))
        else:
            self.timed(on, "read", None, lambda: self.read_register(on))

    def read_register(self, on):
        try:
            data = self.io.read(on, 1 << 20)
        except rados.ObjectNotFound:
            return None
        return decode(data)

    def cell(self):
        name, i, value = "board-%d" % self.rng.randrange(BOARDS), self.rng.randrange(CELLS), self.unique()
        on = "%s/%d" % (name, i)
        if self.rng.random() < 0.5:
            self.timed(on, "write", value, lambda: self.io.write(name, encode(value, CELL - 40), i * CELL))
        else:
            self.timed(on, "read", None, lambda: self.read_cell(name, i))

    def read_cell(self, name, i):
        try:
            data = self.io.read(name, CELL, i * CELL)
        except rados.ObjectNotFound:
            return None
        if len(data) not in (0, CELL):
            raise ValueError("%s ends within a cell" % name)
        return decode(data) if any(data) else None

    def log(self):
        on = "log-%d" % self.rng.randrange(LOGS)
        if self.rng.random() < 0.8:
            value = self.unique()
            token = ("%-*s" % (TOKEN, value)).encode()
            self.timed(on, "write", value, lambda: self.io.append(on, token))
        else:
            self.timed(on, "read", None, lambda: read_log(self.io, on))

    def omap(self):
        name, key, value = "map-%d" % self.rng.randrange(MAPS), "key-%d" % self.rng.randrange(KEYS), self.unique()
        on = name + "/" + key
        if self.rng.random() < 0.5:
            self.timed(on, "write", value, lambda: self.set_key(name, key, value))
        else:
            self.timed(on, "read", None, lambda: self.get_key(name, key))

    def set_key(self, name, key, value):
        with rados.WriteOpCtx() as op:
            self.maps.set_omap(op, (key,), (value.encode(),))
            self.maps.operate_write_op(op, name)

    def get_key(self, name, key):
        with rados.ReadOpCtx() as op:
            found, status = self.maps.get_omap_vals_by_keys(op, (key,))
            try:
                self.maps.operate_read_op(op, name)
            except rados.ObjectNotFound:
                return None
            if status:
                raise rados.Error("omap read ended with %d" % status)
            values = dict(found)
        return values[key].decode() if key in values else None

    def private(self):
        on = "own-%s-%d" % (self.me, self.rng.randrange(OWN))
        self.ops += 1
        begin = time.monotonic()
        try:
            kind = self.change(on) if self.rng.random() < 0.6 else self.compare(on)
        except Exception as e:
            self.fault("an operation on %s failed after %.3f s: %r" % (on, time.monotonic() - begin, e))
            return
        self.out({"on": on, "kind": kind, "value": None, "begin": begin, "end": time.monotonic()})

    def change(self, on):
        """Does something to an own object, or to the snapshots of all; which of both."""
        rng, data = self.rng, self.model.get(on)
        what = rng.choice(["write", "write", "write", "truncate", "zero", "remove", "attr", "snap"])
        if what == "snap":
            self.snapshot()
            return "snap"
        if what == "write" or data is None:
            at, new = rng.randrange(0, 200000), body(self.unique(), rng.choice([1, 700, 4096, 10000, 50000]))
            old = data or bytearray()
            if len(old) < at + len(new):
                old = old + bytes(at + len(new) - len(old))
            old = bytearray(old)
            old[at : at + len(new)] = new
            self.own.write(on, bytes(new), at)
            self.model[on] = old
        elif what == "truncate":
            size = rng.randrange(0, 200000)
            self.own.trunc(on, size)
            self.model[on] = bytearray(data[:size] + bytes(max(0, size - len(data))))
        elif what == "zero":
            # The same number twice: python-rados 16.2 hands offset and length over in the wrong order.
            at = length = rng.randrange(1, 120000)
            with rados.WriteOpCtx() as op:
                op.zero(at, length)
                self.own.operate_write_op(op, on)
            if at + length >= len(data):  # an OSD makes a truncation of it (Source: src/osd/PrimaryLogPG.cc, do_osd_ops)
                del data[at:]
            else:
                data[at : at + length] = bytes(length)
        elif what == "remove":
            self.own.remove_object(on)
            self.model.pop(on)
            self.attrs.pop(on, None)
        else:
            value = self.unique().encode()
            self.own.set_xattr(on, "a", value)
            self.attrs[on] = value
        return "own"

    def snapshot(self):
        """Takes a snapshot of all own objects, or removes one."""
        if len(self.snaps) < SNAPS:
            snap = self.own.create_self_managed_snap()
            self.snaps.insert(0, (snap, {k: bytes(v) for k, v in self.model.items()}))
            self.own.set_self_managed_snap_write([s for s, _ in self.snaps])
        else:
            snap, _ = self.snaps.pop(self.rng.randrange(len(self.snaps)))
            self.own.set_self_managed_snap_write([s for s, _ in self.snaps])
            self.own.remove_self_managed_snap(snap)

    def compare(self, on):
        if self.snaps and self.rng.random() < 0.3:
            snap, frozen = self.rng.choice(self.snaps)
            self.own.set_read(snap)
            try:
                self.equal(on, frozen.get(on), " in snapshot %d" % snap)
            finally:
                self.own.set_read(HEAD)
            return "own"
        if self.rng.random() < 0.5:
            self.equal(on, self.model.get(on), "", self.rng.randrange(200000), self.rng.choice([1, 700, 4096, 30000]))
            return "own"
        self.equal(on, self.model.get(on), "")
        if on in self.attrs and self.own.get_xattr(on, "a") != self.attrs[on]:
            self.fault("%s has another attribute than was set" % on)
        return "own"

    def equal(self, on, want, where, at=0, length=1 << 20):
        try:
            got = self.own.read(on, length, at)
        except rados.ObjectNotFound:
            got = None
        want = None if want is None else bytes(want[at : at + length])
        if got != want:
            first = next((at + i for i, (a, b) in enumerate(zip(got or b"", want or b"")) if a != b), "the end")
            sizes = tuple(None if x is None else len(x) for x in (got, want))
            text = "%s%s differs from what was written: from %d on size %s, expected %s, first difference at %s"
            self.fault(text % (on, where, at, *sizes, first))

    def run(self):
        deeds = [self.register, self.register, self.cell, self.log, self.omap, self.private, self.private]
        while not self.ended:
            begin = time.monotonic()
            self.rng.choice(deeds)()
            time.sleep(max(0.0, self.pause - (time.monotonic() - begin)))

    def last_check(self):
        for i in range(OWN):
            on = "own-%s-%d" % (self.me, i)
            self.equal(on, self.model.get(on), " at the end")
            for snap, frozen in self.snaps:
                self.own.set_read(snap)
                self.equal(on, frozen.get(on), " in snapshot %d at the end" % snap)
            self.own.set_read(HEAD)


def read_log(io, on):
    data, at = b"", 0
    while True:
        try:
            piece = io.read(on, 1 << 22, at)
        except rados.ObjectNotFound:
            return []
        data, at = data + piece, at + len(piece)
        if len(piece) < 1 << 22:
            break
    if len(data) % TOKEN:
        raise ValueError("the log ends with half a token")
    return [data[i : i + TOKEN].decode("ascii").strip() for i in range(0, len(data), TOKEN)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("conf", "pool", "name", "seed"):
        p.add_argument(name)
    p.add_argument("threads", type=int)
    p.add_argument("output")
    p.add_argument("--maps", help="the pool of the omaps, which coded pools do not have (default: POOL)")
    p.add_argument("--rate", type=float, default=150, help="operations per second in all")
    args = p.parse_args()
    lock = threading.Lock()
    with open(args.output, "w") as file, rados.Rados(conffile=args.conf) as cluster:

        def out(record):
            line = json.dumps(record)
            with lock:
                file.write(line + "\n")

        workers = [Worker(args, cluster, i, out) for i in range(args.threads)]
        for w in workers:
            w.daemon = True
            w.start()
        print("ready", flush=True)
        sys.stdin.read()
        for w in workers:
            w.ended = True
        stuck = []
        for w in workers:
            w.join(timeout=60)
            if w.is_alive():
                stuck.append(w)
                w.fault("an operation is still waiting a minute after the end")
        for w in workers:
            if w not in stuck:
                w.last_check()
        print(sum(w.ops for w in workers), flush=True)
        status = 1 if any(w.broken for w in workers) else 0
        file.flush()
        if stuck:
            os._exit(1)
    sys.exit(status)


if __name__ == "__main__":
    main()
