"""Control: apps and what they may do."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Limit, Line, Number, Token


class GrantInfo(Body, frozen=True, kw_only=True):
    """Something that an app may do, or (``deny``) must not do; a pattern ends in * or is exact."""

    right: Line
    """``produce``, ``consume``, ``manage``, or ``audit`` (of the journal; for topic ``*``)."""
    topic: str = "*"
    """A name, or the beginning of names and ``*``."""
    group: str = "*"
    """Likewise; only for ``consume`` and ``manage``."""
    deny: bool = False
    """Must not; it wins over every grant."""

    def __str__(self) -> str:
        """Return it as it is written: ``produce:orders``; ``not:...`` of one that denies."""
        text = f"{self.right}:{self.topic}" + (f":{self.group}" if self.group != "*" else "")
        return f"not:{text}" if self.deny else text


class AppPut(Body, frozen=True, kw_only=True):
    """Make an app, change its grants, or (``new_token``) give it another token.

    The last one that may manage everything cannot lose that: InvalidRequest.
    """

    app: str
    grants: Annotated[list[GrantInfo], Meta(max_length=1000)]
    """All of them: what is not named is taken away."""
    owner: Line = ""
    """For people: whom to ask."""
    new_token: bool = False
    """The token of before is of no use from then on."""


class AppToken(Body, frozen=True, kw_only=True):
    """The token, told this one time; empty when it was left as it is."""

    token: str = ""

    def __repr__(self) -> str:
        """Show no token."""
        return "AppToken(token=***)"


class AppDelete(Body, frozen=True, kw_only=True):
    """Remove an app; its connections are closed. The last one that may manage everything stays."""

    app: str


class AppList(Body, frozen=True, kw_only=True):
    """Ask for the apps, by name.

    With `limit` by pages, which may be shorter; without it everything in one answer, which is
    refused (InvalidRequest) where there are more than a thousand or so.
    """

    after: Token = ""
    """`next` of the page before."""
    limit: Limit | None = None
    """Of apps on a page. None: no pages."""


class AppInfo(Body, frozen=True, kw_only=True):
    """An app, without its token."""

    app: str
    owner: str
    grants: list[GrantInfo]


class Apps(Body, frozen=True, kw_only=True):
    """Apps, by name."""

    apps: list[AppInfo]
    next: str = ""
    """Where to go on: `after` of the next request. Empty on the last page."""


class RightsQuestion(Body, frozen=True, kw_only=True):
    """What the app would ask for."""

    command: Number
    """Its number. One whose rights are for a topic, for a group, or for the broker as a whole."""
    topic: Line = ""
    """What the request would name."""
    group: Line = ""
    """Likewise."""


class RightsCheck(Body, frozen=True, kw_only=True):
    """Ask whether this app has the rights for commands, without using one.

    Whether the request would pass otherwise is not looked at: what it names need not be there. A
    command that needs no right, or one for what only its body says, is InvalidRequest.
    """

    questions: Annotated[list[RightsQuestion], Meta(max_length=32)]
    """Each is judged by all grants of the app."""


class RightsChecked(Body, frozen=True, kw_only=True):
    """What the app would be told."""

    refusals: list[str]
    """In the order of the questions: the text of Forbidden; empty where the app has the right."""
