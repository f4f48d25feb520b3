"""Where a training's metrics go besides ``metrics.jsonl``.

Read in this order: tracker (the interface, for your own), configs, running, background; then the two that come along.
"""
