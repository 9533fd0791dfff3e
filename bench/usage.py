"""What processes have used, from /proc: CPU, context switches, bytes sent to devices, memory."""
import os


def cpu_seconds(pids):
    """User and system time."""
    ticks = 0
    for pid in pids:
        with open("/proc/%s/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def switches(pids):
    """Context switches of all threads."""
    total = 0
    for pid in pids:
        for tid in os.listdir("/proc/%s/task" % pid):
            with open("/proc/%s/task/%s/status" % (pid, tid)) as f:
                total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    return total


def written_bytes(folder, pids):
    """What the block device below the folder has been given, by whomever, after a `sync`. Where there is none (overlays, memory), what the
    kernel counts for the processes: of a write into the page cache that is the whole folio, 4 KiB or many times as much."""
    device = os.stat(folder).st_dev
    os.sync()
    try:
        with open("/sys/dev/block/%d:%d/stat" % (os.major(device), os.minor(device))) as f:
            return int(f.read().split()[6]) * 512
    except FileNotFoundError:
        pass
    total = 0
    for pid in pids:
        with open("/proc/%s/io" % pid) as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("write_bytes"))
    return total


def resident_mib(pids):
    """Of each process, on average."""
    pages = 0
    for pid in pids:
        with open("/proc/%s/statm" % pid) as f:
            pages += int(f.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / len(pids) / 2**20
