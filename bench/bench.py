#!/usr/bin/python3
"""Loligo beside Debian's Ceph on this machine: one table with the gates and the goals of the project.

  bench/bench.py quick --loligo target/ship/loligo [--out DIR]      about 6 minutes
  bench/bench.py full  --loligo target/ship/loligo --out DIR        about 20 minutes, with curves over the depth
  bench/bench.py ec    --loligo target/ship/loligo [--out DIR]      about 6 minutes: erasure-coded pools (coded.py)
  bench/bench.py fs    --loligo target/ship/loligo [--out DIR]      about 5 minutes: a file system's metadata (fs.py)
  bench/bench.py quick --only large ...                                some of the rows: write, read, large, memory, start, crush

Starts both clusters, three OSDs each, every daemon a process of its own, with cephx, crc mode and two copies. fio's rbd engine reads and
writes a full image of each at random places, 4 KiB at a time, in the order A B B A (a full run twice at depths 8 and 32); `rados bench`
moves 4 MiB objects and compares what it reads. At first, and before each window with large objects, free memory is given to the page
cache, as on a machine that has run for a while (pagecache.py). CPU is user and system time of the OSDs' processes. The floor
(`loligo bench floor`) runs in between.

Data is checked where it is measured: what the windows write has checksums and numbers (fio.py), what they read is compared. After the
windows, and again after all daemons of both clusters were killed and started, both images are read: each block has to be what was written
there last, and large objects too. Without that there is no figure, and none when a cluster is not healthy or a debug log is on. DIR gets table.md, figures.json
and the plots. Exit status 1: no figures, or a ratio that has lost more than a tenth of the best one of this size (ratios.json), or is gone.
"""
import argparse
import collections
import contextlib
import json
import math
import os
import platform
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time

import coded
import fio
import fs
import ratios
from clusters import Ceph, Loligo, Trouble, end_in_order, mon_port, run
from pagecache import PageCache
from usage import cpu_seconds, resident_mib, switches, written_bytes

POOL, IMAGE = "bench", "image"
PARTS = ("write", "read", "large", "memory", "start", "crush")
ORDER = ("loligo", "ceph", "ceph", "loligo")
# Rows of these depths have gates, and one more pair of windows makes them steadier: a full run goes through the order twice.
GATED_DEPTHS = (8, 32)
# What can be told of a single OSD only where it is a process.
OF_ONE_OSD = {"memory", "start"}
QUIET = "".join("debug %s = 0/0\n" % part for part in ("osd", "ms", "bluestore", "bdev", "rocksdb", "mon", "filestore", "objecter", "auth"))


class OneProcess(Loligo):
    """All daemons in one process, whose CPU and memory are those of the monitor and the manager too."""

    def start(self):
        counts = ("--osds", str(len(self.osds)), "--osd-size", "4G")
        run(self.binary, "up", "--data", self.dir, "--detach", *counts, "--mon-port", str(mon_port()), timeout=180)

    def pid(self, name):
        return super().pid("loligo")

    def launch(self, name, skew=0.0, twin=""):
        with contextlib.suppress(Trouble):
            return self.pid(name)
        return run(self.binary, "up", "--data", self.dir, "--detach", timeout=180)


KINDS = {"ceph": Ceph, "loligo": Loligo}


