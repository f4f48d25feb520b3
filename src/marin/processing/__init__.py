"""Documents in, tokens out.

Light, to describe: ``sources``, ``download``, ``tokenize``. Heavy, to do it, and named to a step as text: ``documents``
reads, ``input_files`` and ``inputs`` find what to read, ``hub`` talks to the Hugging Face hub.
"""
