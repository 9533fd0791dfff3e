"""The checks of histories, on histories whose faults are known, and against a search of all orders."""
import itertools
import math
import random
import unittest

from history import Op, appends, register


def any_order(ops, initial=None):
    """Whether some order of the operations explains them: tries all, for small histories."""
    must = [o for o in ops if o.end is not None]
    maybe = [o for o in ops if o.end is None and o.kind == "write"]
    for n in range(len(maybe) + 1):
        for extra in itertools.combinations(maybe, n):
            if explain(must + list(extra), initial):
                return True
    return False


def explain(left, value):
    if not left:
        return True
    first_end = min(math.inf if o.end is None else o.end for o in left)
    for o in left:
        if o.begin > first_end or (o.kind == "read" and o.value != value):
            continue
        if explain([x for x in left if x is not o], o.value if o.kind == "write" else value):
            return True
    return False


class Registers(unittest.TestCase):
    def test_a_good_history(self):
        self.assertEqual(register([Op("write", 1, 0, 2), Op("read", None, 0, 1), Op("read", 1, 1, 3)]), [])

    def test_a_stale_read(self):
        self.assertTrue(register([Op("write", 1, 0, 1), Op("write", 2, 2, 3), Op("read", 1, 4, 5)]))

    def test_a_value_from_nowhere(self):
        self.assertTrue(register([Op("write", 1, 0, 1), Op("read", 7, 2, 3)]))

    def test_a_lost_write(self):
        self.assertTrue(register([Op("write", 1, 0, 1), Op("read", None, 2, 3)]))

    def test_flipping_back(self):
        ops = [Op("write", 1, 0, 1), Op("write", 2, 2, None), Op("read", 2, 3, 4), Op("read", 1, 5, 6)]
        self.assertTrue(register(ops))

    def test_an_open_write_may_come_late_or_never(self):
        ops = [Op("write", 1, 0, 1), Op("write", 2, 2, None), Op("read", 1, 5, 6)]
        self.assertEqual(register(ops), [])
        self.assertEqual(register(ops + [Op("read", 2, 7, 8)]), [])

    def test_agrees_with_all_orders(self):
        rng, found = random.Random(5), [0, 0]
        for _ in range(3000):
            values, ops = list(range(1, rng.randint(2, 5))), []
            for v in values:
                begin = rng.randint(0, 12)
                ops.append(Op("write", v, begin, None if rng.random() < 0.2 else begin + rng.randint(1, 5)))
            for _ in range(rng.randint(1, 4)):
                begin = rng.randint(0, 16)
                ops.append(Op("read", rng.choice([None, *values]), begin, begin + rng.randint(1, 4)))
            # Equal times leave the order open in one definition and not in the other: make them distinct.
            ops = [o._replace(begin=o.begin + rng.random() / 9, end=o.end and o.end + rng.random() / 9 + 0.2) for o in ops]
            good = any_order(ops)
            found[good] += 1
            self.assertEqual(register(ops) == [], good, ops)
        self.assertGreater(min(found), 300)


class Logs(unittest.TestCase):
    OPS = [Op("write", "a", 0, 1), Op("write", "b", 2, 3), Op("write", "c", 2, None)]

    def test_good_logs(self):
        self.assertEqual(appends(self.OPS, "ab"), [])
        self.assertEqual(appends(self.OPS + [Op("read", ("a",), 2, 4)], "abc"), [])

    def test_faults(self):
        for final in ("a", "ba", "aab", "abcc", "abx"):
            self.assertTrue(appends(self.OPS, final), final)

    def test_reads(self):
        for read in [Op("read", ("a",), 4, 5), Op("read", ("b",), 2, 3), Op("read", (), 2, 3)]:
            self.assertTrue(appends([*self.OPS, read], "ab"), read)
        self.assertTrue(appends([*self.OPS, Op("read", ("a", "b"), 2, 2.5), Op("read", ("a",), 2.7, 4)], "ab"))


if __name__ == "__main__":
    unittest.main()
