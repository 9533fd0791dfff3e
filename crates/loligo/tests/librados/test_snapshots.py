"""Snapshots of pools and of clients' own. After snapshots.cc and snapshots_cxx.cc; what clones share is seen through C++."""
import unittest

from cplusplus import copy_from, list_snaps
from support import *

ORDERSNAP = 512


class PoolSnapshots(Case):
    def id_of(self, name):
        number = out()
        r = self.io.ioctx_snap_lookup(name, ref(number))
        return r if r < 0 else number.value

    def list(self):
        ids = (u64 * 10)()
        n = self.io.ioctx_snap_list(ids, 10)
        return list(ids[:n]) if n >= 0 else n

    def tearDown(self):
        for number in self.list():
            buf = C.create_string_buffer(100)
            self.io.ioctx_snap_get_name(u64(number), buf, 100)
            self.io.ioctx_snap_remove(buf.value)
        super().tearDown()

    def test_names_and_ids(self):
        self.assertEqual(self.list(), [])
        self.assertEqual(self.io.ioctx_snap_create("s1"), 0)
        self.assertEqual(self.io.ioctx_snap_create("s1"), EEXIST)
        number = self.id_of("s1")
        self.assertEqual(self.list(), [number])
        self.assertEqual(self.id_of("s2"), ENOENT)
        buf, stamp = C.create_string_buffer(10), out(C.c_long)
        self.assertEqual((self.io.ioctx_snap_get_name(u64(number), buf, 10), buf.value), (0, b"s1"))
        self.assertEqual(self.io.ioctx_snap_get_name(u64(number), buf, 1), ERANGE)
        self.assertEqual(self.io.ioctx_snap_get_stamp(u64(number), ref(stamp)), 0)
        self.assertLess(abs(stamp.value - time.time()), 60)
        self.assertEqual(self.io.ioctx_snap_create("s2"), 0)
        self.assertEqual(len(self.list()), 2)
        self.assertEqual(self.io.ioctx_snap_remove("s1"), 0)
        self.assertEqual(self.io.ioctx_snap_remove("s1"), ENOENT)
        self.assertEqual((self.id_of("s1"), self.list()), (ENOENT, [self.id_of("s2")]))

    def test_reading_and_rolling_back(self):
        self.io.put("o", b"before")
        self.assertEqual(self.io.ioctx_snap_create("s"), 0)
        self.io.write_full("o", b"then", 4)
        self.io.put("new", b"x")
        self.io.ioctx_snap_set_read(u64(self.id_of("s")))
        self.assertEqual((self.io.text("o"), self.io.text("new")), (b"before", ENOENT))
        self.io.ioctx_snap_set_read(u64(HEAD))
        self.assertEqual(self.io.text("o"), b"then")
        for oid in ("o", "new"):
            self.assertEqual(self.io.ioctx_snap_rollback(oid, "s"), 0)
        self.assertEqual((self.io.text("o"), self.io.text("new")), (b"before", ENOENT))
        self.assertEqual(self.io.ioctx_snap_rollback("o", "none"), ENOENT)

    def test_made_and_removed_in_one_request(self):
        for name in ("s1", "s2"):
            op = Op("write")
            op.add("create", 0, None)
            op.add("remove")
            self.assertEqual(self.io.ioctx_snap_create(name), 0)
            self.assertEqual(op.run(self.io, "o"), 0)
        self.assertEqual(self.io.text("o"), ENOENT)

    def test_a_pool_has_one_kind(self):
        self.assertEqual(self.io.ioctx_snap_create("s"), 0)
        self.assertEqual(self.io.ioctx_selfmanaged_snap_create(ref(out())), EINVAL)


