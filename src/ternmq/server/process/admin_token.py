"""The app ``admin``, with which the other apps are made, and the file that holds its token.

The file is durable before the journal holds the app. So a crash between the two leaves a token
without its app, and the next start makes the app with that token; an app whose token was never
written cannot exist. If the file does not hold the app's token, a start logs what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ternmq import files
from ternmq.access.tokens import ADMIN, is_whole, matches, new_token
from ternmq.model.secret import Secret
from ternmq.record.fact.control import App

log = logging.getLogger("ternmq.server")

FILE: Final = "admin.token"
_SHORT: Final = 16
"""A configured token with fewer characters than this can be guessed: 64 bits in hexadecimal."""
_ANEW: Final = "start the broker once with `ternmq serve --new-admin-token` to create a new one"


class AdminToken:
    """The token's file in a data folder whose lock the caller holds. Blocks while it writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def see_to(
        self,
        apps: Mapping[str, App],
        *,
        given: Secret | None,
        anew: bool,
        put: Callable[[Secret], None],
    ) -> bool:
        """Make sure that the app ``admin`` can be used; return whether it was put.

        Args:
            apps: The existing apps.
            given: The token of the settings: the app gets it at every start.
            anew: Make another token, even if there is one.
            put: Puts the app, with every right, into the journal.

        Raises:
            OSError: The file cannot be written; nothing was put.
        """
        for left in files.leftovers(self._path):
            left.unlink(missing_ok=True)
        admin = apps.get(ADMIN)
        if given is not None:
            if len(given.reveal()) < _SHORT:
                log.warning(
                    "the admin_token of the settings has fewer than %d characters: anybody who "
                    "guesses it has all rights; `openssl rand -hex 32` creates a safe one", _SHORT,
                )  # fmt: skip
            if admin is not None and matches(admin, given.reveal()):
                return False
            put(given)
            return True
        if apps and not anew:
            self._compare(admin)
            return False
        token = self._found() if not anew else None
        if token is None:
            token = new_token()
            files.write(self._path, f"{token.reveal()}\n".encode("ascii"), files.PRIVATE)
        else:
            # A start that was killed has left it: whether it is durable is not known.
            files.sync(self._path)
            files.sync(self._path.parent)
        put(token)
        log.warning(
            "created %s; its token is in %s",
            "the app 'admin'" if admin is None else "another token for the app 'admin'",
            self._path,
        )
        return True

    def _found(self) -> Secret | None:
        """Return the token in the file if it is whole."""
        text = self._text()
        return Secret(text) if text is not None and is_whole(text) else None

    def _text(self) -> str | None:
        """Return the file's content; None if there is no file."""
        try:
            return self._path.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return None

    def _compare(self, admin: App | None) -> None:
        """Log if the file does not hold the token of ``admin``."""
        text = self._text()
        if admin is None:
            log.info("there is no app 'admin'; if nobody else manages apps, %s", _ANEW)
        elif text is None:  # the normal case: operators remove the file once they have the token
            log.debug("the token of 'admin' is not in %s; if nobody has it, %s", self._path, _ANEW)
        elif not is_whole(text):
            what = "is empty" if not text else "does not contain a complete token"
            log.warning("%s %s; if nobody has the token of 'admin', %s", self._path, what, _ANEW)
        elif not matches(admin, text):
            log.warning("the token in %s is not, or is no longer, the token of 'admin'; %s",
                        self._path, _ANEW)  # fmt: skip
