"""Erasure-coded pools of Loligo beside Ceph's: `bench.py ec`.

Four OSDs each, every daemon a process of its own, a pool of 2+1 (jerasure, reed_sol_van) with overwrites and an image with its data there.
fio reads and writes the image 4 KiB at a time at depth 16, the client's cache off; `rados bench` moves 4 MiB objects and compares what it
reads. Then an OSD dies and is out: how long the others take until all is clean, and how much CPU for the bytes that they make anew. Last,
Loligo alone on eight OSDs: 4 MiB objects in a pool of 6+2 beside three copies. Data is checked as in the other benchmarks: the image after
the windows and after the rebuild, block by block; large objects by `rados bench` itself.
"""

import contextlib
import os
import re
import shutil
import statistics
import time

import fio
from clusters import Trouble, run
from usage import cpu_seconds

META, DATA, IMAGE = "bench", "coded", "image"
ORDER = ("loligo", "ceph", "ceph", "loligo")
DEPTH = 16
LARGE = 4 << 20
REBUILT_OBJECTS = 256


class CodedImage(fio.RbdImage):
    """Its names are in one pool, its data in another one."""

    def create(self, data_pool):
        where = "%s/%s" % (self.pool, self.name)
        run("rbd", "-c", self.conf, "create", "--size", "%dM" % (self.size >> 20), "--data-pool", data_pool, where)


def make_pools(cluster, k, m, name=DATA):
    profile = "k%dm%d" % (k, m)
    words = ("k=%d" % k, "m=%d" % m, "plugin=jerasure", "technique=reed_sol_van", "crush-failure-domain=osd")
    cluster.ceph("osd", "erasure-code-profile", "set", profile, *words)
    cluster.ceph("osd", "pool", "create", name, "32", "32", "erasure", profile)
    cluster.ceph("osd", "pool", "set", name, "allow_ec_overwrites", "true")
    cluster.ceph("osd", "pool", "application", "enable", name, "rbd")


def copies_pool(cluster, name, size):
    cluster.spread()
    cluster.ceph("osd", "pool", "create", name, "32", "32", "replicated", "spread")
    cluster.ceph("osd", "pool", "set", name, "size", str(size))
    cluster.ceph("osd", "pool", "application", "enable", name, "rbd")


def pids(cluster):
    return sorted({cluster.pid("osd.%d" % i) for i in cluster.osds})


def rados_bench(cluster, pool, seconds, kind, *more):
    """MB/s of 4 MiB objects, and OSD CPU per byte; a read that differs from what was written makes it fail."""
    before = cpu_seconds(pids(cluster))
    words = ("-p", pool, "bench", str(seconds), kind, "-t", "16", *more)
    out = run("rados", "-c", cluster.conf, *words, timeout=120 + 10 * seconds)
    used = cpu_seconds(pids(cluster)) - before
    mb = float(re.search(r"Bandwidth \(MB/sec\):\s+([\d.]+)", out).group(1))
    count = int(re.search(r"Total (?:writes|reads) made:\s+(\d+)", out).group(1))
    return {kind + "_mb_s": mb, kind + "_ns_byte": used / (count * LARGE) * 1e9}


def large(cluster, pool, seconds):
    written = ("-b", "4M", "--no-cleanup", "--max-objects", "320")
    found = rados_bench(cluster, pool, seconds, "write", *written)
    found.update(rados_bench(cluster, pool, seconds, "seq"))
    run("rados", "-c", cluster.conf, "-p", pool, "cleanup", timeout=900)
    return found


