"""Scenarios of class otp for classes_differential.py: devices whose steps are long, so that the same one lasts for a run."""
from classes_differential import NOW_S, envelope, listed, text, u8, u32

STEP_S = 1_000_000
# Steps are counted from here: now is in the middle of the step with number 5. The next is a step later.
OFFSETS = (NOW_S - 5 * STEP_S - STEP_S // 2, NOW_S - 4 * STEP_S - STEP_S // 2)
# Passwords of the secret of RFC 4226 for the counters 0 to 9.
SECRET = "3132333435363738393031323334353637383930"
PASSWORDS = ("755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489")


def GIVEN(began):
    return [(u32(offset), u32(offset - NOW_S + began)) for offset in OFFSETS]


def device(m):
    seed, kind = m.pick(
        (SECRET, 1), (SECRET, 1), (SECRET, 1), ("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", 2), ("gezd gnbv gy3t qojq gezd gnbv gy3t qojq", 2),
        (SECRET, 0), (SECRET, 9), ("", 1), ("", 2), ("123", 1), ("12 3", 1), ("xy", 1), ("41\0zz", 1), ("GE", 2), ("GEZ", 2), ("GE1=", 2),
        ("GE======", 2), ("GF==", 2), ("A\0", 2))
    secret = m.pick(b"", b"", b"ignored")
    times = u32(m.pick(*OFFSETS)) + u32(STEP_S) + u32(m.pick(0, 1, 2, 2, 3))
    return envelope(1, 1, u8(m.pick(2, 2, 1, 0)) + name(m) + text(seed) + u8(kind) + text(secret) + times)


def name(m):
    return text(m.pick("d1", "d1", "d2", "", "d\xff"))


def password(m):
    return text(m.pick(*PASSWORDS[2:8], "84254676", "68254676", "8254676", "54676", "254676\0x", "", "letter", "254676 "))


def methods(m):
    asked = lambda: envelope(1, 1, name(m) + password(m) + text(m.pick("t1", "t2", "t3", "")))
    return {
        "otp_set": lambda: envelope(1, 1, listed([device(m) for _ in range(m.pick(0, 1, 1, 1, 2))])),
        "otp_get": lambda: envelope(1, 1, m.flag() + listed([name(m) for _ in range(m.pick(0, 1, 3))])),
        "otp_check": asked, "otp_check ": asked, "otp_check  ": asked,
        "otp_get_result": asked,
        "get_current_time": lambda: m.pick(envelope(1, 1, b""), envelope(3, 1, b"more"), envelope(2, 2, b""), b"\x01"),
        "otp_remove": lambda: envelope(1, 1, listed([name(m) for _ in range(m.pick(0, 1, 2))])),
    }


def TABLE(m):
    good = [envelope(1, 1, u8(2) + text(id) + text(SECRET) + u8(1) + text("") + u32(offset) + u32(STEP_S) + u32(m.pick(0, 1, 2)))
            for id, offset in zip(("d1", "d2"), OFFSETS)]
    every = methods(m)
    few = {name: every[name] for name in every if name.strip() not in ("otp_set", "otp_remove")}
    torn = {"header": m.pick(b"", b"\x01\x01"), "otp/d1": m.pick(b"", b"\x01\x01\x04\0\0\0abcd"), "otp/d2": b"x"}
    return {
        "otp": ("otp", None, [("otp_set", envelope(1, 1, listed(good)))], every),
        "otp checks": ("otp", None, [("otp_set", envelope(1, 1, listed(good)))], few),
        "otp that is new": ("otp", m.pick(None, b"data"), [], every),
        # An id that the header has and nothing else.
        "otp in pieces": ("otp", m.pick(torn, {"header": envelope(1, 1, listed([text("d1")]))}), [], every),
    }
