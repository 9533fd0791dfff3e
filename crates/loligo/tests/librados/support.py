"""librados without python3-rados: every function of its C interface, and a pool for each file of tests.

The tests follow those of src/test/librados in Ceph's tree. CEPH_CONF names the cluster: ours, or a real one to test the tests.
"""
import ctypes as C
import os
import time
import unittest

lib = C.CDLL("librados.so.2")
u64, size_t, vp, text = C.c_uint64, C.c_size_t, C.c_void_p, C.c_char_p
for name in ("rados_create_write_op", "rados_create_read_op", "rados_object_list_begin", "rados_object_list_end"):
    getattr(lib, name).restype = vp
for name in ("rados_get_last_version", "rados_get_instance_id"):
    getattr(lib, name).restype = u64
for name in ("rados_ioctx_get_id", "rados_pool_lookup"):
    getattr(lib, name).restype = C.c_int64

EPERM, ENOENT, EIO, EBUSY, EEXIST, EINVAL, EFBIG, ERANGE = -1, -2, -5, -16, -17, -22, -27, -34
ENAMETOOLONG, ENODATA, EOVERFLOW, EOLDSNAPC, EOPNOTSUPP, ENOTCONN, ETIMEDOUT, ECANCELED = -36, -61, -75, -85, -95, -107, -110, -125
#: What `cmpext` adds the place of the first difference to.
MAX_ERRNO = 4095
HEAD, SNAPDIR = 2**64 - 2, 2**64 - 1
EQ, NE, GT, GTE, LT, LTE = range(1, 7)
FAILOK = 2


def argument(v):
    """What ctypes would pass as an int of 32 bits passes whole; texts become bytes."""
    if isinstance(v, str):
        return v.encode()
    if isinstance(v, bool):
        return C.c_int(v)
    if isinstance(v, int):
        return C.c_int64(v) if v < 0 else u64(v)
    return v


def call(name, *args):
    """`rados_<name>`: a negative result is an errno."""
    return getattr(lib, "rados_" + name)(*map(argument, args))


def out(kind=u64):
    return kind(0)


def ref(v):
    return C.byref(v)


def until(what, seconds=30):
    """Waits until `what()` is true, and says what it was."""
    end = time.monotonic() + seconds
    while True:
        got = what()
        if got or time.monotonic() > end:
            return got
        time.sleep(0.02)


class Handle:
    """Functions of one family with their first argument: `io.write(...)` is `rados_write(ioctx, ...)`."""

    def __init__(self, handle, prefix=""):
        self.handle, self.prefix = handle, prefix

    def __getattr__(self, name):
        return lambda *args: call(self.prefix + name, self.handle, *args)


class Op(Handle):
    """A request of several operations; `values` are kept alive until it has run."""

    def __init__(self, kind):
        super().__init__(vp(call(f"create_{kind}_op")), f"{kind}_op_")
        self.kind, self.kept = kind, []

    def add(self, name, *args):
        args = [argument(a) for a in args]
        self.kept.append(args)
        return getattr(lib, f"rados_{self.kind}_op_{name}")(self.handle, *args)

    def run(self, io, oid, flags=0):
        more = (None,) if self.kind == "write" else ()
        r = call(f"{self.kind}_op_operate", self.handle, io.handle, oid, *more, flags)
        call(f"release_{self.kind}_op", self.handle)
        return r


