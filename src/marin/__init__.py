"""Language-model pipelines made of lazy, versioned, drift-checked artifacts.

Start with ``marin.execution.lazy`` (handles), then ``marin.experiment`` (the helpers that people use all day).
"""

import sys

if sys.platform == "win32":
    raise ImportError("Marin runs on Linux, and on macOS as far as that goes. On Windows, use it inside WSL")
