#!/usr/bin/python3
"""The same calls of object classes on two clusters: return codes, output and what the object holds afterwards must agree.

  bench/classes_differential.py --pool p --real ceph.conf --ours data/ceph.conf [--seeds 0:20] [--steps 40] [--only rbd]
  bench/classes_differential.py --pool p --real ceph.conf --record crates/classes/tests/data/calls.jsonl --seeds 0:1

A scenario is a new object and a run of calls, chosen by a seed from the table at the end, or from the table of a module beside
this one (see MODULES): mostly sensible ones, every fifth with bytes changed. Times, ids of clients and random names differ
between two clusters; they are replaced by constants, those of the in-memory object that `cargo test -p classes` replays the
recorded scenarios on. Ends with status 1 on a difference.

Use a real cluster that nobody else needs: OSDs of Ceph abort on some malformed inputs (see UNCHANGED).
"""
import argparse
import ctypes
import importlib
import json
import random
import re
import struct
import sys
import time

import rados

# What crates/classes/src/fake.rs says about time, client and randomness.
NOW_S = 1_700_000_000
CLIENT = struct.pack("<Bq", 8, 4123)
NONCE = struct.pack("<I", 4123)
UUID = b"30313233-3435-4637-b839-616263646566"

NOSNAP = 2**64 - 2
# Modules beside this one with scenarios of their own. Each has `TABLE(m)`, which gives what `own_scenarios`
# below gives, and may have `UNCHANGED`, methods, classes or kinds of scenario whose inputs stay well-formed;
# `TICKS`, when the calls' times are to be told apart; `RANDOM`, pairs of a regular expression for what only
# one cluster knows and of the constant that stands for it (in the expression's first group, or in all of it);
# `GIVEN(began)`, pairs of a constant in inputs and of what a cluster is given in its place, where it matters
# what time it is (`began`, in seconds); and `ATTRS`, constants for attributes of which only one cluster knows
# the value.
MODULES = ("classes_cephfs", "classes_cmpomap", "classes_fifo", "classes_gateway", "classes_otp", "classes_queue",
           "classes_rgw", "classes_rgw_lists")
# Seconds for which some locks are taken.
LOCK_S = 1000
# A coarse clock is behind by one of the kernel's ticks; between two calls lies more than that.
COARSE_S = 0.011
ZEROS = re.compile(rb"(\0{6,})")
KEY_TIME = re.compile(rb"(\d{11})\.(\d{9})")
ANY_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


# Encoding, after src/include/encoding.h.
def u8(v):
    return struct.pack("<B", v & 0xFF)


def u32(v):
    return struct.pack("<I", v & 0xFFFFFFFF)


def u64(v):
    return struct.pack("<Q", v & 0xFFFFFFFFFFFFFFFF)


def text(v):
    v = v.encode() if isinstance(v, str) else v
    return u32(len(v)) + v


def envelope(version, compat, body):
    return u8(version) + u8(compat) + text(body)


def utime(sec, nsec=0):
    return u32(sec) + u32(nsec)


def listed(items):
    return u32(len(items)) + b"".join(items)


def digits(raw):
    """Hexadecimal, with a run of zeros as its length in brackets."""
    return "".join("(%d)" % len(part) if i % 2 else part.hex() for i, part in enumerate(ZEROS.split(raw)))


class Raw:
    """Names of attributes and omap keys as bytes, which python3-rados takes for text."""

    def __init__(self, conf, pool):
        self.lib = ctypes.CDLL("librados.so.2")
        cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.rados_create(ctypes.byref(cluster), b"admin"))
        self.check(self.lib.rados_conf_read_file(cluster, conf.encode()))
        self.check(self.lib.rados_connect(cluster))
        self.check(self.lib.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(self.io)))
        self.lib.rados_create_read_op.restype = ctypes.c_void_p

    @staticmethod
    def check(code):
        if code < 0:
            raise OSError(-code, "librados")

    def xattrs(self, name):
        it, found = ctypes.c_void_p(), {}
        self.check(self.lib.rados_getxattrs(self.io, name.encode(), ctypes.byref(it)))
        while True:
            key, value, length = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
            self.check(self.lib.rados_getxattrs_next(it, ctypes.byref(key), ctypes.byref(value), ctypes.byref(length)))
            if not key.value:
                self.lib.rados_getxattrs_end(it)
                return found
            found[key.value] = ctypes.string_at(value, length.value) if length.value else b""

    def omap(self, name):
        op, it = ctypes.c_void_p(self.lib.rados_create_read_op()), ctypes.c_void_p()
        more, code = ctypes.c_ubyte(), ctypes.c_int()
        self.lib.rados_read_op_omap_get_vals2(
            op, b"", b"", ctypes.c_uint64(10000), ctypes.byref(it), ctypes.byref(more), ctypes.byref(code))
        self.check(self.lib.rados_read_op_operate(op, self.io, name.encode(), 0))
        found = {}
        for _ in range(self.lib.rados_omap_iter_size(it)):
            key, value = ctypes.c_void_p(), ctypes.c_void_p()
            key_len, length = ctypes.c_size_t(), ctypes.c_size_t()
            self.check(self.lib.rados_omap_get_next2(
                it, ctypes.byref(key), ctypes.byref(value), ctypes.byref(key_len), ctypes.byref(length)))
            found[ctypes.string_at(key, key_len.value)] = ctypes.string_at(value, length.value) if length.value else b""
        self.lib.rados_omap_get_end(it)
        self.lib.rados_release_read_op(op)
        return found


