"""Attributes of files, and of the file system."""
import ctypes
import errno
import os
import stat
import struct
import time

from trial import AT_FDCWD, LONG, USER, as_user, case, fails, libc, may_lack, opened, put, same


@case("stat", "lstat", "fstat", "newfstatat", "statx")
def attributes(d):
    before = time.time()
    path = put(d + "/file", b"12345")
    s = os.stat(path)
    same((stat.S_ISREG(s.st_mode), s.st_size, s.st_nlink, s.st_uid), (True, 5, 1, 0))
    for at in (s.st_mtime, s.st_ctime):
        same(before - 2 <= at <= time.time() + 2, True, "time %r" % at)
    same(os.stat(path).st_ino, s.st_ino)
    os.symlink("file", d + "/soft")
    same((os.stat(d + "/soft").st_ino, stat.S_ISLNK(os.lstat(d + "/soft").st_mode)), (s.st_ino, True))
    same(os.lstat(d + "/soft").st_size, 4)
    with opened(d, os.O_RDONLY) as folder:
        same(os.stat("file", dir_fd=folder).st_ino, s.st_ino)
        same(stat.S_ISLNK(os.stat("soft", dir_fd=folder, follow_symlinks=False).st_mode), True)
        fails(errno.ENOENT, os.stat, "none", dir_fd=folder)
    room = ctypes.create_string_buffer(256)
    libc("statx", AT_FDCWD, path.encode(), 0, 0x7FF, room)
    same(struct.unpack_from("<Q", room.raw, 40)[0], 5, "size by statx")
    for call in (os.stat, os.lstat):
        fails(errno.ENOENT, call, d + "/none")
        fails(errno.ENOENT, call, "")
        fails(errno.ENOTDIR, call, path + "/x")
        fails(errno.ENAMETOOLONG, call, d + "/" + LONG)
    fails(errno.ENOENT, libc, "statx", AT_FDCWD, (d + "/none").encode(), 0, 0x7FF, room)
    fails(errno.EINVAL, libc, "statx", AT_FDCWD, path.encode(), 0x40000000, 0x7FF, room)
    fails(errno.EBADF, os.fstat, 9999)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.stat, d + "/loop")
    os.mkdir(d + "/shut", 0o700)
    put(d + "/shut/x")
    as_user(lambda: fails(errno.EACCES, os.stat, d + "/shut/x"))


@case("access", "faccessat")
def access(d):
    path = put(d + "/file")
    os.chmod(path, 0o640)
    same(os.access(path, os.R_OK | os.W_OK), True)

    def check(path, mode):
        return libc("access", path.encode(), mode)

    fails(errno.ENOENT, check, d + "/none", os.F_OK)
    fails(errno.ENOTDIR, check, path + "/x", os.F_OK)
    fails(errno.EINVAL, check, path, 0o70)
    fails(errno.EACCES, check, path, os.X_OK)
    fails(errno.ENAMETOOLONG, check, d + "/" + LONG, os.F_OK)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, check, d + "/loop", os.F_OK)

    def user():
        same(os.access(path, os.F_OK), True)
        fails(errno.EACCES, check, path, os.R_OK)
        fails(errno.EACCES, check, path, os.W_OK)

    as_user(user)


@case("chmod", "fchmod", "fchmodat")
def modes(d):
    path = put(d + "/file")
    os.chmod(path, 0o4751)
    same(stat.S_IMODE(os.stat(path).st_mode), 0o4751)
    with opened(path) as fd:
        os.fchmod(fd, 0o600)
        same(stat.S_IMODE(os.fstat(fd).st_mode), 0o600)
    os.chmod(d, 0o1777)
    same(stat.S_IMODE(os.stat(d).st_mode), 0o1777)
    with opened(d, os.O_RDONLY) as folder:
        os.chmod("file", 0o644, dir_fd=folder)
        fails(errno.ENOENT, os.chmod, "none", 0o644, dir_fd=folder)
    fails(errno.ENOENT, os.chmod, d + "/none", 0o644)
    fails(errno.ENOTDIR, os.chmod, path + "/x", 0o644)
    fails(errno.ENAMETOOLONG, os.chmod, d + "/" + LONG, 0o644)
    fails(errno.EBADF, os.fchmod, 9999, 0o644)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.chmod, d + "/loop", 0o644)
    as_user(lambda: fails(errno.EPERM, os.chmod, path, 0o777))
    before = os.stat(path).st_ctime_ns
    time.sleep(0.02)
    os.chmod(path, 0o600)
    same(os.stat(path).st_ctime_ns > before, True, "the time of change")


