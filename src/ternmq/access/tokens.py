"""Tokens, with which apps authenticate, and the hashes that the broker stores.

A token is ``tmq_``, 43 characters of base64url (32 random bytes) and 6 of a checksum. The checksum
distinguishes a token that was not copied exactly from one of another app or broker; the prefix lets
scanners of repositories find leaked tokens.

The broker stores the HMAC-SHA-256 of the text, keyed with a salt of 16 random bytes. Not scrypt or
PBKDF2: those make guessing slow, which passwords need because people choose them; 256 random bits
cannot be guessed at any speed, and a slow hash would let every stranger who connects keep the
broker busy. Because of the salt, equal tokens have different hashes in two brokers.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from ternmq.broker.catalog.apps import SALT_BYTES
from ternmq.model.secret import Secret
from ternmq.model.words import counted
from ternmq.record.fact.control import App, Grant

ADMIN: Final = "admin"
"""The first app, with which the others are made."""
PREFIX: Final = "tmq_"
RANDOM_BYTES: Final = 32
LONGEST: Final = 256
"""Longest text that is checked; longer ones are refused."""
_CHECKED: Final = re.compile(r"tmq_[A-Za-z0-9_-]{43}[A-Za-z0-9_-]{6}\Z")
_CHECKSUM_LENGTH: Final = 6
_LENGTH: Final = len(PREFIX) + 43 + _CHECKSUM_LENGTH


def new_token(random: bytes | None = None) -> Secret:
    """Return a new token; tests may give its 32 random bytes."""
    random = secrets.token_bytes(RANDOM_BYTES) if random is None else random
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a token is made of {RANDOM_BYTES} bytes")
    text = PREFIX + urlsafe_b64encode(random).decode().rstrip("=")
    return Secret(text + _checksum(text))


def _checksum(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode()[:_CHECKSUM_LENGTH]


def is_whole(token: str) -> bool:
    """Return whether a text looks like a token and was copied whole."""
    if _CHECKED.match(token) is None:
        return False
    return token[-_CHECKSUM_LENGTH:] == _checksum(token[:-_CHECKSUM_LENGTH])


def miscopied(token: str) -> str | None:
    """Return how a text that begins as a token differs from all tokens; None: it does not."""
    if not token.startswith(PREFIX) or is_whole(token):
        return None
    if len(token) < _LENGTH:
        return "the token is incomplete: it was not copied completely"
    if len(token) > _LENGTH:
        more = counted(len(token) - _LENGTH, "character")
        return f"the token was not copied exactly: it has {more} too many"
    return "the token was not copied exactly: at least one character is wrong"


def digest(token: str, salt: bytes) -> bytes:
    """Return the hash of a token that is stored."""
    return hmac.digest(salt, token.encode("utf-8", "surrogatepass"), "sha256")


def matches(app: App, token: str) -> bool:
    """Return whether the token is the app's, in constant time."""
    return hmac.compare_digest(digest(token, app.salt), app.hash)


def seal(
    name: str,
    token: Secret,
    *,
    owner: str = "",
    grants: Sequence[Grant] = (),
    now_us: int,
    salt: bytes | None = None,
) -> App:
    """Return an app as it is stored: with a salted hash instead of its token."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    return App(name, owner, salt, digest(token.reveal(), salt), tuple(grants), now_us)


def regrant(app: App, owner: str, grants: Sequence[Grant]) -> App:
    """Return the app with another owner and other grants, and the same token."""
    return msgspec.structs.replace(app, owner=owner, grants=tuple(grants))


def admin_app(token: Secret, now_us: int) -> App:
    """Return the app ``admin``, which may do everything."""
    grants = [Grant("produce"), Grant("consume"), Grant("manage"), Grant("audit")]
    return seal(ADMIN, token, owner="the broker's operators", grants=grants, now_us=now_us)
