"""What scripts are written with: builders of handles (``data``), models and tokenizers by name, and ``main``."""