@case("chown", "lchown", "fchown", "fchownat")
def owners(d):
    path = put(d + "/file")
    os.chmod(path, 0o6755)
    os.chown(path, 12, 34)
    s = os.stat(path)
    same((s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)), (12, 34, 0o755), "the bits go with the owner")
    os.chown(path, -1, 35)
    same((os.stat(path).st_uid, os.stat(path).st_gid), (12, 35))
    with opened(path) as fd:
        os.fchown(fd, 13, -1)
    os.symlink("file", d + "/soft")
    os.lchown(d + "/soft", 77, 78)
    same((os.stat(path).st_uid, os.lstat(d + "/soft").st_uid), (13, 77))
    with opened(d, os.O_RDONLY) as folder:
        os.chown("file", 14, 15, dir_fd=folder)
    fails(errno.ENOENT, os.chown, d + "/none", 1, 1)
    fails(errno.ENOTDIR, os.chown, path + "/x", 1, 1)
    fails(errno.EBADF, os.fchown, 9999, 1, 1)
    os.chown(path, USER, USER)

    def user():
        fails(errno.EPERM, os.chown, path, 1, -1)
        fails(errno.EPERM, os.chown, path, -1, 1)
        os.chown(path, USER, USER)

    as_user(user)


@case("write", "chown")
def a_write_takes_the_set_id_bits(d):
    path = put(d + "/file", b"x")
    os.chmod(path, 0o6777)

    def user():
        with opened(path, os.O_WRONLY) as fd:
            os.write(fd, b"y")

    as_user(user)
    same(stat.S_IMODE(os.stat(path).st_mode), 0o777)


@case("utimensat")
def times(d):
    path = put(d + "/file")
    os.utime(path, ns=(1_000_000_001_000_000_002, 1_100_000_000_000_000_003))
    s = os.stat(path)
    same((s.st_atime_ns, s.st_mtime_ns), (1_000_000_001_000_000_002, 1_100_000_000_000_000_003))
    with opened(path) as fd:
        os.utime(fd, (5, 6))
        same(os.fstat(fd).st_mtime, 6)
    os.symlink("none", d + "/soft")
    os.utime(d + "/soft", (7, 8), follow_symlinks=False)
    same(os.lstat(d + "/soft").st_mtime, 8)
    os.utime(path)
    same(abs(os.stat(path).st_mtime - time.time()) < 5, True, "now")
    fails(errno.ENOENT, os.utime, d + "/none")
    fails(errno.ENOENT, os.utime, d + "/soft")
    fails(errno.ENOTDIR, os.utime, path + "/x")
    os.chmod(path, 0o644)

    def user():
        fails(errno.EACCES, os.utime, path)
        fails(errno.EPERM, os.utime, path, (1, 2))

    as_user(user)
    before = os.stat(path).st_mtime_ns
    time.sleep(0.02)
    put(path, b"new")
    same(os.stat(path).st_mtime_ns > before, True, "a write sets the time")
    before = os.stat(d).st_mtime_ns
    time.sleep(0.02)
    put(d + "/another")
    same(os.stat(d).st_mtime_ns > before, True, "a new name sets the folder's")