class Cluster:
    """One side: its scenarios' objects and the constants that stand for what only it knows."""

    def __init__(self, conf, pool):
        # An OSD that a call has killed answers no more: the call fails, instead of waiting for the OSD.
        self.rados = rados.Rados(conffile=conf, rados_id="admin", conf={"rados_osd_op_timeout": "15"})
        self.rados.connect(timeout=20)
        if not self.rados.pool_exists(pool):
            self.rados.create_pool(pool)
        self.io = self.rados.open_ioctx(pool)
        self.io.application_enable("classes", True)
        self.raw = Raw(conf, pool)
        self.began = int(time.time()) - 2
        client = self.rados.get_instance_id()
        nonce = int(self.rados.get_addrs().split("/")[-1].rstrip("]"))
        self.known = {struct.pack("<Bq", 8, client): CLIENT, struct.pack("<I", nonce): NONCE}
        self.random = [pair for module in modules() for pair in getattr(module, "RANDOM", ())]
        self.given = {CLIENT: struct.pack("<Bq", 8, client)}
        self.given.update(pair for module in modules() if hasattr(module, "GIVEN") for pair in module.GIVEN(self.began))
        self.known.update({mine: constant for constant, mine in self.given.items()})
        self.attrs = {name: value for module in modules() for name, value in getattr(module, "ATTRS", {}).items()}
        # When each call of a scenario that tells them apart ran, in nanoseconds.
        self.ran = []

    def call_at(self, sec, nsec):
        """Which call ran then; nothing for another time."""
        at = sec * 10**9 + nsec
        return next((i for i, (start, end) in enumerate(self.ran) if start <= at <= end), None)

    def constant_key(self, found):
        """A time in an omap's key."""
        sec, nsec = int(found[1]), int(found[2])
        for later in (0, LOCK_S):
            call = self.call_at(sec - later, nsec)
            if call is not None:
                return b"%011d.%09d" % (NOW_S + later, call)
        return found[0]

    def constant(self, raw):
        raw = raw or b""  # librados has nothing for an empty value
        for pattern, constant in self.random:
            for found in pattern.finditer(raw):
                self.known[found.group(1 if pattern.groups else 0)] = constant
        for mine, constant in self.known.items():
            raw = raw.replace(mine, constant)
        raw = KEY_TIME.sub(self.constant_key, ANY_UUID.sub(UUID, raw))
        out, at, until = bytearray(raw), 0, int(time.time()) + 2
        while at + 8 <= len(out):
            sec, nsec = struct.unpack_from("<II", out, at)
            # Now, or the end of a lock that was taken now.
            later = [d for d in (0, LOCK_S) if self.began + d <= sec <= until + d and nsec < 10**9]
            if later:
                out[at:at + 8] = utime(NOW_S + later[0], self.call_at(sec - later[0], nsec) or 0)
            at += 8 if later else 1
        return bytes(out)

    def call(self, name, cls, method, data, ticks):
        """Return code and output."""
        if ticks:
            time.sleep(2 * COARSE_S)
        start = time.time_ns() - int(COARSE_S * 10**9)
        for constant, mine in self.given.items():
            data = data.replace(constant, mine)
        try:
            done = self.io.execute(name, cls, method, data, 1 << 20)
            code, out = done if isinstance(done, tuple) else (0, done)
            if code == -110:
                raise SystemExit("no answer any more to %s.%s(%s)" % (cls, method, data.hex()))
        except rados.TimedOut:
            raise SystemExit("no answer any more to %s.%s(%s)" % (cls, method, data.hex()))
        except rados.Error as e:
            code, out = -e.errno, b""
        self.ran += [(start, time.time_ns())] if ticks else []
        return (code, digits(self.constant(out))) if code >= 0 else (code, "")

    def state(self, name):
        """What the object holds; nothing for one that does not exist."""
        try:
            size, _ = self.io.stat(name)
        except rados.ObjectNotFound:
            return None
        data = self.io.read(name, size) if size else b""
        attrs = {k: self.attrs.get(k, v) for k, v in self.raw.xattrs(name).items()}
        xattrs, omap = [
            {self.constant(k).hex(): digits(self.constant(v)) for k, v in sorted(found.items())}
            for found in (attrs, self.raw.omap(name))
        ]
        return {"data": digits(self.constant(data)), "xattrs": xattrs, "omap": omap}

    def remove(self, name):
        try:
            self.io.remove_object(name)
        except rados.ObjectNotFound:
            pass