class Side:
    """A cluster with its pool and its full image."""

    def __init__(self, args, cluster):
        self.cluster, self.conf = cluster, cluster.conf
        self.image = fio.RbdImage(args.image, self.conf, POOL, IMAGE)

    def start(self):
        """Seconds from nothing to HEALTH_OK."""
        begin = time.monotonic()
        self.cluster.start()
        self.wait_healthy()
        return time.monotonic() - begin

    def make_pool(self):
        cluster = self.cluster
        cluster.spread()
        cluster.ceph("osd", "pool", "create", POOL, "32", "32", "replicated", "spread")
        cluster.ceph("osd", "pool", "set", POOL, "size", "2")
        cluster.ceph("osd", "pool", "set", POOL, "min_size", "1")
        cluster.ceph("osd", "pool", "application", "enable", POOL, "rbd")
        cluster.wait_clean(120)

    def wait_healthy(self):
        until = time.monotonic() + 120
        while self.cluster.ask("health")["status"] != "HEALTH_OK":
            if time.monotonic() > until:
                raise Trouble("%s does not become healthy" % self.cluster.kind)
            time.sleep(0.05)

    def restart_osd(self, osd):
        """Seconds from the start of an OSD that has data until the map has it up."""
        name = "osd.%d" % osd
        self.cluster.kill(name)

        def up():
            return next(o["up"] for o in self.cluster.ask("osd dump")["osds"] if o["osd"] == osd)

        def wait(wanted):
            until = time.monotonic() + 120
            while up() != wanted:
                if time.monotonic() > until:
                    raise Trouble("%s of %s does not come %s" % (name, self.cluster.kind, "up" if wanted else "down"))
                time.sleep(0.02)

        wait(0)
        begin = time.monotonic()
        self.cluster.launch(name)
        wait(1)
        taken = time.monotonic() - begin
        self.cluster.wait_clean(120)
        return taken

    def fill(self, args):
        run("rbd", "-c", self.conf, "create", "--size", "%dM" % args.image, "%s/%s" % (POOL, IMAGE))
        self.image.fill()

    def pids(self):
        return sorted({self.cluster.pid("osd.%d" % i) for i in self.cluster.osds})

    def restart_all(self):
        """Kills every daemon, starts them again, and says how many seconds later everything is active+clean."""
        cluster = self.cluster
        names = ["mon." + m for m in cluster.mons] + ["mgr.x"] + ["osd.%d" % i for i in cluster.osds]
        cluster.kill(*names)
        begin = time.monotonic()
        for name in names:
            cluster.launch(name)
        cluster.wait_clean(120)
        return time.monotonic() - begin

    def healthy(self):
        health = self.cluster.ceph("health")
        bad = {k: v for k, v in health["checks"].items() if k not in ("POOL_NO_REDUNDANCY", "MGR_MODULE_DEPENDENCY")}
        if health["status"] == "HEALTH_ERR" or bad:
            raise Trouble("%s is not healthy: %s" % (self.cluster.kind, ", ".join(bad) or health["status"]))
        for option in self.cluster.ceph("config", "dump") or []:
            if option["name"].startswith("debug_") and option["value"].split("/")[0] != "0":
                raise Trouble("debug logging is on in %s: %s" % (self.cluster.kind, option["name"]))
        for i in self.cluster.osds:
            level = run("ceph", "-c", self.conf, "tell", "osd.%d" % i, "config", "get", "debug_osd", check=False)
            found = re.search(r"(\d+)/\d+", level)
            if found and int(found.group(1)) > 1:
                raise Trouble("osd.%d of %s logs at level %s" % (i, self.cluster.kind, found.group(1)))


def window(side, args, kind, depth):
    """One measurement with fio; figures per operation. What is written is logged for the check, what is read is checked."""
    pids = side.pids()
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    written = written_bytes(side.cluster.dir, pids)
    before = cpu_seconds(pids), switches(pids)
    options = ("--rw=rand" + kind, "--bs=4k", "--iodepth=%d" % depth)
    if kind == "write":
        jobs = [side.image.write(*options, "--time_based", "--runtime=%d" % args.seconds)]
    else:
        jobs = side.image.read(args.seconds, *options)
    after = cpu_seconds(pids), switches(pids)
    written = written_bytes(side.cluster.dir, pids) - written
    mine = resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = [job[kind] for job in jobs]
    n = sum(part["total_ios"] for part in parts)
    used = [b - a for a, b in zip(before, after)]
    client = mine.ru_utime + mine.ru_stime - own.ru_utime - own.ru_stime
    return {"cpu_us": used[0] / n * 1e6, "iops": n / sum(part["runtime"] / 1e3 for part in parts), "client_cpu_us": client / n * 1e6,
            "mean_us": sum(part["clat_ns"]["mean"] * part["total_ios"] for part in parts) / n / 1e3,
            "p99_us": max(part["clat_ns"]["percentile"]["99.000000"] for part in parts) / 1e3,
            "switches": used[1] / n, "device_bytes_per_byte": written / n / fio.BLOCK}  # fmt: skip


def abba(sides, measure, prepare=lambda: None, rounds=1):
    """Medians of what `measure` says of each side, each time after `prepare`."""
    runs = {"loligo": [], "ceph": []}
    for name in ORDER * rounds:
        prepare()
        runs[name].append(measure(sides[name]))
    return {name: {k: statistics.median(r[k] for r in found) for k in found[0]} for name, found in runs.items()}


LARGE = 4 << 20


