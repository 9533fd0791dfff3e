"""What the thrasher calls wrong, without a cluster."""
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import thrash
from clusters import Cluster, Trouble
from proxy import Proxy
from storm import Storm


FOLDER = tempfile.TemporaryDirectory(prefix="test-thrash-")


def tearDownModule():
    FOLDER.cleanup()


def made(**more):
    args = types.SimpleNamespace(seed=1, mons=3, osds=4, scrub=120, clean=1, **more)
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
