"""Running jobs.

Reading order: ``jobs`` (which there are), ``runner``, ``owner`` (a folder belongs to one
pipeline), ``converting`` (tables of earlier versions), ``health``, ``status``.
"""
