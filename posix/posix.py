#!/usr/bin/python3
"""System calls on a mounted file system, and the errnos that a user can provoke with them.

  posix.py FOLDER           cases in a new folder of FOLDER
  posix.py FOLDER OTHER     OTHER is the same folder through a second mount: also what each of them shows of the other's changes
  posix.py --only WORD ...  cases with WORD in their names

Run by root, for some errnos need a second user, whom a case becomes in a child. What Linux' ext4 answers is right; where POSIX allows
another answer too (or a file system may lack a call), the case says so. Ends with 0 if every case passed.
"""
import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback

# Each adds its cases.
import files
import attributes
import names
import locks
import two_mounts
from trial import CASES, Lacking


def run(function, folders):
    name = function.__name__
    own = [folder + "/" + name for folder in folders]
    os.mkdir(own[0], 0o755)
    try:
        function(*own)
        return "ok"
    except Lacking as e:
        return "ok, without %s" % e
    except BaseException:
        print(traceback.format_exc(), flush=True)
        return "FAILED"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder")
    parser.add_argument("other", nargs="?")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if os.getuid() != 0:
        sys.exit("posix.py has to be run by root: cases become another user")
    os.umask(0o022)
    top = tempfile.mkdtemp(prefix="posix-", dir=os.path.abspath(args.folder))
    os.chmod(top, 0o755)
    other = args.other and os.path.abspath(args.other) + "/" + os.path.basename(top)
    tried, failed = set(), []
    for function, calls, needs_both in CASES:
        if args.only not in function.__name__ or needs_both and not other:
            continue
        folders = [top, other] if needs_both else [top]
        began = time.monotonic()
        outcome = run(function, folders)
        print("%s: %s (%.1f s)" % (function.__name__, outcome, time.monotonic() - began), flush=True)
        tried.update(calls)
        if outcome == "FAILED":
            failed.append(function.__name__)
    shutil.rmtree(top, ignore_errors=True)
    print("%d system calls tried, %d cases failed: %s" % (len(tried), len(failed), " ".join(failed) or "none"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
