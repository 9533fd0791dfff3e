"""A client that holds an image's exclusive lock is killed, or stopped and woken: another takes over, and nothing of the first
comes late."""
import signal
import sys
import time
import unittest

from support import *

SIZE = 16 << 20
#: Seconds within which the lock must change hands.
SOON = 35

# Takes the lock and keeps 16 writes under way, each block full of one byte; says when it has begun, and how it ended.
HOLDER = """
import os, rados, rbd, sys
conf, pool = sys.argv[1:3]
r = rados.Rados(conffile=conf); r.connect()
image = rbd.Image(r.open_ioctx(pool), 'image')
n, waiting = 0, []
image.write(b'first', 0)
print('begun', flush=True)
while True:
    waiting.append(image.aio_write(b'1' * 65536, (n % 256) * 65536, lambda c: None))
    n += 1
    if len(waiting) >= 16:
        c = waiting.pop(0)
        c.wait_for_complete_and_cb()
        if c.get_return_value() < 0:
            print('refused', c.get_return_value(), flush=True)
            os._exit(0)
"""


class Takeover(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A PG that the balancer moves gives each watch its whole time again, and the holder is waited for that long.
        run("ceph", "-c", CONF, "balancer", "off")

    def holder(self):
        first = subprocess.Popen([sys.executable, "-c", HOLDER, CONF, self.pool], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (first.poll() is None and first.kill(), first.wait(), first.stdout.close()))
        self.assertEqual(first.stdout.readline(), "begun\n")
        time.sleep(0.5)
        return first

    def owner(self):
        # An open image keeps what it once knew of this.
        return rbd.Image(self.io, "image", read_only=True).list_lockers()["lockers"][0][0]

    def take_over(self):
        """Overwrites the whole image and returns how long the lock took to change hands."""
        owner, image = self.owner(), self.open("image")
        begin = time.monotonic()
        image.write(b"2" * 4096, 0)
        took = time.monotonic() - begin
        # The lock is ours: the rest says nothing of how long that takes, but of the machine's disk.
        image.write(b"2" * SIZE, 0)
        self.assertNotEqual(self.owner(), owner)
        return image, took

    def check(self, image):
        self.assertEqual(image.read(0, SIZE), b"2" * SIZE)

    def test_the_holder_is_killed(self):
        self.create("image", SIZE).close()
        first = self.holder()
        first.kill()
        first.wait()
        image, took = self.take_over()
        self.assertLess(took, SOON)
        self.check(image)
        print(f"a killed holder: {took:.1f} s", file=sys.stderr)
        image.close()
        rbd.RBD().remove(self.io, "image")

    def test_the_holder_sleeps_and_wakes(self):
        self.create("image", SIZE).close()
        first = self.holder()
        first.send_signal(signal.SIGSTOP)
        image, took = self.take_over()
        self.assertLess(took, SOON)
        listed = run("ceph", "-c", CONF, "osd", "blocklist", "ls", "--format", "json")
        self.assertIn(b"addr", listed)
        first.send_signal(signal.SIGCONT)
        said = first.stdout.readline()
        self.assertEqual(said, "refused -108\n", "its writes under way fail")
        self.check(image)
        print(f"a sleeping holder: {took:.1f} s", file=sys.stderr)
        image.close()
        rbd.RBD().remove(self.io, "image")


if __name__ == "__main__":
    unittest.main()
