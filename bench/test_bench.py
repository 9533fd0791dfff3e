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
import fio
import flame
import pagecache
import ratios
import usage
from clusters import Trouble


class Flame(unittest.TestCase):
    def test_a_sample_belongs_to_the_innermost_stage(self):
        folded = """osd;tokio::run;daemons::osd::OsdMachine::end_turn;store::jobs::Commit::execute;runtime::device::write;__libc_pwritev2;vfs_writev;ext4_file_write_iter 3
osd;tokio::run;daemons::osd::OsdMachine::handle;pg::osd::OsdCore::handle;store::store::Store::submit;__memmove_avx 5
osd;tokio::run;runtime::net::link::flush;writev;tcp_sendmsg 1
osd;tokio::run;pg::osd::OsdCore::handle;store::store::Store::read;<runtime::device::FileDevice as store::device::Device>::read_at;pread64 2
osd;clone3 1"""
        parts = flame.by_stage(folded)
        self.assertEqual([round(part) for _, part in parts], [42, 25, 17, 8, 8])
        self.assertTrue(parts[0][0].startswith("the store") and parts[1][0].startswith("the commit"))
        self.assertEqual(parts[2][0], "reads of the device")
        self.assertEqual({parts[3][0], parts[4][0]}, {"sockets: written", "the rest"})

    def test_without_samples_there_are_no_figures(self):
        with self.assertRaises(Trouble):
            flame.by_stage("")


