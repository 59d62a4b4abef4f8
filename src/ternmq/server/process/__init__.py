"""The process that the server runs in.

``listening`` (whether the address can be listened at), ``making`` (disk space of a new journal),
``admin_token``, ``tls``, ``fullness`` (of the disk), ``own_process`` (threads and garbage
collection).
"""