class Io(Handle):
    """A pool's context with what tests need often."""

    def text(self, oid, length=1 << 20, off=0):
        """The data as bytes, or an errno."""
        buf = C.create_string_buffer(length)
        r = self.read(oid, buf, length, off)
        return buf.raw[:r] if r >= 0 else r

    def put(self, oid, data, off=0):
        return self.write(oid, data, len(data), off)

    def attr(self, oid, name, length=1 << 20):
        buf = C.create_string_buffer(length)
        r = self.getxattr(oid, name, buf, length)
        return buf.raw[:r] if r >= 0 else r

    def set_attr(self, oid, name, value):
        return self.setxattr(oid, name, value, len(value))

    def attrs(self, oid):
        it = vp()
        r = self.getxattrs(oid, ref(it))
        return r if r < 0 else attributes(it)

    def size(self, oid):
        size, mtime = out(), out()
        r = self.stat(oid, ref(size), ref(mtime))
        return r if r < 0 else size.value

    def version(self):
        return lib.rados_get_last_version(self.handle)

    def names(self):
        """Every object as (namespace, locator, name), in listing order."""
        ctx, found = vp(), []
        assert self.nobjects_list_open(ref(ctx)) == 0
        while True:
            entry = [text(), text(), text()]
            r = call("nobjects_list_next", ctx, *map(ref, entry))
            if r == ENOENT:
                call("nobjects_list_close", ctx)
                return found
            assert r == 0, r
            found.append(tuple((e.value or b"").decode() for e in (entry[2], entry[1], entry[0])))


def attributes(it):
    found = {}
    while True:
        key, value, n = text(), vp(), size_t()
        assert call("getxattrs_next", it, ref(key), ref(value), ref(n)) == 0
        if not key.value:
            call("getxattrs_end", it)
            return found
        found[key.value] = C.string_at(value, n.value) if n.value else b""


def pairs(it):
    """What an omap iterator holds."""
    found = {}
    for _ in range(call("omap_iter_size", it)):
        key, value, kn, vn = vp(), vp(), size_t(), size_t()
        assert call("omap_get_next2", it, ref(key), ref(value), ref(kn), ref(vn)) == 0
        found[C.string_at(key, kn.value)] = C.string_at(value, vn.value) if vn.value else b""
    call("omap_get_end", it)
    return found


def arrays(items):
    """Pointers and lengths."""
    keep = [C.create_string_buffer(i, max(len(i), 1)) for i in items]
    pointers = (vp * len(items))(*[C.addressof(k) for k in keep])
    pointers.keep = keep
    return pointers, (size_t * len(items))(*map(len, items))


class Completion:
    """An asynchronous request's end."""

    def __init__(self):
        self.handle = vp()
        assert call("aio_create_completion2", None, None, ref(self.handle)) == 0

    def wait(self):
        """The result."""
        assert call("aio_wait_for_complete", self.handle) == 0
        r = call("aio_get_return_value", self.handle)
        call("aio_release", self.handle)
        return r


def connect():
    cluster = vp()
    assert call("create", ref(cluster), None) == 0
    assert call("conf_read_file", cluster, os.environ["CEPH_CONF"]) == 0
    assert call("conf_set", cluster, "rados_osd_op_timeout", "60") == 0
    assert call("connect", cluster) == 0
    return Handle(cluster)


def command(cluster, line, kind="mon_command", *where, given=b""):
    """A command's result, output and status."""
    cmd = (text * 1)(line.encode())
    buf, n, status, m = vp(), size_t(), vp(), size_t()
    r = getattr(cluster, kind)(*where, cmd, 1, given, len(given), ref(buf), ref(n), ref(status), ref(m))
    got = C.string_at(buf, n.value) if n.value else b"", C.string_at(status, m.value) if m.value else b""
    call("buffer_free", buf)
    call("buffer_free", status)
    return r, *got


class Case(unittest.TestCase):
    """Tests with a pool for their class and a namespace for each of them."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = connect()
        cls.pool = f"librados-{cls.__name__}-{os.getpid()}"
        r, _, why = command(cls.cluster, f'{{"prefix": "osd pool create", "pool": "{cls.pool}", "pg_num": 4}}')
        assert r == 0, why
        cls.cluster.wait_for_latest_osdmap()
        cls.context().application_enable("rados", 1)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.pool_delete(cls.pool)
        cls.cluster.shutdown()

    @classmethod
    def context(cls, namespace=""):
        io = vp()
        assert cls.cluster.ioctx_create(cls.pool, ref(io)) == 0
        call("ioctx_set_namespace", io, namespace)
        return Io(io)

    def setUp(self):
        self.io = self.context(self.id())

    def tearDown(self):
        self.io.ioctx_destroy()
