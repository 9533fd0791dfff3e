"""Gives a machine's free memory to the page cache, as on a machine that has run for a while.

Free memory of a virtual machine may not be there: the host took it back (free page reporting), or never gave it. The first use of each
such page waits for the host, some 12 us for 4 KiB, twenty times what copying them takes. That falls on whoever uses the page cache and
not on whoever goes past it, and it says nothing of a machine that has run for a day: there free memory is cache that can be dropped,
and what takes its place is there already.
"""
import os
import time

# The kernel begins to drop what was cached well below.
LEFT_FREE = 512 << 20
STEP = 32 << 20
# What is removed is freed some time after the removal.
QUIET_SECONDS = 4


def free_bytes():
    with open("/proc/meminfo") as f:
        fields = dict(line.split(":") for line in f)
    return int(fields["MemFree"].split()[0]) << 10


class PageCache:
    """Holes of a file of its own, which are read once each: the kernel drops them before what anybody reads twice."""

    def __init__(self, folder):
        self.path, self.at = os.path.join(folder, "holes"), 0
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def fill(self):
        """Uses what is free but for LEFT_FREE; gives the number of bytes."""
        buffer, most, begin = bytearray(1 << 20), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), self.at
        while free_bytes() > LEFT_FREE and self.at - begin < most:
            os.ftruncate(self.file, self.at + STEP)
            while os.preadv(self.file, [buffer], self.at):
                self.at += len(buffer)
        return self.at - begin

    def settle(self):
        """Fills until nothing more has been freed for a while."""
        left = QUIET_SECONDS
        while left > 0:
            left = QUIET_SECONDS if self.fill() else left - 1
            time.sleep(1)

    def close(self):
        os.close(self.file)
        os.unlink(self.path)
