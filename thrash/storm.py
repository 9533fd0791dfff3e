"""A storm: faults that overlap and wait for nothing, by a schedule that is drawn from a seed before it begins.

At most two OSDs and a minority of the monitors are away at a time, but for the moments when all OSDs die at once; so what clients ask
for is late, and never refused. On Loligo an OSD or monitor that comes back does so on a medium that loses unsynced writes half of the
time: the next kill is its power loss.
"""
import heapq
import random
import signal
import time

from clusters import Trouble

GAP = (1.5, 4.5)  # seconds between two faults
KINDS = {"kill-osd": 6, "stop-osd": 2, "freeze-osd": 2, "kill-mon": 2, "freeze-mon": 1, "kill-manager": 1, "kill-all-osds": 1, "move-rack": 1,
         "partition": 4}  # fmt: skip
LEAST_PER_MINUTE = 10


def schedule(seed, minutes, kinds):
    """(begin, kind, length, a number to choose by) of each fault, in seconds from now."""
    rng, at, out = random.Random("storm %s" % seed), 0.0, []
    while (at := at + rng.uniform(*GAP)) < minutes * 60:
        kind = rng.choices(kinds, [KINDS[k] for k in kinds])[0]
        length = rng.choice([0.0, rng.uniform(0.3, 3), rng.uniform(3, 9), rng.uniform(9, 25)])
        out.append((at, kind, length, rng.getrandbits(64)))
    return out


