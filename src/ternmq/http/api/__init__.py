"""The REST API: messages, consuming and administration over HTTP.

Entry points: ``routes`` (the table of everything that can be asked) and ``app`` (requests become
calls). Reading order: ``problems`` (errors), ``guard`` (which requests are refused at once),
``credentials``, ``detached`` (pulls whose leases belong to no session), ``pool`` (a session at the
broker for each credential), ``call`` (a request as handlers see it), ``receipts``, ``listing``; the
handlers and their routes: ``messages``, ``consuming``, ``topics``, ``groups``, ``broker``;
``openapi``.

Invariants: the server has no right of its own: every request runs over a session that was opened
with the caller's credential; a route names the commands that it asks; what it answers is what
``--json`` prints; an error is one of the table of errors.
"""
