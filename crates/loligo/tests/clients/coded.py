#!/usr/bin/python3
"""Erasure-coded pools through python3-rados: objects of all sizes around chunks and stripes against a model.

`coded.py write POOL SEED` makes and changes objects at random and compares all of them in the end; `read
POOL SEED` compares them with what the same seed has written; `refused POOL` asks for what such a pool does not
do; `appends POOL WIDTH` works without overwrites, by stripes of so many bytes.
"""

import errno
import os
import random
import sys

import rados

MAX = 3 << 20


def model(seed, width):
    """Steps as (object, operation, offset, data), and what is there after all of them."""
    rng = random.Random(seed)
    sizes = [0, 1, 4095, 4096, width - 1, width, width + 1, 3 * width + 17, MAX]
    objects, steps = {}, []
    for name in (f"o{n}" for n in range(len(sizes))):
        data = rng.randbytes(sizes[int(name[1:])])
        objects[name] = bytearray(data)
        steps.append((name, "write_full", 0, data))
    for _ in range(40):
        name = rng.choice(list(objects))
        was = objects[name]
        kind = rng.choice(["write", "write", "write", "append", "zero", "truncate", "write_full"])
        data = rng.randbytes(rng.choice([1, 100, 4096, width, 50_000]))
        at = rng.randrange(len(was) + width)
        if kind in ("append", "write_full"):
            at = 0
        if kind == "write":
            was.extend(bytes(max(0, at - len(was))))
            was[at : at + len(data)] = data
        elif kind == "append":
            was.extend(data)
        elif kind == "zero":
            # Up to the end it cuts the object, as on Ceph.
            if at + len(data) >= len(was):
                del was[at:]
            else:
                was[at : at + len(data)] = bytes(len(data))
        elif kind == "truncate":
            was.extend(bytes(max(0, at - len(was))))
            del was[at:]
        else:
            was[:] = data
        steps.append((name, kind, at, data))
    return steps, objects


def apply(io, step):
    name, kind, at, data = step
    if kind == "write":
        io.write(name, data, at)
    elif kind == "append":
        io.append(name, data)
    elif kind == "truncate":
        io.trunc(name, at)
    elif kind == "zero":
        with rados.WriteOpCtx() as op:
            op.zero(len(data), at)  # the binding of 16.2 takes the length for the offset
            io.operate_write_op(op, name)
    else:
        io.write_full(name, data)


def compare(io, objects, rng):
    for name, want in objects.items():
        size, _ = io.stat(name)
        assert size == len(want), f"{name} has {size} bytes, not {len(want)}"
        assert io.read(name, MAX * 2) == bytes(want), f"{name} has other bytes"
        for _ in range(3):
            at = rng.randrange(len(want) + 1)
            length = rng.randrange(1, 20_000)
            assert io.read(name, length, at) == bytes(want[at : at + length]), f"{name} {at}~{length}"
        assert io.get_xattr(name, "a") == name.encode()
    assert {o.key for o in io.list_objects()} == set(objects), "other objects are listed"


def refuses(what, number, call):
    try:
        call()
    except rados.Error as e:
        assert e.errno == number, f"{what}: {e}"
    else:
        raise AssertionError(f"{what} was done")


def refused(io):
    def omap():
        with rados.WriteOpCtx() as op:
            io.set_omap(op, ("k",), (b"v",))
            io.operate_write_op(op, "o")

    refuses("omap", errno.EOPNOTSUPP, omap)
    io.write_full("r", b"x" * 100)
    refuses("an overwrite", errno.EOPNOTSUPP, lambda: io.write("r", b"y", 3))
    assert io.read("r") == b"x" * 100
    io.remove_object("r")


def appends(io, width):
    parts = [os.urandom(width) for _ in range(3)] + [b"end"]
    for part in parts:
        io.append("appended", part)
    assert io.read("appended", 8 * width) == b"".join(parts)
    io.remove_object("appended")


def main():
    verb, pool = sys.argv[1:3]
    with rados.Rados(conffile=os.environ["CEPH_CONF"]) as cluster, cluster.open_ioctx(pool) as io:
        if verb == "refused":
            refused(io)
        elif verb == "appends":
            appends(io, int(sys.argv[3]))
        else:
            seed = int(sys.argv[3])
            steps, objects = model(seed, 8192)
            if verb == "write":
                for step in steps:
                    apply(io, step)
                for name in objects:
                    io.set_xattr(name, "a", name.encode())
            compare(io, objects, random.Random(seed))
    print("good")


if __name__ == "__main__":
    main()
