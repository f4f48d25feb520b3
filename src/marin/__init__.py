"""Language-model pipelines made of lazy, versioned, drift-checked artifacts.

Start with ``marin.execution.lazy`` (handles), then ``marin.experiment`` (the helpers that people use all day).
"""
