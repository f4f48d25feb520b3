"""Token caches of other tools, read where they lie.

Read in this order: layout (what is asked of each), flat (what the trainer reads), then any of the layouts, recognise,
and adopt (what is checked before a cache becomes an artifact). A new layout is one more module with a class that has
the methods of ``Layout``, and one more line in ``recognise.LAYOUTS``.
"""
