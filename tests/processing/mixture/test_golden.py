"""Which windows are in which batch is held by a file for each number of the formula.

A file that is here never changes. If another rule is wanted, raise ``MIXTURE_FORMULA``, add a file for it, and say in
CHANGELOG.md that trainings which were begun before can't go on. Run this module as a program to write a new one.
"""

from __future__ import annotations

import json
from pathlib import Path

from marin.processing.mixture.mixture import MIXTURE_FORMULA
from tests.processing.mixture.streams import data, pairs

GOLDEN = Path(__file__).parent / "golden" / f"formula-{MIXTURE_FORMULA}.json"

CASES = {
    "one": {"sizes": [100], "seed": 0},
    "one, in its fourth epoch": {"sizes": [7], "seed": 3, "steps": [8]},
    "three": {"sizes": [100, 50, 3], "weights": [5, 3, 1], "seed": 7, "steps": [0, 1, 682, 683, 10**9]},
    "largest seed and sizes": {
        "sizes": [2**40, 2**39 + 1],
        "weights": [1, 1e-3],
        "seed": 2**32 - 1,
        "steps": [0, 10**9],
    },
    "stages": {
        "sizes": [100, 50, 25],
        "weights": [[3, 1, 0], [1, 1, 1], [0, 0, 1]],
        "at": [2, 700],
        "seed": 11,
        "steps": [0, 1, 2, 3, 699, 700, 5000],
    },
    "limited": {"sizes": [100, 50], "limits": [None, 4], "seed": 5, "steps": [0, 1, 7, 5000]},
    "weights at extremes": {"sizes": [9, 9, 9], "weights": [1e300, 3e299, 1e297], "seed": 2, "steps": [0, 1, 2]},
}


def computed():
    answers = {}
    for name, case in CASES.items():
        given = {key: value for key, value in case.items() if key not in ("sizes", "steps")}
        if isinstance(given.get("weights", [0])[0], list):
            given["weights"] = [tuple(each) for each in given["weights"]]
        training_data = data(*case["sizes"], **given)
        answers[name] = {
            "case": case,
            "batches": {
                str(step): [list(pair) for pair in pairs(training_data, step)] for step in case.get("steps", [0, 1])
            },
            "sequences": [row.sequences for row in training_data.budget(12_345)],
        }
    return answers


def test_the_batches_are_those_that_were_written_down():
    assert computed() == json.loads(GOLDEN.read_text(encoding="utf-8"))


if __name__ == "__main__":
    lines = (f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in computed().items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