def rados_bench(side, seconds, kind, *more):
    """What `rados bench` says and what it cost, of objects of 4 MiB; a read that differs from what was written makes it fail."""
    pids = side.pids()
    before = cpu_seconds(pids), switches(pids)
    out = run("rados", "-c", side.conf, "-p", POOL, "bench", str(seconds), kind, "-t", "16", *more, timeout=120 + 10 * seconds)
    used = cpu_seconds(pids) - before[0], switches(pids) - before[1]
    mb = float(re.search(r"Bandwidth \(MB/sec\):\s+([\d.]+)", out).group(1))
    count = int(re.search(r"Total (?:writes|reads) made:\s+(\d+)", out).group(1))
    return {kind + "_mb_s": mb, kind + "_ns_byte": used[0] / (count * LARGE) * 1e9, kind + "_switches": used[1] / count}


def clean(side):
    run("rados", "-c", side.conf, "-p", POOL, "cleanup", timeout=900)


def large(side, args):
    """MB/s of 4 MiB objects, and OSD CPU per byte."""
    figures = rados_bench(side, args.seconds, "write", "-b", "4M", "--no-cleanup", "--max-objects", "640")  # or the OSDs would be full
    figures.update(rados_bench(side, args.seconds, "seq"))
    clean(side)
    return figures


def many_objects(side, args):
    """Resident MiB of an OSD after so many small objects, which are read back and compared."""
    bench = ("rados", "-c", side.conf, "-p", POOL, "bench", "600")
    run(*bench, "write", "-b", "4K", "-t", "64", "--no-cleanup", "--max-objects", str(args.objects), timeout=900)
    resident = resident_mib(side.pids())
    out = run(*bench, "seq", "-t", "64", timeout=900)
    read = int(re.search(r"Total reads made:\s+(\d+)", out).group(1))
    if read < args.objects:
        raise Trouble("%s gave back %d of %d objects" % (side.cluster.kind, read, args.objects))
    clean(side)
    return {"mib": resident}


def osd_starts(sides):
    """Seconds that an OSD with data takes to be up, the median over the OSDs, one side after the other."""
    taken = {name: [] for name in sides}
    for i, osd in enumerate(sides["loligo"].cluster.osds):
        for name in sorted(sides, reverse=i % 2 == 1):
            taken[name].append(sides[name].restart_osd(osd))
    return {name: statistics.median(found) for name, found in taken.items()}


def start_both(args, folder, clusters):
    """Both sides, and the seconds from nothing to HEALTH_OK of each, medians in the order A B B A. The last cluster of each kind stays, and
    `clusters` has those that run."""
    taken, sides = {"loligo": [], "ceph": []}, {}
    for i, name in enumerate(ORDER):
        clusters[name] = KINDS[name](args, os.path.join(folder, "%s-%d" % (name, i)))
        clusters[name].more = QUIET
        sides[name] = Side(args, clusters[name])
        taken[name].append(sides[name].start())
        if len(taken[name]) < ORDER.count(name):
            clusters[name].stop()
            shutil.rmtree(clusters.pop(name).dir)
    for side in sides.values():
        side.make_pool()
    return sides, {name: statistics.median(found) for name, found in taken.items()}


def crush(args):
    """Placements per second of one core, ours and crushtool's; None without the program."""
    if not os.path.exists(args.crush):
        return None
    return json.loads(run(args.crush, "--json", "--inputs", "300000", timeout=300))


def floor(args, depth):
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        return json.loads(run(args.loligo, "bench", "floor", "--json", "-s", "4", "-t", str(depth), "--dir", folder))


class Row(collections.namedtuple("Row", "what ceph ours ratio gate goal most", defaults=[False])):
    """Gate and goal are the least ratio, or with `most` the most that our own figure may be; None where there is none."""

    def misses(self, bound):
        if bound is None:
            return False
        return self.ours > bound if self.most else self.ratio < bound


