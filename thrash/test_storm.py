"""The storm on a cluster that only keeps books: what may be away at a time, and that everything comes back."""
import collections
import signal
import types
import unittest
from unittest import mock

import thrash  # which finds the modules of bench/
import storm
from clusters import Trouble

SLOW_START = 1.5  # seconds from a launch until there is a process


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Network:
    """A host for each OSD, the first three with a monitor."""

    peer, hosts = "loligo", ["h0", "h1", "h2", "h3"]

    def __init__(self):
        self.cut = {}

    def daemons(self):
        return {**{"osd.%d" % i: "h%d" % i for i in range(4)}, **{"mon." + m: "h%d" % i for i, m in enumerate("abc")}, "mgr.x": "h3"}

    def partition(self, host, **how):
        assert host not in self.cut
        self.cut[host] = how

    def heal(self, host):
        del self.cut[host]


class Books:
    """Which daemons run, do not, or stand still."""

    kind, osds, mons = "loligo", [0, 1, 2, 3], "abc"

    def __init__(self, clock, hosts=None):
        self.clock, self.dark, self.moves, self.launches = clock, False, 0, []
        if hosts:
            self.hosts = hosts
        self.up_at = dict.fromkeys(["osd.%d" % i for i in self.osds] + ["mon." + m for m in self.mons] + ["mgr.x"], 0.0)
        self.frozen = set()

    def pid(self, name):
        if self.up_at[name] is None or self.up_at[name] > self.clock.now:
            raise Trouble("%s does not run" % name)
        return 1

    def reap(self):
        pass

    def says_twin(self, name, twin):
        return (name, twin) in self.launches

    def signal(self, name, which):
        self.pid(name)
        if which == signal.SIGCONT:
            self.frozen.remove(name)
            return
        assert name not in self.frozen, "%s stands still" % name
        if which == signal.SIGSTOP:
            self.frozen.add(name)
        else:
            self.up_at[name] = None
        self.check_bounds()

    def launch(self, name, twin=""):
        assert self.up_at[name] is None, "%s runs already" % name
        self.up_at[name] = self.clock.now + SLOW_START
        self.launches.append((name, twin))

    def hurt(self, kind):
        cut = getattr(self, "hosts", None)
        on = {name for name, host in cut.daemons().items() if host in cut.cut} if cut else set()
        return {n for n, at in self.up_at.items() if n.startswith(kind) and (at is None or at > self.clock.now or n in self.frozen or n in on)}

    def check_bounds(self):
        assert self.dark or len(self.hurt("osd.")) <= 2, "too many OSDs are away: %s" % self.hurt("osd.")
        assert len(self.hurt("mon.")) <= 1, "too many monitors are away: %s" % self.hurt("mon.")

    def ask(self, prefix, **_):
        assert prefix == "osd crush move"
        self.moves += 1

    def crush_host(self, osd):
        return "host-%d" % osd

    def manager(self):
        return "mgr.x"


class Watched(storm.Storm):
    """Says when all OSDs may be away: from their common death until two at most are left to come back."""

    def kill_all_osds(self, *words):
        self.cluster.dark = True
        return super().kill_all_osds(*words)


def run(seed, minutes=3.0, hosts=None, made=Watched):
    clock = Clock()
    cluster = Books(clock, hosts)

    def look():
        if cluster.dark and len(cluster.hurt("osd.")) <= 2:
            cluster.dark = False
        cluster.check_bounds()

    fake = types.SimpleNamespace(args=types.SimpleNamespace(seed=seed), cluster=cluster, faults=[], look=look)
    one = made(fake)
    with mock.patch.object(storm, "time", clock), mock.patch("builtins.print"):
        one.run(minutes)
    return one


class Bounds(unittest.TestCase):
    def test_no_more_than_two_osds_and_one_monitor_are_away_and_all_come_back(self):
        kinds, twins = collections.Counter(), 0
        for seed in range(12):
            for hosts in (None, Network()):
                with self.subTest(seed=seed, hosts=bool(hosts)):
                    one = run(seed, hosts=hosts)
                    self.assertEqual((one.away, one.heals, one.cluster.frozen, one.cluster.hurt("")), ({}, [], set(), set()))
                    self.assertFalse(hosts and hosts.cut)
                    self.assertGreaterEqual(one.count, storm.LEAST_PER_MINUTE * 3)
                    self.assertEqual(one.count, len(one.thrash.faults))
                    self.assertEqual(one.count + one.skipped, len(storm.schedule(seed, 3.0, one.kinds())))
                    kinds.update(f["fault"] for f in one.thrash.faults)
                    twins += sum(bool(twin) for _, twin in one.cluster.launches)
                    # It has no store, so it would never say that it is on a bad medium.
                    self.assertFalse([name for name, twin in one.cluster.launches if twin and name == "mgr.x"])
        self.assertEqual(kinds.keys(), storm.KINDS.keys())
        self.assertGreater(twins, 50)

    def test_a_storm_without_bounds_would_be_noticed(self):
        class Careless(Watched):
            def choose(self, names, most, rng):
                return super().choose(names, most + 1, rng)

        with self.assertRaisesRegex(AssertionError, "are away"):
            for seed in range(12):
                run(seed, made=Careless)

    def test_the_same_seed_is_the_same_storm(self):
        one, other = ([(f["fault"], f["target"]) for f in run(5).thrash.faults] for _ in range(2))
        self.assertEqual(one, other)
        self.assertNotEqual(one, [(f["fault"], f["target"]) for f in run(6).thrash.faults])

    def test_the_storms_of_the_gate_have_every_kind(self):
        kinds = [k for k in storm.KINDS if k != "partition"]
        self.assertEqual({kind for _, kind, _, _ in storm.schedule(9, 0.7, kinds)}, set(kinds))
        self.assertIn("partition", {kind for _, kind, _, _ in storm.schedule(6, 0.7, list(storm.KINDS))})

    def test_a_daemon_that_does_not_come_back_ends_the_storm(self):
        class Lost(Watched):
            def back(self, name, rng):
                super().back(name, rng)
                self.cluster.up_at[name] = None

        with self.assertRaisesRegex(Trouble, "does not run"):
            run(1, made=Lost)


class Nothing(unittest.TestCase):
    def test_a_storm_without_a_fault_is_told(self):
        for minutes, skipped in ((0, 0), (1, 20)):
            t = thrash.Thrash(types.SimpleNamespace(seed=1, scrub=0, pool="replicated", min_size=None), types.SimpleNamespace(kind="loligo"))
            t.hold = t.look = lambda *_: None
            t.settle = lambda: t.faults[-1]

            def skips(one, _, skipped=skipped):
                one.skipped = skipped

            with mock.patch.object(thrash.Storm, "run", skips), mock.patch("builtins.print"):
                t.storm(minutes)
            t.fio_runs = 1
            t.least(1, 1, 1)
            self.assertIn("nothing was tested: not one fault", t.wrong)


if __name__ == "__main__":
    unittest.main()
