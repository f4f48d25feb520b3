"""Times whole commands and compares them. Read in this order: command, rounds, numbers, rows, benchmark, table."""
