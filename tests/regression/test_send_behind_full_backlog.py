"""A send that waited behind large answers of its connection was recorded, but never synced.

Whatever ran when there was room again ran after the turn's write, and no other turn was asked for:
the send hung until somebody else did something.
"""

from __future__ import annotations

from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient

_LARGE = 900_000
_READS = 3
"""Their answers are more than a connection's ``send_buffer``."""


def test_a_send_behind_large_answers_is_answered(timed: InProcessBroker) -> None:
    with RawClient(timed.port) as client:
        client.create("orders")
        client.send("orders", "x" * _LARGE)
        read = bodies.pack_read(bodies.Read("orders", 0, 0, 1, 0, 0))
        frames = [client.session.ask(Command.READ, read)[1] for _ in range(_READS)]
        body = bodies.pack_send("orders", None, client.batch("orders", [Row(b"second")]))
        id_, frame = client.session.ask(Command.SEND, body)
        client.socket.settimeout(3.0)
        client.socket.sendall(b"".join([*frames, frame]))
        try:
            receipt = bodies.unpack_receipt(client.wait(id_))
        except TimeoutError:
            raise AssertionError("the send was not answered") from None
        assert receipt.first_offset == 1
