"""Commands to monitors, OSDs and placement groups, the cluster log, services. After cmd.cc and service.cc."""
import json
import unittest

from support import *

LINE = C.CFUNCTYPE(None, vp, text, text, u64, u64, u64, text, text)


# rados_ping_monitor is not called: it crashes inside librados 16.2.15 now and then, against Ceph as well.
class Commands(Case):
    def test_commands_to_the_monitors(self):
        r, got, _ = command(self.cluster, '{"prefix": "get_command_descriptions"}')
        self.assertEqual(r, 0)
        self.assertGreater(len(json.loads(got)), 100)
        for line in ("get_command_descriptions", "asdfqwer", "", "{}", '{"abc": "something"}', '{"prefix": ""}', '{"prefix": "    "}',
                     '{"prefix": ";;;,,,;;,,"}', '{"prefix": "extra command"}'):
            self.assertEqual(command(self.cluster, line)[0], EINVAL, line)
        r, got, _ = command(self.cluster, '{"prefix": "quorum_status"}')
        self.assertEqual(r, 0)
        self.assertIn("quorum_leader_name", json.loads(got))

    def test_commands_to_an_osd(self):
        for line, want in (("asdfasdf", EINVAL), ("version", EINVAL), ('{"prefix": "no such"}', EINVAL), ('{"prefix": "version"}', 0)):
            r, got, _ = command(self.cluster, line, "osd_command", 0)
            self.assertEqual((r, bool(got)), (want, want == 0), line)
        self.assertEqual(command(self.cluster, '{"prefix": "version"}', "osd_command", 99)[0], ENOENT)

    def test_commands_to_a_placement_group(self):
        number = self.io.ioctx_get_id()
        pg = f"{number}.0"
        for i in range(20):
            self.assertEqual(self.io.size(f"o{i}"), ENOENT)
        self.assertEqual(command(self.cluster, "asdfasdf", "pg_command", pg)[0], EINVAL)
        r, got, _ = command(self.cluster, f'{{"prefix": "pg", "cmd": "query", "pgid": "{pg}"}}', "pg_command", pg)
        self.assertEqual(r, 0)
        self.assertIn("active", json.loads(got)["state"])
        self.assertLess(command(self.cluster, '{"prefix": "pg", "cmd": "query"}', "pg_command", "no pg")[0], 0)

    def test_commands_to_the_manager(self):
        r, got, _ = command(self.cluster, '{"prefix": "pg stat", "format": "json"}', "mgr_command")
        self.assertEqual(r, 0)
        self.assertIn("num_pgs", got.decode())
        self.assertEqual(command(self.cluster, '{"prefix": "no such command"}', "mgr_command")[0], EINVAL)

    def test_the_cluster_log(self):
        lines = []
        hear = LINE(lambda arg, line, *rest: lines.append(line.decode()))
        heard = lambda word: any(word in line for line in lines)
        say = lambda word: self.assertEqual(command(self.cluster, f'{{"prefix": "log", "logtext": ["{word}"]}}')[0], 0)
        self.assertEqual(self.cluster.monitor_log("info", hear, None), 0)
        say("onexx")
        self.assertTrue(until(lambda: heard("onexx")))
        self.assertEqual(self.cluster.monitor_log("err", hear, None), 0)
        say("twoxx")
        self.assertEqual(self.cluster.monitor_log("info", hear, None), 0)
        say("threexx")
        self.assertTrue(until(lambda: heard("threexx")))
        self.assertEqual(self.cluster.monitor_log("info", LINE(0), None), 0)
        count = len(lines)
        say("fourxx")
        self.assertEqual(len(lines), count)
        self.assertEqual(self.cluster.monitor_log("no such level", hear, None), EINVAL)

    def test_services(self):
        name, meta = f"librados-{os.getpid()}", b"foo\0bar\0this\0that\0\0"
        other = connect()
        self.assertEqual(other.service_register("laundry", name, meta), 0)
        self.assertEqual(other.service_register("laundry", name, meta), EEXIST)
        self.assertEqual(other.service_update_status(b"testing\0\1\0\0"), 0)

        def listed():
            _, got, _ = command(self.cluster, '{"prefix": "service dump", "format": "json"}', "mgr_command")
            found = json.loads(got or b"{}").get("services", {}).get("laundry", {}).get("daemons", {}).get(name)
            return found and found["metadata"].get("foo") == "bar"
        self.assertTrue(until(listed, 30))
        other.shutdown()


if __name__ == "__main__":
    unittest.main()
