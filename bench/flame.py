#!/usr/bin/python3
"""Where the OSDs' CPU goes under small writes or reads: a flame graph, and the same samples added up by stage.

Needs `perf` (Debian: linux-perf) and inferno (`cargo install inferno`), and a program with line tables (the profile `ship`).
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types

import bench
from clusters import Loligo, Trouble, end_in_order

# Each sample belongs to the first stage of which a frame is found, the innermost frame first.
STAGES = [
    ("reads of the device", r"Device>::(read_at|read_append|will_read)"),
    ("the commit: the log record and small writes to their places", r"store::jobs|runtime::device"),
    ("a checkpoint", r"store::(checkpoint|merge)"),
    ("the store: transactions applied, log records made", r"store::"),
    ("PGs: requests checked and executed, replication, acknowledgements", r"pg::"),
    ("frames and messages: decoding, encoding, checksums", r"msgr::|messages::|codec::|classes::|maps::"),
    ("sockets: written", r"sock_sendmsg|sock_write_iter|tcp_sendmsg"),
    ("sockets: read", r"sock_recvmsg|sock_read_iter|tcp_recvmsg"),
    ("sockets: waiting for them", r"do_epoll_wait|ep_poll\b"),
    ("turns of the reactor", r"runtime::|daemons::|tokio|mio::"),
]


def record(side, args, kind, out):
    """Samples of the OSDs' stacks during one window, folded."""
    data = os.path.join(out, "perf.data")
    words = ["perf", "record", "-q", "-F", "499", "--call-graph", "dwarf,8192", "-o", data, "-p", ",".join(map(str, side.pids()))]
    recorder = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        found = bench.window(side, args, kind, args.depth)
    finally:
        recorder.terminate()
        recorder.wait(120)
    script = subprocess.run(["perf", "script", "-i", data, "--no-inline"], capture_output=True, check=True).stdout
    os.remove(data)
    return found, subprocess.run(["inferno-collapse-perf"], input=script, capture_output=True, check=True).stdout.decode()


def stage_of(stack):
    for frame in reversed(stack.split(";")):
        for name, pattern in STAGES:
            if re.search(pattern, frame):
                return name
    return "the rest"


def by_stage(folded):
    """Parts of a hundred, the largest first."""
    sums = collections.Counter()
    for line in folded.splitlines():
        stack, _, n = line.rpartition(" ")
        sums[stage_of(stack)] += int(n)
    whole = sum(sums.values())
    if not whole:
        raise Trouble("perf took no samples of the OSDs: is it allowed to (kernel.perf_event_paranoid)?")
    return [(name, 100 * n / whole) for name, n in sums.most_common()]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--loligo", default="target/ship/loligo")
    p.add_argument("--out", default="docs/figures", metavar="DIR", help="where the graphs go (%(default)s)")
    p.add_argument("--depth", type=int, default=32)
    p.add_argument("--image", type=int, default=512, help="MiB")
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--kinds", default="write,read")
    args = p.parse_args()
    missing = [w for w in ("perf", "inferno-collapse-perf", "inferno-flamegraph") if not shutil.which(w)]
    if missing:
        sys.exit("flame: not installed: %s" % ", ".join(missing))
    os.makedirs(args.out, exist_ok=True)
    end_in_order()
    with tempfile.TemporaryDirectory() as folder:
        options = types.SimpleNamespace(loligo=args.loligo, mons=1, osds=3, image=args.image, seconds=args.seconds, depth=args.depth)
        side = bench.Side(options, Loligo(options, os.path.join(folder, "loligo")))
        try:
            side.start()
            side.make_pool()
            side.fill(options)
            for kind in args.kinds.split(","):
                found, folded = record(side, options, kind, folder)
                title = "OSD CPU, 4K random %s at depth %d" % (kind, args.depth)
                words = ["inferno-flamegraph", "--title", title, "--minwidth", "0.3", "--hash"]
                svg = subprocess.run(words, input=folded.encode(), capture_output=True, check=True).stdout
                with open(os.path.join(args.out, "flame-%s.svg" % kind), "wb") as f:
                    f.write(svg)
                print("%s: %.1f us of OSD CPU for each while it was recorded, %.0f/s" % (title, found["cpu_us"], found["iops"]))
                for name, part in by_stage(folded):
                    print("| %s | %.1f |" % (name, part))
            side.image.check()
        finally:
            side.cluster.stop()


if __name__ == "__main__":
    try:
        main()
    except Trouble as trouble:
        sys.exit("flame: %s" % trouble)
