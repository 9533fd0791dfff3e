"""An image that fio fills, writes and reads, and whether it holds what was written to it.

Every write, those of measured windows too, gives each block of 4 KiB a header of fio's with its place, the number of the write and a
checksum; every read compares them. A damaged, misplaced or empty block ends fio with an error. An old block in the place of a new one is
whole, though: so fio logs its writes, and in the end the number in each header is compared with that of the last write to the block.
The client bears the cost, the same for each cluster: some 4 us of CPU for a write of 4 KiB.
"""
import array
import contextlib
import json
import os
import struct
import subprocess
import tempfile

import rados
import rbd

from clusters import Trouble

BLOCK = 4096
PIECE = 4 << 20
# magic, type of checksum, length, seed, place, two times, thread, number of the write modulo 2^16, checksum (Source: fio's verify.h)
HEADER = struct.Struct("<HHIQQIIHHI")
MAGIC = 0xACCA


class Image:
    """`place`: fio's words for where it is. Nobody else may write to it."""

    def __init__(self, mib, *place, **env):
        self.size, self.place, self.env = mib << 20, place, {"PATH": os.environ["PATH"], **env}
        self.numbers = array.array("i", [-1]) * (self.size // BLOCK)  # of the last write of each block, modulo 2^16
        self.seed = 0

    def fio(self, *options, timeout=900):
        words = ["fio", "--output-format=json", "--name=job", "--direct=1", "--numjobs=1", *self.place, "--size=%d" % self.size, "--verify=crc32c",
                 "--verify_interval=%d" % BLOCK, "--verify_fatal=1", "--verify_state_save=0", *options]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=self.env)
        at = done.stdout.find("{")
        job = json.loads(done.stdout[at:])["jobs"][0] if at >= 0 else {"error": -1}
        if done.returncode or job["error"]:
            raise Trouble("fio on %s ended with %d, error %s: %s" % (" ".join(self.place), done.returncode, job["error"], done.stderr[-600:]))
        return job

    def write(self, *options):
        """A job that may write. Each has a sequence of its own, the same on every image: after two equal ones nobody could tell whether the
        second was written. Without `randrepeat=0` fio takes no notice of the seed."""
        self.seed += 1
        with tempfile.TemporaryDirectory(prefix="fio-") as folder:
            log = os.path.join(folder, "log")
            job = self.fio(*options, "--do_verify=0", "--randrepeat=0", "--randseed=%d" % self.seed, "--write_iolog=" + log)
            self.note(log)
        return job

    def read(self, seconds, *options):
        """Jobs that read, one after the other for so long: with checks each ends when it has read everything once."""
        jobs, left = [], seconds
        while left >= 1 or not jobs:
            jobs.append(self.fio(*options, "--time_based", "--runtime=%d" % left))
            left -= max(jobs[-1]["read"]["runtime"] / 1000, 0.1)
        return jobs

    def fill(self):
        self.write("--rw=write", "--bs=4M", "--iodepth=8")

    def note(self, log):
        """Takes over the numbers of the writes in a log of fio's."""
        number = 0
        with open(log) as f:
            for line in f:
                words = line.split()
                if words[-3:-2] == ["write"]:
                    place, length = int(words[-2]), int(words[-1])
                    for block in range(place // BLOCK, (place + length) // BLOCK):
                        self.numbers[block] = number & 0xFFFF
                    number += 1

    def check(self):
        """Everything is read: by fio, which compares the checksums, and for the numbers. Raises Trouble when the image holds anything else."""
        read = self.fio("--rw=read", "--bs=4M", "--iodepth=8")["read"]["io_bytes"]
        if read != self.size:
            raise Trouble("fio verified %d bytes of %d" % (read, self.size))
        with self.opened() as read:
            for place in range(0, self.size, PIECE):
                self.compare(place, read(place, min(PIECE, self.size - place)))

    def compare(self, place, data):
        for at in range(0, len(data), BLOCK):
            wanted = self.numbers[(place + at) // BLOCK]
            magic, _, length, _, where, _, _, _, number, _ = HEADER.unpack_from(data, at)
            if (magic, length, where, number) != (MAGIC, BLOCK, place + at, wanted):
                raise Trouble("the block at %d is not what was written last: it says place %d, write %d, wanted write %d" % (place + at, where, number, wanted))


class RbdImage(Image):
    def __init__(self, mib, conf, pool, name):
        self.conf, self.pool, self.name = conf, pool, name
        super().__init__(mib, "--ioengine=rbd", "--clientname=admin", "--pool=" + pool, "--rbdname=" + name, CEPH_CONF=conf)

    @contextlib.contextmanager
    def opened(self):
        with rados.Rados(conffile=self.conf) as client, client.open_ioctx(self.pool) as io, rbd.Image(io, self.name, read_only=True) as image:
            yield image.read


class FileImage(Image):
    """A file in the place of a cluster, to check the checks."""

    def __init__(self, mib, path):
        self.path = path
        super().__init__(mib, "--ioengine=psync", "--filename=" + path)

    @contextlib.contextmanager
    def opened(self):
        with open(self.path, "rb") as file:
            yield lambda place, length: os.pread(file.fileno(), length, place)
