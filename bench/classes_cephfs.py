"""Scenarios of class cephfs for classes_differential.py."""
from classes_differential import envelope, text, u64


def found(m, *names):
    numbers = m.pick(0, 1, 2, 3, 100), m.pick(0, 1, 4096, 1 << 22), m.pick(-1, 0, 5, 6, 2**63 - 1)
    return envelope(1, 1, b"".join(map(text, names)) + b"".join(map(u64, numbers)))


def TABLE(m):
    # One attribute for two of them: the last one counts, and what it meets is of the other kind.
    name = lambda: m.pick("ceiling", "mtime", "size", "", "a\0b", "x" * 300)
    methods = {
        "accumulate_inode_metadata": lambda: found(m, "ceiling", "mtime", "size"),
        "accumulate_inode_metadata ": lambda: found(m, name(), name(), name()),
    }
    return {
        "cephfs": ("cephfs", b"", [], methods),
        "cephfs that is new": ("cephfs", None, [], methods),
    }
