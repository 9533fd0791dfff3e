"""A file system of Loligo beside Ceph's: `bench.py fs`.

Three OSDs and one metadata server each, every daemon a process of its own. Four clients, processes with libcephfs and a folder each, all at
once: each makes empty files, looks at those of the next client, renames its own and removes them. Then one client alone does the same. CPU
is that of the metadata server, of the OSDs and of the clients. What a metadata server holds for a file with its capability is what it has
grown by while the clients made theirs.

After each step a client that has just come lists the folders: no name is missing or too many, or there is no figure.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from clusters import Trouble, run
from usage import cpu_seconds, resident_mib

ORDER = ("loligo", "ceph", "ceph", "loligo")
STEPS = ("create", "stat", "rename", "unlink")
CLIENTS = 4
META, DATA = "fs-meta", "fs-data"
PATIENCE_S = 120

# What a client does with each line that it is told: a step, whose folder, how many files. It answers with the seconds that it took.
CLIENT = r"""
import cephfs, os, sys, time
f = cephfs.LibCephFS(conffile=sys.argv[1], auth_id="admin")
f.mount()
print("mounted", flush=True)
for line in sys.stdin:
    step, folder, n = line.split()
    names = ["/%s/file-%06d" % (folder, i) for i in range(int(n))]
    begin = time.monotonic()
    if step == "mkdir":
        f.mkdir("/" + folder, 0o755)
    elif step == "create":
        for name in names:
            f.close(f.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif step == "stat":
        for name in names:
            f.stat(name)
    elif step == "rename":
        for name in names:
            f.rename(name, name + "-renamed")
    elif step == "unlink":
        for name in names:
            f.unlink(name + "-renamed")
    elif step == "rmdir":
        f.rmdir("/" + folder)
    elif step == "list":
        with f.opendir("/" + folder) as d:
            got = sorted(e.d_name.decode() for e in iter(lambda: f.readdir(d), None))
        print(" ".join(name for name in got if name not in (".", "..")) or "-", flush=True)
        continue
    print(time.monotonic() - begin, flush=True)
f.unmount()
"""


class Client:
    def __init__(self, conf):
        words = (sys.executable, "-c", CLIENT, conf)
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("mounted")

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise Trouble("a client of the file system has ended with %s" % self.process.wait())
        return line.strip()

    def expect(self, text):
        if (heard := self.hear()) != text:
            raise Trouble("a client of the file system says '%s', not '%s'" % (heard, text))

    def ask(self, *words):
        self.tell(*words)
        return self.hear()

    def end(self):
        """It unmounts."""
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_S)


def start_server(cluster):
    """A metadata server, and a file system that it serves."""
    ceph = cluster.ceph
    cluster.spread()
    for pool in (META, DATA):
        ceph("osd", "pool", "create", pool, "32", "32", "replicated", "spread")
        ceph("osd", "pool", "set", pool, "size", "2")
    ceph("fs", "new", "cephfs", META, DATA)
    key = run("ceph", "-c", cluster.conf, "auth", "get-or-create", "mds.a", "mon", "allow profile mds", "mgr", "allow profile mds",
              "mds", "allow *", "osd", "allow rwx")  # fmt: skip
    everything = ("mon", "allow *", "osd", "allow *", "mgr", "allow *", "mds", "allow *")
    run("ceph", "-c", cluster.conf, "auth", "caps", "client.admin", *everything)
    keyring, place = os.path.join(cluster.dir, "mds.a.keyring"), os.path.join(cluster.dir, "mds-a")
    os.makedirs(place)
    with open(keyring, "w") as f:
        f.write(key)
    program = (cluster.binary, "mds") if cluster.kind == "loligo" else ("ceph-mds", "-f")
    log = "--log-file=" + os.path.join(cluster.dir, "mds.a.log")
    cluster.start_daemon("mds.a", (*program, "-i", "a", "-c", cluster.conf, "--keyring=" + keyring, "--mds-data=" + place, log), 0)
    until = time.monotonic() + PATIENCE_S
    while not any(i["state"] == "up:active" for fs in ceph("fs", "dump")["filesystems"] for i in fs["mdsmap"]["info"].values()):
        if time.monotonic() > until:
            raise Trouble("no metadata server of %s is active" % cluster.kind)
        time.sleep(0.1)
    cluster.wait_clean(180)


def server_pid(cluster):
    return cluster.children["mds.a"].pid


def osd_pids(cluster):
    return sorted({cluster.pid("osd.%d" % i) for i in cluster.osds})


def check(cluster, folders, n, suffix):
    """Whether the folders have these names and no others, as a client sees it that has just come."""
    client = Client(cluster.conf)
    wanted = " ".join("file-%06d%s" % (i, suffix) for i in range(n)) or "-"
    for folder in folders:
        if client.ask("list", folder, 0) != wanted:
            raise Trouble("%s: the names in /%s are not those that were made" % (cluster.kind, folder))
    client.end()


def step(cluster, clients, what, folders, n):
    """Operations a second, and microseconds of CPU of each kind of process for one."""
    groups = {"mds": [server_pid(cluster)], "osds": osd_pids(cluster), "clients": [c.process.pid for c in clients]}
    before = {name: cpu_seconds(pids) for name, pids in groups.items()}
    for client, folder in zip(clients, folders):
        client.tell(what, folder, n)
    seconds = max(float(client.hear()) for client in clients)
    used = {name: cpu_seconds(pids) - before[name] for name, pids in groups.items()}
    count = n * len(clients)
    return {what + "_per_s": count / seconds, **{"%s_%s_us" % (what, name): s / count * 1e6 for name, s in used.items()}}


def window(cluster, n, how_many, at):
    """All steps with so many clients; files of 0 bytes."""
    folders = ["%s-%d" % (at, i) for i in range(how_many)]
    clients = [Client(cluster.conf) for _ in folders]
    for client, folder in zip(clients, folders):
        client.ask("mkdir", folder, 0)
    begin = resident_mib([server_pid(cluster)])
    found = step(cluster, clients, "create", folders, n)
    found["inode_bytes"] = (resident_mib([server_pid(cluster)]) - begin) * 2**20 / (n * how_many)
    check(cluster, folders, n, "")
    found.update(step(cluster, clients, "stat", folders[1:] + folders[:1], n))
    found.update(step(cluster, clients, "rename", folders, n))
    check(cluster, folders, n, "-renamed")
    found.update(step(cluster, clients, "unlink", folders, n))
    check(cluster, folders, 0, "")
    for client, folder in zip(clients, folders):
        client.ask("rmdir", folder, 0)
        client.end()
    for who in ("mds", "osds"):
        found[who + "_us"] = statistics.mean(found["%s_%s_us" % (what, who)] for what in STEPS)
    return found


def measure(args, kinds, folder, progress):
    args.osds = 3
    clusters = {}
    try:
        for name in ("loligo", "ceph"):
            cluster = clusters[name] = kinds[name](args, os.path.join(folder, name))
            cluster.more = args.quiet + "debug mds = 0/0\nmds log max segments = 128\n" * (name == "ceph")
            cluster.start()
            start_server(cluster)
            progress("%s serves its file system" % name)
        found = {}
        for at, how_many in (("four", CLIENTS), ("one", 1)):
            runs = {"loligo": [], "ceph": []}
            for i, name in enumerate(ORDER):
                runs[name].append(window(clusters[name], args.files // how_many, how_many, "%s-%d" % (at, i)))
                progress("%s, %s: %s" % (at, name, json.dumps({k: round(v) for k, v in runs[name][-1].items()})))
            found[at] = {name: {k: statistics.median(r[k] for r in each) for k in each[0]} for name, each in runs.items()}
            # What an inode takes is seen when the server has not held as many before.
            for name, each in runs.items():
                found[at][name]["inode_bytes"] = each[0]["inode_bytes"]
        found["resident_mib"] = {name: resident_mib([server_pid(cluster)]) for name, cluster in clusters.items()}
        return found
    finally:
        for cluster in clusters.values():
            # `loligo down` ends what `up` has started.
            if server := cluster.children.get("mds.a"):
                server.terminate()
                server.wait(timeout=PATIENCE_S)
            cluster.stop()
            shutil.rmtree(cluster.dir, ignore_errors=True)


def rows(found, row):
    """Lines of the table; `row(what, ceph, ours, ratio, gate, goal)` makes one."""
    table = []

    def line(what, at, key, more_is_better, gate, goal):
        a, b = found[at]["ceph"][key], found[at]["loligo"][key]
        table.append(row(what, a, b, b / a if more_is_better else a / max(b, 1e-9), gate, goal))

    line("metadata server CPU per operation, four clients, us", "four", "mds_us", False, 6, 10)
    line("OSD CPU per operation, four clients, us", "four", "osds_us", False, 6, 10)
    for what, gate, goal in (("create", 3, 5), ("stat", 2, 3), ("rename", 3, 5), ("unlink", 3, 5)):
        line("%s a second, four clients" % what, "four", what + "_per_s", True, gate, goal)
        for who, name in (("mds", "metadata server"), ("osds", "OSD"), ("clients", "client")):
            line("%s: %s CPU, us" % (what, name), "four", "%s_%s_us" % (what, who), False, None, None)
    for what in STEPS:
        line("%s a second, one client" % what, "one", what + "_per_s", True, None, None)
    line("bytes resident for a file with its capability", "four", "inode_bytes", False, 2, 4)
    a, b = found["resident_mib"]["ceph"], found["resident_mib"]["loligo"]
    table.append(row("resident MiB of the metadata server in the end", a, b, a / b, None, None))
    return table