def rows(found):
    """Of what was measured."""
    table = []

    def line(what, at, key, more_is_better, gate, goal, most=False):
        if at in found:
            a, b = found[at]["ceph"][key], found[at]["loligo"][key]
            table.append(Row(what, a, b, (b / a if more_is_better else a / max(b, 1e-9)), gate, goal, most))

    line("4K random write, depth 32: OSD CPU per op, us", "write 32", "cpu_us", False, 8, 20)
    line("4K random write, depth 32: IOPS", "write 32", "iops", True, 5, 8)
    line("4K random write, depth 8: IOPS", "write 8", "iops", True, 4, 6)
    line("4K random write, depth 1: mean latency, us", "write 1", "mean_us", False, 2, 3)
    line("4K random read, depth 32: OSD CPU per op, us", "read 32", "cpu_us", False, 3, 6)
    line("4K random read, depth 32: IOPS", "read 32", "iops", True, None, 1.9)
    line("context switches per write", "write 32", "switches", False, None, 15)
    line("rados bench 4 MiB write: OSD CPU per byte, ns", "large", "write_ns_byte", False, None, 1.0, most=True)
    line("rados bench 4 MiB read: OSD CPU per byte, ns", "large", "seq_ns_byte", False, None, 0.4, most=True)
    line("rados bench 4 MiB write, MB/s", "large", "write_mb_s", True, 1.3, 1.6)
    line("rados bench 4 MiB read, MB/s", "large", "seq_mb_s", True, 1.2, 1.45)
    line("resident MiB per OSD after %d objects" % found["objects"], "resident", "mib", False, 5, 8)
    line("OSD start until it is up, s", "start", "osd_s", False, 0.5, 0.3, most=True)
    line("cluster from nothing to HEALTH_OK, s", "start", "healthy_s", False, 2, 2, most=True)
    if found.get("crush"):
        a, b = found["crush"]["crushtool"], found["crush"]["together"]
        table.append(Row("CRUSH placements per second and core, 504 OSDs", a, b, b / a, 4, 10))
    if "write 32" in found:
        device = [found["write 32"][name]["device_bytes_per_byte"] for name in ("ceph", "loligo")]
        table.append(Row("device bytes per client byte, two copies", *device, None, 4, 2.6, most=True))
    return table


def shown(x):
    """A figure. It is cut, not rounded: what misses 5 by little does not become 5."""
    if x is None:
        return "-"
    return str(x) if isinstance(x, int) else "%.0f" % x if x >= 1000 else "%.2f" % (math.floor(x * 100) / 100)


def missed(table):
    """What every row says of its gate and goal, from figures that are not rounded."""
    out = []
    for bound in ("gate", "goal"):
        bad = ["%s (%s of %s%s)" % (row.what, shown(row.ours if row.most else row.ratio), "at most " if row.most else "", getattr(row, bound))
               for row in table if row.misses(getattr(row, bound))]  # fmt: skip
        out.append("Every %s is reached." % bound if not bad else "%ss not reached: %s." % (bound.capitalize(), "; ".join(bad)))
    return out


def listed(table):
    """The lines of a table, and what it misses."""
    out = ["| | Ceph | Loligo | times better | gate | goal |", "|---|---|---|---|---|---|"]
    for row in table:
        bounds = [str(x) if x is not None and not row.most else "-" if x is None else "at most %s" % x for x in (row.gate, row.goal)]
        out.append("| %s | %s |" % (row.what, " | ".join([shown(row.ceph), shown(row.ours), shown(row.ratio), *bounds])))
    return [*out, "", *missed(table), ""]


def markdown(found, machine):
    out = listed(rows(found))
    if "write 32" in found:
        w, floor_us = found["write 32"]["loligo"], found["floor"]["32"]["node_cpu_us_per_op"]
        out.append("Against the floor of this machine (%.1f us of CPU per write at depth 32): %.1f times. OSD CPU over the client's: %.2f."
                   % (floor_us, w["cpu_us"] / floor_us, w["cpu_us"] / w["client_cpu_us"]))  # fmt: skip
    out += ["All daemons killed and started again: active+clean after %.1f s (Ceph: %.1f s). Both images verified after the windows and after that, "
            "and large objects."
            % (found["restart_s"]["loligo"], found["restart_s"]["ceph"]), "", machine]  # fmt: skip
    return "\n".join(out)


def describe():
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*: (.*)", f.read() + "model name : unknown").group(1)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    version = run("ceph", "--version").split()
    return "%s, %d CPUs (%s), %.0f GiB, Linux %s, Ceph %s, load %.1f at the end" % (
        platform.machine(), os.cpu_count(), model, pages / 2**30, platform.release(), version[2], os.getloadavg()[0])  # fmt: skip


