"""The best ratio that each row of bench.py's table ever reached, so that the loss of a tenth is noticed."""
import json
import os

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ratios.json")
LOSS = 0.9


def load(path=FILE):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def lost(best, ratios):
    """(row, best, now) of every row that has less than nine tenths of its best."""
    return [(row, best[row], now) for row, now in ratios.items() if row in best and now < LOSS * best[row]]


def keep(best, ratios, path=FILE):
    """Writes the better ratio of each row."""
    merged = {**best, **{row: round(max(now, best.get(row, 0)), 2) for row, now in ratios.items()}}
    with open(path, "w") as f:
        json.dump(merged, f, indent=1, sort_keys=True)
        f.write("\n")
    return merged
