"""What every program here needs that starts daemons: running commands, asking the cluster, and whether a process lives."""
import json
import os
import signal
import subprocess
import sys
import time


class Trouble(Exception):
    """What a user has to know, without a trace: a cluster did not do what a cluster must do."""


def end_in_order():
    """From now on SIGTERM and SIGHUP end this program as Ctrl-C does, with all that it cleans up; the second one is ignored."""
    signals = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]

    def end(number, _):
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for one in signals:
        signal.signal(one, end)


def run(*words, timeout=120, check=True, **more):
    words = [str(w) for w in words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, **more)
    if check and done.returncode:
        raise Trouble("%s ended with %d: %s" % (" ".join(words), done.returncode, (done.stderr or done.stdout).strip()[-800:]))
    return done.stdout


def alive(pid):
    """Whether a process runs: not a zombie either. A killed one holds its files and locks until the last of its threads has ended,
    and that may not be the one that the process is named after."""
    def ended(thread):
        try:
            with open("/proc/%d/task/%s/stat" % (pid, thread)) as f:
                return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:
            return True

    try:
        return not all(ended(thread) for thread in os.listdir("/proc/%d/task" % pid))
    except OSError:
        return False


def ceph(conf, *words, timeout=60):
    """What `ceph` prints, as JSON; asked again for a while when monitors are away."""
    last, until = None, time.monotonic() + timeout
    while time.monotonic() < until:
        try:
            out = run("ceph", "-c", conf, "--connect-timeout", "5", *words, "-f", "json", timeout=20)
            return json.loads(out) if out.strip() else None
        except (Trouble, subprocess.TimeoutExpired) as e:
            last = e
            time.sleep(0.3)
        except ValueError:
            return None
    raise Trouble("`ceph %s` gives no answer: %s" % (" ".join(map(str, words)), last))
