"""Commands of the pipeline.

They are: ``pipeline`` (the group), ``run``, ``replay``, ``care``, ``report``,
``parts`` (shared options), ``priority``.
"""