def window(cluster, image, kind, seconds):
    before = cpu_seconds(pids(cluster))
    options = ("--rw=rand" + kind, "--bs=4k", "--iodepth=%d" % DEPTH)
    if kind == "write":
        jobs = [image.write(*options, "--time_based", "--runtime=%d" % seconds)]
    else:
        jobs = image.read(seconds, *options)
    used = cpu_seconds(pids(cluster)) - before
    parts = [job[kind] for job in jobs]
    n = sum(part["total_ios"] for part in parts)
    p99 = max(part["clat_ns"]["percentile"]["99.000000"] for part in parts) / 1e3
    return {"cpu_us": used / n * 1e6, "iops": n / sum(part["runtime"] / 1e3 for part in parts), "p99_us": p99}


def medians(clusters, measure):
    runs = {name: [] for name in clusters}
    for name in ORDER:
        runs[name].append(measure(name))
    return {name: {k: statistics.median(r[k] for r in found) for k in found[0]} for name, found in runs.items()}


def stored(cluster, osd):
    """Bytes of data on an OSD, as it reports them."""
    for stat in cluster.ceph("pg", "dump", "osds")["osd_stats"]:
        if stat["osd"] == osd:
            return stat["statfs"]["data_stored"]
    raise Trouble("osd.%s reports no bytes" % osd)


def settled(cluster, osd):
    """The same, once two reports agree."""
    until, before = time.monotonic() + 60, stored(cluster, osd)
    while time.monotonic() < until:
        time.sleep(6)
        now = stored(cluster, osd)
        if now == before:
            return now
        before = now
    raise Trouble("the bytes of osd.%d do not settle" % osd)


def pgs_of(cluster):
    dump = cluster.ask("pg dump", target="mgr", dumpcontents=["pgs"])
    return dump.get("pg_stats", dump.get("pg_map", {}).get("pg_stats"))


def wait_without(cluster, lost, moved, seconds):
    """Waits until all PGs are clean without an OSD that is down and out, `moved` by reports of maps in which it is."""
    since, until, last = cluster.ask("osd dump")["epoch"], time.monotonic() + seconds, None
    while time.monotonic() < until:
        pgs = pgs_of(cluster)
        there = [pg["pgid"] for pg in pgs if lost in {*pg["up"], *pg["acting"]}]
        unclean = [pg["pgid"] for pg in pgs if not {"active", "clean"} <= set(pg["state"].split("+"))]
        old = [pg["pgid"] for pg in pgs if pg["pgid"] in moved and pg["reported_epoch"] < since]
        last = there or unclean or old
        if not last:
            return
        time.sleep(0.3)
    raise Trouble("not clean without osd.%d after %d s: PGs %s" % (lost, seconds, last[:5]))


def rebuild(cluster, pool):
    """An OSD dies and is out: seconds until all is clean, and OSD CPU for the bytes that are made anew."""
    written = ("-b", "4M", "--no-cleanup", "--max-objects", str(REBUILT_OBJECTS))
    rados_bench(cluster, pool, 600, "write", *written)
    lost = max(cluster.osds)
    gb = settled(cluster, lost) / 1e9
    moved = {pg["pgid"] for pg in pgs_of(cluster) if lost in pg["acting"]}
    cluster.kill("osd.%d" % lost)
    cluster.osds.remove(lost)
    used, begin = cpu_seconds(pids(cluster)), time.monotonic()
    cluster.ceph("osd", "down", str(lost))
    cluster.ceph("osd", "out", str(lost))
    wait_without(cluster, lost, moved, 900)
    seconds = time.monotonic() - begin
    used = cpu_seconds(pids(cluster)) - used
    rados_bench(cluster, pool, 60, "seq")
    return {"seconds": seconds, "gb_per_cpu_s": gb / used, "gb": gb}


