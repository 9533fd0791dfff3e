"""Methods of object classes in the model: each takes the request so far and its input, and returns a result and output."""
import struct

ENODATA, ENOENT, EEXIST, EINVAL, EBUSY, EBADMSG = -61, -2, -17, -22, -16, -74


class Failed(Exception):
    """An operation's negative result."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, width):
        return int.from_bytes(self.take(width), "little")

    def text(self):
        return self.take(self.number(4))

    def envelope(self):
        self.take(6)
        return self


def text(v):
    return struct.pack("<I", len(v)) + v


def envelope(version, body, compat=1):
    return struct.pack("<BBI", version, compat, len(body)) + body


def listed(items):
    return struct.pack("<I", len(items)) + b"".join(items)


def say_hello(c, given):
    return 0, b"Hello, " + (given or b"world") + b"!"


def record_hello(c, given):
    if c.now.present():
        return EEXIST, b""
    c.write_full(say_hello(c, given)[1])
    c.set_attr(b"said_by", b"a client")
    return 0, b""


def write_return_data(c, given):
    c.set_attr(b"foo", b"bar")
    return 42, b"you might see this"


def turn_it_to_11(c, given):
    c.write_full(bytes(c.before.body.data[:1100]).upper())
    c.set_attr(b"amplified_by", b"a client")
    return 0, b""


def calculate(f):
    def method(c, given):
        r = Reader(given)
        key, value = r.text(), r.text()
        try:
            operand = float(value)
        except ValueError:
            return EINVAL, b""
        stored = c.stored_omap().get(key, b"0")
        try:
            result = f(float(stored), operand)
        except ValueError:
            return EBADMSG, b""
        c.set_omap({key: b"%.10g" % result})
        return 0, b""
    return method


# The holders' addresses differ: an attribute's value is not compared, a reply's length is.
def locks(c):
    """The lock "l": its kind, tag and cookies."""
    stored = c.attr(b"lock.l")
    if stored is None:
        return 0, b"", []
    kind, tag, *cookies = stored.split(b"\0")
    return int(kind), tag, cookies


def keep_locks(c, kind, tag, cookies):
    c.set_attr(b"lock.l", b"\0".join([b"%d" % kind, tag, *cookies]))


def lock(c, given):
    r = Reader(given).envelope()
    _, kind, cookie, tag = r.text(), r.number(1), r.text(), r.text()
    r.text()
    flags = Reader(given[-1:]).number(1)
    try:
        stored_kind, stored_tag, cookies = locks(c)
    except Failed:
        stored_kind, stored_tag, cookies = 0, b"", []
    if cookies and stored_tag != tag:
        return EBUSY, b""
    mine = cookie in cookies
    if mine and not flags:
        return EEXIST, b""
    if not mine and flags & 2:
        return ENOENT, b""
    others = [k for k in cookies if k != cookie]
    if others and (kind == 1 or stored_kind != kind):
        return EBUSY, b""
    keep_locks(c, kind, tag, others + [cookie])
    return 0, b""


def unlock(c, given):
    r = Reader(given).envelope()
    _, cookie = r.text(), r.text()
    kind, tag, cookies = locks(c)
    if cookie not in cookies:
        return ENOENT, b""
    keep_locks(c, kind, tag, [k for k in cookies if k != cookie])
    return 0, b""


#: Bytes of a locker with its name, address and the description "why", without the cookie.
LOCKER = 6 + 9 + 4 + 6 + 8 + 35 + 4 + 3


def get_info(c, given):
    _, tag, cookies = locks(c)
    return 0, bytes(6 + 4 + sum(LOCKER + len(k) for k in cookies) + 1 + 4 + len(tag))


def list_locks(c, given):
    if not c.before.exists:
        return ENOENT, b""
    found = [k[len(b"lock."):] for k in c.before.body.attrs if k.startswith(b"lock.")]
    return 0, envelope(1, listed([text(k) for k in found]))


def references(c):
    """The references, and the tags that have been taken back."""
    stored = c.attr(b"refcount")
    if stored is None:
        return [], []
    r = Reader(stored).envelope()
    refs = []
    for _ in range(r.number(4)):
        refs.append(r.text())
        r.take(1)
    return refs, [r.text() for _ in range(r.number(4))]


def keep_references(c, refs, retired):
    body = listed([text(k) + b"\1" for k in sorted(refs)]) + listed([text(k) for k in sorted(retired)])
    c.set_attr(b"refcount", envelope(2, body))


def get_reference(c, given):
    tag = Reader(given).envelope().text()
    refs, retired = references(c)
    keep_references(c, {*refs, tag}, retired)
    return 0, b""


def put_reference(c, given):
    tag = Reader(given).envelope().text()
    refs, retired = references(c)
    if not refs:
        return EINVAL, b""
    if tag not in refs or tag in retired:
        return 0, b""
    refs.remove(tag)
    if refs:
        keep_references(c, refs, [*retired, tag])
    else:
        c.remove()
    return 0, b""


def read_references(c, given):
    refs, _ = references(c)
    implicit = given[-1] and c.attr(b"refcount") is None
    return 0, envelope(1, listed([text(k) for k in ([b""] if implicit else refs)]))


def set_version(c, given):
    c.set_attr(b"ceph.objclass.version", given[6:])
    return 0, b""


def read_version(c, given):
    try:
        stored = c.attr(b"ceph.objclass.version")
    except Failed:
        stored = None
    return 0, envelope(1, stored or envelope(1, bytes(8) + text(b"")))


def log_add(c, given):
    """One entry with a key of its own."""
    r = Reader(given).envelope()
    r.number(4)
    start = r.at
    r.envelope()
    r.text(), r.text()
    time = r.number(4), r.number(4)
    r.text()
    key = r.text()
    entry = given[start:r.at]
    header = c.before.body.header if c.now.has_omap else b""
    marker, latest = b"", (0, 0)
    if header:
        h = Reader(header).envelope()
        marker, latest = h.text(), (h.number(4), h.number(4))
    c.set_omap({key: entry})
    c.now.body.header = envelope(1, text(max(marker, key)) + struct.pack("<II", *max(latest, time)))
    return 0, b""


def log_list(c, given):
    found = sorted((k, v) for k, v in c.stored_omap().items() if k.startswith(b"1_") and k > b"1_0000000000.000000_")
    return 0, envelope(1, listed([v for _, v in found]) + text(found[-1][0] if found else b"") + b"\0")


def log_info(c, given):
    header = c.before.body.header if c.now.has_omap else b""
    return 0, envelope(1, header or envelope(1, text(b"") + bytes(8)))


METHODS = {
    ("hello", "say_hello"): say_hello,
    ("hello", "record_hello"): record_hello,
    ("hello", "write_return_data"): write_return_data,
    ("hello", "turn_it_to_11"): turn_it_to_11,
    ("numops", "add"): calculate(lambda a, b: a + b),
    ("numops", "mul"): calculate(lambda a, b: a * b),
    ("lock", "lock"): lock,
    ("lock", "unlock"): unlock,
    ("lock", "get_info"): get_info,
    ("lock", "list_locks"): list_locks,
    ("refcount", "get"): get_reference,
    ("refcount", "put"): put_reference,
    ("refcount", "read"): read_references,
    ("version", "set"): set_version,
    ("version", "read"): read_version,
    ("log", "add"): log_add,
    ("log", "list"): log_list,
    ("log", "info"): log_info,
}
