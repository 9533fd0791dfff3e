"""The commands of a chapter of docs/guide, run one block after the other, and what they print compared.

  guide.py marks CHAPTER...                    the marks of all blocks are known; says how many are not run
  guide.py words CHAPTER                       commands of `ceph` that stand in sentences are commands of the cluster of CEPH_CONF
  guide.py run CHAPTER LOLIGO FOLDER           all that, and the blocks, within `unshare --mount --net --uts --pid`: nothing that is started outlives this process

A block is run as it stands by bash, which stops at the first command that fails. Its mark is behind the word `sh`:

  (run)                    it is run, and has to succeed
  (run, fails)             it is run, and has to fail
  (run, until)             it is run again until it succeeds and prints what is expected
  (run, needs PROGRAM)     it is run where the program is installed, and left out elsewhere
  (run, on host2)          on a host of its own, with its own network, /etc/ceph, /var/lib/ceph and /var/log/ceph
  (not run: REASON)

In a comment of HTML, `<!-- sh (run)` to `-->`, is what a reader does not do: it makes the trouble that the next block is for.

What a block prints is in the next block, if that one is of the kind `text`. A line `...` stands for any lines, `...` in a line for any
characters. Variables, the folder and processes in the background stay from block to block.
"""
import os
import re
import shutil
import subprocess
import sys
import time

PATIENCE_S = 120
BLOCK_S = 100
# What makes a machine of this one: these folders are empty when a chapter begins.
FOLDERS = ["/etc/ceph", "/var/lib/ceph", "/var/log/ceph"]
HOSTS = ["host1", "host2", "host3"]
KINDS = {"sh", "text", "ini", "yaml", "toml", "json"}
FENCES = ("```", "<!-- sh (run")
NEEDS = {"aws", "ceph-mds", "ceph-mgr", "ceph-mon"}


class Block:
    def __init__(self, chapter, line, info, text):
        self.place, self.text = "%s:%d" % (os.path.basename(chapter), line), text
        self.kind, _, mark = info.partition(" ")
        self.reason, self.words, self.expected = None, [], None
        if self.kind not in KINDS:
            self.wrong("a block of kind '%s'" % info)
        if self.kind != "sh":
            if mark:
                self.wrong("a mark on a block that is not sh")
            return
        if found := re.fullmatch(r"\(not run: (.{10,})\)", mark):
            self.reason = found[1]
        elif found := re.fullmatch(r"\(run((, (fails|until|needs [\w-]+|on host[123]))*)\)", mark):
            self.words = [w.strip() for w in found[1].split(",") if w.strip()]
        else:
            self.wrong("a block without a mark, or with an unknown one: '%s'" % info)
        if self.needs() and self.needs() not in NEEDS:
            self.wrong("%s may not be needed" % self.needs())

    def wrong(self, what):
        sys.exit("%s: %s" % (self.place, what))

    def after(self, word):
        return next((w.split()[1] for w in self.words if w.startswith(word + " ")), None)

    def host(self):
        return self.after("on")

    def needs(self):
        return self.after("needs")


def blocks(chapter):
    """The blocks of shells, each with what it is to print."""
    out, start, info, lines = [], 0, None, []
    with open(chapter, encoding="utf-8") as f:
        text = f.read().splitlines()
    last = None
    for number, line in enumerate(text, 1):
        if info is None and line.startswith(FENCES):
            start, info, lines = number, line.removeprefix("```").removeprefix("<!-- ").strip(), []
        elif info is not None and line.startswith(("```", "-->")):
            block = Block(chapter, start, info, "\n".join(lines) + "\n")
            if block.kind == "sh":
                out.append(block)
            elif block.kind == "text":
                if last is None or last.kind != "sh" or last.reason:
                    block.wrong("output of nothing that is run")
                last.expected = block.text
            last, info = block, None
        elif info is not None:
            lines.append(line)
    if info is not None:
        sys.exit("%s: a block has no end" % chapter)
    return out


def matches(expected, got):
    """Whether lines are those that are expected, with `...` for any lines and any characters."""
    want = [line.rstrip() for line in expected.rstrip("\n").split("\n")]
    parts = []
    for line in want:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.split("...")) + r"[ \t]*\n")
    return re.fullmatch("".join(parts), got.rstrip() + "\n") is not None


