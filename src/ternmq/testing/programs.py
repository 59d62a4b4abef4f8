"""Imports of programs whose clients are made at import, repeated for each test."""

from __future__ import annotations

import pkgutil
import sys
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Self

from ternmq.client.connection.connecting import APP, TOKEN, URL
from ternmq.client.process.forking import watched
from ternmq.model.errors import ClientError
from ternmq.sync.client import Client

if TYPE_CHECKING:
    import pytest

    from ternmq.testing.in_process import InProcessBroker


class Programs:
    """Modules that are imported for one test; a context manager.

    Args:
        broker: The broker that ``TERNMQ_URL`` names meanwhile.
        monkeypatch: Restores the environment.
    """

    def __init__(self, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker = broker
        self._monkeypatch = monkeypatch
        self._before: dict[str, dict[str, ModuleType]] = {}
        """By package: its modules as they were imported before."""
        self._open: list[Client] = []

    def __enter__(self) -> Self:
        self._monkeypatch.setenv(URL, self._broker.url)
        for name in (APP, TOKEN):
            self._monkeypatch.delenv(name, raising=False)
        self._open = watched(Client)
        return self

    def load(self, name: str) -> ModuleType:
        """Import a module; the first of its package has the whole package imported again.

        Raises:
            ValueError, TypeError: The name is not that of a module of the program.
            ImportError: The module cannot be imported, or one that it imports.
        """
        package = name.partition(".")[0]
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a module, such as shop.worker")
        if package == "ternmq":
            raise ValueError("name a module of the program that is tested, not ternmq")
        if package not in self._before:
            self._before[package] = _taken_out(package)
        try:
            found = pkgutil.resolve_name(f"{name}:")  # the colon: as a module, nothing inside one
        except ModuleNotFoundError as error:
            owner, _, last = name.rpartition(".")
            if error.name == name and hasattr(sys.modules.get(owner), last):
                other = getattr(sys.modules[owner], last)
                raise TypeError(f"{name} is a {type(other).__name__}; name a module") from error
            raise
        assert isinstance(found, ModuleType)
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._close()
        finally:
            for package, before in self._before.items():
                _taken_out(package)
                sys.modules.update(before)

    def _close(self) -> None:
        """Close the clients that the program left open.

        Raises:
            ClientError: Messages of ``send_soon`` were not stored.
        """
        failed: list[ClientError] = []
        for client in watched(Client):
            ports = {address.port for address in client.options.addresses}
            if self._broker.port in ports and client not in self._open:
                try:
                    client.close()
                except ClientError as error:
                    failed.append(error)
        if failed:
            raise failed[0]


def _taken_out(package: str) -> dict[str, ModuleType]:
    """Remove a package and its modules from the imported ones; return them."""
    inside = [name for name in sys.modules if name.partition(".")[0] == package]
    return {name: sys.modules.pop(name) for name in inside}
