"""Optional libraries that are not installed; none of them is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ternmq.model.errors import InvalidRequest

_EXTRAS: Final = {
    "sqlalchemy": "ternmq[reliable]", "greenlet": "ternmq[sqlalchemy]", "django": "ternmq[django]",
    "psycopg": "ternmq[postgresql]", "pymysql": "ternmq[mysql]", "redis": "ternmq[redis]",
}  # fmt: skip
"""Package -> what to install. Another one has its own name: an application chose it."""


@contextmanager
def installed(what: str) -> Iterator[None]:
    """Import an optional library in this block.

    Args:
        what: What needs it, for the text of the error.

    Raises:
        InvalidRequest: It is not installed; the text names the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        wanted = _EXTRAS.get(package.lower(), package)
        here = wanted.removeprefix("ternmq")
        checkout = "" if here == wanted else f" (in a checkout: '.{here}')"
        raise InvalidRequest(f"{what} needs {package}: pip install '{wanted}'{checkout}") from error