def sh(*words, **more):
    return subprocess.run(words, check=True, stdin=subprocess.DEVNULL, **more)


class Machine:
    """This process's namespaces, with the hosts of the chapter in them."""

    def __init__(self, loligo, folder, hosts):
        self.dir = folder
        self.work, programs = os.path.join(folder, "work"), os.path.join(folder, "bin")
        os.makedirs(self.work)
        os.makedirs(programs)
        os.symlink(loligo, os.path.join(programs, "loligo"))
        # Ceph's programs are for Debian's Python, whatever stands first elsewhere.
        self.path = ":".join([programs, "/usr/sbin:/usr/bin:/sbin:/bin", os.environ.get("PATH", "")])
        sh("mount", "-t", "tmpfs", "run", "/run")
        os.makedirs("/run/netns")
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "addr", "add", "192.0.2.10/32", "dev", "lo")
        sh("hostname", "storage1")
        self.state = {}
        for name in [None, *hosts]:
            home = os.path.join(folder, name or "here")
            for below in FOLDERS:
                os.makedirs(home + below)
            self.state[name] = {"home": home}
        for below in FOLDERS:
            os.makedirs(below, exist_ok=True)
            sh("mount", "--bind", self.state[None]["home"] + below, below)
        if hosts:
            self.network(hosts)
            with open(os.path.join(programs, "scp"), "w", encoding="utf-8") as f:
                f.write(SCP.format(dir=folder))
            os.chmod(os.path.join(programs, "scp"), 0o755)

    def network(self, hosts):
        """Hosts in 10.0.1.0/24 and 10.0.2.0/24; this machine is 10.0.1.254."""
        for net in (1, 2):
            sh("ip", "link", "add", "net%d" % net, "type", "bridge")
            sh("ip", "link", "set", "net%d" % net, "up")
        sh("ip", "addr", "add", "10.0.1.254/24", "dev", "net1")
        for number, host in enumerate(hosts, 1):
            sh("ip", "netns", "add", host)
            sh("ip", "-n", host, "link", "set", "lo", "up")
            for net in (1, 2):
                near, far = "h%dn%d" % (number, net), "eth%d" % (net - 1)
                sh("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", host)
                sh("ip", "link", "set", near, "master", "net%d" % net, "up")
                sh("ip", "-n", host, "addr", "add", "10.0.%d.%d/24" % (net, number), "dev", far)
                sh("ip", "-n", host, "link", "set", far, "up")

    def run(self, block):
        """Exit status and output. Variables and the folder are those that the last block on that host left."""
        state = self.state[block.host()]
        env, cwd = state["home"] + "/env", state["home"] + "/cwd"
        script = state["home"] + "/block"
        with open(script, "w", encoding="utf-8") as f:
            f.write("[ ! -e %s ] || { . %s; cd \"$(cat %s)\"; }\n" % (env, env, cwd))
            f.write("trap 'export -p > %s; pwd > %s' EXIT\nset -e -o pipefail\n" % (env, cwd))
            f.write(block.text)
        words = ["bash", script]
        if host := block.host():
            binds = "".join("mount --bind %s%s %s && " % (state["home"], below, below) for below in FOLDERS)
            inner = binds + 'hostname %s && exec bash "$0"' % host
            words = ["ip", "netns", "exec", host, "unshare", "--uts", "--mount", "bash", "-c", inner, script]
        outside = {"PATH": self.path, "HOME": self.work, "LANG": "C.UTF-8", "TERM": "dumb"}
        # A file: what goes on in the background keeps it open.
        with open(state["home"] + "/out", "w+", encoding="utf-8", errors="replace") as out:
            try:
                done = subprocess.run(words, cwd=self.work, env=outside, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=BLOCK_S, check=False)
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = "no end within %d s" % BLOCK_S
            out.seek(0)
            # Colours are not compared.
            return code, re.sub(r"\x1b\[[0-9;]*m", "", out.read())


SCP = """#!/usr/bin/python3
# Hosts of this test have folders here.
import os, shutil, sys
*sources, (host, _, target) = *sys.argv[1:-1], sys.argv[-1].partition(":")
for source in (s for s in sources if not s.startswith("-")):
    to = "{dir}/" + host + target
    if os.path.isdir(to):
        to = os.path.join(to, os.path.basename(source))
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(source, to)
"""


