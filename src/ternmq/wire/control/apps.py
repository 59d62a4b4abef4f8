"""Control: apps and what they may do."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Limit, Line, Number, Token


class GrantInfo(Body, frozen=True, kw_only=True):
    """A right that an app has, or (``deny``) must not use."""

    right: Line
    """``produce``, ``consume``, ``manage``, or ``audit`` (of the journal; for topic ``*``)."""
    topic: str = "*"
    """A name, or the beginning of names and ``*``."""
    group: str = "*"
    """Likewise; only for ``consume`` and ``manage``."""
    deny: bool = False
    """The app must not use the right; a deny wins over every grant."""

    def __str__(self) -> str:
        """Return the grant as text: ``produce:orders``; a deny begins with ``not:``."""
        text = f"{self.right}:{self.topic}" + (f":{self.group}" if self.group != "*" else "")
        return f"not:{text}" if self.deny else text


class AppPut(Body, frozen=True, kw_only=True):
    """Make an app, change its grants, or (``new_token``) give it another token.

    The last app that may manage everything cannot lose that right: InvalidRequest.
    """

    app: str
    grants: Annotated[list[GrantInfo], Meta(max_length=1000)]
    """All grants of the app, of which the broker accepts 256: those not listed are removed."""
    owner: Line = ""
    """A note: the person or team to contact."""
    new_token: bool = False
    """Give the app a new token; the old one is no longer valid."""


class AppToken(Body, frozen=True, kw_only=True):
    """The app's token, shown only in this answer; empty if the token did not change."""

    token: str = ""

    def __repr__(self) -> str:
        """Show no token."""
        return "AppToken(token=***)"


class AppDelete(Body, frozen=True, kw_only=True):
    """Remove an app and close its connections.

    The last app that may manage everything cannot be removed: InvalidRequest.
    """

    app: str


class AppList(Body, frozen=True, kw_only=True):
    """List the apps, by name.

    With `limit` the answer is a page, which may be shorter. Without it the answer has all apps; it
    is refused (InvalidRequest) if there are more than a thousand or so.
    """

    after: Token = ""
    """`next` of the page before."""
    limit: Limit | None = None
    """Most apps on a page. None: no pages."""


class AppInfo(Body, frozen=True, kw_only=True):
    """An app, without its token."""

    app: str
    owner: str
    grants: list[GrantInfo]


class Apps(Body, frozen=True, kw_only=True):
    """Apps, by name."""

    apps: list[AppInfo]
    next: str = ""
    """`after` of the request for the next page. Empty on the last page."""


class RightsQuestion(Body, frozen=True, kw_only=True):
    """A request whose rights are to be checked."""

    command: Number
    """Number of a command whose rights are for a topic, for a group, or for the whole broker."""
    topic: Line = ""
    """The topic that the request would name."""
    group: Line = ""
    """The group that the request would name."""


class RightsCheck(Body, frozen=True, kw_only=True):
    """Check whether this app has the rights for commands, without running them.

    Only rights are checked: the topics and groups need not exist. Commands that need no right, and
    those of transactions, whose topics the request does not name, are InvalidRequest.
    """

    questions: Annotated[list[RightsQuestion], Meta(max_length=32)]
    """Each is checked against all grants of the app."""


class RightsChecked(Body, frozen=True, kw_only=True):
    """The errors with which the requests would be refused."""

    refusals: list[str]
    """In the order of the questions: the text of Forbidden; empty if the app has the right."""
