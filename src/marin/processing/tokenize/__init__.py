"""Text to tokens: tokenizers, the step that applies them, and the cache that the trainer reads.

Light, to describe: ``tokenize``, ``tokenizers``, ``manifest``.
Heavy, to do it: ``build``, ``train_tokenizer``, ``encoder``, ``cache``.
"""