def fault(block, code, got):
    """What is wrong with how a block ended, or None."""
    if "fails" in block.words:
        if code == 0 or not isinstance(code, int):
            return "it should fail, and ended with %s" % code
    elif code != 0:
        return "it ended with %s" % code
    if block.expected is not None and not matches(block.expected, got):
        return "it printed something else than\n%s" % block.expected
    return None


def play(machine, block):
    start = time.monotonic()
    while True:
        code, got = machine.run(block)
        why = fault(block, code, got)
        if why is None:
            break
        if "until" not in block.words or time.monotonic() - start > PATIENCE_S:
            sys.exit("%s: %s\n--- block\n%s--- printed\n%s---" % (block.place, why, block.text, got))
        time.sleep(0.1)
    print("%6.2f s  %s" % (time.monotonic() - start, block.place), flush=True)
    if os.environ.get("LOLIGO_GUIDE_SHOW"):
        print("--- block\n%s--- printed\n%s" % (block.text, got), flush=True)


# What stands for what a reader has to fill in.
FILLED = {"ID": "0", "N": "8", "PG": "1.0", "POOL": "p", "NAME": "a", "FS": "home", "CACHE": "q", "OBJECT": "o", "ADDRESS": "127.0.0.1", "CRASH": "c"}
# Not of the table that the monitors have: these go to daemons, or to the primary of a PG.
ELSEWHERE = re.compile(r"ceph (daemon|tell|-|pg [0-9P])")


def words(chapter):
    """Whether the cluster knows the commands in backquotes, with arguments of these forms."""
    import ceph_argparse
    import rados

    with open(chapter, encoding="utf-8") as f:
        prose = re.sub(r"(?m)^(```|<!-- sh)[\s\S]*?^(```|-->)$", "", f.read())
    cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
    cluster.connect(timeout=30)
    code, table, said = ceph_argparse.json_command(cluster, prefix="get_command_descriptions", timeout=30)
    assert code == 0, said
    table = ceph_argparse.parse_json_funcsigs(table.decode(), "cli")
    asked = [command for command in re.findall(r"`(ceph [^`]+)`", prose) if not ELSEWHERE.match(command)]
    filled = lambda word: re.sub(r"[A-Z]+", lambda m: FILLED.get(m[0], m[0]), word)
    wrong = [c for c in asked if not ceph_argparse.validate_command(table, [filled(w) for w in c.replace(" -f json", "").split()[1:]])]
    cluster.shutdown()
    if wrong:
        sys.exit("%s: the cluster does not know these commands: %s" % (os.path.basename(chapter), wrong))
    print("%d commands in sentences" % len(asked), flush=True)


def run(chapter, loligo, folder):
    todo = [b for b in blocks(chapter) if b.reason is None]
    hosts = HOSTS if any(b.host() for b in todo) else []
    machine = Machine(loligo, folder, hosts)
    for block in todo:
        if (program := block.needs()) and not shutil.which(program, path=machine.path):
            print("left out: %s needs %s" % (block.place, program))
            continue
        play(machine, block)
    env = machine.state[None]["home"] + "/env"
    # Some chapters end with a cluster that is stopped.
    up = '[ -z $CEPH_CONF ] || { loligo up --detach --data "$(dirname $CEPH_CONF)" > /dev/null' + " && exec /usr/bin/python3 -B"
    check = "[ ! -e %s ] || . %s; %s %s words %s; }" % (env, env, up, os.path.abspath(__file__), chapter)
    if subprocess.run(["bash", "-c", check], cwd=machine.work, check=False).returncode:
        sys.exit(1)


def marks(chapters):
    every = [b for chapter in chapters for b in blocks(chapter)]
    for b in every:
        if b.reason:
            print("not run: %s: %s" % (b.place, b.reason))
    print("%d blocks, %d not run, %d where a program is installed" % (
        len(every), sum(b.reason is not None for b in every), sum(b.needs() is not None for b in every)))


if __name__ == "__main__":
    if sys.argv[1] == "marks":
        marks(sys.argv[2:])
    elif sys.argv[1] == "words":
        words(sys.argv[2])
    else:
        run(*sys.argv[2:])
