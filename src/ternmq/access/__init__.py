"""Who may do what: apps with tokens, and what they were granted.

Purpose: an app names itself in HELLO with a token, and every request after it is held against the
command table's policy and the app's grants. Entry point: ``authoriser``. Reading order: ``tokens``
(what is given out, and what is kept of it), ``grants`` (what a pattern covers), ``authoriser``.

Invariants: what was not granted is refused; a deny wins over every grant; a command without a
policy cannot be written down (``wire.commands``); tokens are compared in constant time and stored
nowhere; where apps are required there is no way round this package.
"""

from ternmq.access.authoriser import Authoriser
from ternmq.access.tokens import ADMIN, admin_app, matches, new_token, regrant, seal
from ternmq.model.secret import Secret

__all__ = ["ADMIN", "Authoriser", "Secret", "admin_app", "matches", "new_token", "regrant", "seal"]
