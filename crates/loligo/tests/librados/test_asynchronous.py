"""Asynchronous requests. After aio.cc and aio_cxx.cc."""
import unittest

from support import *

DONE = C.CFUNCTYPE(None, vp, vp)


class Asynchronous(Case):
    def run_all(self, *requests):
        """Starts requests one after the other, each a name and arguments behind the completion, and waits for all."""
        waiting = []
        for name, oid, *args in requests:
            waiting.append(Completion())
            self.assertEqual(getattr(self.io, "aio_" + name)(oid, waiting[-1].handle, *args), 0)
        return [w.wait() for w in waiting]

    def test_requests_on_an_object_stay_in_order(self):
        buf, size, mtime = C.create_string_buffer(64), out(), out(C.c_long)
        got = self.run_all(("write", "o", b"0123456789", 10, 0), ("append", "o", b"ab", 2), ("write", "o", b"X", 1, 3),
                           ("read", "o", buf, 64, 0), ("stat", "o", ref(size), ref(mtime)),
                           ("write_full", "o", b"new", 3), ("remove", "o"), ("read", "o", buf, 64, 0), ("remove", "o"))
        self.assertEqual(got, [0, 0, 0, 12, 0, 0, 0, ENOENT, ENOENT])
        self.assertEqual((buf.value, size.value), (b"012X456789ab", 12))

    def test_attributes_patterns_comparisons_classes(self):
        buf, out_ = C.create_string_buffer(64), C.create_string_buffer(64)
        got = self.run_all(("writesame", "o", b"ab", 2, 8, 0), ("setxattr", "o", "a", b"v1", 2), ("getxattr", "o", "a", buf, 64),
                           ("cmpext", "o", b"abab", 4, 0), ("cmpext", "o", b"abaX", 4, 0), ("rmxattr", "o", "a"),
                           ("getxattr", "o", "a", buf, 64), ("exec", "o", "hello", "say_hello", b"you", 3, out_, 64))
        self.assertEqual(got, [0, 0, 2, 0, -MAX_ERRNO - 3, 0, ENODATA, 11])
        self.assertEqual((buf.raw[:2], out_.value, self.io.text("o")), (b"v1", b"Hello, you!", b"ab" * 4))

    def test_all_attributes(self):
        self.io.set_attr("o", "a", b"v")
        it, done = vp(), Completion()
        self.assertEqual(self.io.aio_getxattrs("o", done.handle, ref(it)), 0)
        self.assertEqual(done.wait(), 0)
        self.assertEqual(attributes(it), {b"a": b"v"})

    def test_a_flush_waits_for_all_writes(self):
        waiting = [Completion() for _ in range(50)]
        for i, w in enumerate(waiting):
            self.assertEqual(self.io.aio_write(f"o{i}", w.handle, b"x" * 1000, 1000, 0), 0)
        self.assertEqual(self.io.aio_flush(), 0)
        self.assertTrue(all(call("aio_is_complete", w.handle) for w in waiting))
        later = Completion()
        self.assertEqual(self.io.aio_flush_async(later.handle), 0)
        self.assertEqual([later.wait()] + [w.wait() for w in waiting], [0] * 51)

    def test_callbacks_and_versions(self):
        heard = []
        hear = DONE(lambda completion, arg: heard.append(completion))
        c = vp()
        self.assertEqual(call("aio_create_completion2", None, hear, ref(c)), 0)
        self.assertEqual(self.io.aio_write("o", c, b"x", 1, 0), 0)
        call("aio_wait_for_complete_and_cb", c)
        lib.rados_aio_get_version.restype = u64
        self.assertEqual((heard, call("aio_is_complete_and_cb", c)), ([c.value], 1))
        self.assertEqual(lib.rados_aio_get_version(c), self.io.version() or lib.rados_aio_get_version(c))
        call("aio_release", c)

    def test_what_librados_itself_refuses(self):
        done = Completion()
        self.assertEqual(self.io.aio_write("o", done.handle, b"x", 2**31 + 1, 0), -7)
        self.assertEqual(self.io.aio_append("o", done.handle, b"x", 2**31 + 1), -7)

    def test_a_thousand_at_once(self):
        data = [b"%d" % i * 100 for i in range(1000)]
        self.assertEqual(self.run_all(*(("write_full", f"o{i}", d, len(d)) for i, d in enumerate(data))), [0] * 1000)
        bufs = [C.create_string_buffer(1000) for _ in data]
        got = self.run_all(*(("read", f"o{i}", b, 1000, 0) for i, b in enumerate(bufs)))
        self.assertEqual([b.raw[:n] for b, n in zip(bufs, got)], data)

    def test_a_write_that_races_with_its_removal(self):
        for i in range(30):
            a, b, buf = Completion(), Completion(), C.create_string_buffer(8)
            self.io.aio_write("o", a.handle, b"x" * 8, 8, 0)
            self.io.aio_remove("o", b.handle)
            self.assertEqual((a.wait(), b.wait()), (0, 0), i)
            self.assertEqual(self.io.read("o", buf, 8, 0), ENOENT)


if __name__ == "__main__":
    unittest.main()
