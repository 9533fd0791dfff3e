"""What is too long, too large or nonsense. After misc_cxx.cc and io.cc, and the limits of Ceph's options."""
import unittest

from support import *

MAX_OBJECT = 128 << 20
MAX_NAME, MAX_LOCATOR, MAX_NAMESPACE, MAX_ATTR_NAME, MAX_ATTR = 2048, 2048, 256, 100, 100_000


class Limits(Case):
    def write(self, *ops, oid="o"):
        op = Op("write")
        for name, *args in ops:
            op.add(name, *args)
        return op.run(self.io, oid)

    def test_names(self):
        for length, want in ((1, 0), (MAX_NAME - 1, 0), (MAX_NAME, 0), (MAX_NAME + 1, ENAMETOOLONG), (2 * MAX_NAME, ENAMETOOLONG)):
            self.assertEqual(self.io.put("a" * length, b"content"), want, length)
            self.assertEqual(self.io.text("a" * length), b"content" if want == 0 else want, length)
        # Objects of a pool have one name only: an empty one is none.
        self.assertEqual(self.io.put("", b"x"), EINVAL)

    def test_locators(self):
        for length, want in ((1, 0), (MAX_LOCATOR, 0), (MAX_LOCATOR + 1, ENAMETOOLONG)):
            self.io.ioctx_locator_set_key("a" * length)
            self.assertEqual(self.io.put("o", b"content"), want, length)

    def test_namespaces(self):
        for length, want in ((1, 0), (MAX_NAMESPACE, 0), (MAX_NAMESPACE + 1, ENAMETOOLONG)):
            self.assertEqual(self.context("a" * length).put("o", b"content"), want, length)

    def test_names_of_attributes(self):
        for length, want in ((1, 0), (MAX_ATTR_NAME, 0), (MAX_ATTR_NAME + 1, ENAMETOOLONG), (200, ENAMETOOLONG)):
            self.assertEqual(self.io.set_attr("o", "a" * length, b"v"), want, length)
        # Values have no limit unless osd_max_attr_size says so.
        self.assertEqual(self.io.set_attr("o", "a", b"v" * MAX_ATTR), 0)
        self.assertEqual(self.io.attr("o", "a"), b"v" * MAX_ATTR)

    def test_objects(self):
        self.io.put("o", b"abcdefg")
        far = 500_000_000_000
        for ops in (("truncate", far), ("zero", far, 1), ("zero", 1, far), ("zero", far, far), ("write", b"x", 1, far),
                    ("write", b"xy", 2, MAX_OBJECT - 1), ("truncate", MAX_OBJECT), ("write", b"x", 1, MAX_OBJECT),
                    ("truncate", 2**64 - 1), ("write", b"xy", 2, 2**64 - 1), ("zero", 2**64 - 1, 2),
                    ("writesame", b"x", 1, 2, 2**64 - 1)):
            self.assertEqual(self.write(("setxattr", "half", b"done", 4), ops), EFBIG, ops)
            self.assertEqual((self.io.text("o"), self.io.attrs("o")), (b"abcdefg", {}), ops)
        self.assertEqual(self.io.put("o", b"xy", far), EFBIG)
        self.assertEqual(self.write(("write", b"xy", 2, MAX_OBJECT - 2)), 0)
        self.assertEqual(self.io.size("o"), MAX_OBJECT)
        self.assertEqual(self.io.append("o", b"x", 1), EFBIG)
        self.assertEqual(self.io.text("o", 4, MAX_OBJECT - 3), b"\0xy")

    def test_more_than_librados_sends(self):
        for result in (self.io.write("o", b"x", 2**32 // 2 + 1, 0), self.io.append("o", b"x", 2**31 + 1),
                       self.io.write_full("o", b"x", 2**31 + 1)):
            self.assertEqual(result, -7, "E2BIG")

    def test_reads_behind_the_end(self):
        self.io.put("o", b"abcdefg")
        for off in (7, 8, MAX_OBJECT, 2**40, 2**63, 2**64 - 1):
            op, buf, n = Op("read"), C.create_string_buffer(16), size_t(9)
            op.add("read", off, 16, buf, ref(n), None)
            self.assertEqual((op.run(self.io, "o"), n.value), (0, 0), off)

    def context_of(self, seq, snaps):
        array = (u64 * max(len(snaps), 1))(*snaps)
        return self.io.ioctx_selfmanaged_snap_set_write_ctx(seq, array, C.c_int(len(snaps)))

    def test_snapshot_contexts(self):
        self.io.put("o", b"before")
        for seq, snaps in ((1, [2]), (3, [1, 2]), (3, [2, 2]), (3, [3, 2, 4])):
            r = self.context_of(seq, snaps)
            # librados itself looks at it too.
            self.assertEqual(r or self.io.put("o", b"after"), EINVAL, (seq, snaps))
        self.assertEqual(self.io.text("o"), b"before")

    def test_what_classes_cannot_decode(self):
        self.io.put("o", b"x")
        for cls, method in (("lock", "lock"), ("lock", "unlock"), ("lock", "get_info"), ("refcount", "get"), ("refcount", "put"),
                            ("version", "set"), ("version", "inc"), ("log", "add"), ("log", "list"), ("log", "trim"),
                            ("numops", "add"), ("timeindex", "add"), ("user", "set_buckets_info"), ("rbd", "snapshot_add"),
                            ("rbd", "set_size"), ("rbd", "create"), ("cas", "chunk_get_ref"), ("journal", "create")):
            for given in (b"", b"\xff", b"\1\1\xff\xff\xff\xff", b"\x07\x07\x02\0\0\0"):
                buf = C.create_string_buffer(64)
                r = self.io.exec("o", cls, method, given, len(given), buf, 64)
                self.assertEqual(r, EINVAL, (cls, method, given))
        self.assertEqual((self.io.text("o"), self.io.attrs("o")), (b"x", {}))

    def test_flags_of_reads(self):
        """Among them those by which any replica may be asked."""
        self.io.put("o", b"x")
        for flags in (0, 1, 2, 4, 8, 16, 64):
            op = Op("read")
            op.add("assert_exists")
            self.assertEqual(op.run(self.io, "o", flags), 0, flags)


if __name__ == "__main__":
    unittest.main()