class Usage(unittest.TestCase):
    def test_what_a_device_is_given_is_counted(self):
        with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "data"), "wb") as f:
            f.truncate(64 << 20)
            os.posix_fallocate(f.fileno(), 0, 64 << 20)
            f.write(os.urandom(32 << 20))
            os.fsync(f.fileno())
            before = usage.written_bytes(folder, [os.getpid()])
            # In the page cache are large pieces by now; one block of each is written.
            for at in range(0, 32 << 20, 1 << 20):
                os.pwrite(f.fileno(), b"x" * 4096, at)
            os.fsync(f.fileno())
            written = usage.written_bytes(folder, [os.getpid()]) - before
        self.assertGreaterEqual(written, 32 * 4096)

    def test_without_a_device_the_processes_are_asked(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("os.major", return_value=0), open(os.path.join(folder, "data"), "wb") as f:
            before = usage.written_bytes(folder, [os.getpid()])
            f.write(os.urandom(1 << 20))
            f.flush()
            os.fsync(f.fileno())
            self.assertGreaterEqual(usage.written_bytes(folder, [os.getpid()]) - before, 1 << 20)


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
            with mock.patch.object(fio.subprocess, "run", return_value=done), self.assertRaisesRegex(Trouble, "bad header"):
                fio.RbdImage(1, "/nowhere", "pool", "image").fio("--rw=read")

    def test_large_objects_that_read_back_wrong_give_no_figure(self):
        # What `rados bench seq` ends with when an object is not correct.
        failed = subprocess.CompletedProcess([], 1, "Total reads made: 16\nBandwidth (MB/sec): 300\n", "errors during benchmark: (5) Input/output error")
        made = side()
        made.pids = list
        with mock.patch("processes.subprocess.run", return_value=failed), self.assertRaisesRegex(Trouble, "Input/output error"):
            bench.rados_bench(made, 1, "seq")

    def test_a_table_is_printed_whole_or_not_at_all(self):
        for phase in ("start_both", "measure"):
            cluster, fakes = mock.Mock(), {name: mock.DEFAULT for name in ("describe", "end_in_order", "measure", "start_both")}

            def start(args, folder, clusters, cluster=cluster):
                clusters["loligo"] = cluster
                return {}, {}

            with tempfile.TemporaryDirectory() as out, mock.patch.multiple(bench, **fakes), mock.patch("builtins.print") as printed, \
                    mock.patch.object(bench, "start_both", side_effect=start), mock.patch.object(bench, phase, side_effect=Trouble("differs")), \
                    mock.patch("sys.argv", ["bench.py", "quick", "--cold", "--out", out, "--scratch", out]):  # fmt: skip
                with self.assertRaisesRegex(SystemExit, "no figures: differs"):
                    bench.main()
                self.assertEqual(os.listdir(out), [], "no table, and nothing left behind")
            self.assertEqual(cluster.stop.called, phase == "measure")
            self.assertFalse([call for call in printed.call_args_list if "file" not in call.kwargs])

    def test_objects_that_are_not_given_back_give_no_figure(self):
        made, args = side(), types.SimpleNamespace(objects=7)
        for read, good in ((7, True), (6, False)):
            with mock.patch.object(bench, "run", return_value="Total reads made:     %d\n" % read), mock.patch.object(bench, "resident_mib", return_value=3.0), \
                    mock.patch.object(bench.Side, "pids", return_value=[1]):  # fmt: skip
                if good:
                    self.assertEqual(bench.many_objects(made, args), {"mib": 3.0})
                else:
                    with self.assertRaisesRegex(Trouble, "6 of 7"):
                        bench.many_objects(made, args)


class Checks(unittest.TestCase):
    """What the check of an image must find, with fio on a file."""

    WINDOW = ("--rw=randwrite", "--bs=4k", "--io_size=2M")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="test-bench-")
        self.addCleanup(folder.cleanup)
        self.image = fio.FileImage(8, os.path.join(folder.name, "image"))
        self.image.fill()

    def bytes(self):
        with open(self.image.path, "rb") as f:
            return bytearray(f.read())

    def put(self, data, at=0):
        with open(self.image.path, "r+b") as f:
            f.seek(at)
            f.write(data)

    def test_what_was_written_is_there(self):
        self.image.check()
        self.image.write(*self.WINDOW)
        self.image.write("--rw=randrw", "--rwmixwrite=30", "--bs=8k", "--io_size=1M")
        self.image.check()
        jobs = self.image.read(1, "--rw=randread", "--bs=4k")
        # All of it, or as much as a busy machine gives in the time.
        self.assertTrue(sum(job["read"]["total_ios"] for job in jobs) >= 2048 or jobs[0]["read"]["runtime"] >= 900)

    def test_one_damaged_block_is_found(self):
        self.image.write(*self.WINDOW)
        for at, what in ((5 * 4096 + 1000, b"\x00\xff" * 2), (7 * 4096, bytes(4096))):
            before = self.bytes()
            self.put(what, at)
            with self.assertRaisesRegex(Trouble, "verify: bad|Expected CRC|verify failed|fio"):
                self.image.check()
            with self.assertRaises(Trouble):
                self.image.read(1, "--rw=randread", "--bs=4k")
            self.put(before)
        self.image.check()

    def test_a_window_whose_writes_were_dropped_is_found(self):
        self.image.write(*self.WINDOW)
        before = self.bytes()
        self.image.write(*self.WINDOW)
        self.assertNotEqual(self.bytes(), before)
        after = self.bytes()
        self.put(before)
        with self.assertRaisesRegex(Trouble, "is not what was written last"):
            self.image.check()
        self.put(after)
        self.image.check()

    def test_one_dropped_write_is_found(self):
        before = self.bytes()
        self.image.write(*self.WINDOW)
        at = next(at for at, (a, b) in enumerate(zip(before, self.bytes())) if a != b) // 4096 * 4096
        self.put(before[at : at + 4096], at)
        with self.assertRaisesRegex(Trouble, "the block at %d is not" % at):
            self.image.check()

    def test_a_block_in_the_wrong_place_is_found(self):
        data = self.bytes()
        self.put(data[4096:8192])
        with self.assertRaises(Trouble):
            self.image.check()


LARGE = {"write_mb_s": 1.0, "seq_mb_s": 2.0, "write_ns_byte": 3.0, "seq_ns_byte": 4.0}