@case("umask", "mkdir", "mknod")
def masks(d):
    old = os.umask(0o027)
    try:
        os.close(os.open(d + "/file", os.O_CREAT | os.O_RDWR, 0o666))
        os.mkdir(d + "/sub", 0o777)
        os.mkfifo(d + "/pipe", 0o666)
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(os.stat(d + "/" + name).st_mode) for name in ("file", "sub", "pipe")]
    same(modes, [0o640, 0o750, 0o640])


@case("setxattr", "getxattr", "listxattr", "removexattr", "lsetxattr", "fsetxattr", "fgetxattr")
def extended_attributes(d):
    path = put(d + "/file")
    may_lack(os.setxattr, path, "user.one", b"first")
    same((os.getxattr(path, "user.one"), os.listxattr(path)), (b"first", ["user.one"]))
    fails(errno.EEXIST, os.setxattr, path, "user.one", b"x", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, path, "user.two", b"x", os.XATTR_REPLACE)
    os.setxattr(path, "user.one", b"second", os.XATTR_REPLACE)
    os.setxattr(path, "user.empty", b"")
    same((os.getxattr(path, "user.one"), os.getxattr(path, "user.empty")), (b"second", b""))
    with opened(path) as fd:
        os.setxattr(fd, "user.three", b"3")
        same((os.getxattr(fd, "user.three"), sorted(os.listxattr(fd))), (b"3", ["user.empty", "user.one", "user.three"]))
        os.removexattr(fd, "user.three")
    fails(errno.ENODATA, os.getxattr, path, "user.none")
    fails(errno.ENODATA, os.removexattr, path, "user.none")
    fails(errno.EOPNOTSUPP, os.setxattr, path, "nonsense", b"x")
    fails(errno.EOPNOTSUPP, os.setxattr, path, "other.one", b"x")
    fails(errno.ERANGE, os.setxattr, path, "user." + LONG, b"x")
    fails((errno.E2BIG, errno.ENOSPC), os.setxattr, path, "user.big", b"x" * 65_537)
    fails(errno.EINVAL, os.setxattr, path, "user.one", b"x", 99)
    fails(errno.ENOENT, os.getxattr, d + "/none", "user.one")
    fails(errno.ENOTDIR, os.getxattr, path + "/x", "user.one")
    fails(errno.EBADF, os.getxattr, 9999, "user.one")
    small = ctypes.create_string_buffer(2)
    fails(errno.ERANGE, libc, "getxattr", path.encode(), b"user.one", small, ctypes.c_size_t(2))
    fails(errno.ERANGE, libc, "listxattr", path.encode(), small, ctypes.c_size_t(2))
    same(libc("getxattr", path.encode(), b"user.one", None, ctypes.c_size_t(0)), 6, "the length alone")
    os.symlink("file", d + "/soft")
    fails(errno.EPERM, os.setxattr, d + "/soft", "user.one", b"x", follow_symlinks=False)
    same(os.getxattr(d + "/soft", "user.one"), b"second")
    os.removexattr(path, "user.one")
    os.mkdir(d + "/sub")
    os.setxattr(d + "/sub", "user.of-folder", b"x")
    same(os.getxattr(d + "/sub", "user.of-folder"), b"x")
    os.chmod(path, 0o600)

    def user():
        fails(errno.EACCES, os.setxattr, path, "user.x", b"x")
        fails(errno.EACCES, os.getxattr, path, "user.empty")

    as_user(user)


@case("statfs", "fstatfs")
def the_file_system(d):
    path = put(d + "/file")
    s = os.statvfs(path)
    same((s.f_namemax, s.f_bsize > 0, s.f_blocks >= s.f_bfree >= s.f_bavail), (255, True, True))
    with opened(path) as fd:
        same(os.fstatvfs(fd).f_namemax, 255)
    fails(errno.ENOENT, os.statvfs, d + "/none")
    fails(errno.ENOTDIR, os.statvfs, path + "/x")
    fails(errno.EBADF, os.fstatvfs, 9999)
