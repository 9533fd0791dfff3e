"""Images against a model of their bytes: snapshots, clones, copies, differences, encryption, thin provisioning."""
import json
import unittest

from support import *

SIZE = 24 << 20


class Images(Case):
    def test_snapshots_and_rollback(self):
        image, model, then = self.create("snaps", SIZE), Model(SIZE, 1), {}
        for i in range(4):
            model.change(image, 12)
            image.create_snap(f"s{i}")
            then[f"s{i}"] = bytes(model.data)
        model.change(image, 12)
        model.check(image, "the head")
        for name, data in then.items():
            past = Model(SIZE, 1)
            past.data = bytearray(data)
            past.check(self.open("snaps", snapshot=name), name)
        for name in ("s2", "s0", "s3"):
            image.rollback_to_snap(name)
            model.data = bytearray(then[name])
            model.check(image, f"back to {name}")
            model.change(image, 6)
            model.check(image, f"changed since {name}")
        for name in then:
            image.remove_snap(name)
        model.check(image, "without snapshots")

    def test_a_chain_of_clones(self):
        model = Model(SIZE, 2)
        image = self.create("c0", SIZE)
        model.change(image, 20)
        past = []
        for i in range(1, 6):
            image.create_snap("s")
            image.protect_snap("s")
            past.append(bytes(model.data))
            rbd.RBD().clone(self.io, f"c{i - 1}", "s", self.io, f"c{i}", features=rbd.RBD_FEATURE_LAYERING |
                            rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF | rbd.RBD_FEATURE_DEEP_FLATTEN)
            # What happens to a parent afterwards is nothing to its clone.
            Model(SIZE, 100 + i).change(image, 3)
            image = self.open(f"c{i}")
            model.check(image, f"clone {i}")
            model.change(image, 10)
            model.check(image, f"changed clone {i}")
        self.assertEqual(image.parent_info()[1], "c4")
        parent = Model(SIZE, 2)
        parent.data = bytearray(past[4])
        parent.check(self.open("c4", snapshot="s"), "the last parent")
        for i in (5, 3, 4, 2, 1):
            flat = self.open(f"c{i}")
            flat.flatten()
            with self.assertRaises(rbd.ImageNotFound):
                flat.parent_info()
            model.check(image, f"with clone {i} flat")
        for i in range(5):
            below = self.open(f"c{i}")
            below.unprotect_snap("s")
            below.remove_snap("s")
        model.check(image, "alone")

    def test_differences_carry_changes(self):
        image, model = self.create("from", SIZE), Model(SIZE, 3)
        copy = self.create("to", SIZE)
        last = None
        for i in range(3):
            model.change(image, 10)
            image.create_snap(f"s{i}")
            since = ["--from-snap", last] if last else []
            diff = rbd_tool("export-diff", *since, f"{self.pool}/from@s{i}", "-")
            rbd_tool("import-diff", "-", f"{self.pool}/to", given=diff)
            last = f"s{i}"
            model.check(copy, f"after {last}")
        self.assertEqual([s["name"] for s in copy.list_snaps()], ["s0", "s1", "s2"])

    def test_deep_copies_and_whole_exports(self):
        image, model, then = self.create("deep", SIZE), Model(SIZE, 4), {}
        for i in range(3):
            model.change(image, 8)
            image.create_snap(f"s{i}")
            then[f"s{i}"] = bytes(model.data)
        model.change(image, 8)
        rbd_tool("deep", "cp", f"{self.pool}/deep", f"{self.pool}/deep2")
        path = self.path("whole")
        rbd_tool("export", "--export-format", "2", f"{self.pool}/deep", path)
        rbd_tool("import", "--export-format", "2", path, f"{self.pool}/deep3")
        for name in ("deep2", "deep3"):
            model.check(self.open(name), name)
            for snap, data in then.items():
                past = Model(SIZE, 4)
                past.data = bytearray(data)
                past.check(self.open(name, snapshot=snap), f"{name}@{snap}")

    def test_encryption(self):
        image = self.create("secret", 32 << 20)
        passphrase = "a passphrase"
        image.encryption_format(rbd.RBD_ENCRYPTION_FORMAT_LUKS2, passphrase, rbd.RBD_ENCRYPTION_ALGORITHM_AES256)
        size = image.size()
        self.assertLess(size, 32 << 20)
        model = Model(size, 5)
        # Only what was written reads as something: librbd deciphers the holes of an object too.
        model.data[:] = model.g.randbytes(size)
        image.write(bytes(model.data), 0)
        model.change(image, 20, plain=True)
        model.check(image, "through the key")
        image.close()
        raw = self.open("secret")
        self.assertEqual(raw.read(0, 8), b"LUKS\xba\xbe\0\x02")
        self.assertNotIn(bytes(model.data[:64]).strip(b"\0") or b"?", raw.read(0, raw.size()))
        raw.close()
        with self.assertRaises(rbd.Error):
            self.open("secret").encryption_load(rbd.RBD_ENCRYPTION_FORMAT_LUKS2, "another")
        again = self.open("secret")
        again.encryption_load(rbd.RBD_ENCRYPTION_FORMAT_LUKS2, passphrase)
        model.check(again, "opened again")

    def test_what_is_discarded_takes_no_space(self):
        image = self.create("thin", 32 << 20)
        used = lambda: json.loads(rbd_tool("du", "--format", "json", f"{self.pool}/thin"))["images"][0]["used_size"]
        objects = lambda: sum(1 for o in self.io.list_objects() if o.key.startswith(image.block_name_prefix() + "."))
        self.assertEqual((used(), objects()), (0, 0))
        image.write(b"x" * (16 << 20), 0)
        self.assertEqual((used(), objects()), (16 << 20, 4))
        image.discard(4 << 20, 8 << 20)
        self.assertEqual((used(), objects()), (8 << 20, 2))
        image.write_zeroes(0, 4 << 20)
        image.resize(8 << 20)
        self.assertEqual((used(), objects()), (0, 0))
        image.resize(32 << 20)
        self.assertEqual(image.read(0, 32 << 20), bytes(32 << 20))

    def test_bench(self):
        rbd_tool("create", "--size", "32M", f"{self.pool}/bench")
        for kind in ("write", "read", "rw"):
            said = rbd_tool("bench", "--io-type", kind, "--io-size", "4K", "--io-total", "4M", "--io-threads", "16",
                            "--io-pattern", "rand", f"{self.pool}/bench")
            self.assertIn(b"ops: 1024", b" ".join(said.split()), kind)


if __name__ == "__main__":
    unittest.main()