class Maker:
    """Values for arguments, from small sets, so that calls meet what other calls left."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, *values):
        return self.rng.choice(values)

    def name(self):
        return text(self.pick("a", "b", "c", "", "long name with spaces", b"\xff\xfe"))

    def id(self):
        return text(self.pick("1a", "2b", "3c", "", "no id"))

    def snap(self):
        return u64(self.pick(1, 2, 3, 4, 5, NOSNAP, NOSNAP, 9, 2**64 - 1))

    def size(self):
        return u64(self.pick(0, 1, 4096, 1 << 20, 1 << 30, 2**64 - 1))

    def count(self):
        return u64(self.pick(0, 1, 2, 5, 64, 1000, 2**64 - 1))

    def bits(self):
        return u64(self.pick(0, 1, 4, 8, 0x3D, 0x3F, 0x100, 0x200, 0xFFF, 1 << 40, 2**64 - 1))

    def flag(self):
        return u8(self.pick(0, 1))

    def small(self):
        return u8(self.pick(0, 1, 2, 3, 4, 255))

    def time(self):
        return utime(self.pick(0, 10, 20, 30), self.pick(0, 5000, 999_999_999))

    def pool(self):
        return u64(self.pick(0, 1, 5, 2**64 - 1))

    def tail(self, value):
        return self.pick(b"", value)

    def parent(self):
        return envelope(1, 1, self.pool() + self.pick(text(""), text("ns")) + self.id() + self.snap())

    def namespace(self):
        kind = self.pick(0, 0, 0, 1, 2, 3, 7)
        body = {
            1: lambda: self.pool() + self.id() + self.name(),
            2: lambda: self.name() + u32(self.pick(0, 1)),
            3: lambda: self.small() + self.flag() + listed(sorted({self.id() for _ in range(2)})) + self.name()
            + self.snap() + self.size() + listed([u64(1) + u64(2)]),
        }.get(kind, lambda: b"")()
        return envelope(1, 1, u32(kind) + body)

    def child(self):
        return envelope(2, 1, self.pool() + self.id() + self.pick(text(""), text("ns")))

    def group_image(self):
        return envelope(1, 1, self.id() + self.pool())

    def group(self):
        return envelope(1, 1, self.pool() + self.id())

    def group_snap(self):
        member = envelope(1, 1, self.pool() + self.id() + self.snap())
        return envelope(1, 1, self.id() + self.name() + self.flag() + self.pick(listed([]), listed([member] * 2)))

    def trash(self):
        return envelope(2, 1, self.small() + self.name() + self.time() + self.time() + self.small())

    def migration(self):
        source = self.pick("", "", "{}")
        body = u8(self.pick(1, 2)) + self.pool() + self.name() + self.name() + self.id() + listed([u64(1) + u64(3)])
        body += self.size() + self.flag() + self.flag() + self.small() + self.name() + self.small() + text(source)
        return envelope(3, 3 if source else 1, body)

    def peer(self):
        body = self.pick(text("u1"), text("u2"), text("u3")) + self.name() + self.pick(text("client"), text(""))
        return envelope(2, 1, body + u64(-1) + self.small() + self.pick(text(""), text("m1"), text("m2")) + self.time())

    def mirror_image(self):
        return envelope(2, 1, self.id() + self.small() + self.small())

    def site_status(self):
        fields = self.small() + self.name() + self.time() + self.flag()
        return self.pick(envelope(1, 1, fields), envelope(2, 2, self.pick(text("m1"), text("m2")) + fields))

    def positions(self):
        at = [envelope(1, 1, u64(i) + u64(self.pick(0, 1, 2, 3)) + u64(self.pick(1, 7))) for i in range(self.pick(0, 1, 2, 5))]
        return envelope(1, 1, listed(at))

    def bit_vector(self, count=None):
        """An object map with checksums."""
        count = self.pick(0, 1, 5, 40, 20_000) if count is None else count
        data = bytes(self.rng.randrange(256) for _ in range((count + 3) // 4))
        header = envelope(1, 1, u64(count))
        blocks = [u32(crc32c(data[i:i + 4096])) for i in range(0, len(data), 4096)]
        footer = self.pick(b"", u32(crc32c(header)) + listed(blocks), u32(crc32c(header)) + listed(blocks))
        return text(header) + data + text(footer)

    def log_entry(self):
        return envelope(2, 1, self.name() + self.name() + self.time() + self.name() + text(self.pick("1_a", "1_b", "2_c")))

    def bucket(self):
        name = self.pick(text("a"), text("b"), text("c"), text(""))
        if self.rng.random() < 0.5:
            return envelope(9, 8, name + self.id() + self.id() + text("rule"))
        return envelope(7, 3, name + self.name() + self.id() + self.id() + self.name() + self.name())

    def bucket_entry(self):
        when = self.time()
        body = text("") + self.size() + when[:4] + self.count() + self.bucket() + self.size() + self.flag() + when
        return envelope(9, 5, body)

    def lock(self, *more):
        return text(self.pick("l", "l", "m", "")) + b"".join(more)

    def changed(self, data):
        """Mutated: a byte, a cut, a number that is too large, bytes behind."""
        data = bytearray(data)
        at = self.rng.randrange(len(data) + 1)
        how = self.rng.randrange(4)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << self.rng.randrange(8)
        elif how == 1:
            del data[at:]
        elif how == 2:
            data[at:at + 4] = u32(self.pick(0, 1, 0x7FFFFFFF, 0xFFFFFFFF))
        else:
            data += bytes(self.rng.randrange(256) for _ in range(self.rng.randrange(1, 20)))
        return bytes(data)


def table_of_crc():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC = table_of_crc()


def crc32c(data, crc=0):
    for b in data:
        crc = (crc >> 8) ^ CRC[(crc ^ b) & 0xFF]
    return crc


def old_header():
    """The header of an image of the first format, with one snapshot."""
    head = b"<<< Rados Block Device Image >>>\n".ljust(40, b"\0") + b"rb.0.1.1".ljust(24, b"\0") + b"RBD\x00001.005\x00"
    head += bytes([22, 0, 0, 0]) + u64(1 << 30) + u64(3) + u32(1) + u32(0) + u64(5)
    return head + u64(3) + u64(1 << 20) + b"old1\0"


# Inputs that stay well-formed: a vector that claims a huge size aborts an OSD of Ceph, a grain of 0 holds it in a loop.
UNCHANGED = (
    "object_map_save", "object_map_snap_remove", "mirror_image_status_get_summary", "group_snap_set", "group_snap_list",
    "sparsify",
)


def modules():
    return [importlib.import_module(name) for name in MODULES]


def unchanged():
    return {*UNCHANGED, *(name for module in modules() for name in getattr(module, "UNCHANGED", ()))}


def snap_key(snap_id):
    return "snapshot_%016x" % snap_id


def header_omap(**more):
    """The omap of an image's header."""
    omap = {
        "size": u64(1 << 30), "order": u8(22), "features": u64(0x1D), "object_prefix": text("rbd_data.1"), "snap_seq": u64(3),
    }
    return {**omap, **more}


