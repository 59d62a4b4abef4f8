"""Pages: many records at once, by column, with numpy.

``pieces`` (where records begin), ``columns``, ``frames``.
"""
