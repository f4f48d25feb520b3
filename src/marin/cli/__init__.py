"""The ``marin`` command: one module a command, ``main`` puts them together."""
