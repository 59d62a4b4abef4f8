"""What the statements of this package need of a driver."""

from __future__ import annotations

import re
from typing import Final

from ternmq.reliable.database.port import Values

_NAMED: Final = re.compile(r":([a-z_0-9]+)")
_IDLE_S: Final = 5
BEGUN: Final = {
    True: f"SELECT set_config('idle_in_transaction_session_timeout', '{_IDLE_S}s', true)",
    False: f"SELECT set_config('idle_in_transaction_session_timeout', '{_IDLE_S}s', true), "
    "set_config('synchronous_commit', 'off', true)",
}
"""PostgreSQL, first statement of a transaction of this package, by whether it is durable. A process
that is frozen in it, or cut off, must not lock rows that others want to change."""
PATIENCE: Final = f"SET @ternmq = 1 /*M!100300 , SESSION idle_transaction_timeout = {_IDLE_S} */"
"""The same for a connection to MariaDB; MySQL has no such limit, and reads no more than ``= 1``."""


def pyformat(statement: str, values: Values) -> tuple[str, dict[str, object]]:
    """Return a statement and its values for drivers that take ``%(name)s``."""
    return _NAMED.sub(r"%(\1)s", statement.replace("%", "%%")), dict(values)