def aged_image(m):
    """A clone with snapshots as releases before Nautilus stored them: each holds the parent itself.

    All of one version: where they differ, Ceph fills what an old one lacks with what the snapshot before it had.
    """
    version = m.pick(*range(1, 8))
    parent = envelope(1, 1, u64(m.pick(2, 2, -1)) + text("p1") + u64(7) + u64(m.pick(4096, 1 << 20)))
    omap = header_omap(features=u64(m.pick(0x1, 0x21)), **m.pick({}, {"parent": parent}))
    for snap_id in (1, 2, 3):
        fields = [m.pick(parent, parent, envelope(1, 1, u64(-1) + text("") + u64(NOSNAP) + u64(0))), u8(m.pick(0, 1, 2)),
                  u64(m.pick(0, 1)), m.namespace(), m.time(), u32(m.pick(0, 1))]
        body = u64(snap_id) + m.name() + u64(1 << 20) + u64(1) + b"".join(fields[:version - 1])
        omap[snap_key(snap_id)] = envelope(version, 1, body)
    return omap


def large_image(m):
    """More snapshots and metadata than one look into the omap brings."""
    omap = header_omap(snap_seq=u64(130))
    for i in range(1, 131):
        body = u64(i) + text("s%d" % i) + u64(1 << 20) + u8(0) + u64(0) + envelope(1, 1, u32(0)) + utime(0) + u32(0) + u8(0)
        omap[snap_key(i)] = envelope(8, 8, body)
        omap["metadata_key%03d" % i] = b"%d" % i
    return omap


def large_directory(_):
    names = {"name_n%03d" % i: text("%dx" % i) for i in range(150)}
    return {**names, **{"id_%dx" % i: text("n%03d" % i) for i in range(150)}}


def large_mirroring(_):
    omap = {"mirror_uuid": b"here", "mirror_mode": u32(1)}
    for i in range(130):
        omap["image_%03d" % i] = envelope(2, 1, text("g%03d" % i) + u8(1) + u8(0))
        omap["global_g%03d" % i] = text("%03d" % i)
        omap["instance_%03d" % i] = b""
        omap["image_map_g%03d" % i] = envelope(1, 1, text("here") + utime(1) + text("d"))
    return omap


# Kind of object -> (class, data or omap before the first call, first calls, methods with a maker of their input).
# A method without a maker takes nothing.
NONE = None


