"""Pools: their names, ids, creation and removal; applications; tiers. After pool.cc and misc.cc."""
import json
import unittest

from support import *


class Pools(Case):
    def list(self):
        buf = C.create_string_buffer(1 << 16)
        n = self.cluster.pool_list(buf, 1 << 16)
        return [name.decode() for name in buf.raw[:n].split(b"\0") if name]

    def test_names_and_ids(self):
        self.assertIn(self.pool, self.list())
        number = call("pool_lookup", self.cluster.handle, self.pool)
        self.assertGreater(number, 0)
        self.assertEqual(self.io.ioctx_get_id(), number)
        buf = C.create_string_buffer(100)
        self.assertEqual(self.cluster.pool_reverse_lookup(number, buf, 100), len(self.pool))
        self.assertEqual(buf.value.decode(), self.pool)
        self.assertEqual(self.cluster.pool_reverse_lookup(number, buf, 3), ERANGE)
        self.assertEqual(call("pool_lookup", self.cluster.handle, "no-such-pool"), ENOENT)
        self.assertEqual(self.cluster.ioctx_create("no-such-pool", ref(vp())), ENOENT)

    def test_pools_come_and_go(self):
        name = self.pool + "-other"
        self.assertEqual(self.cluster.pool_create(name), 0)
        self.assertEqual(self.cluster.pool_create(name), EEXIST)
        self.assertIn(name, self.list())
        self.assertEqual(self.cluster.pool_delete(name), 0)
        self.assertEqual(self.cluster.pool_delete(name), ENOENT)
        self.assertLess(call("pool_lookup", self.cluster.handle, name), 0)
        self.assertEqual(self.cluster.pool_create_with_crush_rule(name, C.c_uint8(0)), 0)
        self.assertEqual(self.cluster.pool_delete(name), 0)

    def test_a_pool_that_is_made_anew_is_empty(self):
        name = self.pool + "-again"
        for _ in range(2):
            self.assertEqual(self.cluster.pool_create(name), 0)
            io = vp()
            self.assertEqual(self.cluster.ioctx_create(name, ref(io)), 0)
            io = Io(io)
            self.assertEqual(io.text("o"), ENOENT)
            self.assertEqual(io.put("o", b"x"), 0)
            self.assertEqual(self.cluster.pool_delete(name), 0)
            self.cluster.wait_for_latest_osdmap()
            self.assertEqual(io.put("p", b"x"), ENOENT, "librados says so when the pool is gone")

    def test_tiers(self):
        name = self.pool + "-tier"
        self.assertEqual(self.cluster.pool_create(name), 0)
        pool, tier = (call("pool_lookup", self.cluster.handle, p) for p in (self.pool, name))
        base = out(C.c_int64)
        self.assertEqual((self.cluster.pool_get_base_tier(pool, ref(base)), base.value), (0, pool))
        self.assertEqual((self.cluster.pool_get_base_tier(tier, ref(base)), base.value), (0, tier))
        self.assertEqual(self.cluster.pool_get_base_tier(2**63 - 1, ref(base)), ENOENT)
        self.assertEqual(self.cluster.pool_delete(name), 0)

    def test_alignment(self):
        needs, by = out(C.c_int), out()
        self.assertEqual(self.io.ioctx_pool_requires_alignment2(ref(needs)), 0)
        self.assertEqual(self.io.ioctx_pool_required_alignment2(ref(by)), 0)
        self.assertEqual((needs.value, by.value), (0, 0))

    def applications(self, size=128):
        buf, n = C.create_string_buffer(size), size_t(size)
        return self.io.application_list(buf, ref(n)), n.value, buf.raw[:min(n.value, size)]

    def metadata(self, app, size=128):
        keys, values, kn, vn = C.create_string_buffer(size), C.create_string_buffer(size), size_t(size), size_t(size)
        r = self.io.application_metadata_list(app, keys, ref(kn), values, ref(vn))
        return r, keys.raw[:min(kn.value, size)], values.raw[:min(vn.value, size)]

    def test_applications(self):
        self.assertEqual(self.applications(), (0, 6, b"rados\0"))
        self.assertEqual(self.io.application_enable("app1", 1), 0)
        self.assertEqual(self.io.application_enable("app2", 0), EPERM)
        self.assertEqual(self.io.application_enable("app2", 1), 0)
        self.assertEqual(self.applications(6)[:2], (ERANGE, 16))
        self.assertEqual(self.applications(), (0, 16, b"app1\0app2\0rados\0"))
        self.assertEqual(self.metadata("dne")[0], ENOENT)
        self.assertEqual(self.metadata("app1"), (0, b"", b""))
        self.assertEqual(self.io.application_metadata_set("dne", "key", "value"), ENOENT)
        for n in "12":
            self.assertEqual(self.io.application_metadata_set("app1", "key" + n, "value" + n), 0)
        self.assertEqual(self.metadata("app1", 3)[0], ERANGE)
        self.assertEqual(self.metadata("app1"), (0, b"key1\0key2\0", b"value1\0value2\0"))
        self.assertEqual(self.io.application_metadata_remove("app1", "key1"), 0)
        self.assertEqual(self.metadata("app1"), (0, b"key2\0", b"value2\0"))


class Clusters(Case):
    def test_the_clusters_id(self):
        buf = C.create_string_buffer(37)
        self.assertEqual(self.cluster.cluster_fsid(buf, 36), ERANGE)
        self.assertEqual(self.cluster.cluster_fsid(buf, 37), 36)
        r, out_, _ = command(self.cluster, '{"prefix": "fsid", "format": "json"}')
        self.assertEqual((r, json.loads(out_)["fsid"]), (0, buf.value.decode()))

    def test_compatible_releases(self):
        osd, mine, wanted = out(C.c_int8), out(C.c_int8), out(C.c_int8)
        self.assertEqual(self.cluster.get_min_compatible_osd(ref(osd)), 0)
        self.assertEqual(self.cluster.get_min_compatible_client(ref(mine), ref(wanted)), 0)
        for release in (osd.value, mine.value, wanted.value):
            self.assertTrue(-1 <= release <= 17, release)
        self.assertEqual(osd.value, 16)

    def test_a_client_that_cannot_connect(self):
        cluster = vp()
        self.assertEqual(call("create", ref(cluster), None), 0)
        for option, value in (("client_mount_timeout", "2"), ("auth_supported", "none"), ("mon_host", "127.0.0.1:1")):
            self.assertEqual(call("conf_set", cluster, option, value), 0)
        self.assertLess(call("connect", cluster), 0)
        call("shutdown", cluster)

    def test_clients_come_and_go(self):
        import threading
        failures = []

        def come_and_go():
            for _ in range(4):
                try:
                    connect().shutdown()
                except AssertionError as e:
                    failures.append(e)
        threads = [threading.Thread(target=come_and_go) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
