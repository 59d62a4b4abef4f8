"""``ternmq app``: the apps that may connect to a broker, and their rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from ternmq.cli.commands import Group
from ternmq.cli.reach.connection import administers, confirm, yes_option
from ternmq.cli.reach.parameters import NAME
from ternmq.cli.terminal import output
from ternmq.cli.terminal.exits import Failed
from ternmq.cli.terminal.problems import near, not_found
from ternmq.client.admin.admin_client import AdminClient
from ternmq.client.admin.grants import grant_of
from ternmq.client.forms.apps import plain
from ternmq.model.errors import InvalidRequest
from ternmq.wire.control import AppInfo, GrantInfo

_NOT: Final = "not:"
"""Begins a denial."""


class _Grant(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """``produce:orders.*``, ``consume:stock:orders-service``."""

    name = "grant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the grant."""
        if not isinstance(value, str):
            return value
        try:
            return grant_of(value)
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)


class _Revoked(_Grant):
    """A grant, or a denial: the same after ``not:``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> GrantInfo:
        """Return the grant or denial."""
        if isinstance(value, str) and value.startswith(_NOT):
            grant: GrantInfo = super().convert(value.removeprefix(_NOT), param, ctx)
            return _denial(grant)
        granted: GrantInfo = super().convert(value, param, ctx)
        return granted


_GRANT: Final = _Grant()
_grant = click.option(
    "--grant", "grants", type=_GRANT, multiple=True, metavar="RIGHT:TOPIC[:GROUP]",
    help="Right to grant: produce, consume, manage, or audit:*. Without GROUP: on all groups. "
         "Names may end in *. May be repeated.",
)  # fmt: skip
_deny = click.option(
    "--deny", "denials", type=_GRANT, multiple=True, metavar="RIGHT:TOPIC[:GROUP]",
    help="Right to deny, even if a grant allows it. May be repeated.",
)  # fmt: skip
_owner = click.option(
    "--owner", metavar="TEXT", help="Person or team that is responsible for the app."
)


@click.group(cls=Group)
def app() -> None:
    """Manage apps: their tokens and rights."""


@app.command()
@click.argument("name", type=NAME)
@_grant
@_deny
@_owner
@output.json_option
@administers
async def create(
    client: AdminClient,
    name: str,
    grants: Sequence[GrantInfo],
    denials: Sequence[GrantInfo],
    owner: str | None,
    as_json: bool,
) -> None:
    """Create an app. Its token is printed only once: the broker keeps only a hash of it."""
    if any(one.app == name for one in await client.admin.apps()):
        raise Failed(f"there is an app {name!r} already; `ternmq app set` changes it")
    token = await client.admin.put_app(
        name,
        list(dict.fromkeys([*grants, *map(_denial, denials)])),
        owner=owner or "",
        new_token=True,
    )
    _tell(name, token, as_json=as_json)
    if not grants:
        output.note(
            f"the app has no rights yet; add some: ternmq app set {name} --grant produce:TOPIC"
        )


@app.command("list")
@output.json_option
@administers
async def list_(client: AdminClient, as_json: bool) -> None:
    """List the apps.

    In a pipe, a blank in an owner's name is printed as `_`; scripts should use --json.
    """
    found = await client.admin.apps()
    if as_json:
        output.document([plain(one) for one in found])
        return
    output.table(
        ("app", "owner", "grants"),
        [(one.app, one.owner, " ".join(map(str, one.grants))) for one in found],
        "no apps; `ternmq app create` creates one",
    )


@app.command()
@click.argument("name", type=NAME)
@output.json_option
@administers
async def show(client: AdminClient, name: str, as_json: bool) -> None:
    """Show the rights of an app."""
    info = await _app(client, name)
    if as_json:
        output.document(plain(info))
        return
    output.details([("app", info.app), ("owner", info.owner)])
    click.echo()
    output.table(
        ("right", "topic", "group", "deny"),
        [(one.right, one.topic, one.group, "deny" if one.deny else "") for one in info.grants],
        "the app has no rights",
    )


@app.command("set")
@click.argument("name", type=NAME)
@_grant
@_deny
@click.option(
    "--revoke",
    "revoked",
    type=_Revoked(),
    multiple=True,
    metavar="[not:]RIGHT:TOPIC[:GROUP]",
    help="Grant to remove. To remove a denial, write not: before it, as `app list` prints it. May "
    "be repeated.",
)
@_owner
@click.option(
    "--new-token",
    is_flag=True,
    help="Create and print a new token; the old one becomes invalid at once.",
)
@output.json_option
@administers
async def set_(
    client: AdminClient,
    name: str,
    grants: Sequence[GrantInfo],
    denials: Sequence[GrantInfo],
    revoked: Sequence[GrantInfo],
    owner: str | None,
    new_token: bool,
    as_json: bool,
) -> None:
    """Change the rights or the owner of an app, or give it a new token.

    Other settings stay as they are.
    """
    if not (grants or denials or revoked or new_token or owner is not None):
        raise click.UsageError("name at least one option to change", click.get_current_context())
    info = await _app(client, name)
    for one in revoked:
        if one not in info.grants:
            kind = "denial" if one.deny else "grant"
            raise not_found(f"{name} has no {kind} {one}; `ternmq app show {name}` shows them")
    kept = [one for one in info.grants if one not in revoked]
    kept += [one for one in (*grants, *map(_denial, denials)) if one not in kept]
    token = await client.admin.put_app(
        name, kept, owner=info.owner if owner is None else owner, new_token=new_token
    )
    if new_token:
        _tell(name, token, as_json=as_json)
    elif as_json:
        output.document(plain(await _app(client, name)))
    else:
        output.note(f"changed app {name}")


@app.command()
@click.argument("name", type=NAME)
@yes_option
@administers
async def delete(client: AdminClient, name: str, yes: bool) -> None:
    """Delete an app, and close its connections."""
    await _app(client, name)
    confirm(f"delete app {name}, and close its connections?", yes=yes)
    await client.admin.delete_app(name)
    output.note(f"deleted app {name}")


async def _app(client: AdminClient, name: str) -> AppInfo:
    found = await client.admin.apps()
    for one in found:
        if one.app == name:
            return one
    text = f"there is no app {name!r}{near(name, [one.app for one in found])}"
    raise not_found(f"{text} (`ternmq app list` shows them)")


def _tell(name: str, token: str, *, as_json: bool) -> None:
    """Print a token, alone on standard output, so that a script can read it."""
    if as_json:
        output.document({"app": name, "token": token})
        return
    output.note(f"the token of {name}; it is not shown again:")
    click.echo(token)


def _denial(grant: GrantInfo) -> GrantInfo:
    return msgspec.structs.replace(grant, deny=True)
