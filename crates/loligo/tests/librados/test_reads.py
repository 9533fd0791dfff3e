"""Read requests of several operations. After c_read_operations.cc."""
import unittest

from support import *

DATA = b"testdata"


class Reads(Case):
    def write(self, data=DATA):
        self.assertEqual(self.io.write_full("o", data, len(data)), 0)

    def ask(self, *ops, flags=0):
        """Runs operations, each a name and arguments."""
        op = Op("read")
        for name, *args in ops:
            op.add(name, *args)
        return op.run(self.io, "o", flags)

    def read(self, length, off=0, flags=0, how=0):
        buf, n, rval = C.create_string_buffer(length), size_t(), out(C.c_int)
        r = self.ask(("read", off, length, buf, ref(n), ref(rval)), *([("set_flags", how)] if how else []), flags=flags)
        return r, rval.value, buf.raw[:n.value]

    def test_reads_and_short_reads(self):
        self.write()
        self.assertEqual(self.read(8), (0, 0, DATA))
        self.assertEqual(self.read(16), (0, 0, DATA))
        self.assertEqual(self.read(3, 6), (0, 0, b"ta"))
        self.assertEqual(self.read(8, how=32), (0, 0, DATA))
        # Waits for the writes that were sent before it.
        self.assertEqual(self.read(8, flags=4), (0, 0, DATA))

    def test_guards(self):
        self.assertEqual(self.ask(("assert_exists",)), ENOENT)
        done = Completion()
        op = Op("read")
        op.add("assert_exists")
        self.assertEqual(call("aio_read_op_operate", op.handle, self.io.handle, done.handle, "o", 0), 0)
        self.assertEqual(done.wait(), ENOENT)
        self.write()
        self.write()
        v = self.io.version()
        for version, want in ((v + 1, EOVERFLOW), (v - 1, ERANGE), (v, 0), (0, EINVAL)):
            self.assertEqual(self.ask(("assert_version", version)), want)
        self.assertEqual(self.ask(("assert_exists",)), 0)

    def test_comparisons_of_attributes(self):
        def results(value):
            found = []
            for how in (EQ, NE, GT, GTE, LT, LTE):
                r = self.ask(("cmpxattr", "test", how, value, len(value)))
                self.assertIn(r, (1, ECANCELED))
                found.append(r == 1)
            return found
        equal, smaller, larger = [1, 0, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0]
        self.write()
        self.io.set_attr("o", "test", b"\xcc" * 8)
        for value, want in ((b"\xcc" * 8, equal), (b"\xcc" * 7, smaller), (b"\xcd" * 8, larger)):
            self.assertEqual(results(value), want)
        self.io.set_attr("o", "test", b"\0\0")
        self.assertEqual(results(b"\0\xcd"), larger)
        self.assertEqual(results(b"\0\0"), equal)

    def test_checksums(self):
        self.write(b"123456789")
        got, rval = C.create_string_buffer(16), out(C.c_int)
        check = (0xE3069283 ^ 0xFFFFFFFF).to_bytes(4, "little")
        self.assertEqual(self.ask(("checksum", 2, b"\xff" * 4, 4, 0, 9, 0, got, 16, ref(rval))), 0)
        self.assertEqual((rval.value, got.raw[:8]), (0, b"\1\0\0\0" + check))
        self.assertEqual(self.ask(("checksum", 2, b"\xff" * 4, 4, 0, 8, 4, got, 16, ref(rval))), 0)
        self.assertEqual(got.raw[:4], b"\2\0\0\0")
        for kind, width in ((0, 4), (1, 8)):
            self.assertEqual(self.ask(("checksum", kind, b"\xff" * 8, width, 0, 9, 0, None, 0, ref(rval))), 0)
            self.assertEqual(rval.value, 0)

    def test_classes(self):
        self.write()
        buf, n, rval = C.create_string_buffer(8), size_t(), out(C.c_int)
        method = ("rbd", "get_all_features", None, 0)
        self.assertEqual(self.ask(("exec_user_buf", *method, buf, 8, ref(n), ref(rval))), 0)
        self.assertEqual((rval.value, n.value), (0, 8))
        features = int.from_bytes(buf.raw, "little")
        self.assertEqual(features & 127, 127)
        n.value = 1024
        self.assertEqual(self.ask(("exec_user_buf", *method, buf, 7, ref(n), ref(rval))), 0)
        self.assertEqual((n.value, rval.value), (0, ERANGE), "it does not fit")
        given = b"x" * 8
        self.assertEqual(self.ask(("exec_user_buf", "rbd", "get_all_features", given, 8, buf, 8, None, None)), 0)
        got = vp()
        self.assertEqual(self.ask(("exec", "rbd", "get_id", None, 0, ref(got), ref(n), ref(rval)), ("set_flags", FAILOK)), 0)
        self.assertEqual((rval.value, n.value, got.value), (EIO, 0, None))
        self.assertEqual(self.ask(("exec", "rbd", "no_such_method", None, 0, ref(got), ref(n), ref(rval))), EOPNOTSUPP)
        self.assertEqual(self.ask(("exec", "no_such_class", "m", None, 0, ref(got), ref(n), ref(rval))), EPERM)

    def test_sizes(self):
        size, rval = out(), out(C.c_int)
        size.value = 1
        self.assertEqual(self.ask(("stat", ref(size), None, ref(rval))), ENOENT)
        self.assertEqual((rval.value, size.value), (EIO, 1))
        self.write()
        self.assertEqual(self.ask(("stat", ref(size), None, ref(rval))), 0)
        self.assertEqual((rval.value, size.value), (0, 8))
        self.assertEqual(self.ask(("stat", None, None, None)), 0)

    def omap(self):
        """The omap by all three ways to read it."""
        it, keys, more = vp(), vp(), C.c_ubyte()
        self.assertEqual(self.ask(("omap_get_vals2", "", "", 100, ref(it), ref(more), None),
                                  ("omap_get_keys2", "", 100, ref(keys), None, None)), 0)
        self.assertEqual(more.value, 0)
        found, keys = pairs(it), pairs(keys)
        self.assertEqual(keys, dict.fromkeys(found, b""))
        if found:
            pointers, lengths = arrays(list(found))
            self.assertEqual(self.ask(("omap_get_vals_by_keys2", pointers, len(found), lengths, ref(it), None)), 0)
            self.assertEqual(pairs(it), found)
        return found

    def change(self, *ops):
        op = Op("write")
        for name, *args in ops:
            op.add(name, *args)
        return op.run(self.io, "o")

    def fill(self, entries):
        keys, values = arrays(list(entries)), arrays(list(entries.values()))
        self.assertEqual(self.change(("omap_set2", keys[0], values[0], keys[1], values[1], len(entries))), 0)
        return keys

    def check_omap(self, entries):
        it = vp()
        self.assertEqual(self.ask(("omap_get_vals2", "", "", 10, ref(it), None, None)), ENOENT)
        self.assertEqual(pairs(it), {})
        self.write()
        self.assertEqual(self.omap(), {})
        pointers, lengths = self.fill(entries)
        self.assertEqual(self.omap(), entries)
        rvals = [out(C.c_int) for _ in entries]
        compare = lambda k, how, v, rval: ("omap_cmp2", k, how, v, len(k), len(v), rval)
        self.assertEqual(self.ask(*(compare(k, EQ, v, ref(r)) for (k, v), r in zip(entries.items(), rvals))), 0)
        self.assertEqual([r.value for r in rvals], [0] * len(entries))
        (k0, v0), (k1, v1), (k2, v2) = list(entries.items())[:3]
        remove = ("omap_rm_keys2", pointers, lengths, 2)
        self.assertEqual(self.change(compare(k2, LT, v2, ref(rvals[0])), remove), ECANCELED)
        self.assertEqual(self.omap(), entries)
        self.assertEqual(self.change(compare(k0, EQ, v0, None), compare(k1, EQ, v1, None), remove), 0)
        self.assertEqual(self.omap(), {k: v for k, v in entries.items() if k not in (k0, k1)})
        self.assertEqual(self.change(("omap_clear",)), 0)
        self.assertEqual(self.omap(), {})

    def test_omaps(self):
        self.check_omap({b"bar": b"", b"foo": b"\0", b"test1": b"abc", b"test2": b"va\0lue"})

    def test_omaps_with_zeros_in_keys(self):
        self.check_omap({b"1\0bar": b"_\0var", b"2baar\0": b"_vaar\0", b"3baa\0rr": b"__vaa\0rr"})

    def test_pages_of_an_omap(self):
        entries = {b"k%03d" % i: b"v%d" % i for i in range(250)}
        self.write()
        self.fill(entries)
        after, found, more = "", {}, C.c_ubyte(1)
        while more.value:
            it = vp()
            self.assertEqual(self.ask(("omap_get_vals2", after, "", 60, ref(it), ref(more), None)), 0)
            page = pairs(it)
            found.update(page)
            after = max(page).decode()
        self.assertEqual(found, entries)
        it, keys, more = vp(), vp(), C.c_ubyte()
        self.assertEqual(self.ask(("omap_get_vals2", "", "k01", 3, ref(it), ref(more), None),
                                  ("omap_get_keys2", "k0", 1, ref(keys), None, None)), 0)
        self.assertEqual((list(pairs(it)), more.value, list(pairs(keys))), ([b"k010", b"k011", b"k012"], 1, [b"k000"]))
        self.assertEqual(self.change(("omap_rm_range2", b"k010", 4, b"k240", 4)), 0)
        self.assertEqual(set(self.omap()), {b"k%03d" % i for i in [*range(10), *range(240, 250)]})

    def test_attributes(self):
        self.write()
        want = {b"bar": b"", b"foo": b"\0", b"test1": b"abc", b"test2": b"va\0lue"}
        it, rval = vp(), out(C.c_int)
        self.assertEqual(self.ask(("getxattrs", ref(it), ref(rval))), 0)
        self.assertEqual((attributes(it), rval.value), ({}, 0))
        for name, value in want.items():
            self.io.set_attr("o", name, value)
        self.assertEqual(self.ask(("getxattrs", ref(it), ref(rval))), 0)
        self.assertEqual((attributes(it), rval.value), (want, 0))

    def test_comparisons_of_data(self):
        self.write()
        rval = out(C.c_int)
        self.assertEqual(self.ask(("cmpext", DATA, 8, 0, ref(rval))), 0)
        self.assertEqual(rval.value, 0)
        self.assertEqual(self.ask(("cmpext", b"testDATA", 8, 0, ref(rval))), -MAX_ERRNO - 4)
        self.assertEqual(rval.value, -MAX_ERRNO - 4)
        buf, n = C.create_string_buffer(8), size_t()
        ops = (("cmpext", DATA, 8, 0, ref(rval)), ("read", 0, 8, buf, ref(n), None))
        self.assertEqual((self.ask(*ops), buf.raw), (0, DATA))


if __name__ == "__main__":
    unittest.main()
