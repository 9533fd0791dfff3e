"""Watches and notifies. After watch_notify.cc and watch_notify_cxx.cc."""
import unittest

from support import *

TOLD = C.CFUNCTYPE(None, vp, u64, u64, u64, vp, size_t)
FAILED = C.CFUNCTYPE(None, vp, u64, C.c_int)


class Watcher:
    """Hears notifies on an object and answers them unless told not to."""

    def __init__(self, io, oid, timeout=0, silent=False):
        self.io, self.oid, self.silent = io, oid, silent
        self.heard, self.errors, self.handle = [], [], u64(0)
        self.callbacks = TOLD(self.told), FAILED(lambda _, handle, error: self.errors.append((handle, error)))
        r = io.watch3(oid, ref(self.handle), *self.callbacks, C.c_uint32(timeout), None)
        assert r == 0, r

    def told(self, _, notify_id, cookie, notifier, data, length):
        self.heard.append((cookie, notifier, C.string_at(data, length)))
        if not self.silent:
            self.io.notify_ack(self.oid, u64(notify_id), u64(cookie), b"reply", 5)

    def check(self):
        return self.io.watch_check(self.handle)

    def end(self):
        return self.io.unwatch2(self.handle)


def decode(reply):
    """Acks as {(client, cookie): payload} and the watchers that were missed."""
    at = 0

    def take(width):
        nonlocal at
        at += width
        return int.from_bytes(reply[at - width:at], "little")
    acks = {}
    for _ in range(take(4)):
        who = take(8), take(8)
        n = take(4)
        acks[who] = reply[at:at + n]
        at += n
    return acks, [(take(8), take(8)) for _ in range(take(4))]


class Watches(Case):
    def setUp(self):
        super().setUp()
        self.io.put("o", b"x")
        self.me = lib.rados_get_instance_id(self.cluster.handle)

    def notify(self, oid="o", timeout_ms=30_000):
        buf, n = vp(1), size_t(1)
        r = self.io.notify2(oid, b"notify", 6, timeout_ms, ref(buf), ref(n))
        reply = decode(C.string_at(buf, n.value)) if n.value else None
        call("buffer_free", buf)
        return r, reply

    def test_a_notify_is_heard_and_answered(self):
        w = Watcher(self.io, "o")
        self.assertGreater(w.check(), -1)
        self.assertEqual(self.notify(), (0, ({(self.me, w.handle.value): b"reply"}, [])))
        self.assertEqual(w.heard, [(w.handle.value, self.me, b"notify")])
        self.assertEqual(self.notify("none"), (ENOENT, None))
        self.assertEqual(w.end(), 0)
        self.assertEqual(self.cluster.watch_flush(), 0)
        self.assertEqual(self.notify(), (0, ({}, [])))
        self.assertEqual((len(w.heard), w.errors), (1, []))

    def test_two_watches(self):
        two = [Watcher(self.io, "o") for _ in range(2)]
        r, (acks, missed) = self.notify()
        self.assertEqual((r, set(acks), missed), (0, {(self.me, w.handle.value) for w in two}, []))
        for w in two:
            self.assertEqual((len(w.heard), w.end()), (1, 0))

    def test_another_client_watches(self):
        other = connect()
        io = vp()
        self.assertEqual(other.ioctx_create(self.pool, ref(io)), 0)
        call("ioctx_set_namespace", io, self.id())
        w = Watcher(Io(io), "o")
        r, (acks, _) = self.notify()
        self.assertEqual((r, list(acks)), (0, [(lib.rados_get_instance_id(other.handle), w.handle.value)]))
        w.end()
        other.shutdown()
        self.assertEqual(self.notify(), (0, ({}, [])))

    def test_nothing_to_watch(self):
        with self.assertRaises(AssertionError):
            Watcher(self.io, "none")

    def test_the_object_goes(self):
        w = Watcher(self.io, "o")
        self.assertEqual(self.io.remove("o"), 0)
        self.assertTrue(until(lambda: w.errors))
        self.assertEqual((w.errors, w.check()), ([(w.handle.value, ENOTCONN)], ENOTCONN))
        done = Completion()
        self.io.aio_unwatch(w.handle, done.handle)
        self.assertEqual(done.wait(), ENOENT)

    def test_who_does_not_answer_is_missed(self):
        w = Watcher(self.io, "o", silent=True)
        r, (acks, missed) = self.notify(timeout_ms=1000)
        self.assertEqual((r, acks, missed), (ETIMEDOUT, {}, [(self.me, w.handle.value)]))
        w.silent = False
        self.assertEqual(self.notify()[0], 0)
        self.assertEqual(len(w.heard), 2)
        w.end()

    def test_a_watcher_that_is_silent_is_dropped(self):
        w = Watcher(self.io, "o", timeout=3)
        self.cluster.conf_set("objecter_inject_no_watch_ping", "true")
        try:
            self.assertTrue(until(lambda: w.errors, 60))
        finally:
            self.cluster.conf_set("objecter_inject_no_watch_ping", "false")
        self.assertEqual((w.errors[0], w.check()), ((w.handle.value, ENOTCONN), ENOTCONN))
        self.assertEqual(self.notify(), (0, ({}, [])))
        w.end()
        again = Watcher(self.io, "o")
        self.assertEqual(self.notify(), (0, ({(self.me, again.handle.value): b"reply"}, [])))
        again.end()

    def test_asynchronous_watches_and_notifies(self):
        w = Watcher.__new__(Watcher)
        w.io, w.oid, w.silent, w.heard, w.errors, w.handle = self.io, "o", False, [], [], u64(0)
        w.callbacks = TOLD(w.told), FAILED(lambda _, handle, error: w.errors.append((handle, error)))
        done = Completion()
        self.assertEqual(self.io.aio_watch("o", done.handle, ref(w.handle), *w.callbacks, None), 0)
        self.assertEqual(done.wait(), 0)
        for oid, want in (("o", 0), ("none", ENOENT)):
            done, buf, n = Completion(), vp(), size_t()
            self.assertEqual(self.io.aio_notify(oid, done.handle, b"notify", 6, 30_000, ref(buf), ref(n)), 0)
            self.assertEqual(done.wait(), want)
            call("buffer_free", buf)
        self.assertEqual(len(w.heard), 1)
        done = Completion()
        self.assertEqual(self.io.aio_unwatch(w.handle, done.handle), 0)
        self.assertEqual(done.wait(), 0)


if __name__ == "__main__":
    unittest.main()
