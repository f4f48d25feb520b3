"""Run an opaque command somewhere and see to its end. Read in this order: executor (the protocol), local, guard."""
