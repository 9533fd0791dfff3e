#!/usr/bin/env python3
"""Carries images between two clusters and compares every byte, at the head and at each snapshot.

Usage: exchange.py CONF_A CONF_B [--size 64] [--seed 1]

From A to B, and from B to A: `rbd export | import` of a sparse image, `--export-format 2` with snapshots, and
`export-diff | import-diff` snapshot by snapshot. Meant for a real Ceph and ours. Each cluster gets a pool of its own, which goes
at the end.
"""
import argparse
import os
import sys

CONFS = [a for a in sys.argv[1:] if not a.startswith("-")]
os.environ.setdefault("CEPH_CONF", CONFS[0] if CONFS else "/dev/null")

import rados  # noqa: E402
import rbd  # noqa: E402

from support import Model, rbd_tool  # noqa: E402


class Side:
    def __init__(self, conf):
        self.conf, self.pool = conf, f"exchange-{os.getpid()}"
        self.cluster = rados.Rados(conffile=conf)
        self.cluster.connect(timeout=20)
        self.cluster.create_pool(self.pool)
        self.io = self.cluster.open_ioctx(self.pool)
        rbd.RBD().pool_init(self.io, True)

    def create(self, name, size):
        rbd.RBD().create(self.io, name, size, old_format=False)
        return rbd.Image(self.io, name)

    def tool(self, *words, **more):
        return rbd_tool(*words, conf=self.conf, **more)

    def spec(self, name):
        return f"{self.pool}/{name}"

    def check(self, name, size, seed, data, snapshot=None):
        model = Model(size, seed)
        model.data = bytearray(data)
        with rbd.Image(self.io, name, snapshot=snapshot, read_only=True) as image:
            model.check(image, f"{self.conf}: {name}@{snapshot or 'head'}")

    def used(self, name):
        """Bytes of an image's extents that hold data."""
        total = 0

        def add(off, length, exists):
            nonlocal total
            total += length if exists else 0
        with rbd.Image(self.io, name, read_only=True) as image:
            image.diff_iterate(0, image.size(), None, add)
        return total

    def close(self):
        self.io.close()
        self.cluster.delete_pool(self.pool)
        self.cluster.shutdown()


def carry(a, b, size, seed):
    """An image made on `a` comes to `b` in three ways, and back."""
    model, then = Model(size, seed), {}
    with a.create("image", size) as image, b.create("by-diff", size) as by_diff:
        for i in range(3):
            model.change(image, 15)
            image.create_snap(f"s{i}")
            then[f"s{i}"] = bytes(model.data)
            since = ["--from-snap", f"s{i - 1}"] if i else []
            diff = a.tool("export-diff", *since, a.spec(f"image@s{i}"), "-")
            b.tool("import-diff", "-", b.spec("by-diff"), given=diff)
        del by_diff
    head = bytes(model.data)
    b.tool("import", "-", b.spec("plain"), given=a.tool("export", a.spec("image"), "-"))
    b.tool("import", "--export-format", "2", "-", b.spec("whole"),
           given=a.tool("export", "--export-format", "2", a.spec("image"), "-"))
    for name in ("plain", "whole", "by-diff"):
        b.check(name, size, seed, head)
    for snap, data in then.items():
        for name in ("whole", "by-diff"):
            b.check(name, size, seed, data, snap)
    a.tool("import", "--export-format", "2", "-", a.spec("back"),
           given=b.tool("export", "--export-format", "2", b.spec("whole"), "-"))
    a.check("back", size, seed, head)
    for snap, data in then.items():
        a.check("back", size, seed, data, snap)
    print(f"{a.conf} -> {b.conf} -> {a.conf}: {size >> 20} MiB, seed {seed}, {len(then)} snapshots: equal; "
          f"{a.used('image')} bytes hold data there, {b.used('plain')} here, {a.used('back')} back", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("confs", nargs=2)
    p.add_argument("--size", type=int, default=64, help="MiB of the images")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    sides = [Side(conf) for conf in args.confs]
    try:
        carry(*sides, args.size << 20, args.seed)
        for name in ("image", "back", "plain", "whole", "by-diff"):
            for side in sides:
                try:
                    with rbd.Image(side.io, name) as image:
                        for snap in list(image.list_snaps()):
                            image.remove_snap(snap["name"])
                    rbd.RBD().remove(side.io, name)
                except rbd.ImageNotFound:
                    pass
        carry(*reversed(sides), args.size << 20, args.seed + 1)
    finally:
        for side in sides:
            side.close()


if __name__ == "__main__":
    main()
