"""Runs a program here with each of its threads profiled by processor time: ``profiled.py STATS PROGRAM ARGUMENTS``.

Time that a thread waits, for the disk or for the interpreter's lock, is not in it. Says how often the process was
switched away from a processor, by itself (``gave_way``) or by the kernel.
"""

import cProfile
import json
import pstats
import resource
import runpy
import sys
import threading
import time

PROFILES = []


def profiled(run):
    def run_profiled(thread):
        profile = cProfile.Profile(time.thread_time)
        PROFILES.append(profile)
        profile.enable()
        try:
            run(thread)
        finally:
            profile.disable()

    return run_profiled


if __name__ == "__main__":
    target, program = sys.argv[1:3]
    sys.argv[:] = sys.argv[2:]
    threading.Thread.run = profiled(threading.Thread.run)
    main = cProfile.Profile(time.thread_time)
    main.enable()
    runpy.run_path(program, run_name="__main__")
    main.disable()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(timeout=10)
    stats = pstats.Stats(main)
    for profile in PROFILES:
        stats.add(profile)
    stats.dump_stats(target)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print("measured: " + json.dumps({"gave_way": usage.ru_nvcsw, "taken_away": usage.ru_nivcsw}))
