"""A client belongs to its process: it cannot be handed to another."""

from __future__ import annotations

import pickle

import pytest

import ternmq
import ternmq.sync

URL = "ternmq://127.0.0.1:1"


def test_a_client_is_not_pickled() -> None:
    for client in (ternmq.connect(URL), ternmq.sync.connect(URL)):
        with pytest.raises(TypeError, match="make one in each process"):
            pickle.dumps(client)
