"""TernMQ: a message broker in one Python package. This is what applications import.

``connect`` makes a client; everything else here is what it takes, returns and raises, listed in
``client.surface``. The same, blocking: ``ternmq.sync``. A broker in a test: ``ternmq.testing``.
Other packages are the broker's own; ``ARCHITECTURE.md`` says which is for what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternmq.model.version import __version__ as __version__

if TYPE_CHECKING:
    from ternmq.client.surface import *  # noqa: F403 - its `__all__` names them
    from ternmq.client.surface import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        """Import the client when it is asked for: the broker and ``--help`` need none of it."""
        # A part of the package is asked for here before it is imported as a module: none of these
        # names has a capital, and of what applications import only three have none.
        if name.islower() and name not in {"connect", "delay_level", "parse_id", "__all__"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ternmq.client import surface

        names = globals()
        names.update({one: getattr(surface, one) for one in surface.__all__})
        names["__all__"] = [*surface.__all__, "__version__"]
        if name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return names[name]

    def __dir__() -> list[str]:
        return sorted({*__getattr__("__all__"), *globals()})
