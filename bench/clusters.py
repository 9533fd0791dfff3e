"""The clusters that are thrashed: Loligo's and Debian's Ceph's daemons as processes of their own, behind one interface.

Daemons have Ceph's names (mon.a, osd.0, mgr.x). A cluster ends only processes that it started itself.
"""
import contextlib
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid

import rados

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "scripts"))
from processes import Trouble, alive, ceph, end_in_order, run


def faketime():
    """The library that shifts a process's clock."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        raise Trouble("no libfaketime: apt-get install libfaketime")
    return found[0]


class Cluster:
    def __init__(self, args, folder):
        self.dir, self.conf, self.children = folder, os.path.join(folder, "ceph.conf"), {}
        self.client, self.killed = None, {}
        self.more = ""  # of the configuration's section [global], Ceph only
        self.mons, self.osds = "abcde"[: args.mons], list(range(args.osds))

    def ceph(self, *words, timeout=60):
        return ceph(self.conf, *words, timeout=timeout)

    def ask(self, prefix, target="mon", timeout=30, **arguments):
        """The answer to a command, as JSON, over a connection that is kept: starting `ceph` takes a second of CPU."""
        if not self.client:
            self.client = rados.Rados(conffile=self.conf)
            self.client.connect(timeout=30)
        command = json.dumps({"prefix": prefix, "format": "json", **arguments})
        if target == "mon":
            code, out, error = self.client.mon_command(command, b"", timeout=timeout)
        else:
            code, out, error = self.client.mgr_command(command, b"", timeout=timeout)
        if code:
            raise Trouble("%s ended with %d: %s" % (prefix, code, error))
        return json.loads(out) if out.strip() else None

    def disconnect(self):
        if self.client:
            self.client.shutdown()
            self.client = None

    def pid(self, name):
        try:
            with open(os.path.join(self.dir, name + ".pid")) as f:
                pid = int(f.read())
        except (OSError, ValueError):
            raise Trouble("no pid file of " + name) from None
        if not alive(pid) or not self.is_ours(pid):
            raise Trouble("%s does not run" % name)
        return pid

    def is_ours(self, pid):
        """Whether the process was started with files of this cluster: a number in an old file may belong to anybody by now."""
        try:
            with open("/proc/%d/cmdline" % pid) as f:
                return self.dir in f.read()
        except OSError:
            return False

    def signal(self, name, which):
        os.kill(self.pid(name), which)

    def reap(self):
        for child in self.children.values():
            child.poll()

    def kill(self, *names):
        """All of them at once."""
        if osds := [int(name[4:]) for name in names if name.startswith("osd.")]:
            since = self.up_from()
            self.killed.update({osd: since[osd] for osd in osds})
        pids = {self.pid(name) for name in names}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while any(alive(pid) for pid in pids):
            self.reap()
            time.sleep(0.01)

    def up_from(self):
        """The epoch since which each OSD is, or was, up."""
        return {o["osd"]: o["up_from"] for o in self.ask("osd dump")["osds"]}

    def start_daemon(self, name, words, skew, twin=""):
        """Starts it as a process whose clock is off by so many seconds, in Debian's libfaketime; its monotonic clock is right.
        `twin`: Loligo's bad medium in place of the disk."""
        self.reap()
        env = dict(os.environ, LOLIGO_TWIN=twin)
        if skew:
            env.update(LD_PRELOAD=faketime(), FAKETIME="%+fs" % skew, FAKETIME_DONT_FAKE_MONOTONIC="1", DONT_FAKE_MONOTONIC="1")
        with open(os.path.join(self.dir, name + ".out"), "a") as out:
            self.children[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=env)

    def says_twin(self, name, twin):
        """Whether a daemon has said that it works on this bad medium."""
        for end in (".out", ".log"):
            with contextlib.suppress(OSError), open(os.path.join(self.dir, name + end), errors="replace") as f:
                if "LOLIGO_TWIN=%s:" % twin in f.read():
                    return True
        return False

    def leader(self):
        return "mon." + self.ask("quorum_status")["quorum_leader_name"]

    def manager(self):
        return "mgr.x"

    def crush_host(self, osd):
        return "host-%d" % osd

    def primary(self, pool, name):
        return "osd.%d" % self.ask("osd map", pool=pool, object=name)["acting_primary"]

    def unclean(self):
        """What is missing to a cluster with all OSDs up and all PGs active and clean; None when nothing is."""
        status = self.ask("status")
        osds, pgs = status["osdmap"], status["pgmap"]
        osds = osds.get("osdmap", osds)
        if osds["num_up_osds"] != len(self.osds) or osds["num_in_osds"] != len(self.osds):
            return "%d of %d OSDs up, %d in" % (osds["num_up_osds"], len(self.osds), osds["num_in_osds"])
        states = {s["state_name"]: s["count"] for s in pgs.get("pgs_by_state", [])}
        bad = {s: n for s, n in states.items() if not {"active", "clean"} <= set(s.split("+"))}
        if bad or not states or len(status["quorum"]) != len(self.mons):
            return "PGs %s, monitors %s" % (bad or states, status["quorum_names"])
        return self.stale()

    def stale(self):
        """What of all this may be news from before the last fault: OSDs that have not booted since, PGs that have not reported since."""
        if not self.killed:
            return None
        since = self.up_from()
        if waiting := [osd for osd, before in self.killed.items() if since[osd] <= before]:
            return "OSDs %s have not booted again" % waiting
        dump = self.ask("pg dump", target="mgr", dumpcontents=["pgs"])
        pgs = dump.get("pg_stats", dump.get("pg_map", {}).get("pg_stats"))
        members = {pg["pgid"]: self.killed.keys() & {*pg["up"], *pg["acting"]} for pg in pgs}
        old = [pg["pgid"] for pg in pgs if any(pg["reported_epoch"] < since[osd] for osd in members[pg["pgid"]])]
        if old:
            return "PGs %s have not reported since" % old[:5]
        self.killed = {}
        return None

    def wait_clean(self, seconds, look=lambda: None):
        """Waits for it, calling `look` now and then; how long it took. Raises Trouble when the time is over."""
        begin, clean, last = time.monotonic(), 0, None
        while time.monotonic() - begin < seconds:
            look()
            last = self.unclean()
            clean = 0 if last else clean + 1
            if clean == 2:  # statistics lag behind maps
                return time.monotonic() - begin
            time.sleep(0.3)
        raise Trouble("not clean after %d s: %s" % (seconds, last))

    def spread(self):
        """Two racks, a host for each OSD, and rules that spread over hosts."""
        self.ceph("config", "set", "osd", "osd_crush_update_on_start", "false")
        for rack in ("rack-0", "rack-1"):
            self.ceph("osd", "crush", "add-bucket", rack, "rack")
            self.ceph("osd", "crush", "move", rack, "root=default")
        for i in self.osds:
            self.ceph("osd", "crush", "set", "osd.%d" % i, "1.0", "root=default", "rack=rack-%d" % (i % 2), "host=host-%d" % i)
        self.ceph("osd", "crush", "rule", "create-replicated", "spread", "default", "host")