def plot(path, title, unit, curves):
    """A line for each of `curves`: {name: [(depth, value)]}; the depths stand at equal distances."""
    width, height, left, bottom = 640, 400, 70, 50
    depths = sorted({d for points in curves.values() for d, _ in points})
    top = max(v for points in curves.values() for _, v in points) * 1.1
    x = {d: left + (width - left - 30) * i / max(len(depths) - 1, 1) for i, d in enumerate(depths)}

    def y(v):
        return height - bottom - (height - bottom - 40) * v / top

    colours = {"ceph": "#c0392b", "loligo": "#1f6fb2", "floor": "#777777"}
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="15">%s</text>' % (left, title)]  # fmt: skip
    for i in range(6):
        v = top * i / 5
        out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>'
                   % (left, width - 30, y(v), y(v), left - 6, y(v) + 4, v))  # fmt: skip
    for d in depths:
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>' % (x[d], height - bottom + 18, d))
    out.append('<text x="%d" y="%d" text-anchor="middle">operations in flight</text>' % ((width + left) / 2, height - 12))
    out.append('<text x="12" y="%d">%s</text>' % (height - 12, unit))
    for i, (name, points) in enumerate(curves.items()):
        line = " ".join("%.1f,%.1f" % (x[d], y(v)) for d, v in sorted(points))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (line, colours[name]))
        out.append('<text x="%d" y="22" fill="%s" text-anchor="end">%s</text>' % (width - 30 - 80 * i, colours[name], name))
    with open(path, "w") as f:
        f.write("\n".join([*out, "</svg>\n"]))


def progress(text, begin):
    print("%5.0f s  %s" % (time.monotonic() - begin, text), file=sys.stderr, flush=True)


def measure(args, sides, healthy, begin, fill):
    found = {"objects": args.objects, "floor": {}}
    if "crush" in args.only:
        found["crush"] = crush(args)
    for side in sides.values():
        side.healthy()
        side.fill(args)
    time.sleep(args.settle)
    for kind, depths in (("write", args.depths), ("read", args.depths if args.size == "full" else [32])):
        for depth in depths if kind in args.only else ():
            at = "%s %d" % (kind, depth)
            rounds = 2 if args.size == "full" and depth in GATED_DEPTHS else 1
            found[at] = abba(sides, lambda s, k=kind, d=depth: window(s, args, k, d), rounds=rounds)
            progress("%s: %s" % (at, {n: "%.0f us, %.0f/s" % (f["cpu_us"], f["iops"]) for n, f in found[at].items()}), begin)
            if kind == "write":
                found["floor"][str(depth)] = floor(args, depth)
    for name, side in sides.items():
        side.image.check()
        progress("%s holds what the windows wrote" % name, begin)
    if "large" in args.only:
        found["large"] = abba(sides, lambda s: large(s, args), fill)
        progress("4 MiB: %s" % {n: {k: round(v, 2) for k, v in f.items()} for n, f in found["large"].items()}, begin)
    if "memory" in args.only:
        # So many objects take minutes, and no other load moves what they leave in memory: once is enough.
        found["resident"] = {name: many_objects(side, args) for name, side in sides.items()}
        progress("resident: %s" % found["resident"], begin)
    for side in sides.values():
        side.healthy()
    if "start" in args.only:
        starts = osd_starts(sides)
        found["start"] = {name: {"healthy_s": healthy[name], "osd_s": starts[name]} for name in sides}
        progress("starts: %s" % found["start"], begin)
    found["restart_s"] = {}
    for name, side in sides.items():
        rados_bench(side, 2, "write", "-b", "4M", "--no-cleanup", "--max-objects", "64")
        found["restart_s"][name] = side.restart_all()
        side.image.check()
        rados_bench(side, 60, "seq")
        progress("%s holds it after all its daemons were killed" % name, begin)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", choices=["quick", "full", "ec", "fs"])
    p.add_argument("--loligo", default="target/ship/loligo", help="the program, as `cargo xtask release` builds it")
    p.add_argument("--out", metavar="DIR", help="where the table, the figures and the plots go")
    p.add_argument("--crush", default="target/ship/examples/speed", help="cargo build --profile ship -p crush --example speed; no such row without it")
    p.add_argument("--keep", action="store_true", help="write the ratios, and the best so far, to bench/ratios.json")
    p.add_argument("--only", default=",".join(PARTS), help="which rows, separated by commas (%(default)s)")
    p.add_argument("--seconds", type=int, help="of each window")
    p.add_argument("--image", type=int, help="MiB of each image")
    p.add_argument("--objects", type=int, help="small objects, after which memory is read")
    p.add_argument("--files", type=int, default=20000, help="fs: files that the clients make in each window (%(default)s)")
    p.add_argument("--one-process", action="store_true", help="Loligo in one process, whose monitor and manager count too; without the rows %s" % ", ".join(sorted(OF_ONE_OSD)))
    p.add_argument("--cold", action="store_true", help="leave free memory free, even where it has to be got from the host first (pagecache.py)")
    p.add_argument("--scratch", default=tempfile.gettempdir(), help="folder on the device to measure")
    args = p.parse_args()
    full = args.size == "full"
    args.depths = [1, 2, 4, 8, 16, 32, 64] if full else [1, 8, 32]
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(PARTS):
        p.error("no such rows: %s" % ", ".join(sorted(unknown)))
    args.seconds, args.image, args.settle = args.seconds or (5 if full else 6), args.image or (1024 if full else 256), 10 if full else 3
    args.objects = args.objects or (100000 if full else 20000)
    if args.one_process:
        KINDS["loligo"] = OneProcess
        args.only = [part for part in args.only if part not in OF_ONE_OSD]
    args.loligo, args.mons, args.osds = os.path.abspath(args.loligo), 1, 3
    if args.out:
        os.makedirs(args.out, exist_ok=True)
    end_in_order()
    if args.size in MODULES:
        sys.exit(0 if by_module(args) else 1)
    folder, begin, clusters = tempfile.mkdtemp(prefix="bench-", dir=args.scratch), time.monotonic(), {}
    cache = None if args.cold else PageCache(folder)
    fill = cache.settle if cache else lambda: None
    try:
        # What the clusters cache is newer, and is dropped later.
        fill()
        sides, healthy = start_both(args, folder, clusters)
        progress("both run, from nothing to HEALTH_OK in %s" % healthy, begin)
        found = measure(args, sides, healthy, begin, fill)
    except Trouble as e:
        sys.exit("no figures: %s" % e)
    finally:
        for cluster in clusters.values():
            cluster.stop()
        if cache:
            cache.close()
        shutil.rmtree(folder)
    machine = describe()
    text = markdown(found, machine)
    print(text)
    if args.out:
        write_out(args, found, machine, text)
    size = "%s: %d MiB, windows of %d s, %d objects, %s with %d CPUs" % (
        args.size, args.image, args.seconds, args.objects, platform.machine(), os.cpu_count())  # fmt: skip
    if set(args.only) != set(PARTS):
        size += ", only " + ", ".join(sorted(args.only))
    size += ", cold" * args.cold + ", one process" * args.one_process
    sys.exit(0 if compare(args, size, rows(found)) else 1)


