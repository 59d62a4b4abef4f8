"""``ternmq outbox`` and ``ternmq sequence``: what TernMQ has in the databases of applications.

``outbox`` (the group, and ``prepare``), ``rows`` (``status``, ``list``, ``show``, ``resend`` and
``discard``), ``run`` (compensators for many databases), ``sequence`` (orderly sessions),
``databases`` (how commands open a database, and how its errors are told).
"""
