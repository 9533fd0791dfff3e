"""Every command of the monitors and of the manager, as their tables name them: answered, or not answered at all.

  every_command.py answered ROUND    each command once; those that are to succeed do
  every_command.py silent            connects, says so, waits for a line, then sends each command at once: none that changes anything is answered

A command of the tables that is missing in STEPS is an error, so that a new one is not forgotten.
"""
import json
import os
import sys
import threading
import time

import rados

CONF = os.environ["CEPH_CONF"]
ENOENT, EAGAIN, EBUSY, EINVAL, EPERM, ENXIO = -2, -11, -16, -22, -1, -6
EALREADY, ETIMEDOUT, EOPNOTSUPP = -114, -110, -95


# What follows needs nothing of what is before it, or all of it.
ASIDE, WHEN_ALL_ENDED = "aside", "when all ended"


def steps(n, pool, pg):
    """The prefix of each command, its arguments, and what it may end with besides success; in an order in which they work, in parts."""
    new, q, t, osd = "n%s" % n, "q%s" % n, "t%s" % n, "osd.%s" % (10 + int(n))
    uuid, user, address = "11111111-0000-0000-0000-00000000000%s" % n, "client.s%s" % n, "10.9.8.7:0/%s" % (n + "77")
    number = 10 + int(n)
    yes = {"yes_i_really_mean_it": True}
    yield "fsid", {}
    yield "osd stat", {}
    yield "status", {}
    yield "health", {"detail": "detail"}
    yield "health mute", {"code": "OSD_FLAGS", "sticky": True}
    yield "health unmute", {"code": "OSD_FLAGS"}
    yield "df", {"detail": "detail"}
    yield "osd tree", {}
    yield "osd tree-from", {"bucket": "default"}
    for prefix in ("dump", "ls", "getmap", "getcrushmap", "getmaxosd", "lspools", "blocklist ls", "blacklist ls", "utilization",
                   "get-require-min-compat-client", "versions", "numa-status", "crush rule list", "crush rule ls", "crush rule dump", "crush dump",
                   "crush show-tunables", "crush tree", "crush class ls", "crush weight-set ls", "crush weight-set dump", "erasure-code-profile ls"):  # fmt: skip
        yield "osd " + prefix, {}
    yield "osd info", {"id": 0}
    yield "osd ls-tree", {"name": "default"}
    yield "osd find", {"id": 0}
    yield "osd map", {"pool": pool, "object": "o"}
    yield "pg map", {"pgid": pg}
    yield "osd last-stat-seq", {"id": 0}
    yield "osd crush get-tunable", {"tunable": "straw_calc_version"}
    yield "osd crush ls", {"node": "default"}
    yield "osd crush get-device-class", {"ids": ["0"]}
    yield "osd erasure-code-profile get", {"name": "default"}
    for prefix in ("dump", "stat", "getmap", "feature ls", "versions", "metadata"):
        yield "mon " + prefix, {}
    yield "mon ok-to-add-offline", {}, EBUSY
    yield "mon ok-to-stop", {"ids": ["a"]}, EBUSY
    yield "mon ok-to-rm", {"id": "a"}, EBUSY
    yield "quorum_status", {}
    yield "time-sync-status", {}
    yield "mon rm", {"name": "never"}
    yield "mon remove", {"name": "never"}
    yield "mon add", {"name": "a", "addr": "127.0.0.1:1"}, -17
    yield "mon enable-msgr2", {}
    yield "mon set election_strategy", {"strategy": "classic"}
    yield "mon set-weight", {"name": "a", "weight": 0}
    yield "mon set-rank", {"name": "a", "rank": 0}
    yield "mon set-addrs", {"name": "never", "addrs": "127.0.0.1:1"}, ENOENT
    yield "mon set_location", {"name": "never", "args": ["host=a"]}, ENOENT
    yield "mon add disallowed_leader", {"name": "a"}, -22
    yield "mon rm disallowed_leader", {"name": "a"}, -22
    yield "mon feature set", {"feature_name": "never"}, ENOENT
    yield "osd metadata", {"id": 0}
    for kind in ("osd", "mon", "mgr", "mds"):
        yield kind + " count-metadata", {"property": "ceph_version"}
    for prefix in ("mgr metadata", "mgr versions", "mds metadata", "mds versions", "versions", "features", "node ls", "version", "mgr dump", "mgr stat",
                   "mgr module ls", "mgr services", "fs ls", "fs dump", "fs feature ls", "mds stat", "mds compat show", "log last", "report"):  # fmt: skip
        yield prefix, {}
    yield "fs get", {"fs_name": "never"}, ENOENT
    yield "fs compat show", {"fs_name": "never"}, ENOENT
    # While the file systems of what runs aside have no server.
    yield "mds ok-to-stop", {"ids": ["never"]}, ENOENT, EBUSY
    yield ASIDE
    yield from file_systems(n)
    yield ASIDE
    # Pools
    yield "config set", {"who": "mon", "name": "mon_allow_pool_delete", "value": "true"}
    yield "osd pool ls", {"detail": "detail"}
    yield "osd pool create", {"pool": q, "pg_num": 1}
    yield "osd pool create", {"pool": t, "pg_num": 1}
    yield "osd pool create", {"pool": "gone" + n, "pg_num": 1}
    yield "osd pool delete", {"pool": "gone" + n, "pool2": "gone" + n, "yes_i_really_really_mean_it": True}
    yield "osd pool rm", {"pool": "gone" + n, "pool2": "gone" + n, "yes_i_really_really_mean_it": True}
    yield "osd pool rename", {"srcpool": q, "destpool": q + "x"}
    q += "x"
    yield "osd pool mksnap", {"pool": q, "snap": "s"}
    yield "osd pool rmsnap", {"pool": q, "snap": "s"}
    yield "osd pool set-quota", {"pool": q, "field": "max_objects", "val": "1000"}
    yield "osd pool get-quota", {"pool": q}
    yield "osd pool get", {"pool": q, "var": "size"}
    yield "osd pool set", {"pool": q, "var": "min_size", "val": "1"}
    yield "osd pool application enable", {"pool": q, "app": "rados"}
    yield "osd pool application set", {"pool": q, "app": "rados", "key": "k", "value": "v"}
    yield "osd pool application get", {"pool": q}
    yield "osd pool application rm", {"pool": q, "app": "rados", "key": "k"}
    yield "osd pool application disable", {"pool": q, "app": "rados", **yes}
    yield "osd tier add", {"pool": q, "tierpool": t}
    yield "osd tier cache-mode", {"pool": t, "mode": "readproxy"}
    yield "osd tier set-overlay", {"pool": q, "overlaypool": t}, EOPNOTSUPP
    yield "osd tier rm-overlay", {"pool": q}
    yield "osd tier remove-overlay", {"pool": q}
    yield "osd tier rm", {"pool": q, "tierpool": t}
    yield "osd tier remove", {"pool": q, "tierpool": t}
    # Configuration, keys, logins
    yield "config set", {"who": "osd.%d" % number, "name": "osd_max_backfills", "value": "3"}
    yield "config get", {"who": "osd.0"}
    yield "config rm", {"who": "osd.%d" % number, "name": "osd_max_backfills"}
    for prefix in ("dump", "ls", "log", "generate-minimal-conf"):
        yield "config " + prefix, {}
    yield "config help", {"key": "osd_max_backfills"}
    yield "config show", {"who": "osd.0"}
    yield "config show-with-defaults", {"who": "osd.0"}
    yield "config assimilate-conf", {}, "[global]\n\tosd_recovery_sleep = 0.0%s\n" % n
    for add, rm in (("set", "rm"), ("put", "del")):
        yield "config-key " + add, {"key": "k" + n, "val": "v"}
        yield "config-key get", {"key": "k" + n}
        yield "config-key exists", {"key": "k" + n}
        yield "config-key " + rm, {"key": "k" + n}
    for prefix in ("ls", "list", "dump"):
        yield "config-key " + prefix, {}
    yield "log", {"logtext": ["every command"]}
    caps = ["mon", "allow r"]
    yield "auth add", {"entity": user, "caps": caps}
    yield "auth get-or-create", {"entity": user, "caps": caps}
    yield "auth get-or-create-key", {"entity": user, "caps": caps}
    yield "auth caps", {"entity": user, "caps": ["mon", "allow rw"]}
    for prefix in ("get", "get-key", "print-key", "print_key", "export"):
        yield "auth " + prefix, {"entity": user}
    yield "auth ls", {}
    yield "auth list", {}
    yield "auth rm", {"entity": user}
    yield "auth del", {"entity": user}
    yield "auth import", {}, "[%s]\n\tkey = AQCuqSFpAAAAABAAs9YCQ6tZbVmSTQCkq7Ruag==\n" % (user + "i")
    yield ASIDE
    # OSDs: one that is only a number
    yield "osd new", {"uuid": uuid, "id": number}
    yield "osd create", {"uuid": uuid}
    ids = {"ids": [str(number)]}
    for prefix in ("down", "out", "in"):
        yield "osd " + prefix, ids
    yield "osd stop", ids
    for flag in ("noup", "nodown", "noin", "noout"):
        yield "osd add-" + flag, ids
        yield "osd rm-" + flag, ids
    yield "osd set-group", {"flags": "noup", "who": [osd]}
    yield "osd unset-group", {"flags": "noup", "who": [osd]}
    yield "osd reweight", {"id": number, "weight": 0.5}
    yield "osd reweightn", {"weights": json.dumps({str(number): 32768})}
    yield "osd primary-affinity", {"id": number, "weight": 0.5}
    yield "osd pause", {}
    yield "osd unpause", {}
    yield "osd set", {"key": "nodeep-scrub"}
    yield "osd unset", {"key": "nodeep-scrub"}
    yield "osd setmaxosd", {"newmax": 40}
    yield "osd set-full-ratio", {"ratio": 0.95}
    yield "osd set-backfillfull-ratio", {"ratio": 0.9}
    yield "osd set-nearfull-ratio", {"ratio": 0.85}
    yield "osd set-require-min-compat-client", {"version": "luminous"}
    yield "osd require-osd-release", {"release": "pacific"}
    for word in ("blocklist", "blacklist"):
        yield "osd " + word, {word + "op": "add", "addr": address}
        yield "osd %s clear" % word, {}
    # Placement
    yield "osd pg-upmap-items", {"pgid": pg, "id": [0, 1]}, EINVAL
    yield "osd rm-pg-upmap-items", {"pgid": pg}
    yield "osd pg-upmap", {"pgid": pg, "id": [0, 1, 2]}, EINVAL
    yield "osd rm-pg-upmap", {"pgid": pg}
    yield "osd pg-temp", {"pgid": pg, "id": []}, EINVAL
    yield "osd primary-temp", {"pgid": pg, "id": -1}
    yield "pg repeer", {"pgid": pg}
    yield "osd force-create-pg", {"pgid": pg}, EPERM
    yield "osd setcrushmap", {}, "the map as it is"
    yield "osd crush set", {}, "the map as it is"
    # After the whole map, which would take them away.
    yield "osd crush weight-set create", {"pool": pool, "mode": "flat"}
    yield "osd crush weight-set reweight", {"pool": pool, "item": "osd.0", "weight": [0.9]}
    yield "osd crush weight-set rm", {"pool": pool}
    yield "osd crush add-bucket", {"name": new, "type": "host"}
    yield "osd crush rename-bucket", {"srcname": new, "dstname": new + "x"}
    new += "x"
    yield "osd crush move", {"name": new, "args": ["root=default"]}
    yield "osd crush link", {"name": new, "args": ["root=default"]}
    yield "osd crush add", {"id": number, "weight": 0, "args": ["host=" + new]}
    yield "osd crush create-or-move", {"id": number, "weight": 0, "args": ["host=" + new]}
    yield "osd crush reweight", {"name": osd, "weight": 0}
    yield "osd crush reweight-subtree", {"name": new, "weight": 0}
    yield "osd crush reweight-all", {}
    yield "osd crush class create", {"class": "k" + n}
    yield "osd crush class rename", {"srcname": "k" + n, "dstname": "l" + n}
    yield "osd crush set-device-class", {"class": "l" + n, "ids": [osd]}
    yield "osd crush class ls-osd", {"class": "l" + n}
    yield "osd crush rule ls-by-class", {"class": "l" + n}
    yield "osd crush rm-device-class", {"ids": [osd]}
    yield "osd crush class rm", {"class": "l" + n}
    yield "osd crush add-bucket", {"name": new + "y", "type": "host"}
    yield "osd crush swap-bucket", {"source": new + "y", "dest": new, **yes}
    yield "osd crush rm", {"name": new + "y"}, -39
    yield "osd crush unlink", {"name": osd}
    yield "osd crush remove", {"name": osd}, ENOENT
    yield "osd crush rule create-simple", {"name": "r" + n, "root": "default", "type": "osd"}
    yield "osd crush rule rename", {"srcname": "r" + n, "dstname": "r%sx" % n}
    yield "osd crush rule rm", {"name": "r%sx" % n}
    yield "osd crush rule create-replicated", {"name": "r%sy" % n, "root": "default", "type": "osd"}
    yield "osd erasure-code-profile set", {"name": "e" + n, "profile": ["k=2", "m=1", "crush-failure-domain=osd"]}
    yield "osd crush rule create-erasure", {"name": "r%sz" % n, "profile": "e" + n}
    yield "osd erasure-code-profile rm", {"name": "e" + n}
    yield "osd crush tunables", {"profile": "default"}
    yield "osd crush set-tunable", {"tunable": "straw_calc_version", "value": 1}
    yield "osd crush set-all-straw-buckets-to-straw2", {}
    yield "osd crush weight-set create-compat", {}
    yield "osd crush weight-set reweight-compat", {"item": "osd.0", "weight": [0.9]}
    yield "osd crush weight-set rm-compat", {}
    # The number goes again
    yield "osd lost", {"id": number, **yes}
    yield "osd destroy-actual", {"id": number, **yes}
    yield "osd destroy", {"id": number, **yes}
    yield "osd purge-new", {"id": number, **yes}, EPERM, EBUSY, EINVAL
    yield "osd purge-actual", {"id": number, **yes}
    yield "osd purge", {"id": number, **yes}
    yield "osd rm", ids, EINVAL
    yield ASIDE
    # Those of the manager
    for prefix in ("stat", "getmap", "dump", "dump_json", "dump_pools_json", "ls"):
        yield "pg " + prefix, {}
    yield "pg debug", {"debugop": "unfound_objects_exist"}
    yield "pg dump_stuck", {}
    yield "pg ls-by-pool", {"poolstr": pool}
    yield "pg ls-by-primary", {"osd": 0}
    yield "pg ls-by-osd", {"osd": 0}
    for prefix in ("perf", "blocked-by", "pool stats", "df", "pool autoscale-status", "status", "reweight-by-utilization", "test-reweight-by-utilization",
                   "reweight-by-pg", "test-reweight-by-pg"):  # fmt: skip
        yield "osd " + prefix, {}, EINVAL, -33
    for prefix in ("scrub", "deep-scrub", "repair"):
        yield "pg " + prefix, {"pgid": pg}
        yield "osd " + prefix, {"who": "0"}
        yield "osd pool " + prefix, {"who": [pool]}
    for prefix in ("force-recovery", "force-backfill", "cancel-force-recovery", "cancel-force-backfill"):
        yield "pg " + prefix, {"pgid": [pg]}
        yield "osd pool " + prefix, {"who": [pool]}
    yield "osd safe-to-destroy", {"ids": ["0"]}, EBUSY, EAGAIN
    yield "osd ok-to-stop", {"ids": ["0"]}, EBUSY
    for prefix in ("service dump", "service status", "device ls", "device ls-lights", "iostat", "fs status", "progress", "progress json", "progress clear", "progress off", "progress on", "telemetry status"):
        yield prefix, {}
    # In this order nothing is scaled: the switch was never on, and is on at the end.
    for prefix in ("unset", "set", "get"):
        yield "osd pool " + prefix + " noautoscale", {}
    yield "device info", {"devid": "never"}, ENOENT
    yield "device set-life-expectancy", {"devid": "disk", "from": "2040-01-01"}
    yield "device info", {"devid": "disk"}
    yield "device rm-life-expectancy", {"devid": "disk"}
    yield "device ls-by-daemon", {"who": "osd.0"}
    yield "device query-daemon-health-metrics", {"who": "osd.0"}
    yield "device scrape-daemon-health-metrics", {"who": "osd.never"}, ENXIO
    yield "device scrape-health-metrics", {"devid": "never"}, ENOENT
    yield "device get-health-metrics", {"devid": "never"}, ENOENT
    yield "device predict-life-expectancy", {"devid": "never"}, EPERM
    for prefix in ("device check-health", "device monitoring off", "device monitoring on"):
        yield prefix, {}
    yield "device ls-by-host", {"host": "never"}
    for prefix in ("status", "ls", "ps", "host ls", "device ls"):
        yield "orch " + prefix, {}, ENOENT
    for prefix in ("status", "off", "pool ls", "eval", "eval-verbose", "ls", "reset"):
        yield "balancer " + prefix, {}
    yield "balancer mode", {"mode": "upmap"}
    yield "balancer pool add", {"pools": [pool]}
    yield "balancer pool rm", {"pools": [pool]}
    yield "balancer optimize", {"plan": "never"}, EALREADY, EAGAIN
    for prefix in ("show", "dump", "rm", "execute"):
        yield "balancer " + prefix, {"plan": "none"}, ENOENT
    yield "balancer on", {}
    crash = "2026-11-22T00:00:00.00000%sZ_11111111-0000-0000-0000-000000000000" % n
    yield "crash post", {}, json.dumps({"crash_id": crash, "timestamp": "2026-11-22T00:00:00.00000%sZ" % n, "entity_name": "osd.0"})
    yield "crash info", {"id": crash}
    for prefix in ("ls", "ls-new", "stat"):
        yield "crash " + prefix, {}
    yield "crash json_report", {"hours": "1"}
    yield "crash archive", {"id": crash}
    yield "crash archive-all", {}
    yield "crash rm", {"id": crash}
    yield "crash prune", {"keep": "1"}
    # One change of users is under way at a time, and another round may have it.
    someone, password = {"username": "u" + n}, "a password"
    yield "dashboard ac-user-create", {**someone, "rolename": "read-only"}, password, EBUSY
    yield "dashboard ac-user-show", {}
    yield "dashboard ac-role-show", {"rolename": "read-only"}
    yield "dashboard ac-user-set-password", someone, password, EBUSY, ENOENT
    yield "dashboard ac-user-set-roles", {**someone, "roles": ["pool-manager"]}, EBUSY, ENOENT
    for prefix in ("disable", "enable", "delete"):
        yield "dashboard ac-user-" + prefix, someone, EBUSY, ENOENT
    yield "dashboard set-login-credentials", someone, password, EBUSY
    yield "dashboard sign-in-once", {}, "a code that is long enough"
    # Its module is off.
    for prefix in ("healthcheck history ls", "healthcheck history clear", "prometheus file_sd_config"):
        yield prefix, {}, EOPNOTSUPP
    image, level = {"image_spec": pool + "/never"}, {"level_spec": pool + "/"}
    for prefix in ("add flatten", "add remove", "add migration execute", "add migration commit", "add migration abort"):
        yield "rbd task " + prefix, image, ENOENT, EINVAL
    yield "rbd task add trash remove", {"image_id_spec": pool + "/never"}, ENOENT
    yield "rbd task cancel", {"task_id": "never"}, ENOENT
    yield "rbd task list", {}
    for prefix in ("stats", "counters"):
        yield "rbd perf image " + prefix, {"pool_spec": pool}
    # The pool is none for images.
    yield "rbd trash purge schedule add", {**level, "interval": "1d"}, EINVAL
    yield "rbd trash purge schedule list", {}
    yield "rbd trash purge schedule status", {}
    yield "rbd trash purge schedule remove", level, EINVAL
    for prefix, args in (("add", {"interval": "1d"}), ("remove", {}), ("list", {}), ("status", {})):
        yield "rbd mirror snapshot schedule " + prefix, {**level, **args}, EOPNOTSUPP
    yield WHEN_ALL_ENDED
    # It takes back what the parts above have set.
    yield "config reset", {"num": 0}
    yield "mgr module disable", {"module": "iostat"}
    yield "mgr module enable", {"module": "iostat"}
    # The last one: the manager comes back later.
    yield "mgr fail", {"who": "never"}


