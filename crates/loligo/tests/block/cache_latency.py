#!/usr/bin/python3
"""Latency of 4 KiB writes at depth 1: straight to the image and through the persistent write-back cache.

Usage: cache_latency.py LOLIGO CONF [--rounds 6] [--folder DIR] [--only nbd|library]

Over NBD (`qemu-img bench` against `loligo rbd serve`) and without (`loligo rbd bench`). Each round measures straight, cached, cached,
straight within seconds, as machines change while they are measured, and before them writes of 4 KiB to a file in the cache's folder
with fio: O_DIRECT and O_SYNC, and O_DIRECT and O_DSYNC, the floor of any cache there. Shown are the medians of the rounds; the pool
goes at the end.

What each run wrote is read back and compared: over NBD through the server, with other bytes in each run, and from the image itself when the
servers have ended, so what the cache held has to be there; without NBD from the image after each run. The rest of each image must be as it
was. Any difference ends this without a figure of that kind.
"""
import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import rados
import rbd

COUNT = 1500
SIZE = 4096
LENGTH = COUNT * SIZE


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-1000:]}")
    return done.stdout


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.pool = args, folder, f"latency-{os.getpid()}"
        self.rests, self.pattern = {}, {}  # of each image: what lies behind the part that is written, and the byte of the last run

    def path(self, name):
        return os.path.join(self.folder, name)

    def ours(self, *words):
        return [self.args.loligo, "rbd", "-c", self.args.conf, "-p", self.pool, "--no-progress", *words]

    @contextlib.contextmanager
    def image(self, name):
        with rados.Rados(conffile=self.args.conf) as client, client.open_ioctx(self.pool) as io, rbd.Image(io, name) as image:
            yield image

    def remember(self, name):
        with self.image(name) as image:
            self.rests[name] = image.read(LENGTH, image.size() - LENGTH)
        if not any(self.rests[name]):
            raise SystemExit(f"{name} was not filled")

    def written(self, name):
        """The bytes of the image where the runs write; the rest has to be what it was."""
        with self.image(name) as image:
            if image.read(LENGTH, image.size() - LENGTH) != self.rests[name]:
                raise SystemExit(f"no figure: {name} has changed where nothing was written")
            return image.read(0, LENGTH)

    def make_floor(self):
        """Blocks that were written before: others are made so in the file system's journal, which no cache's file is."""
        with open(self.path("floor"), "wb") as f:
            f.write(bytes(64 << 20))
            os.fsync(f.fileno())

    def floor(self, sync):
        out = run("fio", "--name=floor", f"--filename={self.path('floor')}", "--rw=write", "--bs=4k", "--direct=1", f"--sync={sync}", "--iodepth=1",
                  "--ioengine=psync", "--size=64m", "--time_based", "--runtime=1", "--output-format=json")
        return json.loads(out)["jobs"][0]["write"]["clat_ns"]["percentile"]["50.000000"] / 1000

    def nbd(self, kind):
        """The mean of one run, in microseconds: qemu-img tells no more."""
        byte = self.pattern[kind] = self.pattern.get(kind, 0) % 255 + 1
        place = f"nbd+unix:///{kind}?socket={self.path(kind + '.sock')}"
        out = run("qemu-img", "bench", "-d", "1", "-s", "4k", "-w", "-c", str(COUNT), "-t", "none", "-f", "raw", f"--pattern={byte}", place)
        text = run("qemu-io", "-r", "-f", "raw", "-c", f"read -P {byte} 0 {LENGTH}", place)
        if "verification failed" in text or f"read {LENGTH}/{LENGTH}" not in text:
            raise SystemExit(f"no figure: {kind} does not give back over NBD what was written: {text[-500:]}")
        return float(re.search(r"([\d.]+) seconds", out).group(1)) / COUNT * 1e6

    def library(self, kind):
        """Every run of `loligo rbd bench` writes the same block everywhere, so there is something else before it."""
        name, more = "lib-" + kind, ["--cache", self.path("cache-of-bench")] if kind == "cached" else []
        with self.image(name) as image:
            image.write(b"\x55" * LENGTH, 0)
        out = run(*self.ours("--json", "bench", "--io-type", "write", "--io-size", str(SIZE), "--io-threads", "1", "--io-total", str(LENGTH), name, *more))
        data = self.written(name)
        if data != data[:SIZE] * COUNT or data[:SIZE] in (b"\x55" * SIZE, bytes(SIZE)):
            raise SystemExit(f"no figure: {name} does not hold what was written to it")
        return json.loads(out)["p50_us"]

    def check_served(self):
        """After the drain."""
        for kind, byte in self.pattern.items():
            if self.written(kind) != bytes([byte]) * LENGTH:
                raise SystemExit(f"no figure: {kind} does not hold what was written to it over NBD")
            print(f"  {kind} holds what was written", flush=True)

    def serve(self, kind):
        more = ["--cache", self.path("cache")] if kind == "cached" else []
        server = subprocess.Popen(self.ours("serve", "--unix", self.path(kind + ".sock"), kind, *more), stdout=subprocess.PIPE, text=True)
        server.stdout.readline()
        return server

    def rounds(self, what, measure):
        straight, cached, sync, dsync = [], [], [], []
        for n in range(self.args.rounds):
            sync.append(self.floor("sync"))
            dsync.append(self.floor("dsync"))
            for kind in ("straight", "cached", "cached", "straight"):
                (straight if kind == "straight" else cached).append(measure(kind))
                # What the cache holds goes to the image before the next is measured.
                time.sleep(0.5)
            print(f"  {what} {n + 1}: floor {sync[-1]:.0f} (O_SYNC), {dsync[-1]:.0f} (O_DSYNC); straight {straight[-2]:.0f}, cached {cached[-2]:.0f} "
                  f"{cached[-1]:.0f}, straight {straight[-1]:.0f} us", flush=True)
        middle = statistics.median
        print(f"{what}: straight {middle(straight):.0f} us, cached {middle(cached):.0f} us: {middle(cached) / middle(straight):.3f}; "
              f"floor {middle(sync):.0f} us (O_SYNC), {middle(dsync):.0f} us (O_DSYNC)", flush=True)

    def all(self):
        ceph = ("ceph", "-c", self.args.conf, "osd", "pool")
        run(*ceph, "create", self.pool, "32")
        servers = []
        self.make_floor()
        try:
            run("rbd", "-c", self.args.conf, "pool", "init", self.pool)
            for image in ("straight", "cached", "lib-straight", "lib-cached"):
                run(*self.ours("create", image, "--size", "64M"))
                run(*self.ours("bench", "--io-type", "write", "--io-size", "1M", "--io-threads", "4", "--io-total", "64M", image))
                self.remember(image)
            if self.args.only != "library":
                servers = [self.serve(kind) for kind in ("straight", "cached")]
                self.rounds("NBD", self.nbd)
            for server in servers:
                server.terminate()
                server.wait(timeout=60)
            servers = []
            self.check_served()
            if self.args.only != "nbd":
                self.rounds("library", self.library)
        finally:
            for server in servers:
                server.kill()
                server.wait()
            run(*ceph, "delete", self.pool, self.pool, "--yes-i-really-really-mean-it")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("loligo")
    p.add_argument("conf")
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--folder", help="where the cache's file is; a new one that goes at the end")
    p.add_argument("--only", choices=("nbd", "library"))
    args = p.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        Bench(args, folder).all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
