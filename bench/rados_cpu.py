#!/usr/bin/python3
"""CPU per operation of a cluster's daemons under python3-rados, with the data read back and compared.

  bench/rados_cpu.py --conf data/ceph.conf --pids 123,124,125 --pool p [--seconds 10] [--depth 32] [--size 4096]

Prints one JSON object: operations per second and microseconds of daemon CPU per write and per read. It ends with status 1,
and without a figure, when the cluster is not healthy, when a debug log is on, or when the data does not compare.
"""
import argparse
import json
import random
import sys
import threading
import time

import rados
from usage import cpu_seconds, switches


def refuse(why):
    print("no figure: " + why, file=sys.stderr)
    sys.exit(1)


class Load:
    """Operations on `count` objects at a fixed depth for a fixed time."""

    def __init__(self, io, args):
        self.io, self.args = io, args
        self.model = {}
        self.errors = []

    def run(self, op, seconds):
        slots = threading.Semaphore(self.args.depth)
        done = [0]
        lock = threading.Lock()
        end = time.monotonic() + seconds
        rng = random.Random(self.args.seed)
        pending = []
        while time.monotonic() < end:
            slots.acquire()
            n = rng.randrange(self.args.objects)
            name = "o%06d" % n

            def finished(c, *data, name=name):
                with lock:
                    done[0] += 1
                    if c.get_return_value() < 0:
                        self.errors.append((name, c.get_return_value()))
                    elif data and data[0] != self.model.get(name):
                        self.errors.append((name, "differs"))
                slots.release()

            if op == "write":
                # One writer per object at a time: a newer write to the same object follows the older one in order.
                data = (b"%s %d " % (name.encode(), rng.randrange(1 << 40)) * (self.args.size // 16 + 1))[: self.args.size]
                self.model[name] = data
                pending.append(self.io.aio_write_full(name, data, finished))
            else:
                if name not in self.model:
                    slots.release()
                    continue
                pending.append(self.io.aio_read(name, self.args.size, 0, finished))
            if len(pending) > 4096:
                pending = pending[-self.args.depth * 2 :]
        for _ in range(self.args.depth):
            slots.acquire()
        return done[0]


def measure(load, pids, op, seconds):
    c0, s0, t0 = cpu_seconds(pids), switches(pids), time.monotonic()
    n = load.run(op, seconds)
    dt = time.monotonic() - t0
    return {
        "ops": n,
        "ops_per_s": round(n / dt),
        "daemon_cpu_us_per_op": round((cpu_seconds(pids) - c0) * 1e6 / max(n, 1), 1),
        "switches_per_op": round((switches(pids) - s0) / max(n, 1), 2),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conf", required=True)
    p.add_argument("--pids", required=True, help="the daemons to account, comma separated")
    p.add_argument("--pool", default="p")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--depth", type=int, default=32)
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--objects", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    pids = [int(x) for x in args.pids.split(",")]
    cluster = rados.Rados(conffile=args.conf)
    cluster.connect(timeout=20)
    ret, out, err = cluster.mon_command('{"prefix": "health", "format": "json"}', b"")
    if ret or json.loads(out)["status"] == "HEALTH_ERR":
        refuse("the cluster is not healthy: %s" % (err or out.decode()))
    ret, out, _ = cluster.mon_command('{"prefix": "config dump", "format": "json"}', b"")
    if ret == 0 and any(o["name"].startswith("debug_") for o in json.loads(out)):
        refuse("debug logging is on")
    io = cluster.open_ioctx(args.pool)
    load = Load(io, args)
    load.run("write", min(3, args.seconds))  # warm up, and something to read
    result = {"write": measure(load, pids, "write", args.seconds), "read": measure(load, pids, "read", args.seconds)}
    for name, want in load.model.items():
        if io.read(name, args.size + 1) != want:
            load.errors.append((name, "differs at the end"))
    if load.errors:
        refuse("%d wrong results, such as %s" % (len(load.errors), load.errors[0]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
