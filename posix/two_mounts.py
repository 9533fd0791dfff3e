"""What one mount shows of what another one did."""
import errno
import fcntl
import os
import stat
import threading

from trial import fails, get, in_child, on_both, opened, put, same, started


@on_both("open", "write", "read", "stat")
def bytes_are_seen_when_a_file_is_opened(a, b):
    for i in range(5):
        put(a + "/file", b"from a %d" % i * (i + 1))
        same(get(b + "/file"), b"from a %d" % i * (i + 1))
        put(b + "/file", b"from b %d" % i)
        same((get(a + "/file"), os.stat(a + "/file").st_size), (b"from b %d" % i, len(b"from b %d" % i)))


@on_both("pwrite64", "pread64", "fstat")
def bytes_are_seen_while_both_have_it_open(a, b):
    with opened(a + "/file", os.O_CREAT | os.O_RDWR) as one, opened(b + "/file") as two:
        for i in range(20):
            os.pwrite(one, b"a%03d" % i, i * 8)
            same(os.pread(two, 4, i * 8), b"a%03d" % i)
            os.pwrite(two, b"b%03d" % i, i * 8 + 4)
            same((os.pread(one, 4, i * 8 + 4), os.fstat(one).st_size), (b"b%03d" % i, i * 8 + 8))
        os.ftruncate(two, 5)
        same((os.fstat(one).st_size, os.pread(one, 100, 0)), (5, b"a000b"))


@on_both("write")
def appends_of_both_follow_each_other(a, b):
    with opened(a + "/file", os.O_CREAT | os.O_WRONLY | os.O_APPEND) as one, opened(b + "/file", os.O_WRONLY | os.O_APPEND) as two:
        for i in range(20):
            # Where the end is, FUSE believes to know, as NFS does, until it is asked.
            os.fstat(one)
            os.write(one, b"a%d," % i)
            os.fstat(two)
            os.write(two, b"b%d," % i)
    same(get(a + "/file"), b"".join(b"a%d,b%d," % (i, i) for i in range(20)))


@on_both("open", "mkdir", "unlink", "rename", "link", "symlink", "rmdir", "getdents64")
def names_are_seen_at_once(a, b):
    for i in range(10):
        fails(errno.ENOENT, os.stat, b + "/new")
        put(a + "/new")
        same(os.stat(b + "/new").st_size, 0)
        os.rename(b + "/new", b + "/moved")
        fails(errno.ENOENT, os.stat, a + "/new")
        os.link(a + "/moved", a + "/hard")
        same((os.stat(b + "/moved").st_nlink, os.stat(b + "/hard").st_nlink), (2, 2))
        os.unlink(b + "/moved")
        same((os.listdir(a), os.stat(a + "/hard").st_nlink), (["hard"], 1))
        os.symlink("hard", b + "/soft")
        same(os.readlink(a + "/soft"), "hard")
        os.mkdir(a + "/sub")
        fails(errno.EEXIST, os.mkdir, b + "/sub")
        put(b + "/sub/inside")
        fails(errno.ENOTEMPTY, os.rmdir, a + "/sub")
        os.unlink(a + "/sub/inside")
        os.rmdir(b + "/sub")
        fails(errno.ENOENT, os.listdir, a + "/sub")
        for name in ("hard", "soft"):
            os.unlink(a + "/" + name)
        same(os.listdir(b), [])


@on_both("chmod", "chown", "utimensat", "setxattr", "truncate")
def attributes_are_seen_at_once(a, b):
    one, two = put(a + "/file", b"0123456789"), b + "/file"
    for i in range(10):
        os.chmod(one, 0o600 + i)
        same(stat.S_IMODE(os.stat(two).st_mode), 0o600 + i)
        os.chown(two, i, i + 1)
        same((os.stat(one).st_uid, os.stat(one).st_gid), (i, i + 1))
        os.utime(one, (i, i * 2))
        same(os.stat(two).st_mtime, i * 2)
        os.truncate(two, i)
        same((os.stat(one).st_size, len(get(one))), (i, i))
        os.setxattr(one, "user.x", b"%d" % i)
        same(os.getxattr(two, "user.x"), b"%d" % i)
    os.removexattr(two, "user.x")
    fails(errno.ENODATA, os.getxattr, one, "user.x")


@on_both("open")
def one_of_two_makes_a_name(a, b):
    for i in range(10):
        ends = []

        def make(folder):
            try:
                os.close(os.open(folder + "/name-%d" % i, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                ends.append("made")
            except OSError as e:
                ends.append(errno.errorcode[e.errno])

        threads = [threading.Thread(target=make, args=(folder,)) for folder in (a, b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(sorted(ends), ["EEXIST", "made"])


@on_both("rename", "open")
def a_name_is_replaced_in_one_step(a, b):
    put(a + "/file", b"0" * 1000)
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            try:
                data = get(b + "/file")
                if len(data) != 1000 or len(set(data)) != 1:
                    return wrong.append(data[:20])
            except OSError as e:
                return wrong.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(10):
        put(a + "/next", b"%d" % (i % 10) * 1000)
        os.rename(a + "/next", a + "/file")
    stop.set()
    thread.join()
    same(wrong, [])


@on_both("unlink", "pread64")
def a_file_without_a_name_stays_open_on_the_other_mount(a, b):
    put(a + "/file", b"kept")
    with opened(b + "/file") as fd:
        os.unlink(a + "/file")
        fails(errno.ENOENT, os.stat, b + "/file")
        same(os.pread(fd, 10, 0), b"kept")
        os.pwrite(fd, b"more", 4)
        same(os.pread(fd, 10, 0), b"keptmore")


@on_both("flock")
def whole_file_locks_hold_on_both(a, b):
    put(a + "/file")
    with opened(a + "/file") as one, opened(b + "/file") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        got = threading.Event()

        def wait():
            fcntl.flock(two, fcntl.LOCK_EX)
            got.set()

        thread = threading.Thread(target=wait)
        thread.start()
        same(got.is_set(), False)
        fcntl.flock(one, fcntl.LOCK_UN)
        thread.join()
        fails(errno.EAGAIN, fcntl.flock, one, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_UN)


@on_both("fcntl")
def locks_of_ranges_hold_on_both(a, b):
    put(a + "/file", b"0123456789")
    with opened(a + "/file") as one:
        fcntl.lockf(one, fcntl.LOCK_EX, 5, 0)

        def child():
            with opened(b + "/file") as two:
                fails((errno.EAGAIN, errno.EACCES), fcntl.lockf, two, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 4)
                fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)

        in_child(child)


@on_both("fcntl", "read", "write")
def a_counter_under_a_lock(a, b):
    put(a + "/count", b"0")
    put(a + "/lock")

    def count(folder):
        with opened(folder + "/lock") as lock:
            for _ in range(5):
                fcntl.lockf(lock, fcntl.LOCK_EX)
                # Opened anew: while a file is open FUSE may have pages of it that are old.
                n = int(get(folder + "/count")) + 1
                with opened(folder + "/count") as fd:
                    os.pwrite(fd, b"%d" % n, 0)
                fcntl.lockf(lock, fcntl.LOCK_UN)

    end = started(lambda ready, _: (ready(), count(b)))
    count(a)
    end()
    same(get(b + "/count"), b"10")
