#!/usr/bin/python3
"""A cluster of several hosts on one machine: network namespaces with a public and a cluster network, and Ceph's plain configuration file.

  scripts/hosts.py up [--dir DIR] [--hosts 3] [--osds 1] [--loligo target/release/loligo] [--peer ceph] [--set NAME=VALUE]...
  scripts/hosts.py status | down
  scripts/hosts.py exec HOST COMMAND...            a command on that host
  scripts/hosts.py start | stop | kill | freeze | thaw DAEMON...
  scripts/hosts.py replace osd.N                   an empty disk for an OSD that does not run
  scripts/hosts.py partition HOST [--one-way in|out] [--net public|cluster] [--from HOST]
  scripts/hosts.py heal [HOST]

Hosts are h1, h2, ...; mon.a, mon.b, ... run on the first three, mgr.x on h1, osd.0, ... on each in turn. `client` is this machine: it
is in the public network, so `ceph -c DIR/ceph.conf` and librados work without `exec`. A partition drops packets (nftables): all of a
host's, those it receives (`in`) or sends (`out`), those of one network, or those from and to one other host or `client`.

Needs root, iproute2 and nftables. Everything lies in DIR; `down` removes the namespaces and bridges and keeps DIR. The class Hosts is
what other programs use.
"""
import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid

from processes import Trouble, alive, ceph, run


CONF = """\
[global]
fsid = {fsid}
mon initial members = {names}
mon host = {hosts}
public network = {public}
cluster network = {cluster}
keyring = {dir}/keyring
run dir = {dir}
admin socket = {dir}/$name.asok
log file = {dir}/$name.log
pid file = {dir}/$name.pid
mon data = {dir}/$name
mgr data = {dir}/$name
osd data = {dir}/$name
mon allow pool delete = true
osd pool default size = {copies}
osd pool default min size = {least}
{more}
[mon]
keyring = {dir}/$name/keyring
[mgr]
keyring = {dir}/$name/keyring
[osd]
keyring = {dir}/$name/keyring
[client]
log file =
"""
# What Debian's Ceph needs to run small, and without complaints about it.
CONF_OF_CEPH = """\
mon data avail warn = 2
mon data avail crit = 1
auth allow insecure global id reclaim = false
mgr initial modules =
osd memory target = 1073741824
"""


