"""The page of the broker's tables, made of what a started broker has registered."""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from itertools import pairwise
from typing import Any, Final

from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.planner import PlannedMode
from ternmq.broker.group.mode import GroupMode
from ternmq.broker.start import open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.record.fact import state
from ternmq.record.fact.header import Kind

_HEAD: Final = """\
# Tables of the broker

This page is for people who work on the source. Made by `make docs` from what a broker has
registered at its start: change it there. How to add a row to each table:
[ARCHITECTURE](../../ARCHITECTURE.md#a-new-row-of-a-table). Paths are under `src/ternmq/`. A *row*
of a queue is a message.
"""
_RECORDS: Final = """\
## Kinds of records

The journal is a sequence of records of these kinds. They are registered in `broker/ledger/views.py`
and `broker/ledger/resolving.py`. [Records](../format/records.md) and
[the journal](../format/journal.md) describe their bytes.
"""
_STATE: Final = """
## Types of STATE objects

From time to time, the broker writes its state into the journal, as a set of these objects. They are
registered in `broker/start.py`, in the order in which they are written.
[STATE](../format/state.md) describes their bytes.
"""
_TIMERS: Final = """
## Timers

The kinds of timers are defined in `broker/clock/timers.py`, and registered in `broker/broker.py`.
"""
_MODES: Final = """
## Group modes

The modes are registered in `broker/delivery/modes.py`.
"""
_OF_THE_JOURNAL: Final = {Kind.SEGMENT, Kind.PAD, Kind.MARK, Kind.STATE}


def page() -> str:
    """Return the page."""
    broker = open_broker(MemoryDisk(), wall_us=1, chance=random.Random(1)).broker
    views = broker.views
    kinds = [(kind, views.table.get(kind)) for kind in Kind]
    return "".join(
        [
            _HEAD,
            "\n",
            _RECORDS,
            _table(
                ("number", "kind", "unpacked by", "what it changes"),
                [
                    (
                        str(int(kind)),
                        kind.name,
                        "" if row is None else _function(row.unpack),
                        _changes(kind, None if row is None else row.apply, known=row is not None),
                    )
                    for kind, row in kinds
                ],
            ),
            _STATE,
            _table(
                ("number", "type", "owner", "what it is"),
                [
                    (str(number), _type_name(number), _place(type(owner)), _about(owner))
                    for number, owner in views.objects.table.items()
                ],
            ),
            _TIMERS,
            _table(
                ("number", "timer", "handler", "what it does"),
                [
                    (str(int(kind)), kind.name, _function(row.fire), _first_line(row.fire))
                    for kind, row in sorted(broker.timers.table.items())
                ],
            ),
            _MODES,
            _table(
                ("setting", *(f"`{mode.name.value}`" for mode in MODES), "what it says"),
                [
                    ("`planner`", *(_place(mode.planner) for mode in MODES), _said("planner")),
                    (
                        "`new_order`",
                        *(_place(type(mode.new_order())) for mode in MODES),
                        _said("new_order"),
                    ),
                    *(
                        (
                            f"`{one.name}`",
                            *(_value(getattr(mode, one.name)) for mode in MODES),
                            _said(one.name),
                        )
                        for one in fields(GroupMode)
                        if one.name not in {"name", "new_order"}
                    ),
                ],
            ),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n" + "".join([f"| {' | '.join(cells)} |\n" for cells in lines])


def _type_name(number: int) -> str:
    [name] = [
        name
        for name, value in vars(state).items()
        if value == number and name.isupper() and name != "CLIENT_SHOWN"
    ]
    return name


def _changes(kind: Kind, apply: Callable[..., Any] | None, *, known: bool) -> str:
    if apply is not None:
        return _function(apply)
    if known:
        return "nothing"
    writer = "the journal writes it for itself" if kind in _OF_THE_JOURNAL else "nobody writes it"
    return f"nothing: {writer}"


def _about(owner: object) -> str:
    """Return the first line of the owner's docstring, without the name of the type."""
    return _first_line(type(owner)).partition(": ")[2]


def _first_line(of: object) -> str:
    text = inspect.getdoc(of)
    assert text, f"{of} has no docstring"
    line = " ".join(text.partition("\n\n")[0].split())
    return re.sub(r" \((timer )?[A-Z]+\)", "", line).partition(". ")[0].removesuffix(".")


def _function(of: Callable[..., Any]) -> str:
    if inspect.ismethod(of) or inspect.isfunction(of):
        return f"`{of.__qualname__}` in `{_path(of.__module__)}`"
    return "a struct"


def _place(of: Callable[..., Any]) -> str:
    return f"`{of.__name__}` in `{_path(of.__module__)}`"


def _path(module: str) -> str:
    return module.removeprefix("ternmq.").replace(".", "/") + ".py"


@cache
def _texts() -> dict[str, str]:
    """Return field of a mode -> the text below it in the class."""
    found: dict[str, str] = {}
    for of in (GroupMode, PlannedMode):
        body = ast.parse(inspect.getsource(of)).body[0]
        assert isinstance(body, ast.ClassDef)
        for at, text in pairwise(body.body):
            if isinstance(at, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(at.target, ast.Name)
                assert isinstance(text.value, ast.Constant)
                found[at.target.id] = " ".join(str(text.value.value).split())
    return found


def _said(name: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", _texts()[name])


def _value(of: object) -> str:
    return {True: "yes", False: "no"}[of] if isinstance(of, bool) else str(of)
