#!/usr/bin/python3
"""Block storage: fio's rbd engine over a matrix of jobs, on a Loligo cluster and a running Ceph cluster, each job in the order A B B A.

  bench/block.py --loligo target/ship/loligo --ceph-conf /path/of/ceph.conf [--seconds 10] [--size 256] [--json FILE]
                 [--sizes 4k,8k] [--writes 100,30,10,0] [--depths 1,32] [--copies 2,3]

Starts Loligo with --processes in a temporary folder; the Ceph cluster must run already, with at least as many OSDs as copies.
Images are filled before anything is measured. What the jobs write is logged and has checksums (fio.py), jobs that only read compare
them, and in the end each block has to be what was written there last: without that there is no figure.
Prints a row for each job: operations per second, mean and 99th percentile latency, CPU of the OSDs per operation, and operations
per second and GB of the image (the access density).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from clusters import Trouble
from compare import osd_processes, run
from fio import RbdImage
from usage import cpu_seconds

POOL, IMAGE = "loligo-bench-block", "image"


def prepare(conf, args, copies):
    """A full image in a pool with so many copies."""
    pool = ("ceph", "-c", conf, "osd", "pool")
    run(*pool, "create", POOL, "32", "32")
    run(*pool, "set", POOL, "size", str(copies))
    run("rbd", "-c", conf, "pool", "init", POOL)
    run("rbd", "-c", conf, "create", "--size", "%dM" % args.size, "%s/%s" % (POOL, IMAGE))
    image = RbdImage(args.size, conf, POOL, IMAGE)
    image.fill()
    return image


def remove(conf):
    run("ceph", "-c", conf, "osd", "pool", "rm", POOL, POOL, "--yes-i-really-really-mean-it")


def measure(image, args, size, write_share, depth):
    kind = {100: ("--rw=randwrite",), 0: ("--rw=randread",)}.get(write_share, ("--rw=randrw", "--rwmixwrite=%d" % write_share))
    pids = osd_processes(image.conf)
    if not pids:
        sys.exit("no figure: no OSD process of " + image.conf)
    before = cpu_seconds(pids)
    options = (*kind, "--bs=" + size, "--iodepth=%d" % depth)
    if write_share:
        jobs = [image.write(*options, "--time_based", "--runtime=%d" % args.seconds)]
    else:
        jobs = image.read(args.seconds, *options)
    used = cpu_seconds(pids) - before
    parts = [job[k] for job in jobs for k in ("read", "write") if job[k]["total_ios"]]
    total = sum(p["total_ios"] for p in parts)
    return {
        "iops": total / sum(max(job[k]["runtime"] for k in ("read", "write")) / 1e3 for job in jobs),
        "mean_ms": sum(p["clat_ns"]["mean"] * p["total_ios"] for p in parts) / total / 1e6,
        "p99_ms": max(p["clat_ns"]["percentile"]["99.000000"] for p in parts) / 1e6,
        "cpu_us": used / total * 1e6,
    }


def mean(runs, what):
    return sum(r[what] for r in runs) / len(runs)


def numbers(text):
    return [int(n) for n in text.split(",")]


def row(label, runs, gb):
    cells = [label]
    for what in ("iops", "mean_ms", "p99_ms", "cpu_us"):
        digits = "%.0f / %.0f" if what in ("iops", "cpu_us") else "%.2f / %.2f"
        cells.append(digits % (mean(runs["ceph"], what), mean(runs["loligo"], what)))
    cells.append("%.0f / %.0f" % (mean(runs["ceph"], "iops") / gb, mean(runs["loligo"], "iops") / gb))
    return "| " + " | ".join(cells) + " |"


def matrix(confs, args):
    """Every job on both clusters; prints its row as soon as it is known."""
    done = []
    print("Ceph / Loligo; %d MiB image, %d CPUs, load %.1f" % (args.size, os.cpu_count(), os.getloadavg()[0]))
    print("| job | operations/s | mean ms | p99 ms | OSD CPU us/op | operations/s per GB |\n|---|---|---|---|---|---|", flush=True)
    for copies in numbers(args.copies):
        made, images = [], {}
        try:
            for name, conf in confs.items():
                made.append(conf)
                images[name] = prepare(conf, args, copies)
            for size in args.sizes.split(","):
                for share in numbers(args.writes):
                    for depth in numbers(args.depths):
                        runs = {"loligo": [], "ceph": []}
                        for name in ("loligo", "ceph", "ceph", "loligo"):
                            runs[name].append(measure(images[name], args, size, share, depth))
                        label = "%s, %d %% writes, depth %d, %d copies" % (size, share, depth, copies)
                        print(row(label, runs, args.size / 1024), flush=True)
                        done.append({"size": size, "write_share": share, "depth": depth, "copies": copies, "runs": runs})
            for image in images.values():
                image.check()
        finally:
            for conf in made:
                remove(conf)
    return done


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--loligo", required=True, help="the program, as `cargo xtask release` builds it")
    p.add_argument("--ceph-conf", required=True, help="ceph.conf of the running Ceph cluster")
    p.add_argument("--seconds", type=int, default=10, help="of each measurement")
    p.add_argument("--size", type=int, default=256, help="MiB of the image")
    p.add_argument("--sizes", default="4k,8k", help="multiples of 4k")
    p.add_argument("--writes", default="100,30,10,0", help="per cent of the operations that write")
    p.add_argument("--depths", default="1,32")
    p.add_argument("--copies", default="2,3")
    p.add_argument("--json", help="also write everything measured to this file")
    args = p.parse_args()
    if bad := [size for size in args.sizes.split(",") if not size.endswith("k") or int(size[:-1]) % 4]:
        p.error("the checksums are of blocks of 4k: " + bad[0])
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data")
        program = os.path.abspath(args.loligo)
        run(program, "up", "--data", data, "--detach", "--processes", "--mon-port", "0")
        try:
            done = matrix({"loligo": os.path.join(data, "ceph.conf"), "ceph": os.path.abspath(args.ceph_conf)}, args)
        except Trouble as e:
            sys.exit("no figure: %s" % e)
        finally:
            subprocess.run([program, "down", "--data", data], capture_output=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"arguments": vars(args), "jobs": done}, f, indent=1)


if __name__ == "__main__":
    main()
