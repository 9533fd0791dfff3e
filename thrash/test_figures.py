"""The kills of pg_num.py and the counting of recovery.py, without a cluster."""
import random
import types
import unittest
from unittest import mock

import pg_num
import recovery
from clusters import Trouble


class Pool:
    """A cluster whose pool has its count after so many looks at it."""

    osds = [0, 1, 2]

    def __init__(self, looks):
        self.looks, self.events = looks, []

    def ceph(self, *_):
        pass

    def ask(self, _):
        self.looks -= 1
        now = 8 if self.looks <= 0 else 32
        return {"pools": [{"pool_name": pg_num.POOL, "pg_num": now, "pg_placement_num": now, "pg_num_pending": now}]}

    def kill(self, name):
        self.events.append(("kill", name))

    def launch(self, name):
        self.events.append(("launch", name))

    def wait_clean(self, _):
        self.events.append(("clean", ""))


class Kills(unittest.TestCase):
    def reshape(self, looks, seed, kill=True):
        pool = Pool(looks)
        with mock.patch.object(pg_num.time, "sleep"):
            _, kills = pg_num.reshape(types.SimpleNamespace(kill=kill, limit=60), pool, 8, random.Random(seed))
        return pool.events, kills

    def test_every_way_has_a_kill_and_every_osd_comes_back(self):
        for seed in range(20):
            for looks in (1, 2, 7, 60):
                events, kills = self.reshape(looks, seed)
                self.assertGreaterEqual(kills, 1)
                self.assertEqual(kills, sum(what == "kill" for what, _ in events))
                self.assertEqual([what for what, _ in events], ["kill", "launch"] * kills + ["clean"])
                self.assertTrue(all(a[1] == b[1] for a, b in zip(events[::2], events[1::2])))
        self.assertGreater(max(self.reshape(60, seed)[1] for seed in range(5)), 3)

    def test_the_seed_says_whom_and_when(self):
        self.assertEqual(self.reshape(60, 4), self.reshape(60, 4))
        self.assertNotEqual(self.reshape(60, 4), self.reshape(60, 5))

    def test_without_a_kill_it_is_not_shown(self):
        self.assertEqual(self.reshape(5, 1, kill=False), ([("clean", "")], 0))
        with mock.patch.object(pg_num.Killer, "tick"), self.assertRaisesRegex(Trouble, "no OSD was killed"):
            self.reshape(5, 1)


class Lacked(unittest.TestCase):
    PGS = [{"up": up, "stat_sum": {"num_objects": n}} for up, n in (([0, 1], 10), ([2, 3], 20), ([3, 0], 5))]

    def test_only_what_belongs_to_the_osd_is_counted(self):
        self.assertEqual([recovery.lacked(self.PGS, osd) for osd in (0, 1, 2, 3, 4)], [15, 10, 20, 25, 0])

    def returns(self, osd, sent, objects=35):
        bytes_sent = iter((100, 100 + sent))
        cluster = types.SimpleNamespace(launch=lambda _: None, wait_clean=lambda _: None, ask=lambda *_, **__: {"pg_stats": self.PGS})
        with mock.patch.object(recovery, "pushed", lambda *_: next(bytes_sent)):
            return recovery.clean_after_return(types.SimpleNamespace(objects=objects, size=100, osds=5, limit=1), cluster, None, osd)[1:]

    def test_bytes_are_for_each_byte_that_was_lacked(self):
        self.assertEqual(self.returns(0, 1650), (15, 1.1))
        with self.assertRaisesRegex(Trouble, "osd.4 lacked nothing"):
            self.returns(4, 0)

    def test_a_count_that_does_not_come_is_told(self):
        clock = iter(range(0, 1000, 20))
        with mock.patch.object(recovery.time, "monotonic", lambda: next(clock)), mock.patch.object(recovery.time, "sleep"):
            with self.assertRaisesRegex(Trouble, "report 35 objects of 36"):
                self.returns(0, 1, objects=36)


if __name__ == "__main__":
    unittest.main()
