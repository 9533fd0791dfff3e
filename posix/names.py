"""Names in folders."""
import errno
import os
import socket
import stat
import tempfile
import threading

from trial import AT_FDCWD, LONG, Lacking, as_user, case, fails, get, in_child, libc, opened, put, same


@case("mkdir", "mkdirat", "rmdir")
def folders(d):
    sub = d + "/sub"
    os.mkdir(sub, 0o750)
    s = os.stat(sub)
    same((stat.S_ISDIR(s.st_mode), stat.S_IMODE(s.st_mode), os.listdir(sub)), (True, 0o750, []))
    with opened(d, os.O_RDONLY) as folder:
        os.mkdir("two", dir_fd=folder)
        os.rmdir("two", dir_fd=folder)
    path = put(sub + "/file")
    fails(errno.EEXIST, os.mkdir, sub)
    fails(errno.EEXIST, os.mkdir, path)
    fails(errno.ENOENT, os.mkdir, d + "/none/x")
    fails(errno.ENOTDIR, os.mkdir, path + "/x")
    fails(errno.ENAMETOOLONG, os.mkdir, d + "/" + LONG)
    os.symlink("nowhere", d + "/soft")
    fails(errno.EEXIST, os.mkdir, d + "/soft")
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.mkdir, d + "/loop/x")
    fails(errno.ENOTEMPTY, os.rmdir, sub)
    fails(errno.ENOTDIR, os.rmdir, path)
    fails(errno.ENOTDIR, os.rmdir, d + "/soft")
    fails(errno.ENOENT, os.rmdir, d + "/none")
    fails(errno.EINVAL, os.rmdir, sub + "/.")
    fails((errno.ENOTEMPTY, errno.EBUSY), os.rmdir, sub + "/..")

    def user():
        fails(errno.EACCES, os.mkdir, d + "/mine")
        fails(errno.EACCES, os.rmdir, sub)

    as_user(user)
    os.unlink(path)
    os.rmdir(sub)
    fails(errno.ENOENT, os.stat, sub)
    os.mkdir(d + "/" + "n" * 255)
    same("n" * 255 in os.listdir(d), True)


@case("unlink", "unlinkat")
def unlinks(d):
    path = put(d + "/file")
    fails(errno.ENOENT, os.unlink, d + "/none")
    fails(errno.ENOTDIR, os.unlink, path + "/x")
    os.mkdir(d + "/sub")
    fails(errno.EISDIR, os.unlink, d + "/sub")
    fails(errno.ENAMETOOLONG, os.unlink, d + "/" + LONG)
    fails(errno.ENOENT, os.unlink, "")
    os.symlink("file", d + "/soft")
    os.unlink(d + "/soft")
    same(os.path.exists(path), True, "the link goes, not the file")
    with opened(d, os.O_RDONLY) as folder:
        fails(errno.EINVAL, libc, "unlinkat", folder, b"file", 0x40)
        os.unlink("file", dir_fd=folder)
    fails(errno.ENOENT, os.stat, path)
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.unlink, d + "/loop/x")
    put(path)
    as_user(lambda: fails(errno.EACCES, os.unlink, path))


@case("unlink", "rename", "rmdir")
def a_sticky_folder_keeps_others_away(d):
    os.chmod(d, 0o1777)
    path = put(d + "/root-s")
    os.mkdir(d + "/folder")

    def user():
        fails((errno.EPERM, errno.EACCES), os.unlink, path)
        fails((errno.EPERM, errno.EACCES), os.rename, path, d + "/stolen")
        fails((errno.EPERM, errno.EACCES), os.rmdir, d + "/folder")
        put(d + "/own")
        fails((errno.EPERM, errno.EACCES), os.rename, d + "/own", path)
        os.unlink(d + "/own")

    as_user(user)


@case("link", "linkat")
def hard_links(d):
    path = put(d + "/file", b"one")
    os.link(path, d + "/hard")
    same((os.stat(path).st_nlink, os.stat(d + "/hard").st_ino), (2, os.stat(path).st_ino))
    put(d + "/hard", b"two")
    same(get(path), b"two")
    fails(errno.EEXIST, os.link, path, d + "/hard")
    fails(errno.ENOENT, os.link, d + "/none", d + "/x")
    fails(errno.ENOENT, os.link, path, d + "/none/x")
    fails(errno.ENOTDIR, os.link, path, path + "/x")
    fails(errno.EPERM, os.link, d, d + "/x")
    fails(errno.ENAMETOOLONG, os.link, path, d + "/" + LONG)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        fails(errno.EXDEV, os.link, path, elsewhere + "/x")
    os.symlink("file", d + "/soft")
    os.link(d + "/soft", d + "/soft-too", follow_symlinks=False)
    same(os.readlink(d + "/soft-too"), "file")
    with opened(d, os.O_RDONLY) as folder:
        os.link("file", "third", src_dir_fd=folder, dst_dir_fd=folder)
        same(os.stat(path).st_nlink, 3)
        fails(errno.EINVAL, libc, "linkat", folder, b"file", folder, b"x", 0x40)
    os.unlink(path)
    same((os.stat(d + "/hard").st_nlink, get(d + "/third")), (2, b"two"))
    os.mkdir(d + "/sub")
    os.rename(d + "/third", d + "/sub/moved")
    same(os.stat(d + "/sub/moved").st_nlink, 2)
    as_user(lambda: fails((errno.EACCES, errno.EPERM), os.link, d + "/hard", d + "/x"))


