"""Commands about groups and failures.

They are: ``group``, ``group_lag``, ``group_places``, ``group_replay``,
``retry``, ``deadletter``, ``redrive``, ``failed``, ``hold``; ``selection`` (options that select
failed messages).
"""