def image_methods(m):
    listing = lambda: m.name() + m.count()
    return {
        "create": lambda: m.size() + u8(m.pick(12, 22)) + m.bits() + text("rbd_data.1") + m.tail(u64(m.pick(-1, 3))),
        "get_features": lambda: m.snap() + m.tail(m.flag()),
        "set_features": lambda: m.bits() + m.bits(),
        "get_size": m.snap, "set_size": m.size, "get_snapcontext": NONE, "get_object_prefix": NONE, "get_data_pool": NONE,
        "get_snapshot_name": m.snap, "get_snapshot_timestamp": m.snap, "snapshot_get": m.snap,
        "snapshot_add": lambda: m.name() + m.snap() + m.tail(m.namespace()),
        "snapshot_add ": lambda: m.name() + u64(m.pick(1, 2, 3, 4, 5)) + m.tail(m.namespace()),
        "snapshot_remove": m.snap, "snapshot_rename": lambda: m.snap() + m.name(), "snapshot_trash_add": m.snap,
        "get_all_features": NONE, "get_parent": m.snap,
        "set_parent": lambda: m.pool() + m.id() + m.snap() + m.size(), "remove_parent": NONE,
        "parent_get": NONE, "parent_overlap_get": m.snap,
        "parent_attach": lambda: m.parent() + m.size() + m.tail(m.flag()), "parent_detach": NONE,
        "set_protection_status": lambda: m.snap() + m.small(), "get_protection_status": m.snap,
        "get_stripe_unit_count": NONE, "set_stripe_unit_count": lambda: m.size() + m.size(),
        "get_create_timestamp": NONE, "get_access_timestamp": NONE, "get_modify_timestamp": NONE,
        "set_modify_timestamp": NONE, "set_access_timestamp": NONE,
        "get_flags": m.snap, "set_flags": lambda: m.bits() + m.bits() + m.tail(m.snap()),
        "op_features_get": NONE, "op_features_set": lambda: u64(m.pick(0, 1, 7, 15)) + u64(m.pick(1, 7, 15, 99)),
        "metadata_list": listing, "metadata_set": lambda: listed([m.name() + m.name()]),
        "metadata_remove": m.name, "metadata_get": m.name,
        "snapshot_get_limit": NONE, "snapshot_set_limit": m.count,
        "child_attach": lambda: m.snap() + m.child(), "child_detach": lambda: m.snap() + m.child(),
        "children_list": m.snap,
        "migration_set": m.migration, "migration_set_state": lambda: m.small() + m.name(), "migration_get": NONE,
        "migration_remove": NONE,
        "image_group_add": m.group, "image_group_remove": m.group, "image_group_get": NONE,
        "mirror_image_snapshot_unlink_peer": lambda: m.snap() + m.id(),
        "mirror_image_snapshot_set_copy_progress": lambda: m.snap() + m.flag() + m.size(),
    }


def tables():
    """Name, makers of scenarios, and whether calls' times differ, of this file's table and of each module's."""
    yield __name__, own_scenarios, False
    for module in modules():
        yield module.__name__, module.TABLE, getattr(module, "TICKS", False)


