"""``python -m tests.fault.reliable.nursery``: forks members, with all that they import.

It reads a line of JSON for each (``member.Orders``, or ``transfers.clerk.Duty``), and answers with
the number of its process. What a member prints goes to its file, with ``.err``. At the end of the
input it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Final

import msgspec
import sqlalchemy as sa

from tests.fault.reliable.member import Member, Orders
from tests.fault.reliable.transfers.clerk import Clerk, Duty

DRIVERS: Final = ("sqlite://", "postgresql+psycopg://", "mysql+pymysql://")


def main() -> None:
    """Fork members."""
    for url in DRIVERS:
        sa.create_engine(url)  # imports the driver, once for all members
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps them
    for line in sys.stdin:
        orders = msgspec.json.decode(line, type=Orders | Duty)
        member = os.fork()
        if member == 0:
            _live(orders)
        print(member, flush=True)


def _live(orders: Orders | Duty) -> None:
    """Be a member; never return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        errors = os.open(f"{orders.file}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (errors, 1), (errors, 2)):
            os.dup2(old, new)
        _of(orders).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the end of a process: it is told, whatever it is
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _of(orders: Orders | Duty) -> Member | Clerk:
    return Member(orders) if isinstance(orders, Orders) else Clerk(orders)


if __name__ == "__main__":
    main()