def file_systems(n):
    """A file system without a server: two rounds at once have one each."""
    fs, meta, data, more = "fs" + n, "meta" + n, "data" + n, "more" + n
    name, yes = {"fs_name": fs}, {"yes_i_really_mean_it": True}
    for pool in (meta, data, more):
        yield "osd pool create", {"pool": pool, "pg_num": 1}
    yield "fs flag set", {"flag_name": "enable_multiple", "val": "true"}
    yield "fs new", {**name, "metadata": meta, "data": data}
    yield "fs set", {**name, "var": "max_mds", "val": "1"}
    yield "fs required_client_features", {**name, "subop": "add", "val": "mimic"}
    yield "fs compat", {**name, "subop": "rm_compat", "feature": 20}
    yield "fs add_data_pool", {**name, "pool": more}
    yield "fs rm_data_pool", {**name, "pool": more}
    for prefix in ("fs set_default", "fs set-default", "fs mirror enable"):
        yield prefix, name
    yield "fs mirror peer_add", {**name, "uuid": "u", "remote_cluster_spec": "client.x@c", "remote_fs_name": "f"}
    yield "fs mirror peer_remove", {**name, "uuid": "u"}
    yield "fs mirror disable", name
    yield "fs authorize", {"filesystem": fs, "entity": "client." + fs, "caps": ["/", "rw"]}
    yield "mds fail", {"role_or_gid": "never"}
    yield "mds repaired", {"role": fs + ":0"}, ENOENT
    yield "mds rm", {"gid": 7}
    yield "mds rmfailed", {"role": fs + ":0", **yes}, EINVAL
    yield "mds freeze", {"role_or_gid": "never", "val": "true"}, EINVAL
    yield "mds set_state", {"gid": 7, "state": 3}
    for prefix in ("mds compat rm_compat", "mds compat rm_incompat"):
        yield prefix, {"feature": 40}
    for prefix in ("dump", "getmap", "stop", "deactivate", "set_max_mds", "set", "cluster_down", "cluster_up", "tell", "newfs", "add_data_pool", "rm_data_pool",
                   "remove_data_pool"):  # fmt: skip
        yield "mds " + prefix, {}, EOPNOTSUPP
    yield "fs fail", name
    yield "fs reset", {**name, **yes}
    yield "fs rm", {**name, **yes}