def figures(**more):
    one = {"cpu_us": 10.0, "iops": 5.0, "mean_us": 3.0, "client_cpu_us": 5.0, "p99_us": 9.0, "switches": 2.0, "device_bytes_per_byte": 3.0}
    two = {k: 2 * v for k, v in one.items()}
    found = {"%s %d" % (kind, depth): {"loligo": one, "ceph": two} for kind in ("write", "read") for depth in (1, 8, 32)}
    start = {"loligo": {"healthy_s": 1.0, "osd_s": 0.2}, "ceph": {"healthy_s": 30.0, "osd_s": 4.0}}
    resident = {"loligo": {"mib": 100.0}, "ceph": {"mib": 400.0}}
    restart = {"loligo": 1.0, "ceph": 9.0}
    return {**found, "objects": 7, "floor": {"32": {"node_cpu_us_per_op": 5.0}}, "restart_s": restart, "start": start, "resident": resident, **more}


class Memory(unittest.TestCase):
    def test_what_is_free_becomes_cache_and_the_rest_stays(self):
        free = iter([pagecache.LEFT_FREE + n for n in (2 * pagecache.STEP, pagecache.STEP, 0)])
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pagecache, "free_bytes", lambda: next(free)):
            cache = pagecache.PageCache(folder)
            self.assertEqual(cache.fill(), 2 * pagecache.STEP)
            self.assertEqual(os.listdir(folder), ["holes"])
            cache.close()
            self.assertEqual(os.listdir(folder), [])

    def test_it_ends_when_free_memory_does_not_shrink(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pagecache, "free_bytes", lambda: 1 << 50), \
                mock.patch.object(pagecache.os, "sysconf", lambda _: 1 << 13):  # fmt: skip
            cache = pagecache.PageCache(folder)
            self.assertEqual(cache.fill(), 1 << 26)
            cache.close()

    def test_what_is_freed_later_becomes_cache_too(self):
        freed = [7, 0, 0, 5, *[0] * pagecache.QUIET_SECONDS]
        cache = pagecache.PageCache.__new__(pagecache.PageCache)
        with mock.patch.object(pagecache.PageCache, "fill", side_effect=freed) as fill, mock.patch.object(pagecache.time, "sleep"):
            cache.settle()
        self.assertEqual(fill.call_count, len(freed))

    def test_both_sides_are_prepared_alike(self):
        events = []
        found = bench.abba({"loligo": 1, "ceph": 2}, lambda side: events.append(side) or {"x": side}, lambda: events.append("fill"))
        self.assertEqual(events, ["fill", 1, "fill", 2, "fill", 2, "fill", 1])
        self.assertEqual(found, {"loligo": {"x": 1}, "ceph": {"x": 2}})

    def test_two_rounds_are_the_order_twice(self):
        figures = {"loligo": iter([1, 9, 2, 4]), "ceph": iter([5, 5, 6, 8])}
        found = bench.abba({"loligo": "loligo", "ceph": "ceph"}, lambda side: {"x": next(figures[side])}, rounds=2)
        self.assertEqual(found, {"loligo": {"x": 3}, "ceph": {"x": 5.5}})


