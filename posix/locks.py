"""Locks of whole files and of ranges."""
import errno
import fcntl
import os
import struct
import time

from trial import case, fails, in_child, opened, put, same, started


@case("flock")
def whole_file_locks(d):
    path = put(d + "/file")
    with opened(path) as one, opened(path) as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fails(errno.EAGAIN, fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_UN)
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fails(errno.EINVAL, fcntl.flock, one, 0)
    with opened(path) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fails(errno.EBADF, fcntl.flock, 9999, fcntl.LOCK_EX)


@case("fcntl")
def locks_of_ranges(d):
    path = put(d + "/file", b"0123456789")
    with opened(path) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 4, 2)

        def child():
            with opened(path) as mine:
                fails((errno.EAGAIN, errno.EACCES), fcntl.lockf, mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 0)
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 6)
                asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 6, 0)
                kind, _, start, length, pid = struct.unpack("hhqqi", fcntl.fcntl(mine, fcntl.F_GETLK, asked)[:28])
                same((kind, start, length, pid), (fcntl.F_WRLCK, 2, 4, os.getppid()), "whose it is")

        in_child(child)
        fcntl.lockf(fd, fcntl.LOCK_UN, 2, 3)

        def middle():
            with opened(path) as mine:
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 2, 3)
                fails((errno.EAGAIN, errno.EACCES), fcntl.lockf, mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2)
                fails((errno.EAGAIN, errno.EACCES), fcntl.lockf, mine, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)

        in_child(middle)
    with opened(path, os.O_RDONLY) as fd:
        fails(errno.EBADF, fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fails(errno.EINVAL, fcntl.fcntl, fd, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, -5, 1, 0))
    fails(errno.EBADF, fcntl.lockf, 9999, fcntl.LOCK_EX)


@case("fcntl")
def two_who_wait_for_each_other(d):
    path = put(d + "/file", b"0123456789")
    with opened(path) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)

        def child(ready, _):
            with opened(path) as mine:
                fcntl.lockf(mine, fcntl.LOCK_EX, 1, 5)
                ready()
                # Waits for the parent, which gets EDEADLK and lets it go.
                fcntl.lockf(mine, fcntl.LOCK_EX, 1, 0)

        end = started(child)
        # That it waits no call tells: it is given a moment. Without it the errno is the child's.
        time.sleep(0.5)
        fails(errno.EDEADLK, fcntl.lockf, fd, fcntl.LOCK_EX, 1, 5)
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, 0)
        end()
