#!/usr/bin/python3
"""What bench.py refuses, and what it makes of figures, without a cluster: python3 bench/test_bench.py"""
import json
import os
import subprocess
import tempfile
import types
import unittest
from unittest import mock

import bench
import ratios
from clusters import Trouble


class Fake:
    """A cluster that answers what it was told to."""

    kind, conf, osds = "fake", "/nowhere", [0]

    def __init__(self, status="HEALTH_OK", checks=(), config=()):
        self.answers = {"health": {"status": status, "checks": dict.fromkeys(checks, {})}, "config dump": list(config)}

    def ceph(self, *words):
        return self.answers[" ".join(words)]


def side(**answers):
    made = bench.Side.__new__(bench.Side)
    made.cluster = Fake(**answers)
    made.conf = made.cluster.conf
    return made


class Refusals(unittest.TestCase):
    def healthy(self, level="0/5", **answers):
        with mock.patch.object(bench, "run", return_value='{"debug_osd": "%s"}' % level):
            side(**answers).healthy()

    def test_a_quiet_healthy_cluster_is_measured(self):
        self.healthy()
        self.healthy(status="HEALTH_WARN", checks=["POOL_NO_REDUNDANCY"])
        self.healthy(config=[{"name": "debug_osd", "value": "0/0"}, {"name": "osd_memory_target", "value": "1073741824"}])

    def test_an_unhealthy_cluster_gives_no_figure(self):
        for answers in ({"status": "HEALTH_ERR"}, {"status": "HEALTH_WARN", "checks": ["OSD_DOWN"]}):
            with self.assertRaisesRegex(Trouble, "not healthy"):
                self.healthy(**answers)

    def test_debug_logging_gives_no_figure(self):
        with self.assertRaisesRegex(Trouble, "debug logging is on"):
            self.healthy(config=[{"name": "debug_ms", "value": "1/5"}])
        with self.assertRaisesRegex(Trouble, "logs at level 20"):
            self.healthy(level="20/20")

    def test_data_that_does_not_verify_gives_no_figure(self):
        for code, error in ((1, 0), (0, 84)):
            done = subprocess.CompletedProcess([], code, "noise\n" + json.dumps({"jobs": [{"error": error}]}), "verify: bad header")
            with mock.patch.object(bench.subprocess, "run", return_value=done), self.assertRaisesRegex(Trouble, "bad header"):
                side().fio(types.SimpleNamespace(image=1), "--verify_only")


def figures(**more):
    one = {"cpu_us": 10.0, "iops": 5.0, "mean_us": 3.0, "client_cpu_us": 5.0, "p99_us": 9.0, "switches": 2.0, "device_bytes_per_byte": 3.0}
    two = {k: 2 * v for k, v in one.items()}
    found = {"%s %d" % (kind, depth): {"loligo": one, "ceph": two} for kind in ("write", "read") for depth in (1, 8, 32)}
    start = {"loligo": {"healthy_s": 1.0, "osd_s": 0.2}, "ceph": {"healthy_s": 30.0, "osd_s": 4.0}}
    resident = {"loligo": 100.0, "ceph": 400.0}
    return {**found, "objects": 7, "floor": {"32": {"node_cpu_us_per_op": 5.0}}, "restart_s": 1.0, "start": start, "resident": resident, **more}


class Figures(unittest.TestCase):
    def test_the_table_has_every_row_of_the_gates(self):
        text = bench.markdown(figures(crush={"together": 20, "crushtool": 2}, large={n: {"write": 1.0, "seq": 2.0} for n in bench.ORDER}), "machine")
        for words in ("CPU per op", "depth 8: IOPS", "4 MiB write", "4 MiB read", "after 7 objects", "OSD start", "HEALTH_OK", "CRUSH", "device bytes"):
            self.assertIn(words, text)
        self.assertIn("| 4K random write, depth 32: OSD CPU per op, us | 20.0 | 10.0 | 2.0 | 8 | 20 |", text)
        self.assertIn("Against the floor of this machine (5.0 us of CPU per write at depth 32): 2.0 times", text)

    def test_a_lost_tenth_is_told_and_the_best_is_kept(self):
        self.assertEqual(ratios.lost({"a": 10.0, "b": 2.0}, {"a": 8.9, "b": 1.81, "c": 1.0}), [("a", 10.0, 8.9)])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            self.assertEqual(ratios.load(path), {})
            ratios.keep({"a": 10.0, "z": 1.0}, {"a": 8.9, "b": 3.0}, path)
            self.assertEqual(ratios.load(path), {"a": 10.0, "b": 3.0, "z": 1.0})

    def test_a_plot_has_a_line_for_each_side(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.svg")
            bench.plot(path, "title", "us", {"ceph": [(1, 4.0), (8, 2.0)], "loligo": [(1, 1.0), (8, 1.0)]})
            with open(path) as f:
                self.assertEqual(f.read().count("<polyline"), 2)


if __name__ == "__main__":
    unittest.main()
