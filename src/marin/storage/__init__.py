"""Where artifacts lie: a prefix, and below it a flat map from path to bytes that every worker shares.

Read in this order: store (the protocols), local, prefix, owner.
"""
