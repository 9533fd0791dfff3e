#!/usr/bin/python3
"""Kills, stops, wipes and moves the daemons of a cluster while clients use it, and checks everything that clients were promised.

  thrash/thrash.py loligo --loligo target/release/loligo [--minutes 3] [--seed N]
  thrash/thrash.py ceph                                  the same on Debian's Ceph: checks this program
  thrash/thrash.py hosts [--peer ceph]                   hosts with networks of their own, which are cut
  thrash/thrash.py loligo --each [--faults kill-osd,freeze-primary]
  thrash/thrash.py loligo --pool ec:4+2                  objects and an image's data in an erasure-coded pool

Load: two client processes of thrash/model.py (Debian's librados) on shared and own objects, and fio's rbd engine that verifies what it
reads. With a coded pool omaps, and the image's header, are in a replicated one beside it. A storm of overlapping faults (thrash/storm.py), or with --each one after the other: injected, held, healed, and the cluster has
to become active+clean with nothing typed. In the end: every history linearizable, every own object and snapshot as its model says, fio
without an error, a deep scrub without one, no client error. With --each, no operation may have taken longer than --stall while
no more OSDs were killed than the pool can spare: size less min_size.

Prints a line for each fault: the longest that a client's operation took, and the seconds to active+clean. Exit status 1: a promise was broken.
"""
import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rados

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "bench"))
from clusters import Ceph, Loligo, Trouble, end_in_order, run
from hosts_cluster import NetworkHosts
from hosts import missing
import pools
from history import Op, appends, register
from model import LOGS, read_log
from proxy import Proxy
from storm import LEAST_PER_MINUTE, Storm

HERE = os.path.dirname(os.path.abspath(__file__))
POOL, IMAGES, IMAGE = "thrash", "thrash-images", "image"
SKIPPED = 77  # exit status
FIO_LIMIT = 600  # seconds of a pass, without the time that the cluster may be away
ASK_AGAIN = 20  # seconds until a scrub that did not come is asked for once more


