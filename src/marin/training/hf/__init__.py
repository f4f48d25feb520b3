"""Models from and to Hugging Face's files.

Read in this order: ``config_json`` (their ``config.json`` and our configs), ``names`` (their tensors and our arrays),
``import_model`` (the step behind ``hf_model``), ``export``.
"""
