#!/usr/bin/python3
"""How long a cluster takes from the return of an OSD to active+clean, when the OSD missed many objects, or all of them.

  thrash/recovery.py loligo --loligo target/release/loligo [--objects 10000] [--size 4096] [--copies 3]
  thrash/recovery.py ceph

An OSD is killed; when it is marked down, so many objects are written anew or for the second time; then it comes back (log-based recovery).
After that it loses its disk and comes back with an empty one (backfill). All objects are read back and compared. Prints the seconds, as JSON,
how many objects the returning OSD lacked (those of the PGs whose up set has it), and the bytes that the others sent for each byte of these.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time

import rados

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "bench"))
from clusters import Ceph, Loligo, Trouble, end_in_order

POOL = "recovery"


def content(i, size):
    seed = hashlib.sha256(b"%d" % i).digest()
    return (seed * (size // 32 + 1))[:size]


def each(client, objects, call, threads=16):
    """Calls `call(io, i)` for all objects, from several threads."""
    io = client.open_ioctx(POOL)
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    try:
        for _ in pool.map(lambda i: call(io, i), range(objects)):
            pass
    finally:
        # After a failure or a signal the rest is not done.
        pool.shutdown(cancel_futures=True)


def pushed(client, osds):
    """Bytes that these OSDs have sent in recovery so far."""
    total = 0
    for osd in osds:
        code, out, error = client.osd_command(osd, json.dumps({"prefix": "perf dump", "format": "json"}), b"", timeout=30)
        if code:
            raise Trouble("osd.%d tells no counters: %d %s" % (osd, code, error))
        total += json.loads(out)["osd"]["push_out_bytes"]
    return total


def wait_down(cluster, osd):
    until = time.monotonic() + 90
    while any(o["osd"] == osd and o["up"] for o in cluster.ask("osd dump")["osds"]):
        if time.monotonic() > until:
            raise Trouble("osd.%d stays up after its death" % osd)
        time.sleep(0.2)


def lacked(pgs, osd):
    """The objects of the PGs that have to be on this OSD: all of them were written while it was away."""
    return sum(pg["stat_sum"]["num_objects"] for pg in pgs if osd in pg["up"])


def counted(cluster, args):
    """The PGs of the pool, when what they report has all objects."""
    until = time.monotonic() + 60
    while True:
        pgs = cluster.ask("pg ls-by-pool", target="mgr", poolstr=POOL)["pg_stats"]
        count = sum(pg["stat_sum"]["num_objects"] for pg in pgs)
        if count == args.objects:
            return pgs
        if time.monotonic() > until:
            raise Trouble("the PGs report %d objects of %d" % (count, args.objects))
        time.sleep(0.3)


def clean_after_return(args, cluster, client, osd):
    """Of the return of an OSD that was away: seconds from its start to a clean cluster, objects that it lacked, bytes sent for each byte of them."""
    others = [o for o in range(args.osds) if o != osd]
    before, begin = pushed(client, others), time.monotonic()
    cluster.launch("osd.%d" % osd)
    cluster.wait_clean(args.limit)
    seconds = time.monotonic() - begin
    sent, objects = pushed(client, others) - before, lacked(counted(cluster, args), osd)
    if not objects:
        raise Trouble("osd.%d lacked nothing: no figure" % osd)
    return round(seconds, 2), objects, round(sent / (objects * args.size), 3)


def measure(args, cluster):
    cluster.start()
    cluster.spread()
    cluster.ceph("osd", "pool", "create", POOL, "32", "32", "replicated", "spread")
    cluster.ceph("osd", "pool", "set", POOL, "size", str(args.copies))
    cluster.ceph("osd", "pool", "set", POOL, "min_size", "1")
    cluster.wait_clean(120)
    osd, figures = 0, {"cluster": cluster.kind, "objects": args.objects, "size": args.size, "copies": args.copies}
    with rados.Rados(conffile=cluster.conf) as client:
        each(client, args.objects // 2, lambda io, i: io.write_full("object-%d" % i, b"old"))
        cluster.kill("osd.%d" % osd)
        wait_down(cluster, osd)
        begin = time.monotonic()
        each(client, args.objects, lambda io, i: io.write_full("object-%d" % i, content(i, args.size)))
        figures["write_s"] = round(time.monotonic() - begin, 2)
        figures["missed_objects_clean_s"], figures["missed_objects"], figures["missed_objects_bytes_moved"] = clean_after_return(args, cluster, client, osd)
        if not args.missed_only:
            cluster.kill("osd.%d" % osd)
            wait_down(cluster, osd)
            cluster.replace(osd)
            figures["empty_disk_clean_s"], figures["empty_disk_objects"], figures["empty_disk_bytes_moved"] = clean_after_return(args, cluster, client, osd)

        def compare(io, i):
            if io.read("object-%d" % i, 1 << 22) != content(i, args.size):
                raise Trouble("object-%d differs from what was written: no figure" % i)

        each(client, args.objects, compare)
    return figures


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cluster", choices=["loligo", "ceph"])
    p.add_argument("--loligo", default="target/release/loligo", help="the program")
    p.add_argument("--objects", type=int, default=10000)
    p.add_argument("--size", type=int, default=4096, help="bytes of each object, at most 4 MiB")
    p.add_argument("--copies", type=int, default=3)
    p.add_argument("--mons", type=int, default=1)
    p.add_argument("--osds", type=int, default=3)
    p.add_argument("--missed-only", action="store_true", help="leave out the loss of the disk")
    p.add_argument("--limit", type=float, default=600, help="seconds that recovery may take")
    args = p.parse_args()
    end_in_order()
    folder = tempfile.mkdtemp(prefix="recovery-")
    cluster = {"loligo": Loligo, "ceph": Ceph}[args.cluster](args, os.path.join(folder, "c"))
    try:
        print(json.dumps(measure(args, cluster)))
    except Trouble as e:
        sys.exit("no figure: %s" % e)
    finally:
        cluster.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
