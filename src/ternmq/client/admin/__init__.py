"""Control requests and look-ups.

Reading order: ``admin``, ``admin_client`` (a client that only administers), ``grants``, ``lookup``
with ``places`` (the queue of an offset), ``deadletters`` with ``failedmessage``, ``failedquery``,
``failedsearch`` and ``redriving`` (to another topic), ``replay``,
``schedule`` (cancels scheduled messages), ``older`` (brokers that do not know a setting).
"""
