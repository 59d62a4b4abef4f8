"""The list of commands: only the one that is called is imported.

``ternmq --help`` and completion take names and descriptions from here, without importing commands;
a test checks that the descriptions equal those of the commands.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

from ternmq.cli.terminal.problems import near

_WHOLE: Final = 300
CONNECTION: Final = frozenset({"url", "app", "token", "context", "timeout"})


class Entry(NamedTuple):
    """A command: its section, its module and function, and its description."""

    section: str
    target: str
    about: str


RUN: Final = "Run a broker, run an application"
MESSAGES: Final = "Messages"
MANAGE: Final = "Topics, groups, apps"
WATCH: Final = "Operate a broker"
SHELL: Final = "Command line"

TABLE: Final[Mapping[str, Entry]] = {
    "dev": Entry(RUN, "broker.server:dev", "Run a broker for development."),
    "serve": Entry(RUN, "broker.server:serve", "Run a broker until SIGTERM."),
    "http": Entry(RUN, "http:http", "Run an HTTP server in front of a broker."),
    "worker": Entry(RUN, "worker.worker:worker", "Run the handlers that are declared on a client."),
    "apply": Entry(
        RUN, "broker.apply:apply", "Create and change topics and groups as declared on a client."
    ),
    "demo": Entry(RUN, "demo:demo", "Send a month of flights through a broker that is killed."),
    "send": Entry(MESSAGES, "topics.send:send", "Send messages."),
    "tail": Entry(MESSAGES, "topics.tail:tail", "Show the newest messages of a topic."),
    "consume": Entry(MESSAGES, "topics.consume:consume", "Consume messages for a group."),
    "message": Entry(MESSAGES, "topics.message:message", "Look up messages."),
    "delay": Entry(MESSAGES, "topics.delay:delay", "List and cancel scheduled messages."),
    "retry": Entry(
        MESSAGES,
        "groups.retry:retry",
        "List, show and delete messages that wait for a retry, or retry them now.",
    ),
    "deadletter": Entry(
        MESSAGES, "groups.deadletter:deadletter", "List, export, delete and redrive dead letters."
    ),
    "outbox": Entry(
        MESSAGES,
        "outbox.outbox:outbox",
        "Prepare databases for the outbox, send what waits in them, and decide what failed.",
    ),
    "inbox": Entry(
        MESSAGES,
        "outbox.inbox:inbox",
        "Look at the inboxes of databases, and remove rows whose time is over.",
    ),
    "sequence": Entry(
        MESSAGES,
        "outbox.sequence:sequence",
        "Look at orderly sessions in a database, and decide about those that stopped.",
    ),
    "topic": Entry(MANAGE, "topics.topic:topic", "Create, change and list topics."),
    "group": Entry(
        MANAGE, "groups.group:group", "Manage consumer groups: settings, lag, positions."
    ),
    "app": Entry(MANAGE, "broker.app:app", "Manage apps: their tokens and rights."),
    "hold": Entry(
        MANAGE, "groups.hold:hold", "Manage holds: a hold keeps the journal from a position on."
    ),
    "transaction": Entry(
        MANAGE,
        "topics.transaction:transaction",
        "List and decide undecided transactions, and set how they are checked.",
    ),
    "top": Entry(WATCH, "broker.top:top", "Watch rates, topics, groups and connections."),
    "broker": Entry(
        WATCH,
        "broker.broker:broker",
        "Show the status of a broker, or list the brokers of a cluster.",
    ),
    "cluster": Entry(
        WATCH,
        "broker.cluster:cluster",
        "Show and change broker groups: copies, primary, failover.",
    ),
    "alarm": Entry(WATCH, "broker.alarm:alarm", "List and clear the alarms of the broker."),
    "clock": Entry(
        WATCH,
        "broker.clock:clock",
        "Show the gap between broker time and the clock of the machine, or accept the clock.",
    ),
    "client": Entry(
        WATCH, "broker.clients:client", "List the clients, and switch them off or on for a group."
    ),
    "doctor": Entry(
        WATCH, "broker.doctor:doctor", "Check disk, clock, limits and Python of this machine."
    ),
    "bench": Entry(WATCH, "broker.bench:bench", "Run small benchmarks with one client."),
    "backup": Entry(WATCH, "broker.backup:backup", "Copy the journal of a running broker."),
    "journal": Entry(
        WATCH, "broker.journal:journal", "Inspect, check and repair a journal on disk."
    ),
    "pipeline": Entry(
        WATCH,
        "pipeline.pipeline:pipeline",
        "Store messages as tables, and report, replay or erase them.",
    ),
    "context": Entry(
        SHELL, "broker.context:context", "Manage contexts: named brokers, with app and token."
    ),
    "completion": Entry(SHELL, "completion:completion", "Print the completion script for a shell."),
}


class Group(click.Group):
    """A group of commands that suggests similar names for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of definition."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its whole first sentence."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_WHOLE)) for name, one in self.commands.items()]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first.

        Raises:
            click.UsageError: It does not exist.
        """
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            like = near(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {name!r}{like}", ctx)
        return super().resolve_command(ctx, args)


class Root(Group):
    """``ternmq`` itself: imports the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        del ctx
        return list(TABLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        entry = TABLE.get(cmd_name)
        if entry is None:
            return None
        found: Any = pkgutil.resolve_name(f"ternmq.cli.{entry.target}")
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, from the table alone."""
        del ctx
        for section in dict.fromkeys(entry.section for entry in TABLE.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, one.about) for name, one in TABLE.items() if one.section == section]
                )


class Command(click.Command):
    """A command whose help lists the connection options separately."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            click.UsageError: They are not valid, such as a negative number, which looks like an
                option.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name  # of "-50" only "-5"
            if not name[1:].isdecimal():
                raise
            negative = next((one for one in given if one.startswith(name)), name)
            raise click.UsageError(
                f"{negative} is below 0: numbers and times are 0 or more", ctx
            ) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, unless a connection option was given that it does not use.

        Raises:
            click.UsageError: A connection option stands before a command that has none.
        """
        if not any(one.name in CONNECTION for one in self.params):
            at = ctx.parent
            while at is not None:
                for name in sorted(CONNECTION & at.params.keys()):
                    if at.params[name] is not None:
                        raise click.UsageError(f"`{ctx.info_name}` does not use --{name}", ctx)
                at = at.parent
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options first."""
        own: list[tuple[str, str]] = []
        connection: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (connection if parameter.name in CONNECTION else own).append(record)
        for title, records in (("Options", own), ("Connection", connection)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


Group.command_class = Command
Group.group_class = Group
