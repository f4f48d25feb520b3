"""Times whole commands and compares them.

Read in this order: command, memory_watch, rounds, numbers, rows, benchmark, table, suite.
"""
