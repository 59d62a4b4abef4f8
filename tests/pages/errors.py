"""The page of errors, made of ``model/errors.py``."""

from __future__ import annotations

import inspect
from typing import Final

import ternmq
from ternmq.model import errors

_HEAD: Final = """\
# Errors

Made by `make docs` from `src/ternmq/model/errors.py`: change it there.

Every error is a `ternmq.TernMQError`. It has a number (`error.code`) that is never used for another
error, a name (its class), and where there is something to do, its text says it (`error.hint`).
`error.retriable` tells whether the same call may pass later. The client tries again by itself
within its `timeout`; an error that reaches you was tried.

Three of these errors leave unknown what became of the call: `SendTimeout`, `ConnectionLost` and `ClientStalled`. If you
send a message again after one of them, use the same `id=` as before, so that it is not stored twice. `PartialSendError`
and `UnsentMessages` are about several messages, and not `retriable` themselves: look at the `error` of each of their
`failures`.

A wrong value of an argument is a `ternmq.InvalidRequest` or a subclass of `TernMQError` of its own. Python's own
errors are for mistakes in the program that Python has a name for: a `TypeError` for arguments that a function does
not have, or for pickling a client; an `IndexError` for a place that a batch does not have (`batch[99]`,
`batch.ack(rows=[99])`).

```python
import asyncio

import ternmq


async def ask() -> None:
    async with ternmq.connect() as client:
        try:
            await client.admin.topic("oders")
        except ternmq.UnknownTopic as error:
            print(error.code, type(error).__name__, error.retriable)
            print(error)


asyncio.run(ask())
```

```output
110 UnknownTopic False
there is no topic 'oders', or this app has no right on it (create it with `ternmq topic create NAME`; `ternmq apply MODULE:CLIENT` creates what a program declares)
```

Classes that `ternmq` exports are printed **bold**. The others are met in logs, on the wire, or
under their base class. The same table for who writes a client: [protocol](../protocol/errors.md).
"""  # noqa: E501
_REFUSED: Final = """\
The broker said no. This is definite: nothing of the request was stored. Catch them all as
`ternmq.RefusedError`."""
_JOURNAL: Final = """\
The broker cannot go on, or has no room. Operators meet them in the broker's log and on the command
line. A client sees its connection end."""
_PROTOCOL: Final = """\
What came over the connection was no frame of this protocol. The connection is closed."""
_CLIENT: Final = """\
Raised in the client, without a word from the broker. Catch them all as `ternmq.ClientError`."""
_SETTINGS: Final = """\
The broker does not start. The command line prints it and exits with 2."""
_FAMILIES: Final = {
    100: ("Refused", _REFUSED),
    200: ("The journal", _JOURNAL),
    300: ("The protocol", _PROTOCOL),
    400: ("The client", _CLIENT),
    500: ("Settings", _SETTINGS),
}


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for first, (title, text) in _FAMILIES.items():
        parts.append(f"\n## {title}\n\n{text}\n")
        parts.append("| number | name | what happened | retriable | what to do |")
        parts.append("|---|---|---|---|---|")
        parts += [
            _row(code, kind) for code, kind in errors.table().items() if first <= code < first + 100
        ]
    return "\n".join(parts) + "\n"


def _row(code: int, kind: type[errors.TernMQError]) -> str:
    name = kind.__name__
    shown = f"**{name}**" if name in ternmq.__all__ else name
    what = " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())
    what = what.replace("``", "`").replace("|", "\\|")
    return f"| {code} | {shown} | {what} | {'yes' if kind.retriable else ''} | {kind.hint} |"