@case("symlink", "symlinkat", "readlink", "readlinkat")
def soft_links(d):
    os.symlink("some/where", d + "/soft")
    same(os.readlink(d + "/soft"), "some/where")
    fails(errno.EEXIST, os.symlink, "x", d + "/soft")
    fails(errno.ENOENT, os.symlink, "x", d + "/none/x")
    fails(errno.ENOENT, os.symlink, "", d + "/empty")
    path = put(d + "/file")
    fails(errno.ENOTDIR, os.symlink, "x", path + "/x")
    fails(errno.ENAMETOOLONG, os.symlink, "x", d + "/" + LONG)
    fails(errno.ENAMETOOLONG, os.symlink, "x" * 4096, d + "/long")
    os.symlink("y" * 4000, d + "/long")
    same(len(os.readlink(d + "/long")), 4000)
    fails(errno.EINVAL, os.readlink, path)
    fails(errno.EINVAL, os.readlink, d)
    fails(errno.ENOENT, os.readlink, d + "/none")
    fails(errno.ENOTDIR, os.readlink, path + "/x")
    with opened(d, os.O_RDONLY) as folder:
        os.symlink("there", "at", dir_fd=folder)
        same(os.readlink("at", dir_fd=folder), "there")
    os.mkdir(d + "/a")
    put(d + "/a/x", b"found")
    os.symlink("a", d + "/to-a")
    os.symlink("../to-a/x", d + "/a/back")
    same(get(d + "/to-a/back"), b"found")
    for i in range(41):
        os.symlink("l%d" % (i + 1), d + "/l%d" % i)
    put(d + "/l41")
    same(os.stat(d + "/l1").st_size, 0, "forty links")
    fails(errno.ELOOP, os.stat, d + "/l0")
    as_user(lambda: fails(errno.EACCES, os.symlink, "x", d + "/x"))


@case("rename", "renameat")
def renames(d):
    a, b = put(d + "/a", b"A"), put(d + "/b", b"B")
    ino = os.stat(a).st_ino
    os.rename(a, b)
    same((get(b), os.stat(b).st_ino, os.path.exists(a)), (b"A", ino, False), "over a file")
    os.mkdir(d + "/one")
    os.mkdir(d + "/two")
    put(d + "/one/x")
    os.rename(d + "/one", d + "/two")
    same(os.listdir(d + "/two"), ["x"], "over an empty folder")
    os.mkdir(d + "/three")
    fails((errno.ENOTEMPTY, errno.EEXIST), os.rename, d + "/three", d + "/two")
    fails(errno.EISDIR, os.rename, b, d + "/two")
    fails(errno.ENOTDIR, os.rename, d + "/two", b)
    fails(errno.ENOENT, os.rename, d + "/none", d + "/x")
    fails(errno.ENOENT, os.rename, b, d + "/none/x")
    fails(errno.ENOTDIR, os.rename, b + "/x", d + "/x")
    fails(errno.ENOTDIR, os.rename, b, b + "/x")
    fails(errno.EINVAL, os.rename, d + "/two", d + "/two/sub")
    fails((errno.EBUSY, errno.EINVAL), os.rename, d + "/two/.", d + "/x")
    fails(errno.ENAMETOOLONG, os.rename, b, d + "/" + LONG)
    os.link(b, d + "/hard")
    os.rename(b, d + "/hard")
    same(sorted(os.listdir(d)), ["b", "hard", "three", "two"], "of one inode: nothing")
    os.rename(b, b)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        fails(errno.EXDEV, os.rename, b, elsewhere + "/x")
    os.rename(b, d + "/two/b")
    with opened(d, os.O_RDONLY) as one, opened(d + "/two", os.O_RDONLY) as two:
        os.rename("b", "back", src_dir_fd=two, dst_dir_fd=one)
    same(get(d + "/back"), b"A")
    os.symlink("loop", d + "/loop")
    fails(errno.ELOOP, os.rename, d + "/back", d + "/loop/x")
    os.rename(d + "/loop", d + "/moved-loop")
    same(os.readlink(d + "/moved-loop"), "loop", "the link itself")
    as_user(lambda: fails(errno.EACCES, os.rename, d + "/back", d + "/x"))


@case("renameat2")
def renames_with_flags(d):
    def renameat2(a, b, flags):
        return libc("renameat2", AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), flags)

    a, b = put(d + "/a", b"A"), put(d + "/b", b"B")
    fails(errno.EINVAL, renameat2, a, b, 3)
    try:
        renameat2(a, d + "/c", 1)
    except OSError as e:
        # FUSE passes flags on, and a file system may not know them.
        if e.errno in (errno.EINVAL, errno.ENOSYS):
            raise Lacking("RENAME_NOREPLACE") from e
        raise
    fails(errno.EEXIST, renameat2, d + "/c", b, 1)
    renameat2(d + "/c", b, 2)
    same((get(d + "/c"), get(b)), (b"B", b"A"), "exchanged")
    fails(errno.ENOENT, renameat2, b, d + "/none", 2)


