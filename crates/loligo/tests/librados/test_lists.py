"""Listing a pool: namespaces, positions, cursors, slices and filters. After list.cc and list_cxx.cc."""
import unittest

from support import *


class Item(C.Structure):
    _fields_ = [("oid_length", size_t), ("oid", vp), ("nspace_length", size_t), ("nspace", vp),
                ("locator_length", size_t), ("locator", vp)]


class Lists(Case):
    def setUp(self):
        super().setUp()
        self.all = self.context("\x01")
        for namespace, locator, oid in self.all.names():
            io = self.context(namespace)
            io.ioctx_locator_set_key(locator)
            io.remove(oid)

    def fill(self, names):
        for name in names:
            self.io.put(name, b"x")

    def test_an_empty_pool_lists_nothing(self):
        self.assertEqual(self.all.names(), [])

    def test_namespaces_and_locators(self):
        want = set()
        for namespace, locator, oid in (("", "", "a"), ("", "", "b"), ("n1", "", "a"), ("n2", "here", "c")):
            io = self.context(namespace)
            io.ioctx_locator_set_key(locator)
            io.put(oid, b"x")
            want.add((namespace, locator, oid))
        self.assertEqual(set(self.all.names()), want)
        for namespace in ("", "n1", "n2", "none"):
            got = self.context(namespace).names()
            self.assertEqual(set(got), {w for w in want if w[0] == namespace})

    def test_names_of_all_bytes(self):
        want = {"a/b", "ä", "x" * 1000, "with space", "%_\x7f", "__head"}
        self.fill(want)
        self.assertEqual({n for _, _, n in self.io.names()}, want)

    def test_many(self):
        want = {str(i) for i in range(256)}
        self.fill(want)
        names = [n for _, _, n in self.io.names()]
        self.assertEqual((len(names), set(names)), (256, want))

    def test_seeking_a_position(self):
        self.fill(map(str, range(16)))
        ctx, by_position = vp(), {}
        self.assertEqual(self.io.nobjects_list_open(ref(ctx)), 0)
        entry = lambda: call("nobjects_list_next", ctx, ref(name), None, None)
        name = text()
        while entry() == 0:
            by_position.setdefault(call("nobjects_list_get_pg_hash_position", ctx), set()).add(name.value)
        self.assertEqual(sum(map(len, by_position.values())), 16)
        for position in sorted(by_position, reverse=True):
            self.assertEqual(call("nobjects_list_seek", ctx, position), position)
            self.assertEqual(entry(), 0)
            self.assertIn(name.value, by_position[position])
        call("nobjects_list_close", ctx)

    def test_seeking_a_cursor(self):
        for i in range(16):
            self.context(f"n{i // 4}").put(str(i), b"x")
        ctx, name, seen = vp(), text(), []
        self.assertEqual(self.all.nobjects_list_open(ref(ctx)), 0)
        while True:
            cursor = vp()
            if call("nobjects_list_next", ctx, ref(name), None, None) != 0:
                break
            self.assertEqual(call("nobjects_list_get_cursor", ctx, ref(cursor)), 0)
            seen.append((cursor, name.value))
        self.assertEqual(len({n for _, n in seen}), 16)
        for cursor, want in reversed(seen):
            call("nobjects_list_seek_cursor", ctx, cursor)
            self.assertEqual(call("nobjects_list_next", ctx, ref(name), None, None), 0)
            self.assertEqual(name.value, want)
            call("object_list_cursor_free", self.io.handle, cursor)
        call("nobjects_list_close", ctx)

    def enumerate(self, start, end, given=None):
        """Objects from a cursor up to another, in pages."""
        found = []
        while call("object_list_cursor_cmp", self.io.handle, start, end) < 0:
            items, following = (Item * 12)(), next(self.ends())
            r = lib.rados_object_list(self.io.handle, start, end, size_t(12), given, size_t(len(given or b"")), items, ref(following))
            self.assertGreaterEqual(r, 0)
            found += [C.string_at(i.oid, i.oid_length) for i in items[:r]]
            call("object_list_free", size_t(r), items)
            start = following
        return found

    def ends(self):
        return (vp(getattr(lib, f"rados_object_list_{end}")(self.io.handle)) for end in ("begin", "end"))

    def test_enumerating(self):
        self.fill(map(str, range(40)))
        begin, end = self.ends()
        self.assertEqual(call("object_list_is_end", self.io.handle, begin), 0)
        self.assertEqual(call("object_list_is_end", self.io.handle, end), 1)
        got = self.enumerate(begin, end)
        self.assertEqual((len(got), set(got)), (40, {b"%d" % i for i in range(40)}))

    def test_enumerating_slices(self):
        self.fill(map(str, range(40)))
        begin, end = self.ends()
        for count in (1, 2, 5, 7):
            got = []
            for n in range(count):
                first, last = self.ends()
                lib.rados_object_list_slice(self.io.handle, begin, end, size_t(n), size_t(count), ref(first), ref(last))
                got += self.enumerate(first, last)
            self.assertEqual((len(got), set(got)), (40, {b"%d" % i for i in range(40)}), count)

    def test_filters(self):
        self.fill(["has", "has_other", "has_none"])
        self.io.set_attr("has", "theattr", b"content")
        self.io.set_attr("has_other", "theattr", b"rhubarb")
        string = lambda s: len(s).to_bytes(4, "little") + s
        begin, end = self.ends()
        wanted = string(b"plain") + string(b"_theattr") + string(b"content")
        self.assertEqual(self.enumerate(begin, end, wanted), [b"has"])

    def test_a_pool_that_goes_while_it_is_listed(self):
        self.fill(map(str, range(16)))
        name = self.pool + "-gone"
        self.assertEqual(self.cluster.pool_create(name), 0)
        io, ctx = vp(), vp()
        self.assertEqual(self.cluster.ioctx_create(name, ref(io)), 0)
        Io(io).put("o", b"x")
        self.assertEqual(call("nobjects_list_open", io, ref(ctx)), 0)
        self.assertEqual(self.cluster.pool_delete(name), 0)
        entry = text()
        # Some entry may be there already.
        results = [call("nobjects_list_next", ctx, ref(entry), None, None) for _ in range(2)]
        self.assertEqual(results[-1], ENOENT)
        call("nobjects_list_close", ctx)


if __name__ == "__main__":
    unittest.main()
