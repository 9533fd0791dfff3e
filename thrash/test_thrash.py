"""What the thrasher calls wrong, without a cluster."""
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import model
import pools
import thrash
from clusters import Cluster, Trouble
from proxy import Proxy
from storm import Storm


FOLDER = tempfile.TemporaryDirectory(prefix="test-thrash-")


def tearDownModule():
    FOLDER.cleanup()


def made(**more):
    args = types.SimpleNamespace(**{"seed": 1, "mons": 3, "osds": 4, "scrub": 120, "clean": 1, "pool": "replicated", "min_size": None, **more})
    cluster = Cluster(args, tempfile.mkdtemp(dir=FOLDER.name))
    cluster.kind = "loligo"
    return thrash.Thrash(args, cluster)


class Least(unittest.TestCase):
    def wrong(self, ops=1, checked=1, passes=1, scrubbed=1, faults=1):
        t = made()
        t.fio_runs, t.faults = passes, [{}] * faults
        t.least(ops, checked, scrubbed)
        return t.wrong

    def test_each_kind_of_load_has_to_happen(self):
        self.assertEqual(self.wrong(), [])
        for what in ("ops", "checked", "passes", "scrubbed", "faults"):
            self.assertEqual(len(self.wrong(**{what: 0})), 1, what)

    def test_a_fault_that_hurts_nothing_is_none(self):
        t = made()
        t.kill_osd = lambda: iter(())
        with self.assertRaisesRegex(Trouble, "kill-osd hurt nothing"):
            t.inject("kill-osd")

    def test_a_pass_of_fio_has_to_read(self):
        for ios, wrong in ((0, ["a pass of fio verified nothing"]), (9, [])):
            t = made()
            text = 'noise {"jobs": [{"error": 0, "read": {"total_ios": %d}}]}' % ios
            t.fio = types.SimpleNamespace(communicate=lambda text=text: (text, None), returncode=0)
            t.fio_ended()
            self.assertEqual(t.wrong, wrong)


class Pools(unittest.TestCase):
    def test_a_pool_is_what_its_words_say(self):
        found = pools.parse("ec:4+2")
        self.assertEqual((found.k, found.m, found.min_size, pools.size(found), pools.spare(found)), (4, 2, 5, 6, 1))
        self.assertEqual(pools.parse("ec:2+1").min_size, 2)
        self.assertEqual(pools.spare(pools.parse("ec:4+2", 4)), 2)
        self.assertEqual({pools.parse("ec", seed=s)[1:] for s in range(40)}, set(pools.CODED))
        for words in (("ec:4+2", 3), ("ec:4+2", 7), ("ec:1+1",), ("ec:2+0",), ("ec:2",), ("lrc:2+1",), ("replicated", 1)):
            with self.assertRaises(ValueError, msg=words):
                pools.parse(*words)

    def test_the_pool_beside_can_spare_as_much(self):
        for words in (("ec:2+1",), ("ec:4+2",), ("ec:4+2", 4), ("replicated",)):
            pool = pools.parse(*words)
            self.assertEqual(pools.spare(pools.beside(pool)), pools.spare(pool))

    def thrash(self, pool, **more):
        t, dead = made(pool=pool, **more), []
        t.hold = t.wait = lambda *_: None
        t.cluster.kill = lambda *names: dead.extend(names)
        t.cluster.launch = lambda name: dead.remove(name)
        t.acting = lambda _: (list(range(pools.size(t.pool))), 0)
        return t, dead

    def test_what_is_spare_dies_with_the_primary_and_comes_back(self):
        for pool, least, count in (("ec:2+1", None, 1), ("ec:4+2", None, 1), ("ec:4+2", 4, 2), ("replicated", None, 1)):
            t, dead = self.thrash(pool, min_size=least)
            deaths = []
            t.hold = lambda _, dead=dead, deaths=deaths: deaths.append(list(dead))
            self.assertEqual(len(list(t.kill_spare())), 1)
            self.assertEqual((deaths[0][0], len(deaths[0]), dead), ("osd.0", count, []))

    def test_the_last_to_be_seen_dead_comes_back_first(self):
        back = []
        t, _ = self.thrash("ec:4+2", min_size=4)
        t.cluster.launch = back.append
        t.cluster.ask = lambda _: {"osds": [{"osd": i, "down_at": 10 + (i * 5) % 7} for i in range(6)]}
        io = types.SimpleNamespace(write_full=lambda *_: None, aio_write_full=lambda *_: io, aio_read=lambda *words: words[3](0, b"after") or io,
                                   is_complete=lambda: False, get_return_value=lambda: 0, read=lambda _: b"after")  # fmt: skip
        with mock.patch.object(thrash.rados, "Rados") as client:
            client.return_value.__enter__.return_value.open_ioctx.return_value = io
            list(t.below_min_size())
        self.assertEqual((t.wrong, len(back)), ([], 3))
        downs = [10 + (int(osd[4:]) * 5) % 7 for osd in back]
        self.assertEqual(downs, sorted(downs, reverse=True))


