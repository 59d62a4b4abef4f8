"""The pages of the API, made of signatures and docstrings."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import msgspec

import ternmq
import ternmq.reliable
import ternmq.sync
import ternmq.testing
from ternmq.client.admin import admin, deadletters, failedquery
from ternmq.client.admin.admin import Admin
from ternmq.client.admin.deadletters import DeadLetters
from ternmq.client.connection.address import Address
from ternmq.client.content import message
from ternmq.client.handler import depends
from ternmq.client.handler.unawaited import makes_coroutines
from ternmq.client.transaction import transaction
from ternmq.model import specs
from ternmq.model.assignments import Assignment
from ternmq.model.errors import TernMQError
from ternmq.record.batch.row import Row
from ternmq.reliable.modes import options
from ternmq.reliable.outbox import rows
from ternmq.reliable.steps import course
from ternmq.wire import control
from tests.unit.wire.control_tables import texts_of

_MADE: Final = "Made by `make docs` from the docstrings of `{}`: change it there.\n"
_TERNMQ: Final = """\
What a program imports. The guide shows it at work: [produce](../../guide/produce.md),
[consume](../../guide/consume.md), [failures](../../guide/failures.md).
Errors have [a page of their own](../errors.md).
"""
_SYNC: Final = """\
The names, arguments and errors are those of [`ternmq`](ternmq.md); a call returns when it is done
instead of being awaited. [The guide](../../guide/sync.md) shows it at work.
"""
_RELIABLE: Final = """\
The guide shows it at work: [with your database](../../guide/database.md),
[once only](../../guide/once-only.md), [sessions](../../guide/sessions.md),
[a limited rate](../../guide/delay.md#send-at-a-limited-rate), [ids](../../guide/ids.md).
"""
_NAMES: Final = (
    "Outbox", "Inbox", "idempotent", "every", "Task", "collector", "ddl",
    "batch", "Holder", "BlockingHolder", "Items", "Item", "Throttle", "Ids", "IdsStats", "text_id",
    "sequence", "SequenceBlock", "BlockingSequenceBlock", "Steps", "SequenceStep",
    "Step", "OutboxStats", "InboxStats", "StepsStats",
)  # fmt: skip
"""The names of ``ternmq.reliable``, in the order of the page."""
_SHOWN: Final = {
    "T_co": "T",
    "AwaitedClient | Client": "ternmq.Client | ternmq.sync.Client",
    "observer: Observer": "observer: Callable[[Step, Sequence[str]], None]",
}
"""Names in signatures -> what programs call it."""
_PASSED_ON: Final = """
# Arguments that are passed on

Keyword arguments with the types and meanings that they have in `Client.send`.

"""
_RETURNED: Final = (
    control.TopicInfo, control.QueueInfo, control.GroupInfo, control.GroupQueueInfo,
    control.ResetQueue, control.FailureInfo, control.RowStanding, control.AppInfo,
    control.GrantInfo, control.ClientInfo, control.ConsumedGroup,
    control.Status, control.Groups, control.HoldInfo,
    specs.TopicSpec, specs.SubscriptionSpec, specs.Instance, Assignment,
    control.Transactions, control.TransactionInfo, control.WriterInfo, control.DecisionInfo,
    control.CheckedTransaction, control.ProducerGroupInfo,
    control.AlarmInfo, control.ClockAccepted, control.OldestFile,
    control.BrokerGroupInfo, control.FollowerInfo, control.ScrubInfo,
)  # fmt: skip
_FIRST_RETURNED: Final = f"## `ternmq.{_RETURNED[0].__name__}`\n"
_RETURNED_TEXT: Final = """\
# What `admin` and `deadletters` return

These are structs: the name of a topic is `(await client.admin.topics())[0].spec.name`, the retry
policy of a group `info.spec.retry`; `GrantInfo` is also what `admin.put_app` takes. Those whose
heading begins with `ternmq.` can be imported from there, as for annotations.

"""
_ALIASES: Final = (
    (deadletters, "Chosen"), (admin, "Place"), (depends, "Provider"), (message, "Queue"),
    (transaction, "Settled"), (failedquery, "FailedState"),
)  # fmt: skip
_ALIASES_TEXT: Final = """
# Other names in signatures

They stand for several types, or for a type that programs do not name themselves.

* `Processing`, `BatchProcessing`: The contexts that `process()` returns.
"""
_BLOCKING: Final = re.compile(r"\bBlocking(Delivery|Processing)\b")
_SECTION: Final = re.compile(r"(Args|Raises|Returns|Yields|Attributes):\Z")
_WIDTH: Final = 92
_INTERNAL: Final = frozenset({
    "FailedQuery.select",
    "Client.after_fork", "Client.closed", "Client.reach", "Client.refused_soon", "Client.serve",
    "Client.offer",
    "Outbox.after_fork", "Outbox.place_of", "Outbox.current", "Outbox.knows", "Outbox.requires",
    "Outbox.strangeness", "Outbox.written", "Outbox.check", "Outbox.steps", "Outbox.schema",
    "Outbox.closed", "Outbox.client", "Outbox.database", "Inbox.store", "Inbox.after_fork",
    "Task.after_fork", "InboxStats.after_fork", "InboxStats.count",
    "StepsStats.after_fork", "StepsStats.count", "Steps.after_fork", "Row.message", "Row.ref",
    "Options.checked", "Transaction.reach", "Holder.outer", "BlockingHolder.outer",
    "Admin.join_group",
    "Admin.refusals",
    "Delivery.lease", "Delivery.settle_soon", "Deliveries.settle_soon",
    "Deliveries.here",
    "BlockingDelivery.conclude", "Options.backoff", "Address.ssl_context",
    "TopicSpec.check", "SubscriptionSpec.check", "Assignment.check", "Assignment.fits",
    "Admin.make_topic", "ManualClock.leap",
    "ManualClock.monotonic_us", "ManualClock.wall_us", "ManualClock.call_at", "ManualClock.step",
    "ManualClock.settle_with", "InProcessBroker.clock",
})  # fmt: skip
"""Public for other parts of the package, not for programs."""


def ternmq_page() -> str:
    """Return the page of ``ternmq``."""
    parts = [
        "# `ternmq`\n",
        _MADE.format("src/ternmq/client"),
        _TERNMQ,
    ]
    named = [
        (f"ternmq.{name}", one)
        for name in ternmq.__all__
        if (one := getattr(ternmq, name)) not in _RETURNED
    ]
    named.insert(2, ("client.admin", Admin))
    named.insert(3, ("client.deadletters", DeadLetters))
    named += [
        (f"ternmq.{one.__name__}" if one.__name__ in ternmq.__all__ else one.__name__, one)
        for one in _RETURNED
    ]
    named.insert(named.index(("ternmq.Options", ternmq.Options)) + 1, ("Address", Address))
    named.insert(named.index(("ternmq.FoundMessage", ternmq.FoundMessage)) + 1, ("Row", Row))
    page = _page(parts, named).replace(_FIRST_RETURNED, _RETURNED_TEXT + _FIRST_RETURNED)
    return page + _aliases()


def sync_page() -> str:
    """Return the page of ``ternmq.sync``: what is not the same as in ``ternmq``."""
    parts = [
        "# `ternmq.sync`\n",
        _MADE.format("src/ternmq/sync"),
        f"{_doc(ternmq.sync)}\n",
        _SYNC,
    ]
    page = _page(
        parts,
        [
            (f"ternmq.sync.{name}", found)
            for name in ternmq.sync.__all__
            if (found := getattr(ternmq.sync, name)) is not getattr(ternmq, name, None)
        ],
    )
    return _BLOCKING.sub(r"\1", page)  # their names for programs


def reliable_page() -> str:
    """Return the page of ``ternmq.reliable``."""
    parts = [
        "# `ternmq.reliable`\n",
        _MADE.format("src/ternmq/reliable"),
        _doc(ternmq.reliable).partition("\n\n")[0] + "\n",
        _RELIABLE,
    ]
    named: list[tuple[str, Any]] = []
    for name in _NAMES:
        found = getattr(ternmq.reliable, name)
        if found is ternmq.reliable.batch:
            called = [("batch", found.__call__), ("batch.current", found.current)]
            named += [(f"ternmq.reliable.{one}", function) for one, function in called]
        else:
            named.append((f"ternmq.reliable.{name}", found))
    at = named.index(("ternmq.reliable.Inbox", ternmq.reliable.Inbox))
    named.insert(at, ("Row", rows.Row))  # that ``Outbox.rows`` returns
    named.append(("State", course.State))  # of a session, in ``Steps.count``
    page = _page(parts, named)
    for name, shown in _SHOWN.items():
        page = page.replace(name, shown)
    passed_on = [
        f"* `{one.__name__}`: `{'`, `'.join(one.__annotations__)}`\n"
        for one in (options.SessionOptions, options.ThrottledOptions)
    ]
    return page + _PASSED_ON + "".join(passed_on)


def bulk_page() -> str:
    """Return the page of ``ternmq.client.bulk``, and of what makes Arrow of what it reads."""
    bulk = importlib.import_module("ternmq.client.bulk")
    coalesce = importlib.import_module("ternmq.record.coalesce")
    parts = [
        "# `ternmq.client.bulk`\n",
        _MADE.format("src/ternmq/client/bulk.py"),
        "[The guide](../../guide/read-in-bulk.md) shows it at work.\n",
    ]
    told = [bulk.Bulk, bulk.BulkOptions, bulk.RangesAsk, bulk.RangeStart, control.TopicRanges,
            control.QueueRange, bulk.Rows, bulk.Records, bulk.Catalog, control.TopicName,
            control.GroupName, control.SessionName, control.HoldPlaced, control.Holds]  # fmt: skip
    named: list[tuple[str, Any]] = [(one.__name__, one) for one in told]
    named += [
        (f"ternmq.record.coalesce.{one.__name__}", one)
        for one in (coalesce.Coalescer, coalesce.schema, coalesce.check)
    ]
    return _page(parts, named)


def testing_page() -> str:
    """Return the page of ``ternmq.testing``."""
    parts = [
        "# `ternmq.testing`\n",
        _MADE.format("src/ternmq/testing"),
        _doc(ternmq.testing).partition("Reading order")[0],
        "[The guide](../../guide/testing.md) shows it at work.\n",
    ]
    named = [(f"ternmq.testing.{name}", getattr(ternmq.testing, name))
             for name in sorted(ternmq.testing.__all__, reverse=True)]  # fmt: skip
    plugin = importlib.import_module("ternmq.testing.plugin")
    return _page(parts, named) + "\n" + _fixtures(plugin)


def _page(parts: list[str], named: list[tuple[str, Any]]) -> str:
    parts = list(parts)
    for name, found in named:
        if inspect.isclass(found) and issubclass(found, TernMQError):
            continue
        if inspect.isclass(found):
            parts += _class(name, found)
        elif callable(found):
            parts += _function(f"## `{name}`", name, found)
    return "\n".join(parts).rstrip() + "\n"


def _aliases() -> str:
    """Return the names of types in signatures that are no classes of the page."""
    return _ALIASES_TEXT + "".join(_alias(module, name) for module, name in _ALIASES)


def _alias(module: ModuleType, name: str) -> str:
    source = inspect.getsource(module)
    found = re.search(rf'^{name} = ([^\n]*)\n"""(.*?)"""', source, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    stands = found[1]
    one_of = re.fullmatch(r"TypeVar\(\"\w+\", (.*)\)", stands)
    if one_of is not None:
        stands = one_of[1].replace(", ", " | ")
    stands = stands.replace("Selector", "Callable[[Message, Sequence[int]], int]")
    text = " ".join(found[2].replace("``", "`").split())
    return f"* `{name}`, that is `{stands}`: {text}\n"


# ----------------------------------------------------------------------------------------- classes


def _class(name: str, kind: type) -> Iterator[str]:
    yield f"## `{name}`\n"
    made_by_users = "\nArgs:" in inspect.cleandoc(kind.__doc__ or "")
    if made_by_users or dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct):
        yield _code(name.rpartition(".")[2], _public(kind, inspect.signature(kind)), "")
    yield _doc(kind) + "\n"
    below = texts_of(kind) if issubclass(kind, msgspec.Struct) else {}
    below = {field: text for field, text in below.items() if not _is_raw(kind, field)}
    if below:
        yield "\n".join(f"* `{field}`: {text}" for field, text in below.items()) + "\n"
    if issubclass(kind, enum.Enum):
        yield "\n".join(_choices(kind)) + "\n"
    members = [(member, value) for member, value in _members(kind)
               if f"{kind.__name__}.{member}" not in _INTERNAL]  # fmt: skip
    for member, value in members:
        if isinstance(value, property):
            yield f"**`.{member}`**: {_doc(value)}\n"
    for member, value in members:
        if isinstance(value, classmethod):
            yield from _function(
                f"### `{name.rpartition('.')[2]}.{member}`", member, value.__func__
            )
        elif callable(value):
            yield from _function(f"### `{name.rpartition('.')[2]}.{member}`", member, value)


def _is_raw(kind: type, field: str) -> bool:
    """Return whether a field is a time in µs that a property gives as a datetime or timedelta."""
    plain = field.removesuffix("_us")
    return plain != field and isinstance(inspect.getattr_static(kind, plain, None), property)


def _public(kind: type, signature: inspect.Signature) -> inspect.Signature:
    """Return a signature without private fields, and those that have another name for programs."""
    kept = [
        one
        for name, one in signature.parameters.items()
        if not name.startswith("_") and not _is_raw(kind, name)
    ]
    return signature.replace(parameters=kept)


def _choices(kind: type[enum.Enum]) -> Iterator[str]:
    texts = dict(re.findall(r"^    (\w+) = [^\n]*\n    \"\"\"(.*?)\"\"\"", inspect.getsource(kind),
                            flags=re.MULTILINE | re.DOTALL))  # fmt: skip
    for one in kind:
        text = " ".join(texts.get(one.name, "").split())
        yield f"* `{kind.__name__}.{one.name}`, or `{one.value!r}`" + (f": {text}" if text else "")


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties, the base classes' first, as they are written."""
    seen: set[str] = set()
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("ternmq"):
            continue
        for name, value in vars(base).items():
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            public = not name.startswith("_") and name not in seen
            if public and (inspect.isfunction(plain) or isinstance(plain, property)):
                seen.add(name)
                yield name, inspect.getattr_static(kind, name)


# --------------------------------------------------------------------------------------- functions


def _function(heading: str, name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"{heading}\n"
    kind = "async " if makes_coroutines(function) else ""
    yield _code(name.rpartition(".")[2], inspect.signature(function), kind)
    yield _doc(function) + "\n"


def _code(name: str, signature: inspect.Signature, kind: str) -> str:
    """Return a signature as a block, one argument a line if it is long."""
    written: list[str] = []
    for one in signature.parameters.values():
        if one.name in {"self", "cls"}:
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in "".join(written):
            written.append("*")
        written.append(_parameter(one))
    answer = _annotation(signature.return_annotation)
    arrow = "" if answer in {"", "None"} else f" -> {answer}"
    line = f"{kind}{name}({', '.join(written)}){arrow}"
    if len(line) > _WIDTH:
        inner = "".join(f"    {one},\n" for one in written)
        line = f"{kind}{name}(\n{inner}){arrow}"
    return f"```py\n{line}\n```\n"


_STARS: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _parameter(one: inspect.Parameter) -> str:
    stars = _STARS.get(one.kind, "")
    annotation = _annotation(one.annotation)
    text = stars + one.name + (f": {annotation}" if annotation else "")
    if one.default is one.empty:
        return text
    default: str = str(one.default) if isinstance(one.default, enum.Enum) else repr(one.default)
    return f"{text} = {'...' if default.startswith('<') else default}"


def _annotation(given: Any) -> str:
    if given is inspect.Signature.empty:
        return ""
    if isinstance(given, str):
        return given
    if typing.get_origin(given) is typing.Annotated:
        given = typing.get_args(given)[0]
    if typing.get_origin(given) in {typing.Union, types.UnionType}:  # written alike by every Python
        return " | ".join(
            "None" if one is type(None) else _annotation(one) for one in typing.get_args(given)
        )
    if isinstance(given, type) and typing.get_origin(given) is None:
        return given.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(given))


def _fixtures(module: ModuleType) -> str:
    """Return the pytest fixtures of a module."""
    parts = ["## Fixtures\n", "With pytest they are there without any configuration.\n"]
    for name, value in vars(module).items():
        function = getattr(value, "__wrapped__", getattr(value, "__pytest_wrapped__", None))
        if name.startswith("ternmq_") and function is not None:
            parts.append(f"**`{name}`**: {_doc(getattr(function, 'obj', function))}\n")
    assert len(parts) > 2, "there are fixtures"
    return "\n".join(parts).rstrip() + "\n"


# --------------------------------------------------------------------------------------- docstrings


def _doc(thing: Any) -> str:
    """Return a docstring as Markdown: Google's sections become lists."""
    lines = (inspect.getdoc(thing) or "").replace("``", "`").splitlines()
    parts: list[str] = []
    section = ""
    for line in lines:
        if line == "::":
            # reStructuredText's sign of an example; here its indentation says it.
            parts = parts[:-1] if parts and not parts[-1] else parts
            continue
        found = _SECTION.match(line)
        if found:
            section = found[1]
            parts += ([""] if parts and parts[-1] else []) + [f"{section}:", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            parts.append(line)
        elif section in {"Args", "Raises", "Attributes"} and line.startswith("    "):
            parts.append(_entry(line[4:]))
        else:
            parts.append(line.removeprefix("    ") if section else line)
    return _indented_as_code("\n".join(parts).strip())


def _entry(line: str) -> str:
    """Return a line of a section: ``name: text`` begins an item, deeper lines go on with it."""
    if line.startswith(" "):
        return "  " + line.strip()
    name, colon, text = line.partition(": ")
    return f"* `{name}`: {text}" if colon else f"* {line}"


def _indented_as_code(text: str) -> str:
    """Fence what is indented as an example, so that it is shown as one."""
    return re.sub(
        r"(?:(?<=\n\n)|\A)((?:    [^\n]*\n|\n(?=    ))*    [^\n]*)",
        lambda found: "```py\n" + textwrap.dedent(found[1]) + "\n```",
        text,
    )
