"""Scenarios of class fifo for classes_differential.py: the header of a queue, and a part of it."""
import re

from classes_differential import NONE, envelope, listed, text, u8, u32, u64

# Bytes that the header of a part takes, and those in front of each entry. Source: src/cls/fifo/cls_fifo.cc.
PART_HEADER = 512
OVERHEAD = 58

# Times aside, a cluster makes up an instance, the end of a prefix and the number that marks a part's entries.
RANDOM = (
    (re.compile(rb"\x01\x01\x1b\0\0\0\x0f\0\0\0([A-Za-z0-9+/]{15})"), b"wxyz012345hijkl"),
    (re.compile(rb"\x01\x01\x1c\0\0\0\x10\0\0\0([A-Za-z0-9+/]{16})"), b"wxyz012345hijklm"),
    (re.compile(rb"made up\.([A-Za-z0-9+/]{11})"), b"klmMMMMNNNN"),
    (re.compile(rb"\0\0\0\0\x01\x01\x18\0\0\0.{24}(.{8})", re.S), b"01234567"),
)
# A number of entries beyond all bounds makes an OSD of Ceph ask for more memory than there is.
UNCHANGED = ("update_meta", "push_part")


def version(m):
    return envelope(1, 1, text(m.pick("first", "first", "first", "", "second")) + u64(m.pick(*range(1, 7))))


def maybe(m, value):
    return m.pick(u8(0), u8(1) + value)


def journal(m):
    """Entries of the kinds that there are: an OSD of Ceph aborts when it is to store another one."""
    entry = lambda: envelope(1, 1, u32(m.pick(1, 2, 3)) + u64(m.pick(0, 1, 2, 3)) + text(m.pick("", "tag")))
    return listed([entry() for _ in range(m.pick(0, 0, 1, 2))])


def params(m):
    """Sizes of a part; small ones, so that it fills."""
    return envelope(1, 1, m.pick(u64(2000) + u64(500) + u64(2000 - 500 - OVERHEAD), u64(1 << 20) + u64(1 << 16) + u64(1 << 19)))


def create_meta(m, name="q", told=None):
    known = told if told is not None else m.pick(u8(0), u8(1) + version(m))
    prefix = m.pick(u8(0), u8(1) + text("prefix")) if told is None else u8(0)
    sizes = m.pick(u64(4096) + u64(1024), u64(4096) + u64(1024), u64(0) + u64(0), u64(100) + u64(200), u64(100) + u64(100))
    return envelope(1, 1, text(name) + known + text("pool") + text("ns") + prefix + sizes + m.flag())


def push(m):
    bufs = [m.pick(b"", b"a", b"entry", b"x" * 300, b"y" * 700) for _ in range(m.pick(0, 1, 1, 2, 3, 5))]
    total = sum(map(len, bufs)) + m.pick(0, 0, 0, 0, 1)
    return envelope(1, 1, text(m.pick("", "tag")) + listed([text(b) for b in bufs]) + u64(total))


def offset(m):
    return u64(m.pick(0, 0, PART_HEADER, PART_HEADER, PART_HEADER + OVERHEAD + 5, PART_HEADER + 1, 1000, 1 << 20, 2**64 - 1))


def part_methods(m):
    tag = lambda: m.pick(u8(0), u8(1) + text("tag"))
    return {
        "init_part": lambda: envelope(1, 1, text(m.pick("", "tag")) + params(m)),
        "push_part": lambda: push(m),
        "push_part ": lambda: push(m),
        "push_part  ": lambda: push(m),
        "trim_part": lambda: envelope(1, 1, tag() + offset(m) + m.flag()),
        "part_list": lambda: envelope(1, 1, tag() + offset(m) + u32(m.pick(0, 1, 2, 100, 513, -1))),
        "part_list ": lambda: envelope(1, 1, tag() + offset(m) + u32(100)),
        "get_part_info": lambda: envelope(1, 1, b""),
    }


def part(m):
    """The first call of most scenarios makes the part."""
    return m.pick([("init_part", envelope(1, 1, text("tag") + params(m)))] * 1, [])


def TABLE(m):
    meta = {
        "create_meta": lambda: create_meta(m, m.pick("q", "q", "", "other")),
        "get_meta": lambda: envelope(1, 1, m.pick(u8(0), u8(0), u8(1) + version(m))),
        **{"update_meta" + " " * i: lambda: envelope(1, 1, version(m) + b"".join(
            maybe(m, u64(m.pick(0, 1, 2, -1))) for _ in range(4)) + journal(m) + journal(m)) for i in range(4)},
    }
    first = envelope(1, 1, text("q") + u8(1) + envelope(1, 1, text("first") + u64(1)) + text("") * 2 + u8(1) + text("prefix")
                     + u64(4096) + u64(1024) + u8(1))
    unknown = envelope(1, 1, text("made up") + u8(0) + text("") * 2 + u8(0) + u64(4096) + u64(1024) + u8(0))
    nameless = envelope(1, 1, text("made up") + u8(1) + envelope(1, 1, text("") + u64(3)) + text("") * 2 + u8(0) + u64(4096)
                        + u64(1024) + u8(0))
    return {
        "fifo": ("fifo", None, [("create_meta", first)], meta),
        "fifo that is new": ("fifo", m.pick(None, b"", b"no header"), [], meta),
        "fifo that is made up": ("fifo", None, [("create_meta", m.pick(unknown, nameless))], {
            "get_meta": lambda: envelope(1, 1, u8(0)), "create_meta": lambda: unknown,
        }),
        "fifo part": ("fifo", None, part(m), part_methods(m)),
        "fifo part that is new": ("fifo", m.pick(None, b"", b"no header", bytes(600)), [], part_methods(m)),
    }
