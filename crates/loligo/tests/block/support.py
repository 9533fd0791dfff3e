"""What the tests of block storage share: programs with time limits, random data, a model of an image.

CEPH_CONF names the cluster: ours, or a real one to test the tests.
"""
import os
import random
import subprocess
import tempfile
import unittest

import rados
import rbd

CONF = os.environ["CEPH_CONF"]


def run(*words, given=None, fails=False):
    """A program's standard output as bytes; it must end well, unless it `fails`."""
    done = subprocess.run(words, input=given, capture_output=True, timeout=120)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    return done.stdout


def rbd_tool(*words, conf=CONF, **more):
    return run("rbd", "-c", conf, *words, **more)


class Model:
    """An image's bytes, and what the same changes make of it."""

    def __init__(self, size, seed):
        self.data, self.g, self.seed = bytearray(size), random.Random(seed), seed

    def change(self, image, count, plain=False):
        """The same random writes and zeroes to the image and here; `plain`: only writes of whole blocks."""
        for _ in range(count):
            length = self.g.choice([4096, 12_288, 303_104] if plain else [512, 4096, 10_000, 300_000])
            unit = 4096 if plain else 512
            off = self.g.randrange((len(self.data) - length) // unit) * unit
            if not plain and self.g.random() < 0.2:
                off, length = off // 65536 * 65536, (length + 65535) // 65536 * 65536
                length = min(length, len(self.data) - off)
                image.write_zeroes(off, length)
                self.data[off:off + length] = bytes(length)
            else:
                piece = self.g.randbytes(length)
                image.write(piece, off)
                self.data[off:off + length] = piece

    def check(self, image, what=""):
        got = image.read(0, image.size())
        if got == bytes(self.data):
            return
        at = next(i for i, (a, b) in enumerate(zip(got, self.data)) if a != b) if len(got) == len(self.data) else len(got)
        raise AssertionError(f"{what}: seed {self.seed}: {len(got)} bytes of {len(self.data)}, the first difference at {at}")


class Case(unittest.TestCase):
    """A pool for the class, a connection, a folder."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = rados.Rados(conffile=CONF)
        cls.cluster.connect(timeout=20)
        cls.pool = f"block-{cls.__name__}-{os.getpid()}"
        cls.cluster.create_pool(cls.pool)
        cls.io = cls.cluster.open_ioctx(cls.pool)
        rbd.RBD().pool_init(cls.io, True)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.io.close()
        cls.cluster.delete_pool(cls.pool)
        cls.cluster.shutdown()
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def create(self, name, size, **more):
        rbd.RBD().create(self.io, name, size, old_format=False, **more)
        return self.open(name)

    def open(self, name, **more):
        image = rbd.Image(self.io, name, **more)
        self.addCleanup(image.close)
        return image