class Table:
    """What the monitors say that there is."""

    def __init__(self, cluster):
        code, out, said = cluster.mon_command(json.dumps({"prefix": "get_command_descriptions"}), b"")
        assert code == 0, said
        self.perms, self.managers = {}, set()
        for c in json.loads(out).values():
            prefix = " ".join(w for w in c["sig"] if isinstance(w, str))
            self.perms.setdefault(prefix, c["perm"])
            if c["flags"] & 8:
                self.managers.add(prefix)
            else:
                self.managers.discard(prefix)
                self.perms[prefix] = c["perm"]

    def check(self, known):
        if missing := set(self.perms) - known:
            sys.exit("commands without a step here: %s" % sorted(missing))
        if over := known - set(self.perms):
            sys.exit("there are no such commands: %s" % sorted(over))

    def ask(self, cluster, prefix, args, data=b""):
        ask = cluster.mgr_command if prefix in self.managers else cluster.mon_command
        return ask(json.dumps({"prefix": prefix, **args}), data)


def connected(**conf):
    cluster = rados.Rados(conffile=CONF, conf=conf)
    cluster.connect(timeout=60)
    return cluster


def prepared(cluster, n):
    """The steps with what they send along: what is done at once, one after the other; each of lists of them."""
    pools = json.loads(cluster.mon_command(json.dumps({"prefix": "osd lspools", "format": "json"}), b"")[1])
    pool = next(p for p in pools if p["poolname"] == "p")
    crush = cluster.mon_command(json.dumps({"prefix": "osd getcrushmap"}), b"")[1]
    stages = [[[]]]
    for step in steps(n, "p", "%d.0" % pool["poolnum"]):
        if step == ASIDE:
            stages[-1].append([])
            continue
        if step == WHEN_ALL_ENDED:
            stages.append([[]])
            continue
        prefix, args, *more = step
        data = [m.encode() if m != "the map as it is" else crush for m in more if isinstance(m, str)]
        stages[-1][-1].append((prefix, args, {0, *(m for m in more if isinstance(m, int))}, b"".join(data)))
    return stages


