"""Access control: apps with tokens and grants.

Purpose: an app authenticates in HELLO with its token, and every later request is checked against
the command table's policy and the app's grants. Entry point: ``authoriser``. Reading order:
``tokens`` (their form, and what is stored of them), ``grants`` (what a pattern covers),
``authoriser``.

Invariants: a request without a grant is refused; a deny wins over every grant; every command has a
policy (``wire.commands``); tokens are compared in constant time and only their hashes are stored;
if apps are required, no request bypasses this package.
"""

from ternmq.access.authoriser import Authoriser
from ternmq.access.tokens import ADMIN, admin_app, matches, new_token, regrant, seal
from ternmq.model.secret import Secret

__all__ = ["ADMIN", "Authoriser", "Secret", "admin_app", "matches", "new_token", "regrant", "seal"]