def mon_port():
    """A port for the first monitor, below those that the kernel gives to whoever asks for any: one of these may be another
    process's by the time that a killed monitor comes back. Further monitors take the next ones."""
    first = 10000 + os.getpid() % 20000
    for port in range(first, first + 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise Trouble("no free port from %d on" % first)


class Loligo(Cluster):
    kind = "loligo"

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.binary = os.path.abspath(args.loligo)

    def start(self):
        counts = ("--mons", str(len(self.mons)), "--osds", str(len(self.osds)), "--osd-size", "4G")
        words = ("--detach", "--processes", *counts, "--mon-port", str(mon_port()))
        run(self.binary, "up", "--data", self.dir, *words, timeout=180)

    def launch(self, name, skew=0.0, twin=""):
        kind, _, identity = name.partition(".")
        self.start_daemon(name, (self.binary, kind, "--id", identity, "--data", self.dir), skew, twin)

    def replace(self, osd):
        """Gives an OSD that is down an empty disk."""
        self.ceph("osd", "destroy", str(osd), "--yes-i-really-mean-it")
        run(self.binary, "osd", "--data", self.dir, "--id", str(osd), "--replace")

    def stop(self):
        self.disconnect()
        run(self.binary, "down", "--data", self.dir, timeout=120, check=False)


class Ceph(Cluster):
    kind = "ceph"
    SETTINGS = """
[global]
fsid = {fsid}
mon host = {hosts}
keyring = {dir}/keyring
run dir = {dir}
admin socket = {dir}/$name.asok
log file = {dir}/$name.log
pid file = {dir}/$name.pid
public addr = 127.0.0.1
mon allow pool delete = true
mon data avail warn = 2
mon data avail crit = 1
osd pool default pg autoscale mode = off
auth allow insecure global id reclaim = false
[mon]
mon data = {dir}/mon.$id
[mgr]
mgr data = {dir}/mgr.$id
mgr initial modules =
[osd]
osd data = {dir}/osd.$id
osd memory target = 1073741824
bluestore block size = 4294967296
# a file is taken for a disk that turns, which slows recovery down
osd recovery sleep hdd = 0
"""

    def start(self):
        os.makedirs(self.dir)
        fsid = str(uuid.uuid4())
        ports = ["[v2:127.0.0.1:%d/0,v1:127.0.0.1:%d/0]" % (46400 + 2 * i, 46401 + 2 * i) for i in range(len(self.mons))]
        with open(self.conf, "w") as f:
            f.write(self.SETTINGS.replace("[mon]\n", self.more + "[mon]\n").format(fsid=fsid, hosts=",".join(ports), dir=self.dir))
        keyring, monmap = os.path.join(self.dir, "keyring"), os.path.join(self.dir, "monmap")
        run("ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")
        run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        adds = [word for name, port in zip(self.mons, ports) for word in ("--addv", name, port)]
        run("monmaptool", "--create", "--fsid", fsid, *adds, monmap)
        for name in self.mons:
            run("ceph-mon", "-c", self.conf, "--mkfs", "-i", name, "--monmap", monmap, "--keyring", keyring)
            self.launch("mon." + name)
        os.makedirs(os.path.join(self.dir, "mgr.x"))
        self.key("mgr.x", "mon", "allow profile mgr", "osd", "allow *")
        self.launch("mgr.x")
        made = [self.make_osd(i) for i in self.osds]
        for i, process in zip(self.osds, made):
            self.wait_made(i, process)
            self.launch("osd.%d" % i)
        self.wait_up()

    def wait_up(self):
        until = time.monotonic() + 90
        while time.monotonic() < until:
            if self.ask("osd stat")["num_up_osds"] == len(self.osds):
                return
            time.sleep(0.05)
        raise Trouble("the OSDs do not come up")

    def key(self, entity, *caps):
        """Has a key made and puts it into the keyring. All commands here go over the connection that is kept, as starting `ceph` for each
        would take most of the time of the cluster's start."""
        secret = self.ask("auth get-or-create", entity=entity, caps=caps)[0]["key"]
        keyring = os.path.join(self.dir, "keyring")
        with open(keyring) as f:
            old = f.read()
        old = re.sub(r"(?ms)^\[%s\]\n.*?(?=^\[|\Z)" % re.escape(entity), "", old)
        with open(keyring + ".new", "w") as f:
            f.write(old + "[%s]\n\tkey = %s\n" % (entity, secret))
        os.replace(keyring + ".new", keyring)  # a daemon may be reading it

    def make_osd(self, i):
        """Begins to make the store of an OSD: the process that does it."""
        new, place = str(uuid.uuid4()), os.path.join(self.dir, "osd.%d" % i)
        os.makedirs(place)
        self.ask("osd new", uuid=new, **({"id": i} if i in self.ask("osd ls") else {}))
        self.key("osd.%d" % i, "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
        with open(os.path.join(place, "mkfs.out"), "w") as out:
            return subprocess.Popen(("ceph-osd", "-c", self.conf, "-i", str(i), "--mkfs", "--osd-uuid", new), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def wait_made(self, i, process):
        try:
            code = process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            with open(os.path.join(self.dir, "osd.%d" % i, "mkfs.out"), errors="replace") as f:
                raise Trouble("the store of osd.%d is not made, status %d: %s" % (i, code, f.read()[-600:]))

    def launch(self, name, skew=0.0, twin=""):
        if twin:
            raise Trouble("Ceph's daemons have no bad medium to work on")
        kind, _, identity = name.partition(".")
        self.start_daemon(name, ("ceph-" + kind, "-f", "-c", self.conf, "-i", identity, "--setuser", "root", "--setgroup", "root"), skew)

    def replace(self, osd):
        self.ceph("osd", "destroy", str(osd), "--yes-i-really-mean-it")
        run("rm", "-r", os.path.join(self.dir, "osd.%d" % osd))
        self.wait_made(osd, self.make_osd(osd))

    def stop(self):
        self.disconnect()
        for which in (signal.SIGTERM, signal.SIGKILL):
            for child in self.children.values():
                if child.poll() is None:
                    child.send_signal(which)
            until = time.monotonic() + 15
            while time.monotonic() < until and any(c.poll() is None for c in self.children.values()):
                time.sleep(0.1)
