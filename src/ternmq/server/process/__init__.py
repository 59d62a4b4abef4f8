"""The process that the server runs in.

``listening`` (whether the address can be listened at), ``making`` (disk space of a new journal),
``admin_token``, ``tls``, ``doorway`` (sockets of a broker whose role changes), ``signals``,
``fullness`` (of the disk), ``clock_watch`` (logs a wall clock that is not followed), ``alarm_log``,
``own_process`` (threads and garbage collection), ``surely`` (waits that are not cut short).
"""
