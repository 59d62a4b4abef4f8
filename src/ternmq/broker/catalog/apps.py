"""Checks of apps and of producers' reports before they become records.

Tokens are created and compared in ``ternmq.access``; here they are salts and hashes of a fixed
length.
"""

from __future__ import annotations

import re
from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.printing import quoted
from ternmq.model.specs import BROADCAST_GROUP, check_name
from ternmq.record.fact.control import BUCKET_US, App, Counts, Grant

RIGHTS: Final = frozenset({"produce", "consume", "manage", "audit"})
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
MAX_GRANTS: Final = 256
MAX_OWNER: Final = 200
MAX_COUNTS: Final = 1000
MAX_RUNS: Final = 1000
_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{0,126}\*\Z|[A-Za-z0-9._-]{1,127}\Z")
_U64: Final = 1 << 64
_LATEST_US: Final = 1 << 62


def check_app(app: App) -> None:
    """Raise InvalidName or InvalidRequest if something is wrong with an app."""
    check_name(app.name)
    if len(app.owner) > MAX_OWNER or not app.owner.isprintable():
        raise InvalidRequest(f"owner must be at most {MAX_OWNER} printable characters")
    if len(app.salt) != SALT_BYTES or len(app.hash) != HASH_BYTES:
        raise InvalidRequest(f"salt has {SALT_BYTES} bytes, hash {HASH_BYTES}")
    if len(app.grants) > MAX_GRANTS:
        raise InvalidRequest(f"an app has at most {MAX_GRANTS} grants")
    for grant in app.grants:
        _check_grant(grant)


def _check_grant(grant: Grant) -> None:
    if grant.right not in RIGHTS:
        raise InvalidRequest(
            f"unknown right {quoted(grant.right)}: use produce, consume, manage or audit"
        )
    group = "*" if grant.group == BROADCAST_GROUP else grant.group
    for pattern in (grant.topic, group):
        if _PATTERN.match(pattern) is None:
            raise InvalidRequest(f"{quoted(pattern)} is neither a name nor a prefix that ends in *")
    if grant.right == "produce" and grant.group != "*":
        raise InvalidRequest(
            f"produce:{grant.topic}:{grant.group} names a group, but a producer sends to a topic: "
            f"write produce:{grant.topic}"
        )
    if grant.right == "audit" and (grant.topic, grant.group) != ("*", "*"):
        raise InvalidRequest("the right to audit covers the whole journal: its topic must be *")


def check_counts(counts: Counts) -> None:
    """Raise InvalidRequest if a report contains what no producer can have counted."""
    if not 0 < len(counts.entries) <= MAX_COUNTS:
        raise InvalidRequest(f"a report has 1 to {MAX_COUNTS} entries")
    if not 0 <= counts.producer < _U64:
        raise InvalidRequest("a producer id has 64 bits")
    for one in counts.entries:
        if one.bucket_us % BUCKET_US or not 0 <= one.bucket_us < _LATEST_US:
            raise InvalidRequest(f"a bucket begins at a multiple of {BUCKET_US} us")
        if any(not 0 <= count < _U64 for count in (one.sent, one.given_up, one.left_out)):
            raise InvalidRequest("counts are 0 or more and have 64 bits")
        if len(one.runs) > MAX_RUNS:
            raise InvalidRequest(f"a bucket names {MAX_RUNS} runs of sequences at most")
        if not 0 <= one.first <= one.stop < _U64 or any(
            not 0 <= run.first < run.stop < _U64 for run in one.runs
        ):
            raise InvalidRequest("sequences run upwards and have 64 bits")
