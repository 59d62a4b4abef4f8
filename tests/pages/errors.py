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
error, and a name (its class). If there is a remedy, `error.hint` describes it. `error.retriable` is
true if the same call may succeed later. The client itself tries again within its `timeout`, and
raises the error only after that.

After five of these errors, it is not known whether the call was carried out: `SendTimeout`, `ConnectionLost`,
`ClientStalled`, `OutcomeUnknown` and `ResendTooOld`. If you send a message again after one of the first three, use the
same `id=` as before, so that it is not stored twice. After `ResendTooOld`, first look the message up. `OutcomeUnknown`
is about a transaction: ask for [its outcome](../guide/transactions.md#when-the-block-fails). `PartialSendError` and
`UnsentMessages` describe several messages, so they are never `retriable`: look at the `error` of each of their
`failures`.

If an argument has a wrong value, the call raises `ternmq.InvalidRequest` or another subclass of `TernMQError`. Calls
raise Python's own errors only for mistakes in the program. `TypeError`: the function does not have this argument, a
client is pickled, or the argument of `decode` is not a type that bodies can have (`delivery.decode("int")`).
`IndexError`: the batch does not have this message (`batch[99]`, `batch.ack(rows=[99])`).

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

Classes that `ternmq` exports are printed **bold**. The others are in logs and in the protocol; if a call raises one of
them, catch its base class. The [protocol](../protocol/errors.md) has the same table for authors of clients.
"""  # noqa: E501
_REFUSED: Final = """\
The broker refused the request, or the client found the mistake before it sent the request
(`InvalidHandler`, for example). Nothing of the request was stored. There is one exception: after
`ResendTooOld`, it is not known whether the message is stored. To catch all of these errors, catch
`ternmq.RefusedError`."""
_JOURNAL: Final = """\
The broker cannot continue, or has no room. Operators see these errors in the broker's log and on
the command line. A client only sees that its connection ends."""
_PROTOCOL: Final = """\
The other side sent data that is not a valid frame of this protocol. The connection is closed."""
_CLIENT: Final = """\
The client itself raises these errors; they are not answers of the broker. To catch all of them,
catch `ternmq.ClientError`."""
_SETTINGS: Final = """\
The broker does not start. The command prints the error and exits with status 2."""
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
