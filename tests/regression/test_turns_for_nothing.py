"""Each answer that was handed out while a turn ended asked for one more turn, which did nothing.

Found by a profile: three turns a request of which two had something to do.
"""

from __future__ import annotations

from ternmq.testing import broker
from tests.integration.raw import RawClient

REQUESTS = 200


def test_a_request_takes_two_turns() -> None:
    """One that writes its record, and one that hands its answer out when it is durable."""
    with broker(manual=False) as one, RawClient(one.port) as client:
        client.send("orders", "warm")
        core = one._server.core
        before = core.turns
        for _ in range(REQUESTS):
            client.send("orders", "x")
        assert core.turns - before <= REQUESTS * 2.5
