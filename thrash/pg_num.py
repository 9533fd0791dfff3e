#!/usr/bin/python3
"""A pool's PG count goes down and up again while clients write; every object must hold what was last acknowledged.

  thrash/pg_num.py loligo --loligo target/release/loligo [--objects 1000] [--many 32] [--few 8] [--kill] [--seed N] [--stall S]
  thrash/pg_num.py ceph

With --kill an OSD is killed and started again, at least once on each way, and more often when that takes long; the seed, which is printed,
says which and when. Prints the seconds of both ways, the numbers of writes and of kills, as JSON.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time

import rados

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "bench"))
from clusters import Ceph, Loligo, Trouble, end_in_order

POOL = "shape"


def content(i, n):
    return hashlib.sha256(b"%d %d" % (i, n)).digest() * (4 + i % 60)


class Writer(threading.Thread):
    """Rewrites objects of its own, one after the other; `written` holds the number of the last acknowledged write of each."""

    def __init__(self, client, numbers, seed):
        super().__init__(daemon=True)
        self.io, self.numbers, self.random = client.open_ioctx(POOL), list(numbers), random.Random(seed)
        self.written, self.ending, self.trouble, self.slowest = {}, threading.Event(), None, 0.0

    def run(self):
        n = 0
        try:
            while not self.ending.is_set():
                n += 1
                i = self.numbers[n - 1] if n <= len(self.numbers) else self.random.choice(self.numbers)
                begin = time.monotonic()
                self.io.write_full("object-%d" % i, content(i, n))
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.written[i] = n
        except Exception as e:  # told by the main thread
            self.trouble = e

    def check(self):
        for i, n in self.written.items():
            if self.io.read("object-%d" % i, 1 << 20) != content(i, n):
                raise Trouble("object-%d is not what was written last" % i)


class Killer:
    """Kills an OSD now and then, and starts it again, as its generator says; at most one is away."""

    def __init__(self, cluster, rng):
        self.cluster, self.rng, self.kills, self.killed, self.wait = cluster, rng, 0, None, 0

    def tick(self):
        """Once a second. The first kill is at once: a pool may change its shape within seconds."""
        if self.wait:
            self.wait -= 1
        elif self.killed is None:
            self.killed = self.rng.choice(self.cluster.osds)
            self.cluster.kill("osd.%d" % self.killed)
            self.kills += 1
            self.wait = self.rng.randint(0, 5)
        else:
            self.revive()
            self.wait = self.rng.randint(3, 15)

    def revive(self):
        if self.killed is not None:
            self.cluster.launch("osd.%d" % self.killed)
            self.killed = None


def reshape(args, cluster, pg_num, rng):
    """Sets the count and waits until it is reached and everything is clean; the seconds, and how often an OSD was killed."""
    begin, killer = time.monotonic(), Killer(cluster, rng)
    cluster.ceph("osd", "pool", "set", POOL, "pg_num", str(pg_num))
    while True:
        if args.kill:
            killer.tick()
        pool = next(p for p in cluster.ask("osd dump")["pools"] if p["pool_name"] == POOL)
        if pool["pg_num"] == pool["pg_placement_num"] == pool["pg_num_pending"] == pg_num:
            break
        if time.monotonic() - begin > args.limit:
            raise Trouble("pg_num stays at %d: %s" % (pool["pg_num"], cluster.unclean()))
        time.sleep(1)
    killer.revive()
    cluster.wait_clean(args.limit)
    if args.kill and not killer.kills:
        raise Trouble("no OSD was killed on the way to %d PGs" % pg_num)
    return round(time.monotonic() - begin, 1), killer.kills


def measure(args, cluster):
    cluster.start()
    cluster.spread()
    cluster.ceph("osd", "pool", "create", POOL, str(args.many), str(args.many), "replicated", "spread")
    cluster.ceph("osd", "pool", "set", POOL, "size", "2")
    cluster.ceph("osd", "pool", "set", POOL, "min_size", "1")
    cluster.ceph("osd", "pool", "set", POOL, "pg_autoscale_mode", "off")
    cluster.wait_clean(120)
    figures, rng = {"cluster": cluster.kind, "objects": args.objects, "seed": args.seed}, random.Random(args.seed)
    with rados.Rados(conffile=cluster.conf) as client:
        writers = [Writer(client, range(k, args.objects, 4), k) for k in range(4)]
        for w in writers:
            w.start()
        try:
            figures["down_s"], down = reshape(args, cluster, args.few, rng)
            figures["up_s"], up = reshape(args, cluster, args.many, rng)
            figures["kills"] = down + up
        finally:
            for w in writers:
                w.ending.set()
            for w in writers:
                w.join(60)
        for w in writers:
            if w.trouble or w.is_alive():
                raise Trouble("a writer ended with %r" % w.trouble if w.trouble else "a write is not answered")
            w.check()
        names = sorted(o.key for o in client.open_ioctx(POOL).list_objects())
        wanted = sorted("object-%d" % i for w in writers for i in w.written)
        if names != wanted:
            raise Trouble("the pool lists %d objects, %d were written" % (len(names), len(wanted)))
        figures["writes"] = sum(max(w.written.values()) for w in writers)
        figures["slowest_write_s"] = round(max(w.slowest for w in writers), 2)
        if args.stall and figures["slowest_write_s"] > args.stall:
            raise Trouble("a write took %s s: %s" % (figures["slowest_write_s"], json.dumps(figures)))
    return figures


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cluster", choices=["loligo", "ceph"])
    p.add_argument("--loligo", default="target/release/loligo", help="the program")
    p.add_argument("--objects", type=int, default=1000)
    p.add_argument("--many", type=int, default=32)
    p.add_argument("--few", type=int, default=8)
    p.add_argument("--kill", action="store_true")
    p.add_argument("--seed", type=int, help="of the kills (default: any; it is printed)")
    p.add_argument("--mons", type=int, default=1)
    p.add_argument("--osds", type=int, default=3)
    p.add_argument("--limit", type=float, default=600, help="seconds for each way")
    p.add_argument("--stall", type=float, help="seconds that a write may take, 0 for any (default: 8; with --kill, and of Ceph, any)")
    args = p.parse_args()
    if args.stall is None:
        args.stall = 0 if args.kill or args.cluster == "ceph" else 8
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 31)
    print("seed %d" % args.seed, file=sys.stderr, flush=True)
    end_in_order()
    folder = tempfile.mkdtemp(prefix="pg-num-")
    cluster = {"loligo": Loligo, "ceph": Ceph}[args.cluster](args, os.path.join(folder, "c"))
    try:
        print(json.dumps(measure(args, cluster)))
    except Trouble as e:
        sys.exit("not shown: %s" % e)
    finally:
        cluster.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