class Figures(unittest.TestCase):
    def test_the_table_has_every_row_of_the_gates(self):
        text = bench.markdown(figures(crush={"together": 20, "crushtool": 2}, large=dict.fromkeys(bench.ORDER, LARGE)), "machine")
        for words in ("CPU per op", "depth 8: IOPS", "4 MiB write, MB/s", "4 MiB read, MB/s", "per byte", "after 7 objects", "OSD start", "HEALTH_OK", "CRUSH", "device bytes"):
            self.assertIn(words, text)
        self.assertIn("| 4K random write, depth 32: OSD CPU per op, us | 20.00 | 10.00 | 2.00 | 8 | 20 |", text)
        self.assertIn("Against the floor of this machine (5.0 us of CPU per write at depth 32): 2.0 times", text)

    def test_a_part_of_the_table_stands_alone(self):
        found = {"objects": 7, "floor": {}, "restart_s": {"loligo": 1.0, "ceph": 2.0}, "large": dict.fromkeys(bench.ORDER, LARGE)}
        text = bench.markdown(found, "machine")
        self.assertEqual(sum(line.startswith("| rados bench") for line in text.splitlines()), 4)
        self.assertNotIn("4K random", text)

    def test_a_gate_that_is_missed_by_little_is_missed(self):
        for mib, missed in ((100.0, False), (100.5, True)):
            text = bench.markdown(figures(resident={"loligo": {"mib": mib}, "ceph": {"mib": 500.0}}), "machine")
            gates = next(line for line in text.splitlines() if line.startswith("Gates not reached"))
            self.assertEqual("resident MiB per OSD after 7 objects (4.97 of 5)" in gates, missed)
            self.assertEqual("| 500.00 | 100.50 | 4.97 | 5 | 8 |" in text, missed)
        self.assertEqual([bench.shown(x) for x in (4.999, 5.0, 1999.7, None, 7)], ["4.99", "5.00", "2000", "-", "7"])

    def test_bounds_on_our_own_figure(self):
        for seconds, bad in ((0.5, "goal"), (0.51, "gate"), (0.3, None)):
            start = {"loligo": {"healthy_s": 1.0, "osd_s": seconds}, "ceph": {"healthy_s": 30.0, "osd_s": 4.0}}
            lines = bench.missed(bench.rows(figures(start=start)))
            self.assertEqual(["OSD start" in line for line in lines], [bad == "gate", bad is not None])
        row = bench.Row("a", 10.0, 5.0, 2.0, 2, None)
        self.assertEqual(bench.missed([row]), ["Every gate is reached.", "Every goal is reached."])

    def test_a_lost_tenth_is_told_and_ends_badly(self):
        args = types.SimpleNamespace(keep=True)
        table = [bench.Row("a", 0, 0, 10.0, None, None), bench.Row("b", 0, 0, 2.0, None, None), bench.Row("no ratio", 0, 0, None, 4, None, True)]
        worse = [table[0]._replace(ratio=8.9), table[1]._replace(ratio=2.5)]
        with tempfile.TemporaryDirectory() as folder, mock.patch("builtins.print") as said:
            path = os.path.join(folder, "r.json")
            self.assertEqual(ratios.load(path), {})
            self.assertTrue(bench.compare(args, "quick", table, path))
            self.assertTrue(bench.compare(args, "full", worse, path), "another size has its own best")
            self.assertFalse(bench.compare(args, "quick", worse, path))
            said.assert_called_once_with("LOST: a: 8.90, once 10.00, last 10.00")
            self.assertEqual(ratios.load(path)["quick"], {"a": {"best": 10.0, "last": 8.9}, "b": {"best": 2.5, "last": 2.5}})
            self.assertFalse(bench.compare(args, "quick", table[:1], path))
            said.assert_called_with("LOST: b: not measured, once 2.50")

    def test_each_side_is_started_as_often_and_the_last_of_each_stays(self):
        events, clusters = [], {}

        class Starts:
            conf = dir = "/nowhere"

            def __init__(self, kind, folder):
                self.kind = kind

            def stop(self):
                events.append("stop " + self.kind)

        kinds = {name: lambda _, folder, name=name: Starts(name, folder) for name in ("loligo", "ceph")}
        seconds = iter((1.0, 20.0, 30.0, 3.0))

        def start(side):
            events.append(side.cluster.kind)
            return next(seconds)

        with mock.patch.object(bench, "KINDS", kinds), mock.patch.object(bench.Side, "start", start), mock.patch.object(bench.Side, "make_pool"), \
                mock.patch.object(bench.shutil, "rmtree"):  # fmt: skip
            sides, taken = bench.start_both(types.SimpleNamespace(image=1), "/nowhere", clusters)
        self.assertEqual(events, ["loligo", "stop loligo", "ceph", "stop ceph", "ceph", "loligo"])
        self.assertEqual(taken, {"loligo": 2.0, "ceph": 25.0})
        self.assertEqual({n: s.cluster for n, s in sides.items()}, clusters)

    def test_a_plot_has_a_line_for_each_side(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "p.svg")
            bench.plot(path, "title", "us", {"ceph": [(1, 4.0), (8, 2.0)], "loligo": [(1, 1.0), (8, 1.0)]})
            with open(path) as f:
                self.assertEqual(f.read().count("<polyline"), 2)


if __name__ == "__main__":
    unittest.main()
