"""One process builds, another waits: ``waiting_process.py SECONDS STORE``.

Says how late, after the record of the build was written, the waiting process had its artifact.
"""

import subprocess
import sys
import time
from pathlib import Path

from marin.execution import ArtifactStep, RunOptions, run

ADDRESS = "bench/slow/2026.07.01"
DEADLINE_SECONDS = 30


def write_slowly(config):
    Path(config["path"], "step.out").write_bytes(b"0123456789")
    time.sleep(config["seconds"])


def build(seconds, store):
    step = ArtifactStep(
        name="bench/slow",
        version="2026.07.01",
        run=write_slowly,
        build_config=lambda ctx: {"path": ctx.output_path, "seconds": seconds},
    )
    run(step, options=RunOptions(prefix=store))


def wait_until_building(record, builder):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not record.exists() or b"building" not in record.read_bytes():
        assert builder.poll() is None, "the builder ended before it began"
        assert time.monotonic() < deadline, "nothing was begun"
        time.sleep(0.005)


if __name__ == "__main__":
    seconds, store = float(sys.argv[1]), sys.argv[2]
    if len(sys.argv) == 4:
        build(seconds, store)
    else:
        builder = subprocess.Popen([sys.executable, __file__, str(seconds), store, "builder"])
        record = Path(store, ADDRESS, ".artifact.json")
        try:
            wait_until_building(record, builder)
            build(seconds, store)
            noticed = time.time_ns()
        finally:
            builder.wait()
        late = (noticed - record.stat().st_mtime_ns) / 1e9
        print(f'measured: {{"late": {late}}}')
