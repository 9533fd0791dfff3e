"""Write requests of several operations. After c_write_operations.cc and misc_cxx.cc."""
import unittest

from support import *


class Writes(Case):
    def change(self, *ops, oid="o", flags=0):
        op = Op("write")
        for name, *args in ops:
            op.add(name, *args)
        return op.run(self.io, oid, flags)

    def test_guards(self):
        self.assertEqual(self.change(("assert_exists",)), ENOENT)
        self.assertEqual(self.change(("assert_exists",), ("write", b"x", 1, 0)), ENOENT)
        self.assertEqual(self.change(("create", 1, None)), 0)
        self.assertEqual(self.change(("create", 1, None)), EEXIST)
        self.assertEqual(self.change(("create", 0, None)), 0)
        self.assertEqual(self.change(("assert_exists",), ("write", b"hi", 2, 0)), 0)
        v = self.io.version()
        for version, want in ((v + 1, EOVERFLOW), (v - 1, ERANGE), (v, 0)):
            self.assertEqual(self.change(("assert_version", version), ("write", b"yo", 2, 0)), want)
        self.assertEqual(self.io.text("o"), b"yo")
        self.assertGreater(self.io.version(), v)

    def test_attributes(self):
        set_a = ("setxattr", "a", b"hi", 2)
        self.assertEqual(self.change(("create", 1, None), set_a), 0)
        self.assertEqual(self.change(("rmxattr", "a"), ("cmpxattr", "a", EQ, b"hi", 2)), 0, "it compares what is stored")
        self.assertEqual(self.io.attr("o", "a"), ENODATA)
        self.assertEqual(self.change(set_a, ("cmpxattr", "a", EQ, b"hi", 2)), ECANCELED)
        self.assertEqual(self.io.attr("o", "a"), ENODATA)

    def test_data(self):
        self.assertEqual(self.change(("create", 1, None), ("write", b"four", 4, 0), ("write_full", b"hi", 2)), 0)
        self.assertEqual(self.io.text("o"), b"hi")
        self.assertEqual(self.change(("truncate", 1), ("append", b"hi", 2)), 0)
        self.assertEqual(self.io.text("o"), b"hhi")
        self.assertEqual(self.change(("zero", 0, 3)), 0)
        self.assertEqual(self.io.text("o"), b"", "what is zero up to the end is cut off")
        self.assertEqual(self.change(("write", b"0123456789", 10, 0), ("zero", 2, 3)), 0)
        self.assertEqual(self.io.text("o"), b"01\0\0\x0056789")
        self.assertEqual(self.change(("remove",)), 0)
        self.assertEqual(self.change(("remove",)), ENOENT)

    def test_one_request_is_whole_or_nothing(self):
        self.io.put("o", b"before")
        ops = [("write_full", b"after", 5), ("setxattr", "a", b"v", 1), ("remove",), ("create", 1, None)]
        for guard in (("cmpxattr", "none", EQ, b"v", 1), ("cmpext", b"other!", 6, 0, None)):
            r = self.change(guard, *ops)
            self.assertLess(r, 0)
            self.assertEqual((self.io.text("o"), self.io.attrs("o")), (b"before", {}))
        self.assertEqual(self.change(*ops), 0)
        self.assertEqual((self.io.text("o"), self.io.attrs("o")), (b"", {}))

    def test_what_may_fail(self):
        self.io.put("o", b"x")
        self.assertEqual(self.change(("create", 1, None), ("set_flags", FAILOK), ("append", b"y", 1)), 0)
        self.assertEqual(self.io.text("o"), b"xy")

    def test_classes(self):
        rval = out(C.c_int)
        self.assertEqual(self.change(("exec", "hello", "record_hello", b"test", 4, ref(rval))), 0)
        self.assertEqual(self.io.text("o"), b"Hello, test!")
        self.assertEqual(self.change(("exec", "hello", "record_hello", b"test", 4, ref(rval))), EEXIST)
        self.assertEqual(self.change(("exec", "no_such_class", "m", b"", 0, ref(rval))), EPERM)
        self.assertEqual(self.change(("exec", "hello", "no_such_method", b"", 0, ref(rval))), EOPNOTSUPP)

    def test_one_pattern_over_a_range(self):
        self.assertEqual(self.change(("create", 1, None), ("writesame", b"hi", 2, 32, 0)), 0)
        self.assertEqual(self.io.text("o"), b"hi" * 16)
        self.assertEqual(self.change(("writesame", b"hi", 2, 31, 0)), EINVAL)

    def test_comparing_data_before_a_write(self):
        self.io.put("o", b"four")
        rval = out(C.c_int)
        self.assertEqual(self.change(("cmpext", b"four", 4, 0, ref(rval)), ("write", b"five", 4, 0)), 0)
        self.assertEqual(self.change(("cmpext", b"four", 4, 0, ref(rval)), ("write", b"sixx", 4, 0)), -MAX_ERRNO - 1)
        self.assertEqual((rval.value, self.io.text("o")), (-MAX_ERRNO - 1, b"five"))
        self.assertEqual(self.change(("cmpext", bytes(4), 4, 0, ref(rval)), ("write", b"new!", 4, 0), oid="p"), 0)
        self.assertEqual(self.io.text("p"), b"new!", "an object that is not there compares as zeros")

    def test_hints(self):
        self.assertEqual(self.change(("set_alloc_hint2", 4 << 20, 1 << 20, 1 << 3)), 0)
        self.assertEqual(self.io.size("o"), 0)
        self.assertEqual(self.io.set_alloc_hint("o", 1 << 20, 4096), 0)

    def test_the_results_of_each_operation(self):
        rval = out(C.c_int)
        ask = ("exec", "hello", "write_return_data", b"", 0, ref(rval))
        self.assertEqual(self.change(ask), 0)
        self.assertEqual(rval.value, 42)
        self.assertEqual(self.change(ask, flags=1024), 42)
        self.assertEqual(rval.value, 42)
        ask = ("exec", "hello", "write_too_much_return_data", b"", 0, ref(rval))
        self.assertEqual(self.change(ask, flags=1024), EOVERFLOW)

    def test_asynchronous_requests(self):
        done = Completion()
        op = Op("write")
        op.add("write", b"", 0, 0)
        op.add("setxattr", "a", b"v", 1)
        op.add("append", b"\xdd" * 1024, 1024)
        self.assertEqual(call("aio_write_op_operate", op.handle, self.io.handle, done.handle, "o", None, 0), 0)
        self.assertEqual(done.wait(), 0)
        self.assertEqual((self.io.size("o"), self.io.attr("o", "a")), (1024, b"v"))


if __name__ == "__main__":
    unittest.main()