def own_scenarios(m):
    """Kinds of scenario by name."""
    listing = lambda: m.name() + m.count()
    pair = lambda: m.name() + m.id()
    parent = lambda: u64(m.pick(1, 2)) + m.id() + u64(m.pick(1, 2))
    features = m.pick(0x3D, 0x3D, 0x1, 0x3F, 0x23D)
    header = u64(1 << 30) + u8(22) + u64(features) + text("rbd_data.1")
    locked = lambda *more: envelope(1, 1, m.lock(*more))
    cookie = lambda: text(m.pick("c1", "c2"))
    kind = lambda: u8(m.pick(1, 2, 2, 3, 9))
    hobject = lambda: envelope(4, 3, text("") + text(m.pick("o1", "o2")) + u64(NOSNAP) + u32(7) + u8(0) + text("") + u64(3))
    return {
        "image": ("rbd", None, [("create", header)], image_methods(m)),
        "aged image": ("rbd", aged_image(m), [], image_methods(m)),
        "large image": ("rbd", large_image(m), [], {
            "get_snapcontext": NONE, "metadata_list": lambda: text(m.pick("", "key050", "z")) + m.count(),
            "snapshot_add": lambda: text(m.pick("new", "s99")) + u64(m.pick(99, 130, 131, 132)),
            "snapshot_rename": lambda: u64(m.pick(3, 100)) + text(m.pick("s120", "other")),
            "snapshot_set_limit": lambda: u64(m.pick(100, 131, 2**64 - 1)), "snapshot_remove": lambda: u64(m.pick(3, 100)),
            "parent_get": NONE,
        }),
        "large directory": ("rbd", large_directory(m), [], {
            "dir_list": lambda: text(m.pick("", "n", "n075", "z")) + m.count(), "dir_state_set": m.small,
            "dir_add_image": pair,
            "namespace_list": lambda: text(m.pick("", "n075")) + m.count(),
        }),
        "large mirroring": ("rbd", large_mirroring(m), [], {
            "mirror_image_list": lambda: text(m.pick("", "075")) + m.count(),
            "mirror_image_status_list": lambda: text(m.pick("", "075")) + m.count(), "mirror_instances_list": NONE,
            "mirror_image_map_list": lambda: text(m.pick("", "g075")) + m.count(),
            "mirror_image_status_set": lambda: text("g%03d" % m.pick(1, 70, 129)) + m.site_status(),
            "mirror_image_status_get_summary": NONE, "mirror_image_status_remove_down": NONE,
        }),
        "image without header": ("rbd", b"", [], image_methods(m)),
        "old image": ("rbd", old_header(), [], {
            "snap_list": NONE, "snap_add": lambda: m.name() + u64(m.pick(1, 3, 4, 5, 6)), "snap_remove": m.name,
            "snap_rename": lambda: u64(m.pick(3, 4, 5, 6)) + m.name(), "snapshot_set_limit": m.count,
            "snapshot_get_limit": NONE, "migration_set": m.migration, "migration_get": NONE,
            "migration_set_state": lambda: m.small() + m.name(), "migration_remove": NONE,
        }),
        "id": ("rbd", b"", [], {"set_id": m.id, "get_id": NONE}),
        "no id": ("rbd", None, [], {"set_id": m.id, "get_id": NONE}),
        "directory": ("rbd", None, [], {
            "dir_get_id": m.name, "dir_get_name": m.id, "dir_list": listing, "dir_add_image": pair,
            "dir_remove_image": pair, "dir_rename_image": lambda: m.name() + m.name() + m.id(),
            "dir_state_assert": m.flag, "dir_state_set": m.small,
        }),
        "group directory": ("rbd", None, [], {
            "group_dir_list": listing, "group_dir_add": pair, "group_dir_remove": pair,
            "group_dir_rename": lambda: m.name() + m.name() + m.id(),
        }),
        "children": ("rbd", None, [], {
            "add_child": lambda: parent() + m.id(), "remove_child": lambda: parent() + m.id(), "get_children": parent,
        }),
        "group": ("rbd", None, [], {
            "group_image_set": lambda: envelope(1, 1, m.group_image() + m.flag()), "group_image_remove": m.group_image,
            "group_image_list": lambda: m.group_image() + m.count(),
            "group_snap_set": m.group_snap, "group_snap_remove": m.id, "group_snap_get_by_id": m.id,
            "group_snap_list": lambda: m.group_snap() + m.count(),
        }),
        "trash": ("rbd", None, [], {
            "trash_add": lambda: m.id() + m.trash(), "trash_remove": m.id, "trash_list": listing, "trash_get": m.id,
            "trash_state_set": lambda: m.id() + m.small() + m.small(),
        }),
        "namespace": ("rbd", None, [], {"namespace_add": m.name, "namespace_remove": m.name, "namespace_list": listing}),
        "object map": ("rbd", None, [], {
            "object_map_load": NONE, "object_map_save": m.bit_vector,
            "object_map_resize": lambda: u64(m.pick(0, 3, 40, 17_000, 40_000, 2**60)) + m.small(),
            "object_map_update": lambda: u64(m.pick(0, 1, 30)) + u64(m.pick(1, 2, 39, 16_390)) + m.small()
            + m.pick(u8(0), u8(1) + m.small()),
            "object_map_snap_add": NONE, "object_map_snap_remove": m.bit_vector,
        }),
        "data": ("rbd", m.pick(None, b"", b"x", bytes(9000), b"a" + bytes(9000) + b"b"), [], {
            "copyup": lambda: m.pick(b"", b"parent's"),
            "sparse_copyup": lambda: m.pick(listed([]) + text(""), listed([u64(4) + u64(2), u64(9) + u64(3)]) + text("abcde")),
            "assert_snapc_seq": lambda: u64(m.pick(0, 1, 9)) + m.small(),
            "sparsify": lambda: u64(m.pick(1, 512, 4096, 1 << 40)) + m.flag(),
        }),
        "mirroring": ("rbd", None, [("mirror_uuid_set", text("here")), ("mirror_mode_set", u32(2))], {
            "mirror_uuid_get": NONE, "mirror_uuid_set": m.name, "mirror_mode_get": NONE,
            "mirror_mode_set": lambda: u32(m.pick(0, 1, 2, 3)),
            "mirror_peer_ping": lambda: m.name() + text(m.pick("", "m1", "m2")) + u8(m.pick(1, 1, 0)),
            "mirror_peer_list": NONE, "mirror_peer_add": m.peer, "mirror_peer_remove": lambda: text(m.pick("u1", "u2")),
            "mirror_peer_set_client": lambda: text(m.pick("u1", "u2")) + m.name(),
            "mirror_peer_set_cluster": lambda: text(m.pick("u1", "u2")) + m.name(),
            "mirror_peer_set_direction": lambda: text(m.pick("u1", "u2")) + m.small(),
            "mirror_image_list": listing, "mirror_image_get_image_id": m.id, "mirror_image_get": m.id,
            "mirror_image_set": lambda: m.id() + m.mirror_image(),
            "mirror_image_set ": lambda: text("1a") + envelope(2, 1, text("2b") + u8(1) + u8(0)),
            "mirror_image_remove": m.id,
            "mirror_image_status_set": lambda: m.id() + m.site_status(), "mirror_image_status_remove": m.id,
            "mirror_image_status_get": m.id, "mirror_image_status_list": listing,
            "mirror_image_status_get_summary": lambda: m.tail(listed([m.peer(), m.peer()])),
            "mirror_image_status_remove_down": NONE, "mirror_image_instance_get": m.id,
            "mirror_image_instance_list": listing, "mirror_instances_list": NONE, "mirror_instances_add": m.name,
            "mirror_instances_remove": m.name, "mirror_image_map_list": listing,
            "mirror_image_map_update": lambda: m.id() + envelope(1, 1, m.id() + m.time() + m.name()),
            "mirror_image_map_remove": m.id,
        }),
        "journal": ("journal", None, [("create", u8(24) + u8(4) + u64(-1))], {
            "create": lambda: u8(24) + u8(4) + u64(-1), "get_order": NONE, "get_splay_width": NONE, "get_pool_id": NONE,
            "get_minimum_set": NONE, "set_minimum_set": lambda: u64(m.pick(0, 1, 2, 3)), "get_active_set": NONE,
            "set_active_set": lambda: u64(m.pick(0, 1, 2, 3)), "get_client": m.id,
            "client_register": lambda: m.id() + m.name(), "client_update_data": lambda: m.id() + m.name(),
            "client_update_state": lambda: m.id() + m.flag(), "client_unregister": m.id,
            "client_commit": lambda: m.id() + m.positions(), "client_list": lambda: m.id() + m.count(),
            "get_next_tag_tid": NONE, "get_tag": lambda: u64(m.pick(0, 1, 2, 3)),
            "tag_create": lambda: u64(m.pick(0, 1, 2, 3, 4, 5)) + u64(m.pick(-1, 0, 1)) + m.name(),
            "tag_list": lambda: u64(m.pick(0, 1, 2)) + m.count() + m.id() + m.pick(u8(0), u8(1) + u64(m.pick(0, 1))),
        }),
        "journal data": ("journal", None, [], {
            "guard_append": lambda: u64(m.pick(0, 8, 100)), "append": lambda: u64(m.pick(0, 8, 100)) + m.name(),
        }),
        "lock": ("lock", None, [], {
            "lock": lambda: locked(kind(), cookie(), text("t"), m.name(), utime(m.pick(0, LOCK_S)), u8(m.pick(0, 1, 2, 3))),
            "unlock": lambda: locked(cookie()), "break_lock": lambda: locked(u8(8) + u64(m.pick(1, 2)), cookie()),
            "get_info": locked, "list_locks": NONE, "assert_locked": lambda: locked(kind(), cookie(), text("t")),
            "set_cookie": lambda: locked(kind(), cookie(), text("t"), cookie()),
        }),
        "log": ("log", None, [], {
            "add": lambda: envelope(2, 1, listed([m.log_entry(), m.log_entry()]) + m.flag()),
            "list": lambda: envelope(1, 1, m.time() + text(m.pick("", "1_a")) + m.time() + u32(m.pick(0, 1, -1, 5))),
            "trim": lambda: envelope(2, 1, m.time() + m.time() + text(m.pick("", "1_a")) + text(m.pick("", "1_a"))),
            "info": lambda: envelope(1, 1, b""),
        }),
        # An empty end of a key makes Ceph's listing return what its stack held.
        "timeindex": ("timeindex", None, [], {
            "add": lambda: envelope(1, 1, listed([envelope(1, 1, m.time() + text(m.pick("1a", "2b")) + m.name())])),
            "list": lambda: envelope(1, 1, m.time() + text(m.pick("", "1_0000000010.000005_1a")) + m.time() + u32(m.pick(0, 1, 5))),
            "trim": lambda: envelope(1, 1, m.time() + m.time() + text("") + text("")),
        }),
        "user": ("user", None, [], {
            "set_buckets_info": lambda: envelope(1, 1, listed([m.bucket_entry()]) + m.flag() + m.time()),
            "complete_stats_sync": lambda: envelope(1, 1, m.time()),
            "remove_bucket": lambda: envelope(1, 1, m.bucket()),
            "list_buckets": lambda: envelope(2, 1, text(m.pick("", "a")) + u32(m.pick(1, 5, -1)) + text(m.pick("", "c"))),
            "get_header": lambda: envelope(1, 1, b""), "reset_user_stats": lambda: envelope(1, 1, m.time()),
        }),
        "cas": ("cas", None, [], {
            "chunk_create_or_get_ref": lambda: envelope(1, 1, hobject() + u64(m.pick(0, 1)) + text(m.pick("x", "y"))),
            "chunk_get_ref": lambda: envelope(1, 1, hobject()), "chunk_put_ref": lambda: envelope(1, 1, hobject()),
        }),
        "refcount": ("refcount", b"x", [], {
            "get": lambda: envelope(1, 1, m.name() + m.flag()), "put": lambda: envelope(1, 1, m.name() + m.flag()),
            "set": lambda: envelope(1, 1, listed([m.name(), m.name()])), "read": lambda: envelope(1, 1, m.flag()),
        }),
        "version": ("version", None, [("set", envelope(1, 1, envelope(1, 1, u64(7) + text("t"))))], {
            "set": lambda: envelope(1, 1, envelope(1, 1, u64(m.pick(1, 7)) + text("t"))),
            **{name: lambda: envelope(1, 1, envelope(1, 1, u64(0) + text("")) + listed([envelope(
                1, 1, envelope(1, 1, u64(m.pick(6, 7, 8)) + text(m.pick("t", "u"))) + u32(m.pick(*range(9))))]))
               for name in ("inc", "inc_conds", "check_conds")},
            "read": NONE,
        }),
        "numops": ("numops", None, [], {
            name: lambda: text(m.pick("k", "l")) + text(m.pick("1", "-2.5", "", "x", "1e3")) for name in ("add", "mul")
        }),
        "hello": ("hello", b"", [], {
            "say_hello": lambda: m.pick(b"", b"Tester", b"x" * 101), "record_hello": lambda: b"Tester", "replay": NONE,
        }),
    }