# Other tables than that of images.
MODULES = {"ec": coded, "fs": fs}


def by_module(args):
    """Erasure-coded pools or file systems of both sides; whether nothing was lost since the best run of this size."""
    begin, args.quiet = time.monotonic(), QUIET
    folder = tempfile.mkdtemp(prefix="bench-", dir=args.scratch)
    module = MODULES[args.size]
    try:
        found = module.measure(args, KINDS, folder, lambda text: progress(text, begin))
    except Trouble as e:
        sys.exit("no figures: %s" % e)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = module.rows(found, Row)
    machine = describe()
    text = "\n".join([*listed(table), machine])
    print(text)
    if args.out:
        write_out(args, found, machine, text)
    what = "%d files" % args.files if args.size == "fs" else "%d MiB, windows of %d s" % (args.image, args.seconds)
    size = "%s: %s, %s with %d CPUs" % (args.size, what, platform.machine(), os.cpu_count())
    return compare(args, size, table)


def compare(args, size, table, path=ratios.FILE):
    """Tells what was lost since the best run of this size; whether nothing was."""
    now = {row.what: row.ratio for row in table if row.ratio is not None}
    known = ratios.load(path)
    complaints = ratios.complaints(known.get(size, {}), now)
    for line in complaints:
        print("LOST: " + line)
    if args.keep:
        ratios.keep(known, size, now, path)
    return not complaints


def write_out(args, found, machine, text):
    with open(os.path.join(args.out, "table.md"), "w") as f:
        f.write(text + "\n")
    with open(os.path.join(args.out, "figures.json"), "w") as f:
        json.dump({"machine": machine, "arguments": vars(args), "figures": found}, f, indent=1)
    if args.size != "full":
        return
    for kind in sorted({"write", "read"} & set(args.only)):
        for key, title, unit in (("iops", "IOPS", "per second"), ("cpu_us", "OSD CPU per operation", "us")):
            curves = {n: [(d, found["%s %d" % (kind, d)][n][key]) for d in args.depths] for n in ("ceph", "loligo")}
            if kind == "write" and key == "cpu_us":
                curves["floor"] = [(int(d), f["node_cpu_us_per_op"]) for d, f in found["floor"].items()]
            plot(os.path.join(args.out, "%s-%s.svg" % (kind, key)), "4 KiB random %ss: %s" % (kind, title), unit, curves)


if __name__ == "__main__":
    main()
