"""Scenarios of class cmpomap for classes_differential.py."""
from classes_differential import envelope, listed, text, u8, u32, u64

# A number of keys beyond all bounds makes an OSD of Ceph ask for more memory than there is.
UNCHANGED = ("cmp_vals", "cmp_set_vals", "cmp_rm_keys")


def values(m, numbers):
    value = lambda: m.pick(*([u64(0), u64(1), u64(2), u64(256), u64(2**64 - 1)] if numbers else [b"", b"a", b"ab", b"b", b"\xff"]))
    odd = lambda: m.pick(b"", b"short", u64(1) + b"behind")
    keys = sorted({m.pick(b"a", b"b", b"c", b"", b"\xfe") for _ in range(m.pick(0, 1, 1, 2, 3))})
    pairs = [text(key) + text(odd() if m.rng.random() < 0.1 else value()) for key in keys]
    if pairs and m.rng.random() < 0.1:
        pairs.append(pairs[0])
    return listed(pairs)


def compared(m, operator, default=True):
    """Mode, operator, values and what stands for an absent one; at times torn, or with a version of the future."""
    mode = m.pick(1, 1, 2, 2, 2, 2, 3)
    body = u8(mode) + u8(operator) + values(m, mode == 2)
    if default:
        body += m.pick(u8(0), u8(1) + text(m.pick(b"", u64(0), u64(7), b"a")), u8(1) + text(b""))
    whole = envelope(m.pick(*[1] * 19, 2), m.pick(*[1] * 19, 2), body)
    return whole[:m.rng.randrange(len(whole))] if m.rng.random() < 0.1 else whole


def methods(m):
    operator = lambda: m.pick(1, 2, 3, 4, 5, 6, 3, 4, 0, 7)
    return {
        "cmp_vals": lambda: compared(m, m.pick(1, 1, 4, 6, operator())),
        "cmp_set_vals": lambda: compared(m, operator()),
        "cmp_set_vals ": lambda: compared(m, operator()),
        "cmp_rm_keys": lambda: compared(m, operator(), default=False),
    }


def TABLE(m):
    stored = {"a": u64(1), "b": b"b", "c": m.pick(b"", b"\xff"), "d": b"other"}
    return {
        "cmpomap": ("cmpomap", stored, [], methods(m)),
        "cmpomap that is new": ("cmpomap", m.pick(None, b"data"), [], methods(m)),
    }
