"""A client belongs to its process: it cannot be handed to another."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker

URL = "ternmq://127.0.0.1:1"


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_its_process_says_so(taken: Callable[[object], object]) -> None:
    for client in (ternmq.connect(URL), ternmq.sync.connect(URL)):
        with pytest.raises(TypeError, match=r"^a client cannot be .*make one in each process"):
            taken(client)
        with pytest.raises(TypeError, match=r"^client.admin cannot be pickled or copied"):
            taken(client.admin)
        with pytest.raises(TypeError, match=r"^client.deadletters cannot be pickled or copied"):
            taken(client.deadletters)
    with pytest.raises(TypeError, match=r"^a broker of the testing kit .*: pass its url"):
        taken(InProcessBroker(clock=None))


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_deliveries_and_consumers_say_so_too(taken: Callable[[object], object]) -> None:
    async def asynchronous(url: str) -> list[object]:
        async with ternmq.connect(url) as client:
            await client.send("o", "x")
            found = await client.pull("o", group="g")
            return [found[0], found, client.consume("o", group="g")]

    with broker(manual=False) as one, ternmq.sync.connect(one.url) as client:
        client.send("o", "x")
        found = client.pull("o", group="h")
        blocking = [found[0], found, client.consume("o", group="h")]
        for delivery, deliveries, consumer in (asyncio.run(asynchronous(one.url)), blocking):
            with pytest.raises(TypeError, match=r"^a delivery cannot .*pass its body"):
                taken(delivery)
            with pytest.raises(TypeError, match=r"^deliveries cannot .*pass their bodies"):
                taken(deliveries)
            with pytest.raises(TypeError, match=r"^a consumer cannot .*client in each process"):
                taken(consumer)
