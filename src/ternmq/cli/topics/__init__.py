"""Commands about messages and topics.

They are: ``topic``, ``send`` (with ``due``, ``lines``), ``tail``, ``consume``, ``message``,
``message_trace``, ``delay``, ``transaction`` (with ``checked``).
"""
