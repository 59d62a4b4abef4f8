"""What a child of a fork finds of its parent's clients, and what is done about it.

A child has one thread, the one that forked: the parent's event loops do not run in it, and a lock
that another thread held is never released. The connections are the parent's; whatever a child does
to a loop or a transport of the parent reaches the parent, because both share one epoll and one
wake-up socket. So a child uses, stops and closes nothing of its parent's. Three rules follow:

* What belongs to a process remembers the process's number and compares it when it is used. That
  holds also where a host forks without Python's hooks, as uWSGI does unless it is told otherwise.
* What may be replaced is replaced whole (``sync.client.Life``), never part by part.
* Where Python's hooks run, ``watch`` has ``after_fork`` called in the child, before any other code
  of it: to say that something is of no use any more, or to take another name.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

Kind = TypeVar("Kind")


class Watched(Protocol):
    """Wants to know of forks."""

    def after_fork(self) -> None:
        """This is the child. No other thread runs; must not take a lock, block, or raise."""


_watched: dict[int, weakref.ref[Watched]] = {}
"""By id. A dict is read as a whole in one step: threads that add to it do not disturb others. There
is no lock, since a thread of the parent may hold it at the fork."""
_calls: list[Callable[[], object]] = []


def watch(one: Watched) -> None:
    """Have ``after_fork`` called in every child, as long as somebody holds it. Any thread."""
    key, forget = id(one), _watched.pop  # bound: modules are taken apart as the interpreter ends
    _watched[key] = weakref.ref(one, lambda _: forget(key, None))


def watched(kind: type[Kind]) -> list[Kind]:
    """Return what is watched of one class. Any thread."""
    return [one for one in _all() if isinstance(one, kind)]


def _all() -> list[Watched]:
    return [one for ref in list(_watched.values()) if (one := ref()) is not None]


def in_child(call: Callable[[], object]) -> Callable[[], None]:
    """Have a function called in every child, as ``after_fork`` is; return what ends that."""
    _calls.append(call)
    return lambda: _calls.remove(call)


def let_go(descriptor: int) -> None:
    """Close this process's copy of a connection of the parent's, so that the broker sees its end.

    As long as a child has a copy, a connection stays open when the parent is killed. The number
    stays taken, by ``/dev/null``: whoever closes it later closes nothing of somebody else's.
    """
    if descriptor < 0:
        return
    with contextlib.suppress(OSError):  # no descriptor is left: then the copy stays
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


def _after_fork() -> None:
    for call in _calls.copy():
        call()
    for one in _all():
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork)
