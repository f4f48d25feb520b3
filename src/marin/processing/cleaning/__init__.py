"""Documents in, documents out: steps that make Parquet shards of documents from any source.

Light, to describe: ``document_set`` and ``steps``. Heavy, to do it: ``build`` cuts the input into parts, ``part_work``
makes one, ``duplicates`` finds equal documents of different parts. A further step of this shape is a ``Treatment``, if
it looks at one document at a time, and else a way to choose rows, as ``duplicates`` is.
"""