class Stalls(unittest.TestCase):
    def wrong(self, fault, took, stall=1, each=True, kind="write"):
        t = made(each=each, stall=stall)
        out = os.path.join(t.cluster.dir, "history")
        with open(out, "w") as f:
            f.write(json.dumps({"on": "register-1", "kind": kind, "value": None if kind == "snap" else "a", "begin": 5, "end": 5 + took}))
        t.clients, t.faults = [(None, out)], [{"fault": fault, "target": "x", "begin": 4, "end": 9}]
        with mock.patch.object(thrash.rados, "Rados"), mock.patch.object(thrash, "read_log", lambda *_: []):
            self.assertEqual(t.check(), 1)
        return t.wrong

    def test_who_dies_and_can_be_spared_may_not_be_waited_for(self):
        self.assertEqual(len(self.wrong("kill-spare", 1.5)), 1)
        self.assertIn("1.50 s beside kill-spare of x", self.wrong("kill-spare", 1.5)[0])
        for good in (self.wrong("kill-spare", 0.9), self.wrong("freeze-primary", 9), self.wrong("kill-osd", 9, stall=0),
                     self.wrong("kill-osd", 9, each=False), self.wrong("kill-leader", 9, kind="snap")):  # fmt: skip
            self.assertEqual(good, [])
        self.assertFalse(set(thrash.Thrash.NOTICED) - set(thrash.Thrash.FAULTS))


class Bytes(unittest.TestCase):
    def test_only_all_bytes_of_a_value_are_the_value(self):
        data = model.encode("client0.1.77", 500)
        self.assertEqual((model.decode(data), len(data)), ("client0.1.77", 540))
        for wrong in (data[:-1], data + b"x", data[:300] + b"\0" + data[301:], data[:39] + b"1" + data[40:]):
            with self.assertRaises(ValueError):
                model.decode(wrong)

    def cell(self, data):
        fake = types.SimpleNamespace(io=types.SimpleNamespace(read=lambda _, length, at: data[at : at + length]))
        return model.Worker.read_cell(fake, "board-0", 1)

    def test_a_cell_is_whole_or_was_never_written(self):
        size = model.CELL
        whole = model.encode("client1.0.1", size - 40)
        self.assertEqual(len(whole), size)
        self.assertEqual((self.cell(bytes(size) + whole), self.cell(bytes(3 * size)), self.cell(b"")), ("client1.0.1", None, None))
        for wrong in (bytes(size) + whole[:-1], bytes(size) + bytes(40) + whole[40:]):
            with self.assertRaises(ValueError):
                self.cell(wrong)


