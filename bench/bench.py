#!/usr/bin/python3
"""Loligo beside Debian's Ceph on this machine: one table with the gates and the goals of the project.

  bench/bench.py quick --loligo target/release/loligo [--out DIR]      about 4 minutes
  bench/bench.py full  --loligo target/release/loligo --out DIR        about 25 minutes, with curves over the depth

Starts both clusters, three OSDs each, every daemon a process of its own, with cephx, crc mode and two copies. fio's rbd engine reads and
writes a full image of each at random places, 4 KiB at a time, in the order A B B A; `rados bench` moves 4 MiB objects. CPU is user and
system time of the OSDs' processes. The floor (`loligo bench floor`) runs in between. In the end everything is written once
more with checksums, all daemons of Loligo are killed and started again, and the image is verified: without that there is no figure,
and none when a cluster is not healthy or a debug log is on. DIR gets table.md, figures.json and the plots.
"""
import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import ratios
from clusters import Ceph, Loligo, Trouble, end_in_order, run
from usage import cpu_seconds, resident_mib, switches, written_bytes

POOL, IMAGE = "bench", "image"
ORDER = ("loligo", "ceph", "ceph", "loligo")
QUIET = "".join("debug %s = 0/0\n" % part for part in ("osd", "ms", "bluestore", "bdev", "rocksdb", "mon", "filestore", "objecter", "auth"))


class Side:
    """A cluster with its pool and its full image."""

    def __init__(self, cluster):
        self.cluster, self.conf = cluster, cluster.conf
        begin = time.monotonic()
        cluster.start()
        self.wait_healthy()
        self.healthy_s = time.monotonic() - begin
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

    def restart_osd(self):
        """Seconds from the start of an OSD that has data until the map has it up."""
        name, osd = "osd.%d" % self.cluster.osds[-1], self.cluster.osds[-1]
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
        self.fio(args, "--rw=write", "--bs=4M", "--iodepth=8")

    def pids(self):
        return [self.cluster.pid("osd.%d" % i) for i in self.cluster.osds]

    def fio(self, args, *options, timeout=900):
        words = ["fio", "--output-format=json", "--name=job", "--direct=1", "--numjobs=1", "--ioengine=rbd", "--clientname=admin", "--pool=" + POOL,
                 "--rbdname=" + IMAGE, "--size=%dM" % args.image, "--verify_state_save=0", *options]  # fmt: skip
        env = {"CEPH_CONF": self.conf, "PATH": os.environ["PATH"]}
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=env)
        at = done.stdout.find("{")
        job = json.loads(done.stdout[at:])["jobs"][0] if at >= 0 else {"error": -1}
        if done.returncode or job["error"]:
            raise Trouble("fio on %s ended with %d, error %s: %s" % (self.conf, done.returncode, job["error"], done.stderr[-600:]))
        return job

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
    """One measurement with fio; figures per operation."""
    pids = side.pids()
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    before = cpu_seconds(pids), switches(pids), written_bytes(pids)
    job = side.fio(args, "--rw=rand" + kind, "--bs=4k", "--iodepth=%d" % depth, "--time_based", "--runtime=%d" % args.seconds)
    after = cpu_seconds(pids), switches(pids), written_bytes(pids)
    mine = resource.getrusage(resource.RUSAGE_CHILDREN)
    part = job[kind]
    n = part["total_ios"]
    used = [b - a for a, b in zip(before, after)]
    client = mine.ru_utime + mine.ru_stime - own.ru_utime - own.ru_stime
    return {"cpu_us": used[0] / n * 1e6, "iops": part["iops"], "mean_us": part["clat_ns"]["mean"] / 1e3, "client_cpu_us": client / n * 1e6,
            "p99_us": part["clat_ns"]["percentile"]["99.000000"] / 1e3, "switches": used[1] / n, "device_bytes_per_byte": used[2] / n / 4096}  # fmt: skip


def abba(sides, args, measure):
    """Medians of what `measure` says of each side."""
    runs = {"loligo": [], "ceph": []}
    for name in ORDER:
        runs[name].append(measure(sides[name]))
    return {name: {k: statistics.median(r[k] for r in found) for k in found[0]} for name, found in runs.items()}


def large(side, args):
    """MB/s of 4 MiB objects."""
    words = ("rados", "-c", side.conf, "-p", POOL, "bench", str(args.seconds))
    figures = {}
    for kind, more in (("write", ("-b", "4M", "--no-cleanup")), ("seq", ())):
        out = run(*words, kind, "-t", "16", *more, timeout=120 + 10 * args.seconds)
        figures[kind] = float(re.search(r"Bandwidth \(MB/sec\):\s+([\d.]+)", out).group(1))
    run("rados", "-c", side.conf, "-p", POOL, "cleanup", timeout=300)
    return figures


