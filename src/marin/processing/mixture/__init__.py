"""Which windows of which token caches are in which batch: a pure function of seed and step.

Light, to describe: ``mixture`` (weights, stages), ``budget`` (what each component will give).
Heavy, to do it; read in this order: ``shuffle``, ``schedule``, ``windows``, ``batches``.
"""
