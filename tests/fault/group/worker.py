"""Consumers of a broker group in a process of their own, to be killed and paused.

``python -m tests.fault.group.worker PORT,PORT RECORD NUMBER TOPIC GROUP``; it goes on until it is
killed.
"""

from __future__ import annotations

import signal

from tests.fault.group.load import GroupLoad
from tests.fault.server.broker import Address
from tests.fault.server.worker import given_and_plan


def main() -> None:
    """Consume."""
    given, plan = given_and_plan(__doc__)
    addresses = [Address("127.0.0.1", int(port)) for port in given.ports.split(",")]
    with GroupLoad(addresses, given.record, plan, number=given.number):
        signal.pause()


if __name__ == "__main__":
    main()
