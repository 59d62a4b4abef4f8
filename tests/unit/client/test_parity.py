"""``ternmq.sync`` has the same names, with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import ternmq
import ternmq.sync
from ternmq.client.admin.admin import Admin
from ternmq.client.admin.deadletters import DeadLetters
from ternmq.sync.admin import Admin as BlockingAdmin
from ternmq.sync.admin import DeadLetters as BlockingDeadLetters

PAIRS = [
    (ternmq.Client, ternmq.sync.Client),
    (ternmq.Delivery, ternmq.sync.Delivery),
    (ternmq.Deliveries, ternmq.sync.Deliveries),
    (ternmq.Transaction, ternmq.sync.Transaction),
    (ternmq.PreparedTransaction, ternmq.sync.PreparedTransaction),
    (Admin, BlockingAdmin),
    (DeadLetters, BlockingDeadLetters),
]
ENGINE_ONLY = {
    "after_fork", "settle_soon", "lease", "reach", "conclude", "refused_soon", "serve",
    "offer", "join_group", "make_topic", "refusals", "app", "here",
}  # fmt: skip


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - ENGINE_ONLY


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_same_names(one: type, other: type) -> None:
    assert names(one) == names(other)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_same_arguments(one: type, other: type) -> None:
    for name in names(one):
        mine, its = getattr(one, name), getattr(other, name)
        if callable(mine):
            assert inspect.signature(mine).parameters == inspect.signature(its).parameters, name


def test_connect_is_the_same() -> None:
    mine = inspect.signature(ternmq.connect).parameters
    assert mine == inspect.signature(ternmq.sync.connect).parameters


def test_every_name_that_is_exported_is_there() -> None:
    for module in (ternmq, ternmq.sync):
        for name in module.__all__:
            assert hasattr(module, name)


def test_what_comes_later_is_not_there_yet() -> None:
    delays = {"deliver_after", "deliver_at", "expires_after"}
    assert not delays & inspect.signature(ternmq.Client.send_oneway).parameters.keys()
    assert not {"trace"} & names(ternmq.Client)


def test_what_iterates_says_that_it_does_so_without_a_loop() -> None:
    for method in (BlockingDeadLetters.browse, BlockingDeadLetters.matching):
        shown = str(inspect.signature(method).return_annotation)
        assert shown.startswith("Iterator["), shown