def missing():
    """What there can be no hosts without, and is not here: root, or a program; None when all is. That it fails nonetheless is Trouble."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if absent := [word for word in ("ip", "nft") if not shutil.which(word)]:
        return "there is no %s here" % " and no ".join(absent)
    name = "ho-try-%d" % os.getpid()
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "nft", "add table inet cut")
        run("ip", "netns", "exec", name, "nft", "add table ip px; add chain ip px out { type nat hook output priority -100; }")
    except Trouble as e:
        raise Trouble("no network namespaces with nftables here: %s" % e) from None
    finally:
        run("ip", "netns", "del", name, check=False)
    return None


def free_net(first):
    """A number N for 10.N.0.0/16 that no route of this machine touches, from `first` on."""
    routes = run("ip", "-4", "route")
    for i in range(180):
        n = 64 + (first - 64 + i) % 180
        if "10.%d." % n not in routes:
            return n
    raise Trouble("10.64.0.0 to 10.243.0.0 are all in use here")


class Hosts:
    """The cluster in a folder. Daemons have Ceph's names (mon.a, osd.0, mgr.x)."""

    def __init__(self, folder, **settings):
        self.dir = os.path.abspath(folder)
        self.conf = os.path.join(self.dir, "ceph.conf")
        self.file = os.path.join(self.dir, "hosts.json")
        self.children = []
        if settings:
            self.__dict__.update(settings)
        else:
            try:
                with open(self.file) as f:
                    self.__dict__.update(json.load(f))
            except OSError:
                raise Trouble("%s holds no cluster of hosts: make one with `up`" % self.dir) from None
        # Names of interfaces are short, and two clusters on one machine must not meet.
        digest = hashlib.sha256(self.dir.encode()).digest()
        self.tag = digest.hex()[:5]
        self.net = settings.get("net") or self.__dict__.get("net") or free_net(64 + digest[0] % 180)
        self.hosts = ["h%d" % (i + 1) for i in range(self.count)]
        self.mons = "abcde"[: min(3, self.count)]

    # Where things are

    def address(self, host, net):
        last = 254 if host == "client" else self.hosts.index(host) + 1
        return "10.%d.%d.%d" % (self.net, 1 if net == "public" else 2, last)

    def namespace(self, host):
        if host not in self.hosts:
            raise Trouble("there is no host %s; there are %s" % (host, ", ".join(self.hosts)))
        return "ho%s%s" % (self.tag, host)

    def daemons(self):
        """Every daemon and its host, in the order in which they start."""
        out = {"mon." + name: host for name, host in zip(self.mons, self.hosts)}
        out["mgr.x"] = self.hosts[0]
        out.update({"osd.%d" % i: self.hosts[i % self.count] for i in range(self.count * self.osds)})
        return out

    def host_of(self, name):
        try:
            return self.daemons()[name]
        except KeyError:
            raise Trouble("there is no daemon %s; there are %s" % (name, ", ".join(self.daemons()))) from None

    def on(self, host, *words):
        """The words that run a command on a host, with its network and its name. The process keeps its pid."""
        inner = 'hostname "$0" && exec "$@"'
        return ["ip", "netns", "exec", self.namespace(host), "unshare", "--uts", "sh", "-c", inner, host, *map(str, words)]

    # The networks

    def make_networks(self):
        for net, letter in (("public", "p"), ("cluster", "c")):
            bridge = "br%s%s" % (self.tag, letter)
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "link", "set", bridge, "up")
            if net == "public":
                run("ip", "addr", "add", self.address("client", net) + "/24", "dev", bridge)
        for i, host in enumerate(self.hosts):
            space = self.namespace(host)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
            for net, letter in (("public", "p"), ("cluster", "c")):
                outer = "v%s%s%d" % (self.tag, letter, i)
                run("ip", "link", "add", outer, "type", "veth", "peer", "name", net, "netns", space)
                run("ip", "link", "set", outer, "master", "br%s%s" % (self.tag, letter), "up")
                run("ip", "-n", space, "addr", "add", self.address(host, net) + "/24", "dev", net)
                run("ip", "-n", space, "link", "set", net, "up")

    def remove_networks(self):
        for host in self.hosts:
            run("ip", "netns", "del", self.namespace(host), check=False)
        for letter in "pc":
            run("ip", "link", "del", "br%s%s" % (self.tag, letter), check=False)

    def partition(self, host, one_way=None, net=None, peer=None):
        """Drops a host's packets: those it gets (`in`) or sends (`out`), over one network, from and to one other host."""
        rules = []
        for hook, word in (("input", "in"), ("output", "out")):
            if one_way in (None, word):
                for n in ("public", "cluster"):
                    if net in (None, n):
                        way = "iifname" if hook == "input" else "oifname"
                        other = " ip %s %s" % ("saddr" if hook == "input" else "daddr", self.address(peer, n)) if peer else ""
                        rules.append("add rule inet cut %s %s %s%s drop" % (hook, way, n, other))
        base = ["add table inet cut"] + ["add chain inet cut %s { type filter hook %s priority 0; }" % (h, h) for h in ("input", "output")]
        run("ip", "netns", "exec", self.namespace(host), "nft", "; ".join(base + rules))

    def heal(self, host=None):
        for one in [host] if host else self.hosts:
            run("ip", "netns", "exec", self.namespace(one), "nft", "delete table inet cut", check=False)

    def is_cut(self, host):
        return "cut" in run("ip", "netns", "exec", self.namespace(host), "nft", "list tables")

    # The daemons

    def pid(self, name):
        """The process of a daemon, or None."""
        try:
            with open(os.path.join(self.dir, name + ".pid")) as f:
                pid = int(f.read())
            with open("/proc/%d/cmdline" % pid) as f:
                ours = self.conf in f.read()
        except (OSError, ValueError):
            return None
        return pid if ours and alive(pid) else None

    def words(self, name, *more):
        kind, _, identity = name.partition(".")
        if self.peer == "ceph":
            return ["ceph-" + kind, "-f", "-c", self.conf, "-i", identity, "--setuser", "root", "--setgroup", "root", *more]
        return [self.loligo, kind, "-c", self.conf, "--id", identity, *more]

    def launch(self, name, **environment):
        """Starts a daemon, without waiting for it."""
        more = []
        if name.startswith("osd."):
            host = self.host_of(name)
            more = ["--crush-location", "root=default rack=rack-%d host=%s" % (self.hosts.index(host) % 2, host)]
        with open(os.path.join(self.dir, name + ".out"), "a") as out:
            words = self.on(self.host_of(name), *self.words(name, *more))
            self.children.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **environment}))

    def start(self, name):
        """Starts a daemon and waits until it runs."""
        if self.pid(name):
            return
        self.launch(name)
        until = time.monotonic() + 30
        while not self.pid(name):
            if self.children[-1].poll() is not None or time.monotonic() > until:
                with open(os.path.join(self.dir, name + ".out")) as f:
                    raise Trouble("%s does not start: %s" % (name, "".join(f.readlines()[-3:])))
            time.sleep(0.02)

    def signal(self, name, which):
        pid = self.pid(name)
        if not pid:
            raise Trouble("%s does not run" % name)
        os.kill(pid, which)
        return pid

    def gone(self, name, pid, seconds):
        until = time.monotonic() + seconds
        while alive(pid):
            for child in self.children:
                child.poll()
            if time.monotonic() > until:
                raise Trouble("%s (process %d) does not end" % (name, pid))
            time.sleep(0.01)

    def stop(self, name, seconds=30):
        self.gone(name, self.signal(name, signal.SIGTERM), seconds)

    def kill(self, name):
        self.gone(name, self.signal(name, signal.SIGKILL), 30)

    def freeze(self, name):
        self.signal(name, signal.SIGSTOP)

    def thaw(self, name):
        self.signal(name, signal.SIGCONT)

    def ceph(self, *words, timeout=60):
        return ceph(self.conf, *words, timeout=timeout)

    # A new cluster

    def up(self, seconds=120):
        """Makes the cluster, or starts what does not run of one that there is; waits until all OSDs are up."""
        if not os.path.exists(self.file):
            try:
                self.make()
            except BaseException:
                self.unmake()
                raise
        elif not os.path.exists("/run/netns/" + self.namespace(self.hosts[0])):
            self.make_networks()
        for name in self.daemons():
            self.start(name)
        self.wait_up(seconds)

    def wait_up(self, seconds):
        wanted, until = self.count * self.osds, time.monotonic() + seconds
        while True:
            stat = self.ceph("osd", "stat", timeout=seconds)
            if stat["num_up_osds"] == wanted and stat["num_in_osds"] == wanted:
                return
            if time.monotonic() > until:
                raise Trouble("only %d of %d OSDs are up" % (stat["num_up_osds"], wanted))
            time.sleep(0.2)

    def unmake(self):
        """After a failure half way: nothing runs, no network is left, and `up` may be tried again in an empty folder."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        self.remove_networks()
        if os.path.exists(self.file):
            os.remove(self.file)

    def make(self):
        if os.path.isdir(self.dir) and os.listdir(self.dir):
            raise Trouble("%s is not empty" % self.dir)
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.make_networks()
        addresses = [self.address(host, "public") for host in self.hosts[: len(self.mons)]]
        v1 = ",v1:{0}:6789/0" if self.peer == "ceph" else ""
        copies = min(3, self.count)
        text = CONF.format(
            fsid=uuid.uuid4(), names=",".join(self.mons), hosts=",".join(("[v2:{0}:3300/0" + v1 + "]").format(a) for a in addresses),
            public="10.%d.1.0/24" % self.net, cluster="10.%d.2.0/24" % self.net, dir=self.dir, copies=copies, least=max(1, copies - 1),
            more=(CONF_OF_CEPH if self.peer == "ceph" else "") + "\n".join(self.set).replace("=", " = "),
        )  # fmt: skip
        with open(self.conf, "w") as f:
            f.write(text)
        first, monmap = os.path.join(self.dir, "first.keyring"), os.path.join(self.dir, "monmap")
        admin, keyring = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"), os.path.join(self.dir, "keyring")
        run("ceph-authtool", "-C", keyring, "--gen-key", "-n", "client.admin", *admin)
        run("ceph-authtool", "-C", first, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        run("ceph-authtool", first, "--import-keyring", keyring)
        fsid = text.split("fsid = ")[1].split()[0]
        adds = [w for name, a in zip(self.mons, addresses) for w in ("--addv", name, ("[v2:{0}:3300/0" + v1 + "]").format(a))]
        run("monmaptool", "--create", "--fsid", fsid, *adds, monmap)
        for name in self.mons:
            name = "mon." + name
            run(*self.on(self.host_of(name), *self.words(name, "--mkfs", "--monmap", monmap, "--keyring", first)))
        if self.peer == "ceph":  # Debian's package made no folder for the key
            for name in self.mons:
                run("cp", first, os.path.join(self.dir, "mon." + name, "keyring"))
        with open(self.file, "w") as f:
            known = ("count", "osds", "loligo", "peer", "size", "set", "net")
            json.dump({k: self.__dict__[k] for k in known}, f)
        for name in self.mons:
            self.start("mon." + name)
        self.ceph("status", timeout=90)
        self.make_key("mgr.x", "mon", "allow profile mgr", "osd", "allow *", "mds", "allow *")
        self.write("bootstrap-osd.keyring", run("ceph", "-c", self.conf, "auth", "get", "client.bootstrap-osd"))
        for i in range(self.count * self.osds):
            self.make_osd(i, fresh=True)

    def write(self, path, text):
        path = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    def make_key(self, name, *caps):
        self.write(name + "/keyring", run("ceph", "-c", self.conf, "auth", "get-or-create", name, *caps))

    def make_osd(self, i, fresh):
        """An OSD with an empty disk, registered with the monitors."""
        name = "osd.%d" % i
        if self.peer != "ceph":
            words = ["osd", "-c", self.conf, "--keyring", os.path.join(self.dir, "bootstrap-osd.keyring"), "--size", self.size]
            run(*self.on(self.host_of(name), self.loligo, *words, *(["--new"] if fresh else ["--replace", "--id", i])))
            return
        new = str(uuid.uuid4())
        run("rm", "-rf", os.path.join(self.dir, name))
        self.ceph("osd", "new", new, *([] if fresh else [str(i)]))
        self.make_key(name, "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
        size = str(int(self.size[:-1]) << {"M": 20, "G": 30}[self.size[-1]])
        run(*self.on(self.host_of(name), *self.words(name, "--mkfs", "--osd-uuid", new, "--bluestore-block-size", size)))

    def replace(self, name):
        if self.pid(name):
            raise Trouble("%s runs" % name)
        i = int(name.partition(".")[2])
        until = time.monotonic() + 60
        while self.ceph("osd", "info", i)["up"]:
            if time.monotonic() > until:
                raise Trouble("%s is not marked down" % name)
            time.sleep(0.2)
        self.ceph("osd", "destroy", str(i), "--yes-i-really-mean-it")
        self.make_osd(i, fresh=False)

    def down(self):
        """Ends what runs and removes the networks; the data stays."""
        self.heal()
        for name in reversed(self.daemons()):
            pid = self.pid(name)
            if pid:
                os.kill(pid, signal.SIGCONT)
                try:
                    self.stop(name, seconds=15)
                except Trouble:
                    self.kill(name)
        self.remove_networks()

    def status(self):
        daemons = {name: {"host": host, "pid": self.pid(name)} for name, host in self.daemons().items()}
        hosts = {h: {"public": self.address(h, "public"), "cluster": self.address(h, "cluster"), "cut": self.is_cut(h)} for h in self.hosts}
        return {"dir": self.dir, "conf": self.conf, "peer": self.peer, "hosts": hosts, "daemons": daemons}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=os.environ.get("HOSTS_DIR", "hosts"))
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("--hosts", type=int, default=3, choices=range(1, 10))
    up.add_argument("--osds", type=int, default=1, help="on each host")
    up.add_argument("--loligo", default="target/release/loligo")
    up.add_argument("--peer", default="loligo", choices=["loligo", "ceph"])
    up.add_argument("--size", default="4G", help="of each OSD's file")
    up.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a line of ceph.conf's [global]")
    for name in ("down", "status"):
        commands.add_parser(name)
    for name in ("start", "stop", "kill", "freeze", "thaw", "replace"):
        commands.add_parser(name).add_argument("daemons", nargs="+", metavar="DAEMON")
    execute = commands.add_parser("exec")
    execute.add_argument("host")
    execute.add_argument("words", nargs=argparse.REMAINDER)
    partition = commands.add_parser("partition")
    partition.add_argument("host")
    partition.add_argument("--one-way", choices=["in", "out"])
    partition.add_argument("--net", choices=["public", "cluster"])
    partition.add_argument("--from", dest="peer", metavar="HOST")
    commands.add_parser("heal").add_argument("host", nargs="?")
    for sub in commands.choices.values():
        sub.add_argument("--dir", default=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.command == "up" and not os.path.exists(os.path.join(args.dir, "hosts.json")):
        binary = os.path.abspath(args.loligo)
        cluster = Hosts(args.dir, count=args.hosts, osds=args.osds, loligo=binary, peer=args.peer, size=args.size, set=args.set)
    else:
        cluster = Hosts(args.dir)
    if args.command == "up":
        cluster.up()
        print("The cluster runs on %s: ceph -c %s -s" % (", ".join(cluster.hosts), cluster.conf))
    elif args.command == "down":
        cluster.down()
    elif args.command == "status":
        print(json.dumps(cluster.status(), indent=1))
    elif args.command == "exec":
        words = cluster.on(args.host, *args.words)
        os.execvp(words[0], words)
    elif args.command == "partition":
        cluster.partition(args.host, args.one_way, args.net, args.peer)
    elif args.command == "heal":
        cluster.heal(args.host)
    else:
        for name in args.daemons:
            getattr(cluster, args.command)(name)


if __name__ == "__main__":
    try:
        main()
    except Trouble as trouble:
        sys.exit("hosts: %s" % trouble)
