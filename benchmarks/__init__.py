"""What Marin costs, hot path by hot path, beside other tools on the same machine: ``make bench``.

A file here is one hot path: the commands that are timed, and the claims about them. ``harness`` times whole commands in
interleaved rounds; ``programs`` holds the scripts that are timed, one per tool.
"""
