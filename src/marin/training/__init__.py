"""Training of language models. Light, to describe: ``train``, ``optimizers``, ``defaults``, ``checkpoint``.

Heavy, to do it (JAX): ``trainer`` is the step; read from there.
"""
