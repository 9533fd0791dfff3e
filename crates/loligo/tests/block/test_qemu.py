"""qemu-img through librbd, a file system inside an image, fio's rbd engine."""
import json
import random
import shutil
import unittest

from support import *

SIZE = 48 << 20


class Qemu(Case):
    def url(self, name):
        return f"rbd:{self.pool}/{name}:conf={CONF}"

    def source(self):
        """A file: data, a hole, data that begins within a block."""
        path = self.path("source")
        with open(path, "wb") as f:
            f.write(random.Random(1).randbytes(9 << 20))
            f.seek(30_000_000)
            f.write(random.Random(2).randbytes(100_000))
            f.truncate(SIZE)
        return path

    def test_an_image_and_its_snapshots(self):
        source, url = self.source(), self.url("raw")
        raw = ("-f", "raw")
        run("qemu-img", "convert", *raw, "-O", "raw", source, url)
        run("qemu-img", "compare", *raw, "-F", "raw", source, url)
        info = json.loads(run("qemu-img", "info", *raw, "--output=json", url))
        self.assertEqual((info["format"], info["virtual-size"]), ("raw", SIZE))
        extents = json.loads(run("qemu-img", "map", *raw, "--output=json", url))
        self.assertEqual(sum(e["length"] for e in extents), SIZE)
        zeros = [(e["start"], e["length"]) for e in extents if e["zero"]]
        self.assertTrue(any(s <= 12 << 20 and s + n >= 28 << 20 for s, n in zeros), extents)
        run("qemu-img", "snapshot", "-c", "s1", url)
        self.assertIn(b"s1", run("qemu-img", "snapshot", "-l", url))
        run("qemu-img", "bench", *raw, "-c", "500", "-d", "16", "-s", "4096", "-w", "--pattern=90", url)
        run("qemu-img", "compare", *raw, "-F", "raw", source, url, fails=True)
        run("qemu-img", "snapshot", "-a", "s1", url)
        run("qemu-img", "compare", *raw, "-F", "raw", source, url)
        run("qemu-img", "snapshot", "-d", "s1", url)
        back = self.path("back")
        run("qemu-img", "convert", *raw, "-O", "raw", url, back)
        run("cmp", source, back)

    def test_other_formats(self):
        source = self.source()
        for kind in ("qcow2", "vmdk", "vdi"):
            plain, url = self.path("plain"), self.url(kind)
            run("qemu-img", "convert", "-f", "raw", "-O", kind, source, plain)
            run("qemu-img", "convert", "-f", kind, "-O", "raw", plain, url)
            run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, url)
        run("qemu-img", "create", "-f", "raw", self.url("empty"), "32M")
        run("qemu-img", "resize", "-f", "raw", self.url("empty"), "+8M")
        info = json.loads(run("qemu-img", "info", "--output=json", self.url("empty")))
        self.assertEqual(info["virtual-size"], 40 << 20)
        run("qemu-img", "create", "-f", "raw", self.url("empty"), "32M", fails=True)
        run("qemu-img", "info", self.url("none"), fails=True)

    def test_a_file_system(self):
        tree, disk, back = self.path("tree"), self.path("disk"), self.path("disk-back")
        os.makedirs(os.path.join(tree, "folder"))
        g = random.Random(3)
        for i in range(40):
            with open(os.path.join(tree, "folder", f"f{i}"), "wb") as f:
                f.write(g.randbytes(g.randrange(200_000)))
        run("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", tree, disk, "64M")
        rbd_tool("import", disk, f"{self.pool}/disk")
        rbd_tool("snap", "create", f"{self.pool}/disk@then")
        rbd_tool("export", f"{self.pool}/disk@then", back)
        run("cmp", disk, back)
        run("/usr/sbin/e2fsck", "-fn", back)
        run("/usr/sbin/debugfs", "-R", f"dump /folder/f7 {self.path('f7')}", back)
        run("cmp", os.path.join(tree, "folder", "f7"), self.path("f7"))
        shutil.rmtree(tree)

    def test_fio_verifies_what_it_wrote(self):
        for name in ("fio1", "fio2"):
            rbd_tool("create", "--size", "16M", f"{self.pool}/{name}")
        jobs = []
        for name in ("fio1", "fio2"):
            jobs += [f"--name={name}", f"--rbdname={name}"]
        out = run("fio", "--output-format=json", "--direct=1", "--rw=randwrite", "--bs=4k", "--numjobs=1", "--iodepth=8",
                  "--ioengine=rbd", f"--pool={self.pool}", "--clientname=admin", "--size=16M", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
                  *jobs)
        done = json.loads(out[out.index(b"{"):])["jobs"]
        self.assertEqual([(j["error"], j["write"]["total_ios"], j["read"]["total_ios"]) for j in done], [(0, 4096, 4096)] * 2)


if __name__ == "__main__":
    unittest.main()
