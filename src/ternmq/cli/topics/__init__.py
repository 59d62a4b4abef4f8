"""Commands about messages and topics.

They are: ``topic``, ``send``, ``tail``, ``consume``, ``message``,
``message_trace``, ``transaction``.
"""
