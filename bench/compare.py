#!/usr/bin/python3
"""The same load on a Loligo cluster and on a running Ceph cluster of the same machine, in the order A B B A.

  bench/compare.py --loligo target/ship/loligo --ceph-conf /path/of/ceph.conf [--seconds 10] [--depth 32] [--json FILE]

Starts Loligo with --processes in a temporary folder, so that each daemon stands beside its counterpart; the Ceph cluster must
run already, with as many OSDs. Both get a pool with two copies, which is removed at the end. Prints a table: CPU of the OSDs
per operation first, then rates, context switches and memory. rados_cpu.py does the measuring, reads everything back and
refuses to give a figure when data differs, a cluster is not healthy or debug logging is on; then nothing is printed here
either.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

from usage import resident_mib

HERE = os.path.dirname(os.path.abspath(__file__))
POOL = "loligo-bench"


def run(*args, timeout=120):
    done = subprocess.run(args, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        sys.exit("no figure: %s\n%s%s" % (" ".join(args), done.stdout, done.stderr))
    return done.stdout


def osd_processes(conf):
    """Pids of the OSD daemons that were started with files of the folder of this configuration."""
    folder = os.path.dirname(os.path.abspath(conf))
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        program = os.path.basename(words[0])
        if folder in " ".join(words) and (program == "ceph-osd" or words[1:2] == ["osd"]):
            found.append(pid)
    return sorted(found, key=int)


def make_pool(conf):
    ceph = ("ceph", "-c", conf, "osd", "pool")
    run(*ceph, "create", POOL, "32", "32")
    run(*ceph, "set", POOL, "size", "2")
    run(*ceph, "application", "enable", POOL, "rados")
    for _ in range(100):
        pgs = json.loads(run("ceph", "-c", conf, "status", "-f", "json"))["pgmap"]
        if all(s["state_name"] == "active+clean" for s in pgs["pgs_by_state"]):
            return
        time.sleep(0.3)
    sys.exit("no figure: the pool does not become clean")


def one(conf, args):
    pids = osd_processes(conf)
    if not pids:
        sys.exit("no figure: no OSD process of %s" % conf)
    out = run(
        sys.executable, os.path.join(HERE, "rados_cpu.py"), "--conf", conf, "--pids", ",".join(pids), "--pool", POOL,
        "--seconds", str(args.seconds), "--depth", str(args.depth), "--size", str(args.size), timeout=60 + 20 * args.seconds,
    )  # fmt: skip
    result = json.loads(out)
    result["osds"] = len(pids)
    result["resident_mib_per_osd"] = round(resident_mib(pids), 1)
    return result


def mean(runs, *path):
    values = []
    for value in runs:
        for key in path:
            value = value[key]
        values.append(value)
    return sum(values) / len(values)


ROWS = [
    ("OSD CPU per write, us", ("write", "daemon_cpu_us_per_op"), False),
    ("OSD CPU per read, us", ("read", "daemon_cpu_us_per_op"), False),
    ("writes per second", ("write", "ops_per_s"), True),
    ("reads per second", ("read", "ops_per_s"), True),
    ("context switches per write", ("write", "switches_per_op"), False),
    ("context switches per read", ("read", "switches_per_op"), False),
    ("resident MiB per OSD", ("resident_mib_per_osd",), False),
]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--loligo", required=True, help="the program, as `cargo xtask release` builds it")
    p.add_argument("--ceph-conf", required=True, help="ceph.conf of the running Ceph cluster")
    p.add_argument("--seconds", type=float, default=10, help="of each measurement")
    p.add_argument("--depth", type=int, default=32)
    p.add_argument("--size", type=int, default=4096)
    p.add_argument("--json", help="also write everything measured to this file")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data")
        ours, theirs = os.path.join(data, "ceph.conf"), args.ceph_conf
        program = os.path.abspath(args.loligo)
        started = time.monotonic()
        run(program, "up", "--data", data, "--detach", "--processes", "--mon-port", "0")
        started = time.monotonic() - started
        runs = {"loligo": [], "ceph": []}
        pools = []
        try:
            for conf in (ours, theirs):
                make_pool(conf)
                pools.append(conf)
            for name, conf in (("loligo", ours), ("ceph", theirs), ("ceph", theirs), ("loligo", ours)):
                runs[name].append(one(conf, args))
        finally:
            for conf in pools:
                run("ceph", "-c", conf, "osd", "pool", "rm", POOL, POOL, "--yes-i-really-really-mean-it")
            subprocess.run([program, "down", "--data", data], capture_output=True)
    print("%d bytes, depth %d, two copies, %d OSDs; %s, %d CPUs, load %s" % (
        args.size, args.depth, runs["loligo"][0]["osds"], platform.machine(), os.cpu_count(), os.getloadavg()[0]))  # fmt: skip
    print("| | Ceph | Loligo | times better |\n|---|---|---|---|")
    for label, path, more_is_better in ROWS:
        a, b = mean(runs["ceph"], *path), mean(runs["loligo"], *path)
        print("| %s | %.1f | %.1f | %.1f |" % (label, a, b, b / a if more_is_better else a / max(b, 1e-9)))
    print("Loligo: %.2f s from exec to healthy, a new folder made in that time." % started)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"arguments": vars(args), "start_s": started, "runs": runs}, f, indent=1)


if __name__ == "__main__":
    main()
