"""``ternmq outbox``: the messages that applications write into their databases.

``outbox`` (the group, and ``prepare``), ``rows`` (``status``, ``list``, ``show``, ``resend`` and
``discard``), ``databases`` (how commands open a database, and how its errors are told).
"""