class Thrash:
    def __init__(self, args, cluster):
        self.args, self.cluster, self.rng, self.pool = args, cluster, random.Random(args.seed), pools.parse(args.pool, args.min_size, args.seed)
        self.clients, self.fio, self.fio_runs, self.faults, self.wrong = [], None, 0, [], []

    # The load

    def begin(self):
        c = self.cluster
        c.spread()
        for pool, name, application in ((self.pool, POOL, "rados"), (pools.beside(self.pool), IMAGES, "rbd")):
            pools.create(c, pool, name)
            c.ceph("osd", "pool", "application", "enable", name, application)
        data, omaps = (("--data-pool", POOL), ("--maps", IMAGES)) if self.pool.k else ((), ())
        run("rbd", "-c", c.conf, "create", "--size", "%dM" % self.args.image, *data, "%s/%s" % (IMAGES, IMAGE))
        c.wait_clean(120)
        for i in range(2):
            out = os.path.join(c.dir, "history.%d" % i)
            words = [os.path.join(HERE, "model.py"), c.conf, POOL, "client%d" % i, str(self.args.seed), "6", out, "--rate", str(self.args.rate), *omaps]
            errors = open(os.path.join(c.dir, "client%d.err" % i), "w")
            client = subprocess.Popen(["/usr/bin/python3", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            self.clients.append((client, out))
        for client, _ in self.clients:
            if client.stdout.readline().strip() != "ready":
                raise Trouble("a client does not start")
        self.start_fio()

    def start_fio(self):
        """One pass over the image at random places, each block verified."""
        words = ["fio", "--output-format=json", "--name=thrash", "--ioengine=rbd", "--pool=" + IMAGES, "--rbdname=" + IMAGE, "--clientname=admin",
                 "--direct=1", "--rw=randwrite", "--bs=4k", "--iodepth=4", "--size=%dM" % self.args.image, "--rate_iops=%d" % self.args.iops, "--randseed=%d" % (self.fio_runs + 1),
                 "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]  # fmt: skip
        self.fio_begin = time.monotonic()
        env = {"CEPH_CONF": self.cluster.conf, "PATH": os.environ["PATH"]}
        self.fio = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=self.cluster.dir)

    def look(self):
        """Notices clients that ended, and keeps fio running."""
        for client, out in self.clients:
            if client.poll() is not None:
                raise Trouble("a client ended with %s, see %s" % (client.returncode, out))
        if self.fio.poll() is not None:
            self.fio_ended()
            self.start_fio()
        elif time.monotonic() - self.fio_begin > FIO_LIMIT + self.args.clean:
            raise Trouble("a pass of fio does not end")

    def fio_ended(self):
        text = self.fio.communicate()[0]
        self.fio_runs += 1
        at = text.find("{")
        job = json.loads(text[at:])["jobs"][0] if at >= 0 and self.fio.returncode == 0 else {"error": -1}
        error = job["error"]
        if not error and not job["read"]["total_ios"]:
            self.wrong.append("a pass of fio verified nothing")
        if error:
            self.wrong.append("fio ended with status %s, error %s: %s" % (self.fio.returncode, error, text[-600:]))

    def hold(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.1)

    # The faults; each leaves the cluster healed

    def kill_osd(self):
        """Each OSD in turn: kill -9, some seconds without it, started again."""
        names = ["osd.%d" % i for i in self.cluster.osds]
        self.rng.shuffle(names)
        for name in names:
            yield name
            self.cluster.kill(name)
            self.hold(self.rng.uniform(3, 8))
            self.cluster.launch(name)

    def kill_primary_briefly(self):
        """The primary of a busy object dies and comes back at once."""
        name = self.cluster.primary(POOL, "register-%d" % self.rng.randrange(12))
        yield name
        self.cluster.kill(name)
        self.cluster.launch(name)

    def kill_spare(self):
        """As many OSDs of a busy object as its pool can spare die at once, its primary among them."""
        acting, first = self.acting("register-%d" % self.rng.randrange(12))
        others = self.rng.sample([osd for osd in acting if osd != first], pools.spare(self.pool) - 1)
        names = ["osd.%d" % osd for osd in (first, *others)]
        yield " and ".join(names)
        self.cluster.kill(*names)
        self.hold(self.rng.uniform(3, 8))
        for name in names:
            self.cluster.launch(name)

    def acting(self, name):
        """The OSDs that an object lies on, and its primary."""
        found = self.cluster.ask("osd map", pool=POOL, object=name)
        return found["acting"], found["acting_primary"]

    def kill_leader(self):
        name = self.cluster.leader()
        yield name
        self.cluster.kill(name)
        self.hold(6)
        self.cluster.launch(name)

    def kill_manager(self):
        name = self.cluster.manager()
        yield name
        self.cluster.kill(name)
        self.hold(3)
        self.cluster.launch(name)

    def freeze_primary(self):
        """A primary does nothing for 30 s: long enough to be marked down, and then believes that nothing happened."""
        name = self.cluster.primary(POOL, "register-0")
        yield name
        self.cluster.signal(name, signal.SIGSTOP)
        try:
            self.hold(30)
        finally:
            self.cluster.signal(name, signal.SIGCONT)

    def kill_all_osds(self):
        """The lights go out: all OSDs at once, and they return one after the other."""
        names = ["osd.%d" % i for i in self.cluster.osds]
        yield "all OSDs"
        self.cluster.kill(*names)
        self.rng.shuffle(names)
        for name in names:
            self.cluster.launch(name)
            self.hold(0.5)

    def power_loss_osd(self):
        """An OSD works on a medium that keeps unsynced writes in memory, but for random parts of them; a kill loses the rest."""
        osd = self.rng.choice(self.cluster.osds)
        yield "osd.%d" % osd
        self.relaunch(["osd.%d" % osd], self.losing())
        self.hold(self.rng.uniform(2, 5))
        self.cluster.kill("osd.%d" % osd)
        self.cluster.launch("osd.%d" % osd)

    def power_loss_all(self):
        """The same with all OSDs and monitors, which lose power at the same moment."""
        names = ["mon." + m for m in self.cluster.mons] + ["osd.%d" % i for i in self.cluster.osds]
        yield "all OSDs and monitors"
        self.relaunch(names, self.losing())
        self.hold(self.rng.uniform(3, 6))
        self.cluster.kill(*names)
        self.rng.shuffle(names)
        for name in names:
            self.cluster.launch(name)
            self.hold(0.2)

    def losing(self):
        return "power-loss=%d" % self.rng.randrange(1 << 30)

    def relaunch(self, names, twin):
        """Starts daemons anew on a bad medium, one after the other."""
        for name in names:
            self.cluster.kill(name)
            self.cluster.launch(name, twin=twin)
            if name.startswith("osd."):
                osd = int(name[4:])
                self.wait("%s to boot" % name, lambda: self.cluster.up_from()[osd] > self.cluster.killed[osd] and self.up(osd))
            if twin:
                self.wait("%s to say that it is on a bad medium" % name, lambda: self.cluster.says_twin(name, twin))
            if name.startswith("mon."):
                self.wait("a full quorum", lambda: len(self.cluster.ask("quorum_status")["quorum"]) == len(self.cluster.mons))

    def wait(self, what, good, seconds=60):
        until = time.monotonic() + seconds
        while not good():
            if time.monotonic() > until:
                raise Trouble("%s takes more than %d s: %s" % (what, seconds, self.cluster.unclean()))
            self.hold(0.2)

    def slow_disk(self):
        """Each read, write and sync of an OSD's disk takes longer."""
        osd, delay = self.rng.choice(self.cluster.osds), self.rng.choice([2, 20, 100])
        yield "osd.%d by %d ms" % (osd, delay)
        self.relaunch(["osd.%d" % osd], "delay-ms=%d" % delay)
        self.hold(8)
        self.relaunch(["osd.%d" % osd], "")

    def below_min_size(self):
        """One OSD more is gone than an object can spare: nothing of it is answered, until one is back; then everything that was asked."""
        name = "probe-%d" % len(self.faults)
        acting, first = self.acting(name)
        # The primary stays, and the coded ones choose which shards do.
        others = [osd for osd in acting if osd != first]
        gone = ["osd.%d" % osd for osd in (self.rng.sample(others, pools.spare(self.pool) + 1) if self.pool.k else others)]
        yield " and ".join(gone)
        with rados.Rados(conffile=self.cluster.conf) as client:
            io = client.open_ioctx(POOL)
            io.write_full(name, b"before")
            self.cluster.kill(*gone)
            self.wait("%d deaths to be noticed" % len(gone), lambda: not any(self.up(int(osd[4:])) for osd in gone))
            answers = []
            write = io.aio_write_full(name, b"after")
            read = io.aio_read(name, 100, 0, lambda _, data: answers.append(data))
            self.hold(5)
            if write.is_complete() or read.is_complete():
                self.wrong.append("%s was served with %d of %d OSDs" % (name, len(acting) - len(gone), len(acting)))
            # Who was the last to be seen dead comes first: those who outlived the others may have taken writes, and all of them may
            # be needed to know of these.
            down = {"osd.%d" % o["osd"]: o["down_at"] for o in self.cluster.ask("osd dump")["osds"]}
            gone.sort(key=lambda osd: -down[osd])
            self.cluster.launch(gone[0])
            # The callback comes after the completion.
            self.wait("the answers", lambda: write.is_complete() and read.is_complete() and answers)
            for osd in gone[1:]:
                self.cluster.launch(osd)
            if write.get_return_value() != 0 or answers not in ([b"before"], [b"after"]) or io.read(name) != b"after":
                self.wrong.append("%s holds %r after %r, %r" % (name, io.read(name), answers, write.get_return_value()))

    def missed_maps(self):
        """An OSD comes back when the monitors no longer keep the maps that it missed, which they do while PGs lack it."""
        osd, c = self.rng.choice(self.cluster.osds), self.cluster
        yield "osd.%d" % osd
        options = (("mon", "mon_min_osdmap_epochs", "20"), ("mon", "paxos_service_trim_min", "1"), ("osd", "osd_beacon_report_interval", "2"))
        for who, option, value in options:
            c.ceph("config", "set", who, option, value)
        c.kill("osd.%d" % osd)
        self.wait("its death to be noticed", lambda: not self.up(osd))
        missed = c.ask("osd dump")["epoch"]
        c.ceph("osd", "out", str(osd))

        def trimmed():
            for flag in ("set", "unset"):
                c.ask("osd " + flag, key="nodeep-scrub")
            return c.ask("report")["osdmap_first_committed"] > missed

        self.wait("the end of the maps that it missed", trimmed, 400)
        c.launch("osd.%d" % osd)
        c.ceph("osd", "in", str(osd))
        for who, option, _ in options:
            c.ceph("config", "rm", who, option)

    def replace_osd(self):
        """A disk is lost, and the OSD comes back with an empty one."""
        osd = self.rng.choice(self.cluster.osds)
        yield "osd.%d" % osd
        self.cluster.kill("osd.%d" % osd)
        self.wait("its death to be noticed", lambda: not self.up(osd))
        self.cluster.replace(osd)
        self.cluster.launch("osd.%d" % osd)

    def up(self, osd):
        return any(o["osd"] == osd and o["up"] for o in self.cluster.ask("osd dump")["osds"])

    def move_rack(self):
        """A host changes its rack, and data its place."""
        host, rack = self.cluster.crush_host(self.rng.choice(self.cluster.osds)), "rack-%d" % self.rng.randrange(2)
        yield "%s to %s" % (host, rack)
        self.cluster.ceph("osd", "crush", "move", host, "rack=" + rack)
        osd = self.rng.choice(self.cluster.osds)
        self.cluster.ceph("osd", "crush", "reweight", "osd.%d" % osd, "0.3")
        self.hold(6)
        self.cluster.ceph("osd", "crush", "reweight", "osd.%d" % osd, "1.0")

    def skew_clocks(self):
        """The clock of a monitor that does not lead, an OSD or the manager is wrong by up to ten minutes; then it is set right."""
        followers = ["mon." + m for m in self.cluster.mons if "mon." + m != self.cluster.leader()]
        name = self.rng.choice([*followers, "osd.%d" % self.rng.choice(self.cluster.osds), self.cluster.manager()])
        skew = self.rng.choice([-600, -30, -0.4, 0.4, 30, 600])
        yield "%s by %+g s" % (name, skew)
        for wrong in (skew, 0.0):
            self.cluster.kill(name)
            self.cluster.launch(name, wrong)
            if wrong and name.startswith("mon."):
                self.notice_skew()
            self.hold(8)

    def notice_skew(self):
        self.wait("notice of a monitor's wrong clock", lambda: "MON_CLOCK_SKEW" in self.cluster.ask("health")["checks"])

    def partition_host(self):
        """A host is cut off from everybody."""
        yield from self.cut(self.rng.choice(self.cluster.hosts.hosts))

    def partition_one_way(self):
        """A host only hears, or is only heard."""
        yield from self.cut(self.rng.choice(self.cluster.hosts.hosts), one_way=self.rng.choice(["in", "out"]))

    def partition_cluster_net(self):
        """OSDs do not hear each other, but the monitors hear them."""
        yield from self.cut(self.rng.choice(self.cluster.hosts.hosts), net="cluster")

    def partition_pair(self):
        """Two hosts are cut from each other alone."""
        one, other = self.rng.sample(self.cluster.hosts.hosts, 2)
        yield from self.cut(one, peer=other)

    def partition_client(self):
        """A host is cut from its clients alone."""
        yield from self.cut(self.rng.choice(self.cluster.hosts.hosts), peer="client")

    def partition_leader(self):
        """The leading monitor is in a minority of one: the others take over, and it learns of that when it is back."""
        leader, network = self.cluster.leader(), self.cluster.hosts
        yield from self.cut(network.host_of(leader), check=lambda: self.wait("another leader", lambda: self.cluster.leader() != leader))

    def cut(self, host, check=lambda: None, **how):
        network = self.cluster.hosts
        yield host + "".join(" %s" % v for v in how.values())
        network.partition(host, **how)
        try:
            check()
            self.hold(self.rng.choice([4, 12, 30]))
        finally:
            network.heal(host)

    def bad_links(self):
        """The clients' connections to the OSDs are slow, are cut anywhere, and lose answers to what was done."""
        network = "10.%d.1.0/24" % self.cluster.hosts.net
        yield network
        with Proxy(network, self.rng.random()) as proxy:
            # Those that are open go past the proxy.
            for osd in self.cluster.osds:
                self.relaunch(["osd.%d" % osd], "")
            self.hold(20)
        if not proxy.cuts or not proxy.swallowed:
            self.wrong.append("the proxy cut %d links and swallowed %d bytes: nothing was tested" % (proxy.cuts, proxy.swallowed))

    PARTITIONS = ("partition-host", "partition-one-way", "partition-cluster-net", "partition-pair", "partition-client", "partition-leader")
    FAULTS = ("kill-osd", "kill-spare", "kill-primary-briefly", "kill-leader", "kill-manager", "freeze-primary", "kill-all-osds", "replace-osd", "move-rack", "skew-clocks",
              "power-loss-osd", "power-loss-all", "slow-disk", "below-min-size", "missed-maps", *PARTITIONS, "bad-links")  # fmt: skip
    NEEDS = {"skew-clocks": ("loligo", "ceph"), "power-loss-osd": ("loligo",), "power-loss-all": ("loligo",), "slow-disk": ("loligo",), "bad-links": ("hosts",)}
    NEEDS.update(dict.fromkeys(PARTITIONS, ("hosts",)))
    # What a pool can spare dies, and connections end with it: nothing has to wait until somebody seems to be silent.
    NOTICED = ("kill-osd", "kill-spare", "kill-primary-briefly", "kill-leader", "kill-manager", "replace-osd", "move-rack", "missed-maps", "power-loss-osd")

    def inject(self, name):
        """A fault of this name; one that has several targets is healed after each."""
        first = len(self.faults)
        for target in getattr(self, name.replace("-", "_"))():
            if len(self.faults) > first:
                self.settle()
            self.faults.append({"fault": name, "target": target, "begin": time.monotonic()})
        if len(self.faults) == first:
            raise Trouble("%s hurt nothing" % name)
        self.settle()

    def storm(self, minutes):
        storm = Storm(self)
        storm.run(minutes)
        # Who died last has booted by then; what is clean before that is old news.
        self.hold(10)
        if self.faults:  # else the end says that there was none
            self.settle()
        print("%d faults, %d more found nothing that might still be hurt" % (storm.count, storm.skipped))
        if storm.count < LEAST_PER_MINUTE * minutes:
            self.wrong.append("only %d faults in %g minutes" % (storm.count, minutes))
        for name, twins in storm.twins.items():
            if not any(self.cluster.says_twin(name, twin) for twin in twins):
                self.wrong.append("%s was started on a bad medium %d times and never said so" % (name, len(twins)))
        if storm.loses and storm.count >= LEAST_PER_MINUTE and not storm.twins:
            self.wrong.append("no daemon worked on a medium that loses writes")

    def settle(self):
        fault = self.faults[-1]
        try:
            fault["clean"] = self.cluster.wait_clean(self.args.clean, self.look)
        except Trouble as e:
            raise Trouble("%s of %s: %s" % (fault["fault"], fault["target"], e)) from None
        fault["end"] = time.monotonic()
        self.hold(1)

    # The checks

    def finish(self):
        for client, _ in self.clients:
            client.stdin.close()
        ops = 0
        for client, out in self.clients:
            text = client.stdout.read()
            if client.wait(timeout=200):
                self.wrong.append("a client noticed a fault, see %s" % out)
            if not int(text or 0):
                self.wrong.append("a client did nothing, see %s" % out)
            ops += int(text or 0)
        try:
            self.fio.wait(timeout=FIO_LIMIT)
            self.fio_ended()
        except subprocess.TimeoutExpired:
            self.wrong.append("fio's last pass does not end")
        return ops

    def check(self):
        history, own, stalls = collections.defaultdict(list), 0, []
        for _, out in self.clients:
            with open(out) as f:
                for line in f:
                    r = json.loads(line)
                    if "fault" in r:
                        self.wrong.append(r["fault"])
                        continue
                    if r["end"] is not None and r["kind"] != "snap":  # which monitors answer
                        stalls.append((r["begin"], r["end"]))
                    if r["kind"] in ("own", "snap"):
                        own += 1
                    else:
                        value = tuple(r["value"]) if isinstance(r["value"], list) else r["value"]
                        history[r["on"]].append(Op(r["kind"], value, r["begin"], r["end"]))
        with rados.Rados(conffile=self.cluster.conf) as client:
            io = client.open_ioctx(POOL)
            finals = {"log-%d" % i: read_log(io, "log-%d" % i) for i in range(LOGS)}
        for on, ops in sorted(history.items()):
            found = appends(ops, finals[on]) if on in finals else register(ops)
            self.wrong += ["%s: %s" % (on, f) for f in found[:5]]
        for fault in self.faults:
            touched = [e - b for b, e in stalls if e > fault["begin"] and b < fault.get("end", float("inf"))]
            fault["stall"] = max(touched, default=0.0)
            if self.args.each and self.args.stall and fault["fault"] in self.NOTICED and fault["stall"] > self.args.stall:
                self.wrong.append("an operation took %.2f s beside %s of %s" % (fault["stall"], fault["fault"], fault["target"]))
        return sum(map(len, history.values())) + own

    def least(self, ops, checked, scrubbed):
        """A promise that was never put to the test was not kept."""
        counts = {"operation of a client": ops, "operation in a checked history": checked, "pass of fio": self.fio_runs, "fault": len(self.faults)}
        if self.args.scrub:
            counts["PG scrubbed deep"] = scrubbed
        self.wrong += ["nothing was tested: not one %s" % what for what, count in counts.items() if not count]

    def scrub(self):
        """A deep scrub of every PG, and what it found."""
        before = self.scrubbed()
        begin, left, asked = time.monotonic(), set(before), float("-inf")
        while left:
            # Once more after a while: a primary forgets what it was asked for when another one takes its place, and the balancer moves PGs.
            if time.monotonic() - asked > ASK_AGAIN:
                for pg in sorted(left):
                    # Refused while the PG has no primary, or one that the manager does not know yet.
                    with contextlib.suppress(Trouble):
                        self.cluster.ask("pg deep-scrub", target="mgr", pgid=pg)
                asked = time.monotonic()
            now = self.scrubbed()
            left = {pg for pg in left if now[pg][0] == before[pg][0]}
            if bad := [pg for pg in now if now[pg][1]]:
                self.wrong.append("a scrub found errors in %s" % ", ".join(bad))
                break
            if time.monotonic() - begin > self.args.scrub:
                self.wrong.append("%d PGs are not scrubbed after %d s: %s" % (len(left), self.args.scrub, sorted(left)[:5]))
                break
            time.sleep(0.3)
        return len(before) - len(left)

    def scrubbed(self):
        """Of each PG, when it was last scrubbed deep, and how many errors are known."""
        found = {}
        for pool in (POOL, IMAGES):
            listed = self.cluster.ask("pg ls-by-pool", target="mgr", poolstr=pool)
            found |= {pg["pgid"]: (pg["last_deep_scrub_stamp"], pg["stat_sum"]["num_scrub_errors"]) for pg in listed["pg_stats"]}
        return found


def unable():
    """What is not here that hosts need. Where everything is, they have to work."""
    try:
        return missing()
    except Trouble as e:
        sys.exit("thrash: %s" % e)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cluster", choices=["loligo", "ceph", "hosts"], help="hosts: a host for each OSD (scripts/hosts.py), for faults of the network; needs root")
    p.add_argument("--peer", default="loligo", choices=["loligo", "ceph"], help="whose daemons run on those hosts")
    p.add_argument("--loligo", default="target/release/loligo", help="the program")
    p.add_argument("--minutes", type=float, default=3, help="how long the storm lasts")
    p.add_argument("--each", action="store_true", help="no storm: each fault once, in an order by the seed")
    p.add_argument("--seed", type=int, help="of the schedule (default: any; it is printed)")
    p.add_argument("--faults", help="which, for --each, separated by commas: %s (default: all that this cluster can have)" % ", ".join(Thrash.FAULTS))
    p.add_argument("--may-skip", action="store_true", help="without root, or without iproute2 and nftables, say so and end with %d" % SKIPPED)
    p.add_argument("--pool", default="replicated", help="of the objects: replicated (3 copies), such as ec:2+1, or ec, a coded one by the seed")
    p.add_argument("--min-size", type=int, help="of a coded pool (default: Ceph's, k+1, or k with one coding shard)")
    p.add_argument("--stall", type=float, help="seconds that an operation may take beside a fault of --each that kills no more OSDs than the pool can "
                   "spare, 0 for any (default: 1 with a coded pool; of replicated ones, and of Ceph, any)")  # fmt: skip
    p.add_argument("--mons", type=int, default=3)
    p.add_argument("--osds", type=int, help="(default: 4, of a coded pool one more than it has shards)")
    p.add_argument("--rate", type=float, default=120, help="operations per second of each client process")
    p.add_argument("--image", type=int, default=64, help="MiB of the image, which fio writes once in each pass")
    p.add_argument("--iops", type=int, default=600, help="writes per second of fio")
    p.add_argument("--clean", type=float, default=120, help="seconds that a healed cluster may take to active+clean")
    p.add_argument("--scrub", type=float, default=120, help="seconds that the deep scrub at the end may take; 0: none")
    p.add_argument("--json", metavar="FILE", help="write the figures there")
    p.add_argument("--pause", action="store_true", help="when a promise was broken, leave the cluster running until Enter")
    p.add_argument("--keep", action="store_true", help="leave the cluster's folder in place")
    args = p.parse_args()
    possible = [f for f in Thrash.FAULTS if args.cluster in Thrash.NEEDS.get(f, (args.cluster,))]
    wanted = args.faults.split(",") if args.faults else possible
    for name in wanted:
        if name not in possible:
            p.error("no fault %r of this cluster; there are %s" % (name, ", ".join(possible)))
    if args.faults and not args.each:
        p.error("--faults goes with --each")
    if args.cluster == "hosts" and (why := unable()):
        print("SKIPPED, nothing was tested: " + why)
        sys.exit(SKIPPED if args.may_skip else 1)
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 31)
    try:
        pool = pools.parse(args.pool, args.min_size, args.seed)
    except ValueError as e:
        p.error(str(e))
    if args.stall is None:
        args.stall = 1 if pool.k and "ceph" not in (args.cluster, args.peer) else 0
    args.osds = args.osds or pools.size(pool) + 1
    print("seed %d, %s" % (args.seed, pool.name), flush=True)
    end_in_order()
    folder = tempfile.mkdtemp(prefix="thrash-")
    cluster = {"loligo": Loligo, "ceph": Ceph, "hosts": NetworkHosts}[args.cluster](args, os.path.join(folder, "c"))
    thrash, ops, checked, scrubbed, begin = Thrash(args, cluster), 0, 0, 0, time.monotonic()
    try:
        cluster.start()
        thrash.begin()
        thrash.hold(3)
        if not args.each:
            thrash.storm(args.minutes)
        for name in thrash.rng.sample(wanted, len(wanted)) if args.each else ():
            thrash.inject(name)
            fault = thrash.faults[-1]
            print("%6.0f s  %-22s %-20s clean after %.1f s" % (time.monotonic() - begin, name, fault["target"], fault["clean"]), flush=True)
        ops = thrash.finish()
        checked = thrash.check()
        if args.scrub:
            scrubbed = thrash.scrub()
        # A scrub that ends or a step of the balancer shows for a moment.
        cluster.wait_clean(args.clean)
        thrash.least(ops, checked, scrubbed)
    except Trouble as e:
        thrash.wrong.append(str(e))
    except BaseException as e:
        thrash.wrong.append("%s: %s" % (type(e).__name__, e))
        raise
    finally:
        if args.pause and thrash.wrong:
            print("broken: %s\nthe cluster runs, its configuration is %s; Enter ends it" % (thrash.wrong[0], cluster.conf), flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdin.readline()
        for child in [c for c, _ in thrash.clients] + [thrash.fio]:
            if child and child.poll() is None:
                child.kill()
        cluster.stop()
        if args.keep or thrash.wrong:
            print("everything is kept in " + folder)
        else:
            shutil.rmtree(folder)
    report(args, thrash, ops, checked, scrubbed)
    sys.exit(1 if thrash.wrong else 0)


def report(args, thrash, ops, checked, scrubbed):
    print("\n%-22s %-20s %14s %10s" % ("fault", "of", "longest op, s", "clean, s"))
    for f in thrash.faults:
        print("%-22s %-20s %14s %10s" % (f["fault"], f["target"], *("%.2f" % f[k] if k in f else "-" for k in ("stall", "clean"))))
    print("%d operations of clients, %d in checked histories, %d passes of fio verified, %d PGs scrubbed deep, %d faults"
          % (ops, checked, thrash.fio_runs, scrubbed, len(thrash.faults)))  # fmt: skip
    for w in thrash.wrong:
        print("WRONG: " + w)
    print("broken promises: %d" % len(thrash.wrong))
    if args.json:
        names = ("fault", "target", "stall", "clean")
        figures = {"cluster": args.cluster, "pool": thrash.pool.name, "seed": args.seed, "operations": ops, "checked": checked, "fio_passes": thrash.fio_runs,
                   "scrubbed": scrubbed, "faults": [{k: f.get(k) for k in names} for f in thrash.faults], "wrong": thrash.wrong}  # fmt: skip
        with open(args.json, "w") as f:
            json.dump(figures, f, indent=2)


if __name__ == "__main__":
    main()
