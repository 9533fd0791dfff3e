"""What cases are made of: they compare what system calls give, as root, as another user, in children."""
import ctypes
import errno
import os
import traceback

USER = 65534
LONG = "n" * 256
AT_FDCWD = -100
LIBC = ctypes.CDLL(None, use_errno=True)

# What each case tries: its function, the system calls, whether it needs a second mount.
CASES = []


def case(*calls):
    def add(function):
        CASES.append((function, calls, False))
        return function

    return add


def on_both(*calls):
    def add(function):
        CASES.append((function, calls, True))
        return function

    return add


class Lacking(Exception):
    """The file system does not have a call that it may lack."""


def same(got, want, what=""):
    if got != want:
        raise AssertionError("%s: %r instead of %r" % (what, got, want))


def fails(numbers, call, *args, **words):
    """A call that fails with this errno, or with one of these."""
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)
    try:
        value = call(*args, **words)
    except OSError as e:
        if e.errno in numbers:
            return
        raise AssertionError("%s%r: %s instead of %s" % (
            call.__name__, args, errno.errorcode.get(e.errno, e.errno), [errno.errorcode[n] for n in numbers])) from e
    raise AssertionError("%s%r gave %r instead of %s" % (call.__name__, args, value, [errno.errorcode[n] for n in numbers]))


def libc(name, *args):
    """A call that Python does not have."""
    result = getattr(LIBC, name)(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def may_lack(call, *args, **words):
    """A call that a file system may lack."""
    try:
        return call(*args, **words)
    except OSError as e:
        if e.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise Lacking(getattr(call, "__name__", call)) from e
        raise


def put(path, data=b""):
    with open(path, "wb") as f:
        f.write(data)
    return path


def get(path):
    with open(path, "rb") as f:
        return f.read()


class opened:
    """A descriptor for the time of a block."""

    def __init__(self, path, flags=os.O_RDWR, mode=0o644, **words):
        self.args, self.words = (path, flags, mode), words

    def __enter__(self):
        self.fd = os.open(*self.args, **self.words)
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def in_child(function):
    """Runs a function in another process; what fails there fails here."""
    from_child, to_parent = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(from_child)
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            os.write(to_parent, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(to_parent)
    with os.fdopen(from_child, "rb") as f:
        said = f.read().decode()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise AssertionError("in a child: status %d\n%s" % (status, said))


def as_user(function):
    def change():
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        function()

    in_child(change)


def started(function):
    """A child that runs a function and says `ready` when it is at its wait; `end` waits for it."""
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready_read)
            os.close(end_write)
            function(lambda: os.write(ready_write, b"r"), lambda: os.read(end_read, 1))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(ready_write)
    os.close(end_read)
    same(os.read(ready_read, 1), b"r", "the child is ready")
    os.close(ready_read)

    def end():
        os.close(end_write)
        same(os.waitpid(child, 0)[1], 0, "the child's end")

    return end
