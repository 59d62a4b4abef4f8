"""``ternmq outbox``, ``inbox`` and ``sequence``: what TernMQ has in databases of applications.

``outbox`` (the group, and ``prepare``), ``rows`` (``status``, ``list``, ``show``, ``resend`` and
``discard``), ``run`` (compensators for many databases), ``inbox`` (messages that were handled),
``sequence`` (orderly sessions), ``databases`` (how commands open a database, and how its errors are
told).
"""
