"""Credentials of requests: an app and its token, from the header ``Authorization``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from ternmq.model.errors import Unauthenticated

APP: Final = "Ternmq-App"
"""Header that names the app of a bearer token."""
_MOST: Final = 4096


class Credential(NamedTuple):
    """An app and its token; both empty: the request names none."""

    app: str
    token: str


def credential_of(headers: Mapping[str, str]) -> Credential:
    """Return the credential of a request: ``Basic app:token``, or ``Bearer token`` and the app.

    Raises:
        Unauthenticated: The header is not understood.
    """
    text = headers.get("Authorization", "")
    if not text:
        return Credential("", "")
    if len(text) > _MOST:
        raise Unauthenticated("the header Authorization is too long")
    scheme, _, rest = text.partition(" ")
    if scheme.lower() == "basic":
        return _basic(rest.strip())
    if scheme.lower() == "bearer":
        app = headers.get(APP, "")
        if not app:
            raise Unauthenticated(f"a bearer token needs the name of its app, in the header {APP}")
        return Credential(app, rest.strip())
    raise Unauthenticated("the header Authorization is neither Basic (app:token) nor Bearer")


def _basic(text: str) -> Credential:
    try:
        pair = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthenticated("the header Authorization is not base64 of app:token") from error
    app, colon, token = pair.partition(":")
    if not colon:
        raise Unauthenticated("the header Authorization names an app without a token")
    return Credential(app, token)
