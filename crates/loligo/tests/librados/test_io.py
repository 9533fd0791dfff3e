"""Data, attributes and sizes by single requests. After io.cc, io_cxx.cc, stat.cc, stat_cxx.cc and misc.cc."""
import unittest

from support import *


class Data(Case):
    def test_what_is_written_is_read(self):
        self.assertEqual(self.io.put("o", b"\xcc" * 128), 0)
        self.assertEqual(self.io.text("o"), b"\xcc" * 128)
        self.assertEqual(self.io.put("o", b"\xdd" * 64), 0)
        self.assertEqual(self.io.text("o"), b"\xdd" * 64 + b"\xcc" * 64)
        self.assertEqual(self.io.write_full("o", b"ee", 2), 0)
        self.assertEqual(self.io.text("o"), b"ee")
        self.assertEqual(self.io.text("o", 10, 1), b"e")
        self.assertEqual(self.io.text("o", 10, 9), b"")

    def test_what_is_appended_follows(self):
        for part in (b"first", b"second"):
            self.assertEqual(self.io.append("o", part, len(part)), 0)
        self.assertEqual(self.io.text("o"), b"firstsecond")

    def test_holes_are_zeros(self):
        self.assertEqual(self.io.put("o", b"x", 70_000), 0)
        self.assertEqual(self.io.text("o"), bytes(70_000) + b"x")

    def test_truncation_cuts_and_extends(self):
        self.io.put("o", b"0123456789")
        self.assertEqual(self.io.trunc("o", 5), 0)
        self.assertEqual(self.io.text("o"), b"01234")
        self.assertEqual(self.io.trunc("o", 8), 0)
        self.assertEqual(self.io.text("o"), b"01234\0\0\0")

    def test_what_is_removed_is_gone(self):
        self.io.put("o", b"x")
        self.assertEqual(self.io.remove("o"), 0)
        for gone in (self.io.text("o"), self.io.size("o"), self.io.remove("o"), self.io.attr("o", "a")):
            self.assertEqual(gone, ENOENT)

    def test_namespaces_are_apart(self):
        other = self.context(self.id() + "-other")
        self.io.put("o", b"one")
        self.assertEqual(other.text("o"), ENOENT)
        other.put("o", b"other")
        other.put("p", b"other")
        self.assertEqual((self.io.text("o"), other.text("o")), (b"one", b"other"))
        self.assertEqual((self.io.size("o"), self.io.size("p"), other.size("p")), (3, ENOENT, 5))

    def test_a_read_of_nothing(self):
        buf = C.create_string_buffer(4)
        self.assertEqual(self.io.read("none", buf, 4, 0), ENOENT)
        self.io.put("o", b"")
        self.assertEqual((self.io.text("o"), self.io.size("o")), (b"", 0))

    def test_checksums(self):
        self.io.put("o", b"123456789")
        got = C.create_string_buffer(8)
        init = b"\xff" * 4
        self.assertEqual(self.io.checksum("o", 2, init, 4, 9, 0, 0, got, 8), 0)
        # The check value of CRC-32C, without the inversion at the end.
        self.assertEqual(got.raw, (1).to_bytes(4, "little") + (0xE3069283 ^ 0xFFFFFFFF).to_bytes(4, "little"))
        self.assertEqual(self.io.checksum("none", 2, init, 4, 9, 0, 0, got, 8), ENOENT)
        self.assertEqual(self.io.checksum("o", 2, init, 4, 9, 0, 4, got, 8), EINVAL)

    def test_one_pattern_over_a_range(self):
        pattern = b"\xcc" * 128
        self.io.put("o", bytes(512))
        self.assertEqual(self.io.writesame("o", pattern, 128, 512, 0), 0)
        self.assertEqual(self.io.text("o"), pattern * 4)
        for length, data in ((511, 128), (64, 128), (128, 0)):
            self.assertEqual(self.io.writesame("o", pattern, data, length, 0), EINVAL)
        self.assertEqual(self.io.writesame("o", b"\xee" * 128, 128, 128, 128), 0)
        self.assertEqual(self.io.text("o"), pattern + b"\xee" * 128 + pattern * 2)

    def test_comparing_a_range(self):
        self.io.put("o", b"1234567891\0")
        self.assertEqual(self.io.cmpext("o", b"1234567891\0", 11, 0), 0)
        self.assertEqual(self.io.cmpext("o", b"1234577777\0", 11, 0), -MAX_ERRNO - 5)
        self.assertEqual(self.io.cmpext("o", b"91\0\0", 4, 8), 0, "zeros follow the end")
        self.assertEqual(self.io.cmpext("none", b"1", 1, 0), ENOENT)


class Attributes(Case):
    def test_attributes_come_and_go(self):
        self.io.put("o", b"x")
        self.assertEqual(self.io.attr("o", "a"), ENODATA)
        self.assertEqual(self.io.set_attr("o", "a", b"foo bar baz\0"), 0)
        self.assertEqual(self.io.attr("o", "a"), b"foo bar baz\0")
        self.assertEqual(self.io.attr("o", "a", 3), ERANGE)
        self.assertEqual(self.io.rmxattr("o", "a"), 0)
        self.assertEqual(self.io.attr("o", "a"), ENODATA)
        self.assertEqual(self.io.rmxattr("o", "a"), 0, "again")
        self.io.remove("o")
        self.assertEqual(self.io.rmxattr("o", "a"), ENOENT)

    def test_all_attributes(self):
        want = {b"attr1": b"foo bar baz", b"attr2": bytes(j % 255 for j in range(256)), b"empty": b""}
        for name, value in want.items():
            self.io.set_attr("o", name, value)
        self.assertEqual(self.io.attrs("o"), want)
        self.assertEqual(self.io.attrs("none"), ENOENT)

    def test_a_thousand_attributes(self):
        for i in range(1000):
            self.io.set_attr("o", f"a{i}", b"%d" % i * 20)
        self.assertEqual(self.io.attrs("o"), {b"a%d" % i: b"%d" % i * 20 for i in range(1000)})


class Sizes(Case):
    def test_a_pool_says_what_it_holds(self):
        stat = (u64 * 16)()
        self.assertEqual(self.io.ioctx_pool_stat(ref(stat)), 0)

        def objects():
            self.io.ioctx_pool_stat(ref(stat))
            return stat[2] >= 1 and stat[0] >= 100
        self.io.put("o", b"x" * 100)
        self.assertTrue(until(objects, 40))

    def test_a_cluster_says_what_it_holds(self):
        stat = (u64 * 4)()
        self.assertEqual(self.cluster.cluster_stat(ref(stat)), 0)
        # The manager's first report may be under way.
        self.assertTrue(until(lambda: self.cluster.cluster_stat(ref(stat)) == 0 and stat[0] > 1 << 16))
        self.assertGreaterEqual(stat[0], stat[2], list(stat))

    def test_times_are_what_the_client_says(self):
        class Time(C.Structure):
            _fields_ = [("s", C.c_long), ("ns", C.c_long)]
        for ns in (0, 999_999_999):
            op = Op("write")
            op.add("write", b"x", 1, 0)
            self.assertEqual(call("write_op_operate2", op.handle, self.io.handle, "o", ref(Time(1457129052, ns)), 0), 0)
            call("release_write_op", op.handle)
            size, mtime = out(), out(C.c_long)
            self.assertEqual(self.io.stat("o", ref(size), ref(mtime)), 0)
            self.assertEqual((size.value, mtime.value), (1, 1457129052))


if __name__ == "__main__":
    unittest.main()