class OwnSnapshots(Case):
    def setUp(self):
        super().setUp()
        self.snaps = []
        self.dir = self.context(self.id())
        self.dir.ioctx_snap_set_read(u64(SNAPDIR))

    def tearDown(self):
        for snap in self.snaps:
            self.io.ioctx_selfmanaged_snap_remove(u64(snap))
        super().tearDown()

    def snap(self):
        number = out()
        self.assertEqual(self.io.ioctx_selfmanaged_snap_create(ref(number)), 0)
        self.snaps.insert(0, number.value)
        self.use(self.snaps)
        return number.value

    def use(self, snaps):
        ids = (u64 * max(len(snaps), 1))(*snaps)
        self.assertEqual(self.io.ioctx_selfmanaged_snap_set_write_ctx(u64(snaps[0] if snaps else 0), ids, len(snaps)), 0)

    def at(self, snap):
        self.io.ioctx_snap_set_read(u64(snap))
        got = self.io.text("o")
        self.io.ioctx_snap_set_read(u64(HEAD))
        return got

    def clones(self):
        return list_snaps(self.dir, "o")

    def test_reading_the_past(self):
        first = self.snap()
        self.io.put("o", b"one")
        second = self.snap()
        self.io.put("o", b"two")
        self.assertEqual((self.at(second), self.at(HEAD), self.at(first)), (b"one", b"two", ENOENT))
        self.assertEqual(self.io.ioctx_snap_create("s"), EINVAL, "a pool has one kind")
        done = Completion()
        self.io.aio_ioctx_selfmanaged_snap_remove(u64(self.snaps.pop(0)), done.handle)
        self.assertEqual(done.wait(), 0)
        done, number = Completion(), out()
        self.io.aio_ioctx_selfmanaged_snap_create(ref(number), done.handle)
        self.assertEqual(done.wait(), 0)
        self.assertGreater(number.value, second)
        self.snaps.insert(0, number.value)
        self.assertEqual(self.io.remove("o"), 0)

    def test_what_clones_share(self):
        block = lambda b: bytes([b]) * 128
        self.snap()
        for i in (0, 2, 4, 6, 8):
            self.io.put("o", block(1), 128 * i)
        self.assertEqual(self.clones(), (0, [(HEAD, [], [], 1152)]))
        s2 = self.snap()
        for i in (1, 3, 5, 7, 9):
            self.io.put("o", block(2), 128 * i)
        kept = [(256 * i, 128) for i in range(5)]
        self.assertEqual(self.clones(), (0, [(s2, [s2], kept, 1152), (HEAD, [], [], 1280)]))
        s3 = self.snap()
        for i in (1, 4, 5, 8):
            self.io.put("o", block(3), 128 * i)
        shared = [(0, 128), (256, 256), (768, 256), (1152, 128)]
        want = [(s2, [s2], kept, 1152), (s3, [s3], shared, 1280), (HEAD, [], [], 1280)]
        self.assertEqual(self.clones(), (0, want))
        self.assertEqual(list_snaps(self.io, "o"), (EINVAL, []), "the snapshots' folder only")
        self.assertEqual(self.at(s2), b"".join(block(1) + bytes(128) for _ in range(5))[:1152])

    def test_rolling_back(self):
        self.snap()
        for i in range(3):
            self.io.put("o", b"\xcc" * 128, 128 * i)
        s2 = self.snap()
        self.io.put("o", b"\xdd" * 128, 128)
        self.io.put("o", b"\xdd" * 128, 384)
        self.assertEqual(self.clones(), (0, [(s2, [s2], [(0, 128), (256, 128)], 384), (HEAD, [], [], 512)]))
        self.assertEqual(self.io.ioctx_selfmanaged_snap_rollback("o", u64(s2)), 0)
        self.assertEqual(self.io.text("o"), b"\xcc" * 384)

    def test_an_object_that_is_gone_lives_on(self):
        self.snap()
        self.io.put("o", b"\xcc" * (1 << 20))
        s2 = self.snap()
        op = Op("write")
        op.add("assert_exists")
        op.add("remove")
        self.assertEqual(op.run(self.io, "o"), 0)
        self.assertEqual((self.at(HEAD), len(self.at(s2))), (ENOENT, 1 << 20))
        self.assertEqual(self.clones(), (0, [(s2, [s2], [], 1 << 20)]))
        self.io.ioctx_selfmanaged_snap_remove(u64(self.snaps.pop(0)))
        self.assertTrue(until(lambda: self.clones()[0] == ENOENT, 60), "trimmed")

    def test_an_old_context_when_the_order_counts(self):
        def write(flags):
            op, done = Op("write"), Completion()
            op.add("write", b"x", 1, 0)
            self.assertEqual(call("aio_write_op_operate", op.handle, self.io.handle, done.handle, "o", None, flags), 0)
            return done.wait()
        self.snap()
        self.assertEqual(write(ORDERSNAP), 0)
        self.snap()
        self.assertEqual(write(ORDERSNAP), 0)
        self.use(self.snaps[1:])
        self.assertEqual(write(ORDERSNAP), EOLDSNAPC)
        self.assertEqual(write(0), 0)

    def test_a_removed_snapshot_in_the_context(self):
        self.snap()
        self.io.put("o", b"x" * 128)
        snap = self.snap()
        self.io.put("p", b"x")
        self.assertEqual(self.io.ioctx_selfmanaged_snap_remove(u64(snap)), 0)
        self.assertEqual(self.io.put("o", b"y" * 128), 0)
        self.assertEqual(self.at(HEAD), b"y" * 128)
        self.snaps.remove(snap)

    def test_snapshots_of_attributes_and_omaps(self):
        self.io.set_attr("o", "a", b"one")
        op = Op("write")
        (keys, kn), (values, vn) = arrays([b"k"]), arrays([b"one"])
        op.add("omap_set2", keys, values, kn, vn, 1)
        self.assertEqual(op.run(self.io, "o"), 0)
        snap = self.snap()
        self.io.set_attr("o", "a", b"two")
        op = Op("write")
        op.add("omap_clear")
        self.assertEqual(op.run(self.io, "o"), 0)

        def seen():
            op, it = Op("read"), vp()
            op.add("omap_get_vals2", "", "", 10, ref(it), None, None)
            self.assertEqual(op.run(self.io, "o"), 0)
            return self.io.attr("o", "a"), pairs(it)
        self.assertEqual(seen(), (b"two", {}))
        self.io.ioctx_snap_set_read(u64(snap))
        self.assertEqual(seen(), (b"one", {b"k": b"one"}))
        self.io.ioctx_snap_set_read(u64(HEAD))
        self.assertEqual(self.io.ioctx_selfmanaged_snap_rollback("o", u64(snap)), 0)
        self.assertEqual(seen(), (b"one", {b"k": b"one"}))


class Copies(Case):
    def test_a_copy_has_all_that_its_source_has(self):
        big = b"hi there" + bytes(3 * (8 << 20)) + b"tail"
        for oid, data in (("small", b"hi there"), ("big", big)):
            self.io.write_full(oid, data, len(data))
            self.io.set_attr(oid, "myattr", b"bar")
            v = self.io.version()
            copy = oid + ".copy"
            self.assertEqual(copy_from(self.io, copy, oid, v + 1), EOVERFLOW)
            self.assertEqual(copy_from(self.io, copy, oid, v - 1), ERANGE)
            self.assertEqual(self.io.text(copy), ENOENT)
            for version in (v, 0):
                self.assertEqual(copy_from(self.io, copy, oid, version), 0)
                self.assertEqual(self.io.text(copy, len(data) + 1), data)
                self.assertEqual(self.io.attrs(copy), {b"myattr": b"bar"})
        self.assertEqual(copy_from(self.io, "copy", "none", 0), ENOENT)
        self.assertEqual(self.io.text("copy"), ENOENT)


if __name__ == "__main__":
    unittest.main()
