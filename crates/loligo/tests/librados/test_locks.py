"""Advisory locks. After lock.cc and lock_cxx.cc."""
import unittest

from support import *


class Duration(C.Structure):
    _fields_ = [("s", C.c_long), ("us", C.c_long)]


class Locks(Case):
    def take(self, cookie="c", tag=None, seconds=None, flags=0, oid="o"):
        """An exclusive lock, or with a tag a shared one."""
        duration = ref(Duration(seconds, 0)) if seconds else None
        if tag is None:
            return self.io.lock_exclusive(oid, "l", cookie, "why", duration, C.c_uint8(flags))
        return self.io.lock_shared(oid, "l", cookie, tag, "why", duration, C.c_uint8(flags))

    def holders(self, size=1024):
        exclusive, bufs = out(C.c_int), [C.create_string_buffer(size) for _ in range(4)]
        lengths = [size_t(size) for _ in bufs]
        args = [x for pair in zip(bufs, map(ref, lengths)) for x in pair]
        r = self.io.list_lockers("o", "l", ref(exclusive), *args)
        tag, clients, cookies, _ = (b.raw[:n.value].split(b"\0")[:-1] for b, n in zip(bufs, lengths))
        return r, exclusive.value, tag, clients, cookies

    def test_exclusive_locks(self):
        self.assertEqual(self.take(), 0)
        self.assertEqual(self.take(), EEXIST)
        self.assertEqual(self.take("d"), EBUSY)
        self.assertEqual(self.take("d", "t"), EBUSY)
        self.assertEqual(self.take(flags=1), 0, "renewed")
        self.assertEqual(self.take("d", flags=2), ENOENT, "nothing to renew")
        self.assertEqual(self.io.unlock("o", "l", "d"), ENOENT)
        self.assertEqual(self.io.unlock("o", "l", "c"), 0)
        self.assertEqual(self.take("d"), 0)

    def test_shared_locks(self):
        self.assertEqual(self.take("c", "t"), 0)
        self.assertEqual(self.take("c", "t"), EEXIST)
        self.assertEqual(self.take("d", "t"), 0)
        self.assertEqual(self.take("e", "other"), EBUSY, "another tag")
        self.assertEqual(self.take("e"), EBUSY)

    def test_locks_end_by_themselves(self):
        for seconds in (1, 4, 16):
            begin = time.monotonic()
            self.assertEqual(self.take(seconds=seconds), 0)
            other = self.take("d", seconds=1)
            if time.monotonic() - begin < seconds:
                self.assertEqual(other, EBUSY)
                break
            # On a busy machine the lock may have ended before the second request came: once more, for longer.
            for cookie in "cd":
                self.io.unlock("o", "l", cookie)
        else:
            self.fail("two requests take 16 s")
        self.assertTrue(until(lambda: self.take("d") == 0))
        self.io.unlock("o", "l", "d")
        self.assertEqual(self.take("c", "t", seconds=1), 0)
        self.assertTrue(until(lambda: self.take("e", "u") == 0))

    def test_holders(self):
        me = b"client.%d" % lib.rados_get_instance_id(self.cluster.handle)
        self.assertEqual(self.holders()[0], ENOENT)
        self.take("c", "Tag")
        self.assertEqual(self.holders(), (1, 0, [b"Tag"], [me], [b"c"]))
        self.take("d", "Tag")
        self.assertEqual(self.holders(), (2, 0, [b"Tag"], [me, me], [b"c", b"d"]))
        self.assertEqual(self.holders(2)[0], ERANGE)
        self.io.unlock("o", "l", "c")
        self.assertEqual(self.io.break_lock("o", "l", me, "d"), 0)
        self.assertEqual(self.holders()[0], 0)
        self.assertEqual(self.io.break_lock("o", "l", me, "d"), ENOENT)
        self.assertEqual(self.io.break_lock("o", "l", "not a client", "d"), EINVAL)
        self.assertEqual(self.take(), 0)
        self.assertEqual(self.holders(), (1, 1, [b""], [me], [b"c"]))

    def test_asynchronous_unlock(self):
        self.take()
        done = Completion()
        self.assertEqual(self.io.aio_unlock("o", "l", "c", done.handle), 0)
        self.assertEqual(done.wait(), 0)
        self.assertEqual(self.take("d"), 0)


if __name__ == "__main__":
    unittest.main()