@case("mknod", "mknodat")
def nodes(d):
    os.mkfifo(d + "/pipe", 0o640)
    same(stat.S_ISFIFO(os.stat(d + "/pipe").st_mode), True)
    fails(errno.EEXIST, os.mkfifo, d + "/pipe")
    fails(errno.ENOENT, os.mkfifo, d + "/none/x")
    fails(errno.ENOTDIR, os.mkfifo, d + "/pipe/x")
    fails(errno.ENAMETOOLONG, os.mkfifo, d + "/" + LONG)
    fails(errno.ENXIO, os.open, d + "/pipe", os.O_WRONLY | os.O_NONBLOCK)
    os.mknod(d + "/plain", stat.S_IFREG | 0o600)
    same((stat.S_ISREG(os.stat(d + "/plain").st_mode), os.stat(d + "/plain").st_size), (True, 0))
    os.mknod(d + "/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    s = os.stat(d + "/device")
    same((stat.S_ISCHR(s.st_mode), s.st_rdev), (True, os.makedev(1, 3)))
    fails((errno.EPERM, errno.EINVAL), os.mknod, d + "/folder", stat.S_IFDIR | 0o700)
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(d)
        try:
            s.bind("socket")
            fails(errno.EADDRINUSE, socket.socket(socket.AF_UNIX).bind, "socket")
        finally:
            os.chdir(here)
    same(stat.S_ISSOCK(os.stat(d + "/socket").st_mode), True)
    fails(errno.ENXIO, os.open, d + "/socket", os.O_RDONLY)
    os.chmod(d, 0o777)
    as_user(lambda: fails(errno.EPERM, os.mknod, d + "/x", stat.S_IFCHR | 0o600, os.makedev(1, 3)))


@case("read", "write", "open")
def a_pipe_with_a_name_carries_bytes(d):
    os.mkfifo(d + "/pipe")
    thread = threading.Thread(target=put, args=(d + "/pipe", b"through"))
    thread.start()
    same(get(d + "/pipe"), b"through")
    thread.join()


@case("getdents64")
def listings(d):
    for i in range(1500):
        os.close(os.open(d + "/name-%d" % i, os.O_CREAT | os.O_WRONLY))
    os.mkdir(d + "/sub")
    os.symlink("x", d + "/soft")
    names = os.listdir(d)
    same((len(names), len(set(names))), (1502, 1502), "each once")
    kinds = {e.name: (e.is_dir(follow_symlinks=False), e.is_symlink()) for e in os.scandir(d)}
    same((kinds["sub"], kinds["soft"], kinds["name-7"]), ((True, False), (False, True), (False, False)))
    # What is removed while it is read may show or not; all others show once.
    seen = []
    for i, entry in enumerate(os.scandir(d)):
        seen.append(entry.name)
        if i == 100:
            for n in range(1000, 1100):
                os.unlink(d + "/name-%d" % n)
    kept = {n for n in names if not (n.startswith("name-") and 1000 <= int(n[5:]) < 1100)}
    same((kept - set(seen), len(seen) == len(set(seen))), (set(), True))
    fails(errno.ENOENT, os.listdir, d + "/none")
    fails(errno.ENOTDIR, os.listdir, d + "/name-0")
    fails(errno.EBADF, os.listdir, 9999)
    os.mkdir(d + "/shut", 0o700)
    as_user(lambda: fails(errno.EACCES, os.listdir, d + "/shut"))
    fd = os.open(d + "/sub", os.O_RDONLY)
    os.rmdir(d + "/sub")
    same(len(os.listdir(d)), 1402)
    os.close(fd)


@case("chdir", "fchdir", "getcwd")
def where_a_process_is(d):
    os.mkdir(d + "/sub")
    path = put(d + "/file")
    os.mkdir(d + "/shut", 0o700)

    def child():
        os.chdir(d + "/sub")
        same(os.getcwd(), os.path.realpath(d) + "/sub")
        put("here")
        same(os.listdir(d + "/sub"), ["here"])
        os.chdir("..")
        fails(errno.ENOENT, os.chdir, "none")
        fails(errno.ENOTDIR, os.chdir, path)
        fails(errno.ENAMETOOLONG, os.chdir, LONG)
        with opened(d + "/sub", os.O_RDONLY) as fd:
            os.fchdir(fd)
        with opened(path) as fd:
            fails(errno.ENOTDIR, os.fchdir, fd)
        fails(errno.EBADF, os.fchdir, 9999)
        os.unlink("here")
        os.rename(d + "/sub", d + "/moved")
        same(os.getcwd(), os.path.realpath(d) + "/moved")
        os.rmdir(d + "/moved")
        fails(errno.ENOENT, os.getcwd)
        fails(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_RDWR)
        fails(errno.ENOENT, os.mkdir, "x")

    in_child(child)
    as_user(lambda: fails(errno.EACCES, os.chdir, d + "/shut"))
