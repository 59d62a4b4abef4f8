"""Clients in forked child processes: what a child inherits, and the rules for it.

A child has one thread, the one that forked: the parent's event loops do not run in it, and a lock
that another thread held is never released. The connections are the parent's; whatever a child does
to a loop or a transport of the parent reaches the parent, because both share one epoll and one
wake-up socket. So a child uses, stops and closes nothing of its parent's. Three rules follow:

* An object that belongs to a process stores the process's number and compares it when it is used.
  This also works where a host forks without Python's hooks, as uWSGI does by default.
* What may be replaced is replaced whole (``sync.client.Life``), never part by part.
* Where Python's hooks run, ``watch`` has ``after_fork`` called in the child, before any of its
  other code: to mark an object as unusable, or to give it a new identity.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

Kind = TypeVar("Kind")


class Watched(Protocol):
    """Is notified of forks."""

    def after_fork(self) -> None:
        """Adapt to being in the child. No other thread runs; must not lock, block, or raise."""


_watched: dict[int, weakref.ref[Watched]] = {}
"""By id. A dict is copied in one step, so threads that add to it do not interfere. There is no
lock, since a thread of the parent may hold it at the fork."""
_calls: list[Callable[[], object]] = []


def watch(one: Watched) -> None:
    """Have ``after_fork`` called in every child, while the object lives. From any thread."""
    key, forget = id(one), _watched.pop  # bound: modules are emptied when the interpreter ends
    _watched[key] = weakref.ref(one, lambda _: forget(key, None))


def watched(kind: type[Kind]) -> list[Kind]:
    """Return the watched objects of one class. Callable from any thread."""
    return [one for one in _all() if isinstance(one, kind)]


def _all() -> list[Watched]:
    return [one for ref in list(_watched.values()) if (one := ref()) is not None]


def in_child(call: Callable[[], object]) -> Callable[[], None]:
    """Call a function in every child, as ``after_fork``; return a function that ends this."""
    _calls.append(call)
    return lambda: _calls.remove(call)


def let_go(descriptor: int) -> None:
    """Close this process's copy of the parent's connection, so that the broker sees its end.

    While a child has a copy, a connection stays open when the parent is killed. The descriptor's
    number remains in use, for ``/dev/null``: a later close of it closes no other file.
    """
    if descriptor < 0:
        return
    with contextlib.suppress(OSError):  # no descriptor is left: the copy stays open
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


def _after_fork() -> None:
    for call in _calls.copy():
        call()
    for one in _all():
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork)
