#!/usr/bin/env python3
"""Plays random sequences of requests on two clusters and compares the answers; shortens a sequence that differs.

Usage: differential.py CONF_A CONF_B [--seed N] [--sequences N] [--steps N] [--snaps self|pool|none]
       differential.py CONF_A CONF_B --replay FILE
In the place of CONF_B, "model" stands for the naive model of model.py.

Each cluster gets a pool of its own, which goes at the end. A difference is printed, and its sequence is left in
difference-SEED.json for --replay.
"""
import argparse
import concurrent.futures
import json
import os
import sys
import time

from generate import Generator
from model import Model
from play import Cluster


class Differ:
    def __init__(self, confs, snaps, plant=None):
        self.snaps = snaps
        self.model = Model(plant) if confs[1] == "model" else None
        real = [conf for conf in confs if conf != "model"]
        self.clusters = [Cluster(conf, f"differential-{snaps}-{os.getpid()}") for conf in real]
        self.threads = concurrent.futures.ThreadPoolExecutor(2)
        self.runs = 0
        self.steps = 0

    def difference(self, steps):
        """The index of the first step that is answered differently, with both answers; `None` when all are the same."""
        self.runs += 1
        self.steps += len(steps)
        play = lambda c: c.play(steps, f"run{self.runs}", self.snaps)
        answers = list(self.threads.map(play, self.clusters))
        if self.model:
            # It does not count versions.
            answers[0] = [{**a, "version": None} if a and "version" in a else a for a in answers[0]]
            answers.append(self.model.play(steps, self.snaps, answers[0]))
        a, b = answers
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return i, x, y
        return None

    def shorten(self, steps):
        """Leaves steps out, in ever smaller pieces, while a difference remains."""
        piece = max(len(steps) // 2, 1)
        while True:
            at, shorter = 0, False
            while at < len(steps):
                tried = steps[:at] + steps[at + piece:]
                found = self.difference(tried) if tried else None
                if found:
                    steps, shorter = tried[:found[0] + 1], True
                else:
                    at += piece
            if piece == 1 and not shorter:
                return self.fewer_ops(steps)
            piece = max(piece // 2, 1)

    def fewer_ops(self, steps):
        """Leaves operations out of requests of several."""
        for i, step in enumerate(steps):
            k = 0
            while k < len(step.get("ops", [])) and len(steps[i]["ops"]) > 1:
                ops = steps[i]["ops"]
                tried = steps[:i] + [{**steps[i], "ops": ops[:k] + ops[k + 1:]}] + steps[i + 1:]
                if self.difference(tried):
                    steps = tried
                else:
                    k += 1
        return steps

    def close(self):
        for cluster in self.clusters:
            cluster.close()


def show(a, b):
    print("  A:", json.dumps(a))
    print("  B:", json.dumps(b), flush=True)


def report(differ, steps):
    found = differ.difference(steps)
    for step in steps:
        print("   ", json.dumps(step))
    if found:
        show(*found[1:])
    else:
        print("  the answers are the same now: it depends on the time", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("confs", nargs=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--sequences", type=int, default=1)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--snaps", choices=["self", "pool", "none"], default="self")
    p.add_argument("--replay")
    p.add_argument("--plant", choices=["append"], help="make this error in the model, to see that it is found")
    args = p.parse_args()
    if args.replay:
        saved = json.load(open(args.replay))
        args.snaps = saved["snaps"]
    differ = Differ(args.confs, args.snaps, args.plant)
    began, differences = time.monotonic(), 0
    try:
        if args.replay:
            report(differ, saved["steps"])
            return 1
        for seed in range(args.seed, args.seed + args.sequences):
            steps = Generator(seed, args.snaps).sequence(args.steps)
            found = differ.difference(steps)
            if found:
                differences += 1
                print(f"seed {seed}: step {found[0]} of {len(steps)} differs: {json.dumps(steps[found[0]])}", flush=True)
                show(*found[1:])
                steps = differ.shorten(steps[:found[0] + 1])
                report(differ, steps)
                with open(f"difference-{seed}.json", "w") as f:
                    json.dump({"snaps": args.snaps, "steps": steps}, f)
            print(f"seed {seed}: {differ.steps} steps in {time.monotonic() - began:.0f} s, {differences} differences",
                  file=sys.stderr, flush=True)
    finally:
        differ.close()
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
