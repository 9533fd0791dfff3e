"""Opening, creating and closing files, and their bytes."""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import shutil
import signal
import stat
import time

from trial import LIBC, LONG, Lacking, as_user, case, fails, get, in_child, libc, may_lack, opened, put, same


@case("open", "openat", "creat", "close")
def open_and_its_flags(d):
    path = d + "/file"
    fails(errno.ENOENT, os.open, path, os.O_RDONLY)
    fails(errno.ENOENT, os.open, d + "/none/file", os.O_CREAT | os.O_RDWR)
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    os.close(fd)
    fails(errno.EBADF, os.close, fd)
    same(stat.S_IMODE(os.stat(path).st_mode), 0o640, "mode")
    fails(errno.EEXIST, os.open, path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    fails(errno.ENOTDIR, os.open, path + "/x", os.O_RDONLY)
    fails(errno.ENOTDIR, os.open, path, os.O_RDONLY | os.O_DIRECTORY)
    fails(errno.EISDIR, os.open, d, os.O_WRONLY)
    fails(errno.EISDIR, os.open, d, os.O_RDWR)
    fails(errno.ENAMETOOLONG, os.open, d + "/" + LONG, os.O_CREAT | os.O_RDWR)
    fails(errno.ENAMETOOLONG, os.open, d + "/" + "x/" * 2100 + "y", os.O_RDONLY)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.open, d + "/loop", os.O_RDONLY)
    os.symlink("file", d + "/soft")
    fails(errno.ELOOP, os.open, d + "/soft", os.O_RDONLY | os.O_NOFOLLOW)
    fails(errno.EEXIST, os.open, d + "/soft", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    fails(errno.ENOENT, os.open, "", os.O_RDONLY)
    put(path, b"some")
    with opened(path, os.O_RDWR | os.O_TRUNC) as fd:
        same(os.fstat(fd).st_size, 0, "truncated")
    # A dangling link is made whole by O_CREAT.
    os.symlink("made", d + "/dangling")
    with opened(d + "/dangling", os.O_CREAT | os.O_RDWR):
        same(os.path.exists(d + "/made"), True, "made through a link")


@case("openat")
def openat_and_its_folder(d):
    put(d + "/file", b"data")
    with opened(d, os.O_RDONLY | os.O_DIRECTORY) as folder:
        with opened("file", os.O_RDONLY, dir_fd=folder) as fd:
            same(os.read(fd, 10), b"data")
            fails(errno.ENOTDIR, os.open, "x", os.O_RDONLY, dir_fd=fd)
        fails(errno.ENOENT, os.open, "none", os.O_RDONLY, dir_fd=folder)
    fails(errno.EBADF, os.open, "file", os.O_RDONLY, dir_fd=9999)


@case("open")
def open_without_leave(d):
    put(d + "/secret", b"x")
    os.chmod(d + "/secret", 0o600)
    os.mkdir(d + "/shut", 0o700)
    put(d + "/shut/file")

    def user():
        fails(errno.EACCES, os.open, d + "/secret", os.O_RDONLY)
        fails(errno.EACCES, os.open, d + "/secret", os.O_WRONLY)
        fails(errno.EACCES, os.open, d + "/shut/file", os.O_RDONLY)
        fails(errno.EACCES, os.open, d + "/new", os.O_CREAT | os.O_RDWR)

    as_user(user)


@case("open")
def open_more_than_the_limit(d):
    def child():
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        for i in range(30):
            try:
                os.open(d + "/file", os.O_RDONLY)
            except OSError as e:
                return same(e.errno, errno.EMFILE)
        raise AssertionError("no limit")

    put(d + "/file")
    in_child(child)


@case("open", "execve")
def a_program_that_runs_is_not_written(d):
    path = d + "/sleeper"
    shutil.copy("/bin/sleep", path)
    os.chmod(path, 0o755)
    child = os.spawnv(os.P_NOWAIT, path, [path, "60"])
    try:
        # It runs once its memory is that of the file.
        while os.readlink("/proc/%d/exe" % child) != os.path.realpath(path):
            time.sleep(0.01)
        fails(errno.ETXTBSY, os.open, path, os.O_WRONLY)
        fails(errno.ETXTBSY, os.truncate, path, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@case("execve")
def execve_and_its_refusals(d):
    def refused(number, path):
        in_child(lambda: fails(number, os.execv, path, [path]))

    refused(errno.ENOENT, d + "/none")
    put(d + "/plain", b"#!/bin/sh\nexit 0\n")
    refused(errno.EACCES, d + "/plain")
    refused(errno.EACCES, d)
    put(d + "/odd", b"\1\2\3\4")
    os.chmod(d + "/odd", 0o755)
    refused(errno.ENOEXEC, d + "/odd")
    refused(errno.ENOTDIR, d + "/odd/x")
    os.chmod(d + "/plain", 0o755)
    same(os.spawnv(os.P_WAIT, d + "/plain", [d + "/plain"]), 0, "it runs")


@case("open", "unlink", "fstat")
def a_file_without_a_name_stays_open(d):
    path = put(d + "/file", b"kept")
    with opened(path) as fd:
        os.unlink(path)
        fails(errno.ENOENT, os.stat, path)
        same(os.fstat(fd).st_nlink, 0, "links")
        same(os.pread(fd, 10, 0), b"kept")
        os.pwrite(fd, b"more", 4)
        same(os.pread(fd, 10, 0), b"keptmore")
        put(path, b"another")
        same(os.pread(fd, 10, 0), b"keptmore")


@case("open")
def a_file_that_never_had_a_name(d):
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as e:
        if e.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            raise Lacking("O_TMPFILE") from e
        raise
    os.write(fd, b"data")
    same(os.listdir(d), [])
    os.close(fd)


@case("read", "write", "pread64", "pwrite64")
def read_and_write(d):
    with opened(d + "/file", os.O_CREAT | os.O_RDWR) as fd:
        same(os.write(fd, b"hello world"), 11)
        same(os.read(fd, 5), b"", "at the end")
        same(os.pread(fd, 5, 6), b"world")
        same(os.pwrite(fd, b"W", 6), 1)
        same(os.pread(fd, 100, 0), b"hello World")
        same(os.pread(fd, 5, 1000), b"", "behind the end")
        same(os.pwrite(fd, b"far", 100_000), 3)
        same(os.pread(fd, 6, 99_997), b"\0\0\0far", "a hole")
        same(os.write(fd, b""), 0)
        fails(errno.EINVAL, os.pread, fd, 1, -1)
        fails(errno.EINVAL, os.pwrite, fd, b"x", -1)
    fails(errno.EBADF, os.read, 9999, 1)
    fails(errno.EBADF, os.write, 9999, b"x")
    with opened(d + "/file", os.O_RDONLY) as fd:
        fails(errno.EBADF, os.write, fd, b"x")
        fails(errno.EBADF, os.pwrite, fd, b"x", 0)
        fails(errno.EFAULT, libc, "read", fd, ctypes.c_void_p(8), ctypes.c_size_t(10))
    with opened(d + "/file", os.O_WRONLY) as fd:
        fails(errno.EBADF, os.read, fd, 1)
        fails(errno.EFAULT, libc, "write", fd, ctypes.c_void_p(8), ctypes.c_size_t(10))
    with opened(d, os.O_RDONLY) as fd:
        fails(errno.EISDIR, os.read, fd, 1)
        fails(errno.EISDIR, os.pread, fd, 1, 0)


@case("readv", "writev", "preadv", "pwritev")
def vectors(d):
    with opened(d + "/file", os.O_CREAT | os.O_RDWR) as fd:
        same(os.writev(fd, [b"one", b"", b"two"]), 6)
        same(os.pwritev(fd, [b"THREE", b"!"], 6), 6)
        parts = [bytearray(4), bytearray(20)]
        same(os.preadv(fd, parts, 0), 12)
        same(bytes(parts[0]) + bytes(parts[1][:8]), b"onetwoTHREE!")
        os.lseek(fd, 3, os.SEEK_SET)
        same((os.readv(fd, parts), bytes(parts[0])), (9, b"twoT"))
        many = [b"x"] * 1025
        fails(errno.EINVAL, os.writev, fd, many)
        fails(errno.EINVAL, os.preadv, fd, [bytearray(1)], -2)
    fails(errno.EBADF, os.writev, 9999, [b"x"])
    fails(errno.EBADF, os.readv, 9999, [bytearray(1)])
    with opened(d + "/file", os.O_RDONLY) as fd:
        fails(errno.EBADF, os.pwritev, fd, [b"x"], 0)


@case("write", "ftruncate")
def a_file_longer_than_the_limit(d):
    def child():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        with opened(d + "/file", os.O_CREAT | os.O_RDWR) as fd:
            same(os.pwrite(fd, b"x" * 20_000, 0), 10_000, "up to the limit")
            fails(errno.EFBIG, os.pwrite, fd, b"x", 10_000)
            fails(errno.EFBIG, os.ftruncate, fd, 10_001)

    in_child(child)
    with opened(d + "/file") as fd:
        fails((errno.EFBIG, errno.EINVAL), os.pwrite, fd, b"x", (1 << 63) - 1)
        fails((errno.EFBIG, errno.EINVAL), os.ftruncate, fd, (1 << 63) - 1)


@case("write", "fcntl")
def appends(d):
    with opened(d + "/file", os.O_CREAT | os.O_RDWR | os.O_APPEND) as one, opened(d + "/file", os.O_WRONLY | os.O_APPEND) as two:
        for i in range(10):
            os.write(one, b"a%d" % i)
            os.write(two, b"b%d" % i)
        os.lseek(one, 0, os.SEEK_SET)
        os.write(one, b"end")
        want = b"".join(b"a%db%d" % (i, i) for i in range(10)) + b"end"
        same(os.pread(one, 1000, 0), want)
        flags = fcntl.fcntl(two, fcntl.F_GETFL)
        fcntl.fcntl(two, fcntl.F_SETFL, flags & ~os.O_APPEND)
        os.lseek(two, 0, os.SEEK_SET)
        os.write(two, b"START")
        same(os.pread(one, 5, 0), b"START")


@case("lseek")
def positions(d):
    path = put(d + "/file", b"0123456789")
    with opened(path) as fd:
        same(os.lseek(fd, 4, os.SEEK_SET), 4)
        same(os.lseek(fd, 2, os.SEEK_CUR), 6)
        same(os.lseek(fd, -1, os.SEEK_END), 9)
        same(os.read(fd, 5), b"9")
        fails(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
        fails(errno.EINVAL, os.lseek, fd, 0, 77)
        same(os.lseek(fd, 0, os.SEEK_DATA), 0)
        same(os.lseek(fd, 0, os.SEEK_HOLE), 10, "the end is a hole")
        fails(errno.ENXIO, os.lseek, fd, 10, os.SEEK_DATA)
        fails(errno.ENXIO, os.lseek, fd, 10, os.SEEK_HOLE)
        same(os.lseek(fd, 5000, os.SEEK_SET), 5000)
        os.write(fd, b"x")
        same(os.fstat(fd).st_size, 5001)
    fails(errno.EBADF, os.lseek, 9999, 0, os.SEEK_SET)
    os.mkfifo(d + "/pipe")
    with opened(d + "/pipe", os.O_RDWR) as fd:
        fails(errno.ESPIPE, os.lseek, fd, 0, os.SEEK_SET)
        fails(errno.ESPIPE, os.pread, fd, 1, 0)


@case("dup", "dup3", "fcntl")
def copies_of_descriptors_share_their_position(d):
    with opened(put(d + "/file", b"0123456789")) as fd:
        copy = os.dup(fd)
        os.read(fd, 3)
        same(os.read(copy, 3), b"345")
        os.dup2(fd, copy)
        third = fcntl.fcntl(fd, fcntl.F_DUPFD, 50)
        same((third >= 50, os.read(third, 2), os.read(copy, 1)), (True, b"67", b"8"))
        for extra in (copy, third):
            os.close(extra)
    fails(errno.EBADF, os.dup, 9999)
    fails(errno.EBADF, fcntl.fcntl, 9999, fcntl.F_GETFL)


@case("truncate", "ftruncate")
def lengths(d):
    path = put(d + "/file", b"0123456789")
    os.truncate(path, 4)
    same(get(path), b"0123")
    os.truncate(path, 8)
    same(get(path), b"0123\0\0\0\0", "what was cut off does not come back")
    with opened(path) as fd:
        os.ftruncate(fd, 2)
        same(os.fstat(fd).st_size, 2)
        fails(errno.EINVAL, os.ftruncate, fd, -1)
    with opened(path, os.O_RDONLY) as fd:
        fails((errno.EINVAL, errno.EBADF), os.ftruncate, fd, 1)
    fails(errno.EBADF, os.ftruncate, 9999, 1)
    fails(errno.EINVAL, os.truncate, path, -1)
    fails(errno.ENOENT, os.truncate, d + "/none", 1)
    fails(errno.ENOTDIR, os.truncate, path + "/x", 1)
    fails(errno.EISDIR, os.truncate, d, 1)
    fails(errno.ENAMETOOLONG, os.truncate, d + "/" + LONG, 1)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.truncate, d + "/loop", 1)
    as_user(lambda: fails(errno.EACCES, os.truncate, path, 1))
    os.truncate(path, 1 << 39)
    same(os.stat(path).st_size, 1 << 39, "sparse")


@case("fsync", "fdatasync", "sync", "syncfs", "sync_file_range")
def what_is_written_is_kept(d):
    with opened(d + "/file", os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, b"data")
        os.fsync(fd)
        os.fdatasync(fd)
        libc("syncfs", fd)
        libc("sync_file_range", fd, ctypes.c_long(0), ctypes.c_long(4), 7)
        fails(errno.EINVAL, libc, "sync_file_range", fd, ctypes.c_long(-1), ctypes.c_long(4), 7)
    with opened(d, os.O_RDONLY) as fd:
        os.fsync(fd)
    os.sync()
    for call in (os.fsync, os.fdatasync):
        fails(errno.EBADF, call, 9999)
    fails(errno.EBADF, libc, "syncfs", 9999)
    read, write = os.pipe()
    fails(errno.EINVAL, os.fsync, read)
    os.close(read)
    os.close(write)


@case("fallocate")
def room_ahead(d):
    def fallocate(fd, mode, offset, length):
        return libc("fallocate", fd, mode, ctypes.c_long(offset), ctypes.c_long(length))

    path = put(d + "/file", b"0123456789")
    keep, punch = 1, 2
    fails(errno.EBADF, fallocate, 9999, 0, 0, 10)
    with opened(path, os.O_RDONLY) as fd:
        fails(errno.EBADF, fallocate, fd, 0, 0, 10)
    with opened(path) as fd:
        fails(errno.EINVAL, fallocate, fd, 0, -1, 10)
        fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
        fails(errno.EINVAL, os.posix_fallocate, fd, 0, 0)
        may_lack(fallocate, fd, keep | punch, 2, 4)
        same(os.pread(fd, 20, 0), b"01\0\0\0\0" + b"6789", "a hole")
        may_lack(fallocate, fd, 0, 0, 100)
        same(os.fstat(fd).st_size, 100)


@case("copy_file_range", "sendfile")
def copies(d):
    source, target = put(d + "/from", bytes(range(256)) * 100), put(d + "/to")
    with opened(source, os.O_RDONLY) as a, opened(target) as b:
        left = 25_600
        while left:
            left -= os.sendfile(b, a, 25_600 - left, left)
        same(get(target), get(source))
        fails(errno.EBADF, os.sendfile, a, b, 0, 10)
        fails(errno.EBADF, os.sendfile, b, 9999, 0, 10)
        os.ftruncate(b, 0)
        if hasattr(os, "copy_file_range"):
            same(may_lack(os.copy_file_range, a, b, 1000, 0, 0), 1000)
            same(get(target), get(source)[:1000])
            fails(errno.EBADF, os.copy_file_range, a, a, 10, 0, 0)
            fails(errno.EBADF, os.copy_file_range, 9999, b, 10, 0, 0)
    with opened(source) as a:
        if hasattr(os, "copy_file_range"):
            fails(errno.EINVAL, os.copy_file_range, a, a, 100, 0, 50)


@case("mmap", "msync", "munmap")
def memory(d):
    path = put(d + "/file", b"x" * 10_000)
    with opened(path) as fd:
        with mmap.mmap(fd, 10_000) as shared:
            shared[5000:5005] = b"HELLO"
            shared.flush()
            same(os.pread(fd, 5, 5000), b"HELLO")
            os.pwrite(fd, b"WORLD", 5000)
            same(shared[5000:5005], b"WORLD", "written while mapped")
        with mmap.mmap(fd, 10_000, flags=mmap.MAP_PRIVATE) as private:
            private[0:4] = b"mine"
        same(os.pread(fd, 4, 0), b"xxxx", "a private copy")
    with opened(path, os.O_RDONLY) as fd:
        fails(errno.EACCES, mmap.mmap, fd, 100, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE | mmap.PROT_READ)
    with opened(path, os.O_WRONLY) as fd:
        fails(errno.EACCES, mmap.mmap, fd, 100, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    with opened(d, os.O_RDONLY) as fd:
        LIBC.mmap.restype = ctypes.c_void_p
        ctypes.set_errno(0)
        got = LIBC.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0))
        same((ctypes.c_long(got or 0).value, ctypes.get_errno()), (-1, errno.ENODEV))


@case("fadvise64", "readahead")
def advice(d):
    with opened(put(d + "/file", b"x" * 100)) as fd:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        fails(errno.EINVAL, os.posix_fadvise, fd, 0, 0, 99)
        libc("readahead", fd, ctypes.c_long(0), ctypes.c_size_t(100))
    fails(errno.EBADF, os.posix_fadvise, 9999, 0, 0, os.POSIX_FADV_NORMAL)
    fails(errno.EBADF, libc, "readahead", 9999, ctypes.c_long(0), ctypes.c_size_t(100))
    read, write = os.pipe()
    fails(errno.ESPIPE, os.posix_fadvise, read, 0, 0, os.POSIX_FADV_NORMAL)
    os.close(read)
    os.close(write)


@case("ioctl")
def no_terminal(d):
    with opened(put(d + "/file")) as fd:
        # POSIX has EINVAL for what a device does not know.
        fails((errno.ENOTTY, errno.EINVAL), fcntl.ioctl, fd, 0x5401, b"\0" * 64)
    fails(errno.EBADF, fcntl.ioctl, 9999, 0x5401, b"\0" * 64)