def flat(lists):
    return [entry for entries in lists for entry in entries]


def side_by_side(work, lots):
    threads = [threading.Thread(target=work, args=lot) for lot in lots]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def answered(n):
    cluster = connected(rados_mon_op_timeout="60", rados_osd_op_timeout="60")
    table, stages = Table(cluster), prepared(cluster, n)
    table.check({prefix for prefix, *_ in flat(flat(stages))})
    wrong, ended = [], []

    def patient(prefix, args, codes, data):
        """Asks again while the answer is to try again: a PG that a chain beside this one makes or peers anew has no state for a moment."""
        deadline = time.monotonic() + 60
        while True:
            code, _, said = table.ask(cluster, prefix, args, data)
            if code != EAGAIN or code in codes or time.monotonic() > deadline:
                return code, said
            time.sleep(0.2)

    def ask(*chain):
        for prefix, args, codes, data in chain:
            code, said = patient(prefix, args, codes, data)
            if code not in codes:
                wrong.append("%s %s: %d %s" % (prefix, json.dumps(args), code, said))
        ended.append(chain)

    for chains in stages:
        side_by_side(ask, chains)
    assert len(ended) == len(flat(stages))
    sys.exit("\n".join(wrong) or None)


def silent():
    cluster = connected(rados_mon_op_timeout="6", rados_osd_op_timeout="6")
    table, all_steps = Table(cluster), flat(flat(prepared(cluster, "9")))
    # The manager goes on serving what only reads: it needs no majority for that.
    all_steps = [s for s in all_steps if s[0] not in table.managers]
    # A monitor reads only so many commands of one connection while it has no majority: these are left out.
    all_steps = [s for s in all_steps if not (s[0].startswith(("fs ", "mds ")) and "w" in table.perms[s[0]])]
    all_steps = [s for s in all_steps if not str(s[1].get("pool")).startswith(("meta", "data9", "more"))]
    print("ready", flush=True)
    sys.stdin.readline()
    codes = ["no answer, and no end"] * len(all_steps)

    def ask(i, prefix, args, data):
        try:
            codes[i] = table.ask(cluster, prefix, args, data)[0]
        except Exception as e:  # pylint: disable=broad-except
            codes[i] = repr(e)

    side_by_side(ask, [(i, prefix, args, data) for i, (prefix, args, _, data) in enumerate(all_steps)])
    # What only reads may be answered, but is asked all the same.
    bad = lambda prefix, code: code != ETIMEDOUT and ("w" in table.perms[prefix] or not isinstance(code, int))
    wrong = ["%s %s: %s" % (prefix, args, code) for (prefix, args, *_), code in zip(all_steps, codes) if bad(prefix, code)]
    # They are gone with this process, before there is a majority again.
    os._exit(print("\n".join(wrong), flush=True) or 1 if wrong else 0)


if __name__ == "__main__":
    answered(sys.argv[2]) if sys.argv[1] == "answered" else silent()
