"""The few functions that only the C++ interface of librados 16.2 has, called by their names as the linker knows them.

Layouts: a text of libstdc++ is a pointer, a length and 16 bytes; a vector is the pointers begin, end and end of storage; an
`IoCtx` is what `rados_ioctx_t` points to; an operation is a table of functions and its implementation.
"""
import ctypes as C

from support import lib, ref, u64, vp

TEXT = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
SPACE = "_ZN8librados7v14_2_0"


class String(C.Structure):
    _fields_ = [("data", C.c_char_p), ("length", u64), ("local", u64 * 2)]

    def __init__(self, value):
        super().__init__(value.encode(), len(value.encode()))


class Vector(C.Structure):
    _fields_ = [("begin", u64), ("end", u64), ("room", u64)]

    def words(self):
        return (u64 * ((self.end - self.begin) // 8)).from_address(self.begin) if self.end > self.begin else []


class Clone(C.Structure):
    _fields_ = [("id", u64), ("snaps", Vector), ("overlap", Vector), ("size", u64)]


class SnapSet(C.Structure):
    _fields_ = [("clones", Vector), ("seq", u64)]


class Operation(C.Structure):
    _fields_ = [("functions", vp), ("implementation", vp)]


def list_snaps(io, oid):
    """The result, and (id, snapshots, (offset, length) of what it shares with the next, size) of each clone and the head."""
    found = SnapSet()
    r = lib[f"{SPACE}5IoCtx10list_snapsE{TEXT}PNS_10snap_set_tE"](ref(io.handle), ref(String(oid)), ref(found))
    count = (found.clones.end - found.clones.begin) // C.sizeof(Clone)
    clones = (Clone * count).from_address(found.clones.begin) if count else []

    def pairs(words):
        return list(zip(words[::2], words[1::2]))
    return r, [(c.id, list(c.snaps.words()), pairs(list(c.overlap.words())), c.size) for c in clones]


def copy_from(io, oid, source, version):
    """Makes an object a copy of another of the same pool; a version other than 0 must be the source's."""
    op = Operation()
    lib[f"{SPACE}15ObjectOperationC1Ev"](ref(op))
    lib[f"{SPACE}20ObjectWriteOperation9copy_fromE{TEXT}RKNS0_5IoCtxEmj"](
        ref(op), ref(String(source)), ref(io.handle), u64(version), C.c_uint(0))
    return lib[f"{SPACE}5IoCtx7operateE{TEXT}PNS0_20ObjectWriteOperationE"](ref(io.handle), ref(String(oid)), ref(op))
