"""The best and the last ratio of each row of bench.py's table, by the size of the run, so that the loss of a tenth is noticed.

A run is compared only with runs of the same size: the same image, windows, number of objects and machine. The best of many runs is the
luckiest as well, so the last one stands beside it.
"""
import json
import os

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ratios.json")
LOSS = 0.9


def load(path=FILE):
    """{size: {row: {"best": ratio, "last": ratio}}}"""
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def complaints(known, now):
    """A line for each row that has less than nine tenths of its best ratio, and for each that is gone."""
    out = []
    for row, ratios in known.items():
        if row not in now:
            out.append("%s: not measured, once %.2f" % (row, ratios["best"]))
        elif now[row] < LOSS * ratios["best"]:
            out.append("%s: %.2f, once %.2f, last %.2f" % (row, now[row], ratios["best"], ratios["last"]))
    return out


def keep(known, size, now, path=FILE):
    """Writes the ratios of a run of this size beside the best ones. Rows that were not measured stay."""
    rows = dict(known.get(size, {}))
    for row, ratio in now.items():
        rows[row] = {"best": round(max(ratio, rows.get(row, {}).get("best", 0)), 2), "last": round(ratio, 2)}
    with open(path, "w") as f:
        json.dump({**known, size: rows}, f, indent=1, sort_keys=True)
        f.write("\n")
