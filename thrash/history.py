"""What clients of a cluster saw, and whether one copy of each object, used by one client after the other, could have answered so.

A history is a list of operations on one object; each knows when it was sent and when it was answered (seconds of the machine's
monotonic clock; `end` is None for one that never was). Values are unique, which makes the check nearly linear in time:
P. Gibbons and E. Korach, Testing Shared Memories, SIAM J. Comput. 26 (1997).
"""
import collections
import math

Op = collections.namedtuple("Op", "kind value begin end")  # kind: "write" or "read"


def register(ops, initial=None):
    """Faults of a register's history: sentences, none when it is linearizable."""
    faults, clusters = [], {}
    # value -> [earliest end, latest begin, begin of its write]
    clusters[initial] = [-math.inf, -math.inf, -math.inf]
    for op in ops:
        if op.kind == "write":
            end = math.inf if op.end is None else op.end
            if op.value in clusters:
                raise ValueError("value %r is written twice" % (op.value,))
            clusters[op.value] = [end, op.begin, op.begin]
    seen = {op.value for op in ops if op.kind == "read" and op.end is not None}
    for op in ops:
        if op.kind != "read" or op.end is None:
            continue
        known = clusters.get(op.value)
        if known is None:
            faults.append("%r was read at %.3f and never written" % (op.value, op.end))
        elif op.end < known[2]:
            faults.append("%r was read at %.3f, before it was written at %.3f" % (op.value, op.end, known[2]))
        else:
            known[0] = min(known[0], op.end)
            known[1] = max(known[1], op.begin)
    # What was never acknowledged and never read may not have happened.
    zones = [(v, c[0], c[1]) for v, c in clusters.items() if not (math.isinf(c[0]) and c[0] > 0 and v not in seen)]
    forward = sorted(((end, begin, v) for v, end, begin in zones if end < begin), key=lambda z: z[0])
    reach, owner = -math.inf, None
    for low, high, value in forward:
        if low < reach:
            faults.append("%r was read as the current value after %r had replaced it, or the other way round (%.3f to %.3f)" % (owner, value, low, reach))
        if high > reach:
            reach, owner = high, value
    for value, end, begin in zones:
        if end < begin:
            continue
        # backward zone [begin, end]: it may lie inside no forward zone
        for low, high, other in forward:
            if low > begin:
                break
            if low < begin and end < high:
                faults.append("%r was written and acknowledged between %.3f and %.3f, while %r was read before and after" % (value, begin, end, other))
                break
    return faults


def appends(ops, final):
    """Faults of a log's history. `ops`: writes of a token each, and reads of tuples of tokens; `final`: the tokens at the end."""
    faults, place = [], {}
    for i, token in enumerate(final):
        if token in place:
            faults.append("token %r was appended twice, at %d and %d" % (token, place[token], i))
        place.setdefault(token, i)
    sent = {op.value: op for op in ops if op.kind == "write"}
    for token in final:
        if token not in sent:
            faults.append("token %r was never sent" % (token,))
    for op in sent.values():
        if op.end is not None and op.value not in place:
            faults.append("token %r, acknowledged at %.3f, is gone" % (op.value, op.end))
    # Real time's order: nothing may stand before what was acknowledged before it was sent.
    newest_begin = -math.inf
    for token in final:
        op = sent.get(token)
        if op is None:
            continue
        if op.end is not None and op.end < newest_begin:
            faults.append("token %r, acknowledged at %.3f, stands behind one that was sent at %.3f" % (token, op.end, newest_begin))
        newest_begin = max(newest_begin, op.begin)
    # Every read is a beginning of the final log, long enough to hold what had been acknowledged, and no longer than what had been sent.
    acked = sorted((op.end, place[op.value]) for op in sent.values() if op.end is not None and op.value in place)
    least, at, length = [], 0, 0
    reads = sorted((op for op in ops if op.kind == "read" and op.end is not None), key=lambda op: op.begin)
    for op in reads:
        while at < len(acked) and acked[at][0] < op.begin:
            length = max(length, acked[at][1] + 1)
            at += 1
        if tuple(final[: len(op.value)]) != tuple(op.value):
            faults.append("the log read at %.3f is no beginning of the final one" % op.end)
        elif len(op.value) < length:
            faults.append("the log read from %.3f had %d tokens, %d were acknowledged" % (op.begin, len(op.value), length))
        least.append((op.end, len(op.value)))
    # A later read sees no less.
    done, best, at = sorted(least), 0, 0
    for op in reads:
        while at < len(done) and done[at][0] < op.begin:
            best = max(best, done[at][1])
            at += 1
        if len(op.value) < best:
            faults.append("the log read from %.3f had %d tokens, an earlier read %d" % (op.begin, len(op.value), best))
    return faults
