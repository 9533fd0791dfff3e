"""The pool that is thrashed: replicated, or erasure-coded with the overwrites that images need."""
import collections
import random

Pool = collections.namedtuple("Pool", "name k m min_size")  # k: data shards, 0 of a replicated pool; m: coding shards, or further copies

REPLICATED = Pool("replicated", 0, 2, 2)
CODED = ((2, 1, 2), (4, 2, 5), (4, 2, 4))  # k, m, min_size; the first two as a new pool has it


def size(pool):
    """Of how many OSDs each object needs a place."""
    return (pool.k or 1) + pool.m


def spare(pool):
    """How many OSDs of an object may be away, and everything is served."""
    return size(pool) - pool.min_size


def beside(pool):
    """The replicated pool that has what a coded one cannot have, and can spare as much; of a replicated one, another like it."""
    return REPLICATED._replace(m=spare(pool) + 1)


def parse(text, min_size=None, seed=0):
    """The pool that `replicated`, `ec:2+1` or `ec` stands for; the last is one of `CODED`, by the seed. Raises ValueError."""
    if text == "replicated":
        if min_size:
            raise ValueError("--min-size is for coded pools")
        return REPLICATED
    if text == "ec":
        k, m, least = random.Random("pool %s" % seed).choice(CODED)
    else:
        kind, _, code = text.partition(":")
        k, _, m = code.partition("+")
        if kind != "ec" or not (k.isdecimal() and m.isdecimal()) or int(k) < 2 or int(m) < 1:
            raise ValueError("no pool %r; there are replicated, ec and such as ec:4+2" % text)
        k, m = int(k), int(m)
        least = k + min(1, m - 1)  # Source: src/mon/OSDMonitor.cc, prepare_pool_size
    least = min_size or least
    if not k <= least <= k + m:
        raise ValueError("a pool of %d+%d has a min_size of %d to %d" % (k, m, k, k + m))
    return Pool("ec:%d+%d, min_size %d" % (k, m, least), k, m, least)


def create(cluster, pool, name):
    """Makes it, for objects of all clients."""
    if pool.k:
        profile = "%s-%d-%d" % (name, pool.k, pool.m)
        words = ("k=%d" % pool.k, "m=%d" % pool.m, "plugin=jerasure", "technique=reed_sol_van", "crush-failure-domain=osd")
        cluster.ceph("osd", "erasure-code-profile", "set", profile, *words)
        cluster.ceph("osd", "pool", "create", name, "32", "32", "erasure", profile)
        cluster.ceph("osd", "pool", "set", name, "allow_ec_overwrites", "true")
    else:
        cluster.ceph("osd", "pool", "create", name, "32", "32", "replicated", "spread")
        cluster.ceph("osd", "pool", "set", name, "size", str(size(pool)))
    cluster.ceph("osd", "pool", "set", name, "min_size", str(pool.min_size))