def named(cls, method):
    """Class and method: `method` may name a class of its own, as in `log.add`, and have spaces, which tell makers apart."""
    own, _, method = method.strip().rpartition(".")
    return own or cls, method


def scenario(kind, seed, steps):
    """Data or omap of the object, calls (class, method, input), before which of them the client watches the object, and
    whether the calls' times differ."""
    table, ticks = next((table, ticks) for _, table, ticks in tables() if kind in table(Maker(0)))
    m = Maker("%s %d" % (kind, seed))
    cls, data, first, methods = table(m)[kind]
    calls = [(*named(cls, method), arg) for method, arg in first]
    well_formed = unchanged()
    for _ in range(steps):
        method = m.rng.choice(sorted(methods))
        make = methods[method]
        arg = make() if make else b""
        if m.rng.random() < 0.2 and well_formed.isdisjoint((kind, cls, method.strip())):
            arg = m.changed(arg)
        calls.append((*named(cls, method), arg))
    return data, calls, len(first) if "mirroring" in kind else None, ticks


def run(cluster, name, data, calls, watch_at, ticks, every_step):
    """Results of the calls, each with the object's state behind it when asked for."""
    cluster.remove(name)
    cluster.ran = []
    if isinstance(data, dict):
        with rados.WriteOpCtx() as op:
            cluster.io.set_omap(op, tuple(data), tuple(data.values()))
            cluster.io.operate_write_op(op, name)
    elif data is not None:
        cluster.io.write_full(name, data)
    results, watch = [], None
    for i, (cls, method, arg) in enumerate(calls):
        if i == watch_at:
            watch = cluster.io.watch(name, lambda *_: None)
        code, out = cluster.call(name, cls, method, arg, ticks)
        results.append((code, out, cluster.state(name) if every_step else None))
    end = cluster.state(name)
    if watch:
        watch.close()
    cluster.remove(name)
    return results, end