def beside(args, kinds, folder, progress):
    """What both sides do with 2+1."""
    args.osds = 4
    clusters, images = {}, {}
    try:
        for name in ("loligo", "ceph"):
            cluster = clusters[name] = kinds[name](args, os.path.join(folder, name))
            cluster.more = args.quiet
            cluster.start()
            copies_pool(cluster, META, 2)
            make_pools(cluster, 2, 1)
            cluster.wait_clean(180)
            image = images[name] = CodedImage(args.image, cluster.conf, META, IMAGE)
            image.create(DATA)
            image.fill()
            progress("%s runs, its image is full" % name)
        found = {}
        for kind in ("write", "read"):
            found[kind] = medians(clusters, lambda n, k=kind: window(clusters[n], images[n], k, args.seconds))
            progress("4 KiB %s: %s" % (kind, {n: "%.0f us, %.0f/s" % (f["cpu_us"], f["iops"]) for n, f in found[kind].items()}))
        for image in images.values():
            image.check()
        found["large"] = medians(clusters, lambda n: large(clusters[n], DATA, args.seconds))
        progress("4 MiB: %s" % {n: {k: round(v, 2) for k, v in f.items()} for n, f in found["large"].items()})
        found["rebuild"] = {name: rebuild(cluster, DATA) for name, cluster in clusters.items()}
        progress("rebuild: %s" % {n: {k: round(v, 2) for k, v in f.items()} for n, f in found["rebuild"].items()})
        for image in images.values():
            image.check()
        return found
    finally:
        for cluster in clusters.values():
            cluster.stop()
            shutil.rmtree(cluster.dir, ignore_errors=True)


def alone(args, kinds, folder, progress):
    """4 MiB objects in 6+2 and in three copies, on Loligo."""
    args.osds = 8
    cluster = kinds["loligo"](args, os.path.join(folder, "wide"))
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start()
        copies_pool(cluster, "copies", 3)
        make_pools(cluster, 6, 2, "wide")
        cluster.wait_clean(180)
        runs = {"copies": [], "wide": []}
        for pool in ("wide", "copies", "copies", "wide"):
            runs[pool].append(large(cluster, pool, args.seconds))
        found = {pool: {k: statistics.median(r[k] for r in each) for k in each[0]} for pool, each in runs.items()}
        progress("6+2 beside three copies: %s" % {n: {k: round(v, 2) for k, v in f.items()} for n, f in found.items()})
        return found


def rows(found, row):
    """Lines of the table; `row(what, ceph, ours, ratio, gate, goal)` makes one."""
    table = []

    def line(what, at, key, more_is_better, gate, goal):
        a, b = found[at]["ceph"][key], found[at]["loligo"][key]
        table.append(row(what, a, b, b / a if more_is_better else a / max(b, 1e-9), gate, goal))

    line("2+1, 4 MiB write, MB/s", "large", "write_mb_s", True, 1.5, 2)
    line("2+1, 4 MiB read, MB/s", "large", "seq_mb_s", True, 1.5, 2)
    line("2+1, 4 MiB write: OSD CPU per byte, ns", "large", "write_ns_byte", False, None, None)
    line("2+1, 4 MiB read: OSD CPU per byte, ns", "large", "seq_ns_byte", False, None, None)
    for kind, iops, cpu in (("write", (5, 8), (8, 15)), ("read", (5, 10), (15, 30))):
        line("2+1 on an image, 4K random %s, depth %d: IOPS" % (kind, DEPTH), kind, "iops", True, *iops)
        line("2+1 on an image, 4K random %s, depth %d: OSD CPU per op, us" % (kind, DEPTH), kind, "cpu_us", False, *cpu)
    line("rebuild after losing an OSD: GB per OSD CPU second", "rebuild", "gb_per_cpu_s", True, 3, 5)
    line("rebuild after losing an OSD: seconds", "rebuild", "seconds", False, 2, 3)
    wide, copies = found["wide"]["wide"]["write_mb_s"], found["wide"]["copies"]["write_mb_s"]
    table.append(row("6+2, 4 MiB write beside our three copies, MB/s", copies, wide, wide / copies, 1, 1.2))
    return table


def measure(args, kinds, folder, progress):
    found = beside(args, kinds, folder, progress)
    found["wide"] = alone(args, kinds, folder, progress)
    return found