class BadMedia(unittest.TestCase):
    def write(self, t, name, text):
        with open(os.path.join(t.cluster.dir, name), "w") as f:
            f.write(text)

    def test_a_daemon_says_which_medium_it_is_on(self):
        t = made()
        self.assertFalse(t.cluster.says_twin("osd.1", "power-loss=12"))
        self.write(t, "osd.1.out", "WARN LOLIGO_TWIN=power-loss=123: the stores are on a bad medium, for tests")
        self.assertFalse(t.cluster.says_twin("osd.1", "power-loss=12"))
        self.assertTrue(t.cluster.says_twin("osd.1", "power-loss=123"))
        self.write(t, "osd.2.log", "WARN LOLIGO_TWIN=power-loss=5: the stores are on a bad medium, for tests")
        self.assertTrue(t.cluster.says_twin("osd.2", "power-loss=5"))

    def test_a_storm_without_its_bad_medium_is_wrong(self):
        t, storms = made(), []

        def run(storm, _):
            storms.append(storm)
            storm.count, storm.loses, storm.twins = 100, True, self.twins
            t.faults.append({})

        t.hold = t.settle = lambda *_: None
        for self.twins, words in (({}, "no daemon worked"), ({"osd.1": ["power-loss=9"]}, "never said so")):
            t.wrong = []
            with mock.patch.object(Storm, "run", run), mock.patch("builtins.print"):
                t.storm(1)
            self.assertEqual(len(t.wrong), 1)
            self.assertIn(words, t.wrong[0])
        self.write(t, "osd.1.out", "LOLIGO_TWIN=power-loss=9: the stores")
        t.wrong = []
        with mock.patch.object(Storm, "run", run), mock.patch("builtins.print"):
            t.storm(1)
        self.assertEqual(t.wrong, [])


class Skipping(unittest.TestCase):
    def main(self, *words):
        with mock.patch.object(sys, "argv", ["thrash.py", "hosts", *words]), mock.patch("builtins.print"), self.assertRaises(SystemExit) as end:
            thrash.main()
        return end.exception.code

    def test_only_want_of_root_or_tools_may_be_skipped(self):
        import hosts

        with mock.patch.object(hosts.os, "geteuid", return_value=1000):
            self.assertEqual(self.main("--may-skip"), thrash.SKIPPED)
            self.assertEqual(self.main(), 1)
        with mock.patch.object(hosts.os, "geteuid", return_value=0), mock.patch.object(hosts.shutil, "which", return_value=None):
            self.assertEqual(self.main("--may-skip"), thrash.SKIPPED)
        broken = mock.patch.object(hosts, "run", side_effect=lambda *_, check=True: check and self.fail_run())
        with mock.patch.object(hosts.os, "geteuid", return_value=0), mock.patch.object(hosts.shutil, "which", return_value="/x"), broken:
            self.assertIn("no network namespaces", self.main("--may-skip"))

    def fail_run(self):
        raise Trouble("not permitted")


class Cleaning(unittest.TestCase):
    def test_a_proxy_that_cannot_start_leaves_no_table(self):
        words = []
        with mock.patch("proxy.run", side_effect=lambda *w, **_: words.append(w)), mock.patch("threading.Thread.start", side_effect=RuntimeError):
            with self.assertRaises(RuntimeError), Proxy("10.99.1.0/24", 1):
                pass
        self.assertIn("delete table", words[-1][1])

    def test_a_signal_runs_what_cleans_up(self):
        text = "import os, signal, sys; sys.path.insert(0, %r); import processes; processes.end_in_order()\n" \
               "try: os.kill(os.getpid(), signal.SIGTERM); signal.pause()\n" \
               "finally: os.kill(os.getpid(), signal.SIGHUP); print('clean')"  # fmt: skip
        scripts = os.path.join(thrash.HERE, os.pardir, "scripts")
        done = subprocess.run([sys.executable, "-c", text % scripts], capture_output=True, text=True, timeout=30)
        self.assertEqual((done.stdout, done.returncode), ("clean\n", 128 + 15))