class Storm:
    def __init__(self, thrash):
        self.thrash, self.cluster, self.away, self.heals, self.count, self.skipped, self.order = thrash, thrash.cluster, {}, [], 0, 0, 0
        self.hosts = getattr(self.cluster, "hosts", None)
        self.twins = {}  # of each daemon, the media that it was started on
        self.loses = self.cluster.kind == "loligo" or getattr(self.hosts, "peer", "") == "loligo"

    def kinds(self):
        return [k for k in KINDS if k != "partition" or self.hosts]

    def run(self, minutes):
        """Until the last fault is healed. The cluster is not clean then."""
        self.start = time.monotonic()
        begin, plan = self.start, schedule(self.thrash.args.seed, minutes, self.kinds())
        while plan or self.heals:
            now = time.monotonic() - begin
            if self.heals and self.heals[0][0] <= now:
                heapq.heappop(self.heals)[2]()
            elif plan and plan[0][0] <= now:
                _, kind, length, number = plan.pop(0)
                self.begin(kind, length, random.Random(number), begin)
            else:
                self.thrash.look()
                time.sleep(0.05)

    def begin(self, kind, length, rng, start):
        inject = getattr(self, kind.replace("-", "_"))
        fault = {"fault": kind, "begin": time.monotonic(), "end": time.monotonic() + length + 5}
        target = inject(length, rng, time.monotonic() - start)
        if target is None:
            self.skipped += 1
            return
        self.count += 1
        self.thrash.faults.append({**fault, "target": target})
        print("%6.1f s  %-14s %-26s for %.1f s" % (time.monotonic() - start, kind, target, length), flush=True)

    def heal_at(self, when, what):
        self.order += 1
        heapq.heappush(self.heals, (when, self.order, what))

    def choose(self, names, most, rng):
        """One that is there, when no more than `most` are away with it."""
        if sum(n in self.away for n in names) >= most:
            return None
        return rng.choice([n for n in names if n not in self.away])

    def osd(self, rng):
        return self.choose(["osd.%d" % i for i in self.cluster.osds], 2, rng)

    def mon(self, rng):
        mons = ["mon." + m for m in self.cluster.mons]
        return self.choose(mons, (len(mons) - 1) // 2, rng)

    def back(self, name, rng):
        has_store = not name.startswith("mgr.")
        twin = "power-loss=%d" % rng.getrandbits(30) if self.loses and has_store and rng.random() < 0.5 else ""
        self.cluster.launch(name, twin=twin)
        if twin:
            self.twins.setdefault(name, []).append(twin)
        self.started(name, twin, time.monotonic() + 60)

    def started(self, name, twin, until):
        """It counts as away until it runs, and has said on which medium: on a busy machine that takes a while."""
        self.cluster.reap()
        try:
            self.cluster.pid(name)
            if twin and not self.cluster.says_twin(name, twin):
                raise Trouble("%s does not say that it is on a bad medium" % name)
            del self.away[name]
        except Trouble:
            if time.monotonic() > until:
                raise
            self.heal_at(time.monotonic() - self.start + 0.2, lambda: self.started(name, twin, until))

    def kill(self, name, length, rng, now):
        if name:
            self.cluster.signal(name, signal.SIGKILL)
            self.gone(name)
            self.away[name] = True
            self.heal_at(now + length, lambda: self.back(name, rng))
        return name

    def gone(self, name):
        until = time.monotonic() + 30
        while True:
            self.cluster.reap()
            try:
                self.cluster.pid(name)
            except Trouble:
                return
            if time.monotonic() > until:
                raise Trouble("%s does not end" % name)
            time.sleep(0.01)

    def freeze(self, name, length, now):
        def thaw():
            self.cluster.signal(name, signal.SIGCONT)
            del self.away[name]

        if name:
            self.cluster.signal(name, signal.SIGSTOP)
            self.away[name] = True
            self.heal_at(now + length, thaw)
        return name

    def kill_osd(self, length, rng, now):
        return self.kill(self.osd(rng), length, rng, now)

    def stop_osd(self, length, rng, now):
        """An orderly stop."""
        name = self.osd(rng)
        if name:
            self.cluster.signal(name, signal.SIGTERM)
            self.gone(name)
            self.away[name] = True
            self.heal_at(now + length, lambda: self.back(name, rng))
        return name

    def freeze_osd(self, length, rng, now):
        return self.freeze(self.osd(rng), length, now)

    def kill_mon(self, length, rng, now):
        return self.kill(self.mon(rng), length, rng, now)

    def freeze_mon(self, length, rng, now):
        return self.freeze(self.mon(rng), length, now)

    def kill_manager(self, length, rng, now):
        return self.kill(self.choose([self.cluster.manager()], 1, rng), length, rng, now)

    def kill_all_osds(self, _, rng, now):
        names = [n for n in ("osd.%d" % i for i in self.cluster.osds) if n not in self.away]
        for name in names:
            self.cluster.signal(name, signal.SIGKILL)
        for i, name in enumerate(rng.sample(names, len(names))):
            self.gone(name)
            self.away[name] = True
            self.heal_at(now + 0.5 * (i + 1), lambda name=name: self.back(name, rng))
        return " ".join(names) or None

    def move_rack(self, _, rng, __):
        host, rack = self.cluster.crush_host(rng.choice(self.cluster.osds)), "rack-%d" % rng.randrange(2)
        self.cluster.ask("osd crush move", name=host, args=["rack=" + rack])
        return "%s to %s" % (host, rack)

    def partition(self, length, rng, now):
        """A host's packets are dropped: all, those of one way, of one network, or those of one other host or the clients."""
        network = self.hosts
        on = {h: [n for n, where in network.daemons().items() if where == h] for h in network.hosts}
        host = rng.choice(network.hosts)
        how = rng.choice([{}, {"one_way": "in"}, {"one_way": "out"}, {"net": "cluster"}, {"peer": rng.choice([h for h in network.hosts if h != host])}, {"peer": "client"}])
        mons, osds = ([n for n in self.away if n.startswith(k)] for k in ("mon.", "osd."))
        with_mon = any(n.startswith("mon.") for n in on[host])
        if any(n in self.away for n in on[host]) or len(osds) >= 2 or with_mon and len(mons) >= (len(self.cluster.mons) - 1) // 2:
            return None
        network.partition(host, **how)
        self.away.update(dict.fromkeys(on[host], True))

        def heal():
            network.heal(host)
            for name in on[host]:
                del self.away[name]

        self.heal_at(now + length, heal)
        return host + "".join(" %s" % v for v in how.values())