def many_objects(side, args):
    """Resident MiB of an OSD after so many small objects."""
    run("rados", "-c", side.conf, "-p", POOL, "bench", "600", "write", "-b", "4K", "-t", "64", "--no-cleanup", "--max-objects", str(args.objects), timeout=900)
    resident = resident_mib(side.pids())
    run("rados", "-c", side.conf, "-p", POOL, "cleanup", timeout=900)
    return resident


def survive(side, args):
    """Everything is written with checksums, every daemon killed and started again, and the image verified."""
    options = ("--rw=randwrite", "--bs=64k", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--randseed=7")
    side.fio(args, *options, "--do_verify=0")
    names = ["mon." + m for m in side.cluster.mons] + ["mgr.x"] + ["osd.%d" % i for i in side.cluster.osds]
    for name in reversed(names):  # to kill an OSD asks a monitor first
        side.cluster.kill(name)
    begin = time.monotonic()
    for name in names:
        side.cluster.launch(name)
    side.cluster.wait_clean(120)
    taken = time.monotonic() - begin
    side.fio(args, *options, "--verify_only")
    return taken


def crush(args):
    """Placements per second of one core, ours and crushtool's; None without the program."""
    if not os.path.exists(args.crush):
        return None
    return json.loads(run(args.crush, "--json", "--inputs", "300000", timeout=300))


def floor(args, depth):
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        return json.loads(run(args.loligo, "bench", "floor", "--json", "-s", "4", "-t", str(depth), "--dir", folder))


def rows(found):
    """(what, Ceph's figure, ours, ratio, gate, goal)."""
    def line(what, at, key, more_is_better, gate, goal):
        a, b = found[at]["ceph"][key], found[at]["loligo"][key]
        return what, a, b, (b / a if more_is_better else a / max(b, 1e-9)), gate, goal

    table = [
        line("4K random write, depth 32: OSD CPU per op, us", "write 32", "cpu_us", False, 8, 20),
        line("4K random write, depth 32: IOPS", "write 32", "iops", True, 5, 8),
        line("4K random write, depth 8: IOPS", "write 8", "iops", True, 4, 6),
        line("4K random write, depth 1: mean latency, us", "write 1", "mean_us", False, 2, 3),
        line("4K random read, depth 32: OSD CPU per op, us", "read 32", "cpu_us", False, 3, 6),
        line("4K random read, depth 32: IOPS", "read 32", "iops", True, None, 1.9),
        line("context switches per write", "write 32", "switches", False, None, 15),
    ]  # fmt: skip
    if "large" in found:
        table.append(line("rados bench 4 MiB write, MB/s", "large", "write", True, 1.3, 1.6))
        table.append(line("rados bench 4 MiB read, MB/s", "large", "seq", True, 1.2, 1.45))
    ceph, ours = found["resident"]["ceph"], found["resident"]["loligo"]
    table.append(("resident MiB per OSD after %d objects" % found["objects"], ceph, ours, ceph / ours, 5, 8))
    table.append(line("OSD start until it is up, s", "start", "osd_s", False, None, None))
    table.append(line("cluster from nothing to HEALTH_OK, s", "start", "healthy_s", False, None, None))
    if found.get("crush"):
        a, b = found["crush"]["crushtool"], found["crush"]["together"]
        table.append(("CRUSH placements per second and core, 504 OSDs", a, b, b / a, 4, 10))
    bytes_ = found["write 32"]["loligo"]["device_bytes_per_byte"]
    table.append(("device bytes per client byte, two copies", found["write 32"]["ceph"]["device_bytes_per_byte"], bytes_, None, 4, 2.6))
    return table


def markdown(found, machine):
    out = ["| | Ceph | Loligo | times better | gate | goal |", "|---|---|---|---|---|---|"]
    for what, a, b, ratio, gate, goal in rows(found):
        shown = ["-" if x is None else "%.1f" % x if isinstance(x, float) else str(x) for x in (a, b, ratio, gate, goal)]
        out.append("| %s | %s |" % (what, " | ".join(shown)))
    w = found["write 32"]["loligo"]
    out += ["", "Against the floor of this machine (%.1f us of CPU per write at depth 32): %.1f times. OSD CPU over the client's: %.2f."
            % (found["floor"]["32"]["node_cpu_us_per_op"], w["cpu_us"] / found["floor"]["32"]["node_cpu_us_per_op"], w["cpu_us"] / w["client_cpu_us"]),
            "All daemons killed and started again: active+clean after %.1f s, image verified." % found["restart_s"], "", machine]  # fmt: skip
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


def measure(args, sides, begin):
    found = {"objects": args.objects, "floor": {}}
    found["crush"] = crush(args)
    for side in sides.values():
        side.healthy()
        side.fill(args)
    time.sleep(args.settle)
    for kind, depths in (("write", args.depths), ("read", args.depths if args.size == "full" else [32])):
        for depth in depths:
            at = "%s %d" % (kind, depth)
            found[at] = abba(sides, args, lambda s, k=kind, d=depth: window(s, args, k, d))
            progress("%s: %s" % (at, {n: "%.0f us, %.0f/s" % (f["cpu_us"], f["iops"]) for n, f in found[at].items()}), begin)
            if kind == "write":
                found["floor"][str(depth)] = floor(args, depth)
    if args.size == "full":
        found["large"] = abba(sides, args, lambda s: large(s, args))
        progress("4 MiB: %s" % found["large"], begin)
    found["resident"] = {name: many_objects(side, args) for name, side in sides.items()}
    progress("resident: %s" % found["resident"], begin)
    for side in sides.values():
        side.healthy()
    found["start"] = {name: {"healthy_s": side.healthy_s, "osd_s": side.restart_osd()} for name, side in sides.items()}
    progress("starts: %s" % found["start"], begin)
    found["restart_s"] = survive(sides["loligo"], args)
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", choices=["quick", "full"])
    p.add_argument("--loligo", default="target/release/loligo", help="the program, release build")
    p.add_argument("--out", metavar="DIR", help="where the table, the figures and the plots go")
    p.add_argument("--crush", default="target/release/examples/speed", help="cargo build --release -p crush --example speed; no such row without it")
    p.add_argument("--keep", action="store_true", help="write ratios that are better than ever to bench/ratios.json")
    p.add_argument("--seconds", type=int, help="of each window")
    p.add_argument("--image", type=int, help="MiB of each image")
    p.add_argument("--objects", type=int, help="small objects, after which memory is read")
    p.add_argument("--scratch", default=tempfile.gettempdir(), help="folder on the device to measure")
    args = p.parse_args()
    full = args.size == "full"
    args.depths = [1, 2, 4, 8, 16, 32, 64] if full else [1, 8, 32]
    args.seconds, args.image, args.settle = args.seconds or (8 if full else 6), args.image or (1024 if full else 256), 10 if full else 3
    args.objects = args.objects or (100000 if full else 20000)
    args.loligo, args.mons, args.osds = os.path.abspath(args.loligo), 1, 3
    if args.out:
        os.makedirs(args.out, exist_ok=True)
    end_in_order()
    folder, begin, clusters = tempfile.mkdtemp(prefix="bench-", dir=args.scratch), time.monotonic(), {}
    try:
        for name, kind in (("ceph", Ceph), ("loligo", Loligo)):
            clusters[name] = kind(args, os.path.join(folder, name))
        clusters["ceph"].more = QUIET
        sides = {name: Side(cluster) for name, cluster in clusters.items()}
        progress("both run", begin)
        found = measure(args, sides, begin)
    except Trouble as e:
        sys.exit("no figures: %s" % e)
    finally:
        for cluster in clusters.values():
            cluster.stop()
        shutil.rmtree(folder)
    machine = describe()
    text = markdown(found, machine)
    print(text)
    now = {what: ratio for what, _, _, ratio, _, _ in rows(found) if ratio is not None}
    best = ratios.load()
    for row, before, ratio in ratios.lost(best, now):
        print("lost more than a tenth: %s: %.2f, once %.2f" % (row, ratio, before))
    if args.keep:
        ratios.keep(best, now)
    if args.out:
        write_out(args, found, machine, text)


def write_out(args, found, machine, text):
    with open(os.path.join(args.out, "table.md"), "w") as f:
        f.write(text + "\n")
    with open(os.path.join(args.out, "figures.json"), "w") as f:
        json.dump({"machine": machine, "arguments": vars(args), "figures": found}, f, indent=1)
    if args.size != "full":
        return
    for kind in ("write", "read"):
        for key, title, unit in (("iops", "IOPS", "per second"), ("cpu_us", "OSD CPU per operation", "us")):
            curves = {n: [(d, found["%s %d" % (kind, d)][n][key]) for d in args.depths] for n in ("ceph", "loligo")}
            if kind == "write" and key == "cpu_us":
                curves["floor"] = [(int(d), f["node_cpu_us_per_op"]) for d, f in found["floor"].items()]
            plot(os.path.join(args.out, "%s-%s.svg" % (kind, key)), "4 KiB random %ss: %s" % (kind, title), unit, curves)


if __name__ == "__main__":
    main()
