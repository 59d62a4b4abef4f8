"""Running jobs.

Reading order: ``jobs`` (which there are), ``runner``, ``owner`` (a folder belongs to one
pipeline), ``health``, ``status``.
"""
