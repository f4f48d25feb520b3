"""Trivial tasks in luigi with its local scheduler: ``luigi_steps.py SHAPE SIZE STORE``."""

import sys
from pathlib import Path

import luigi

WIDTH = 10

shape, size, store = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])


class Step(luigi.Task):
    index = luigi.IntParameter()

    def requires(self):
        if shape == "chain" and self.index:
            return [Step(index=self.index - 1)]
        if shape == "layered" and self.index >= WIDTH:
            first = (self.index // WIDTH - 1) * WIDTH
            return [Step(index=first + place) for place in range(WIDTH)]
        return []

    def output(self):
        return luigi.LocalTarget(store / f"{self.index}.step.out")

    def run(self):
        with self.output().open("w") as file:
            file.write("0123456789")


if shape == "independent":
    wanted = range(size)
elif shape == "chain":
    wanted = range(size - 1, size)
else:
    wanted = range((size - 1) * WIDTH, size * WIDTH)
if not luigi.build([Step(index=index) for index in wanted], local_scheduler=True, log_level="WARNING"):
    sys.exit("luigi has failed")
