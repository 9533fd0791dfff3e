#!/usr/bin/env python3
"""fio's rbd engine in several processes on as many images at once, writes at depth 8 with verified data, then reads at depth 16.

Usage: fio_many.py CONF [--images 8] [--size 32M] [--runtime 30] [--pool fio]

Prints each process's operations per second and their sum. The write phase fills each image whole and verifies it (crc32c), then
overwrites it at random for the given time and verifies that; any error of fio or of the data ends the program with status 1.
The pool is made for it and removed.
"""
import argparse
import json
import subprocess
import sys
import time


def ceph(conf, *words):
    return subprocess.run(["ceph", "-c", conf, *words], check=True, capture_output=True, timeout=60).stdout


def start(args, i, name, *options):
    words = ["fio", "--output-format=json", f"--name={name}", "--direct=1", "--bs=4k", "--numjobs=1", "--ioengine=rbd",
             f"--pool={args.pool}", f"--rbdname=rbd{i}", "--clientname=admin", f"--size={args.size}", "--verify_state_save=0", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"CEPH_CONF": args.conf, "PATH": "/usr/bin:/bin"})


def phase(args, name, kind, *options):
    """Runs it on all images; returns whether all went well."""
    begin = time.monotonic()
    jobs = [start(args, i, name, *options) for i in range(args.images)]
    good, rates = True, []
    for i, job in enumerate(jobs):
        out, err = job.communicate(timeout=1200)
        try:
            done = json.loads(out[out.index("{"):])["jobs"][0]
        except ValueError:
            done = {"error": -1}
        if job.returncode or done["error"]:
            good = False
            print(f"rbd{i}: status {job.returncode}, error {done['error']}: {err[-500:]}", flush=True)
            continue
        rates.append(done[kind]["iops"])
        checked = f", {done['read']['total_ios']} reads verified" if kind == "write" else ""
        print(f"  rbd{i}: {rates[-1]:.0f} {kind}s/s, mean {done[kind]['clat_ns']['mean'] / 1e6:.2f} ms{checked}", flush=True)
    print(f"{name}: {sum(rates):.0f} {kind}s/s in all, {time.monotonic() - begin:.0f} s", flush=True)
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("conf")
    p.add_argument("--images", type=int, default=8)
    p.add_argument("--size", default="32M", help="of each image; verifying begins when a pass over it is done")
    p.add_argument("--runtime", type=int, default=30, help="seconds of each random phase")
    p.add_argument("--pool", default="fio")
    args = p.parse_args()
    ceph(args.conf, "osd", "pool", "create", args.pool, "32")
    good = True
    try:
        subprocess.run(["rbd", "-c", args.conf, "pool", "init", args.pool], check=True, timeout=60)
        for i in range(args.images):
            subprocess.run(["rbd", "-c", args.conf, "create", "--size", args.size, f"{args.pool}/rbd{i}"], check=True, timeout=60)
        verify, timed = "--verify=crc32c", ("--time_based", f"--runtime={args.runtime}")
        good &= phase(args, "fill and verify", "write", "--rw=write", "--bs=64k", "--iodepth=8", verify, "--verify_fatal=1")
        good &= phase(args, "random writes, depth 8", "write", "--rw=randwrite", "--iodepth=8", verify, "--verify_fatal=1", *timed)
        good &= phase(args, "random reads, depth 16", "read", "--rw=randread", "--iodepth=16", *timed)
    finally:
        ceph(args.conf, "osd", "pool", "delete", args.pool, args.pool, "--yes-i-really-really-mean-it")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