def compare(kind, seed, sides, args):
    data, calls, watch_at, ticks = scenario(kind, seed, args.steps)
    (theirs, _), (ours, _) = [run(s, "%s.%d" % (kind, seed), data, calls, watch_at, ticks, True) for s in sides]
    differences = 0
    for (cls, method, arg), a, b in zip(calls, theirs, ours):
        if a != b:
            differences += 1
            print("%s, seed %d: %s.%s(%s)\n  real %s\n  ours %s" % (kind, seed, cls, method, arg.hex(), a, b))
            if a[2] != b[2]:
                # Everything behind it would differ too.
                break
            sys.stdout.flush()
    return len(calls), differences


def record(kind, seed, cluster, args):
    data, calls, watch_at, ticks = scenario(kind, seed, args.steps)
    results, end = run(cluster, "%s.%d" % (kind, seed), data, calls, watch_at, ticks, False)
    steps = [[c, m, digits(arg), code, out] for (c, m, arg), (code, out, _) in zip(calls, results)]
    omap = {k.encode().hex(): digits(v) for k, v in data.items()} if isinstance(data, dict) else None
    data = digits(data) if isinstance(data, bytes) else None
    return {"kind": kind, "data": data, "omap": omap, "watch_at": watch_at, "ticks": ticks, "calls": steps, "end": end}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--real", required=True)
    p.add_argument("--ours")
    p.add_argument("--pool", required=True)
    p.add_argument("--seeds", default="0:10")
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--only", help="kinds that hold this text, or all of the module of this name")
    p.add_argument("--record", help="write what the real cluster answers to this file")
    args = p.parse_args()
    first, last = map(int, args.seeds.split(":"))
    every = [(kind, name) for name, table, _ in tables() for kind in table(Maker(0))]
    text_in = (lambda kind, name: name == args.only) if args.only in MODULES else (lambda kind, _: (args.only or "") in kind)
    kinds = [kind for kind, name in every if text_in(kind, name)]
    real = Cluster(args.real, args.pool)
    if args.record:
        with open(args.record, "w") as f:
            for kind in kinds:
                for seed in range(first, last):
                    f.write(json.dumps(record(kind, seed, real, args), separators=(",", ":")) + "\n")
        return 0
    sides = (real, Cluster(args.ours, args.pool))
    calls = differences = 0
    for kind in kinds:
        for seed in range(first, last):
            n, d = compare(kind, seed, sides, args)
            calls, differences = calls + n, differences + d
    print("%d calls, %d differences" % (calls, differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
