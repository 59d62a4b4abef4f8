"""Secrets leave by ``reveal`` and by nothing else."""

from __future__ import annotations

import copy
import logging
import pickle

import msgspec
import pytest

from ternmq.model.secret import Secret

TEXT = "tmq_hunter2"


class Holder(msgspec.Struct):
    token: Secret


def test_no_way_of_printing_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(TEXT)
    caplog.set_level(logging.INFO)
    logging.getLogger("test").info("%s %r", secret, {"token": secret})
    shown = [
        str(secret), repr(secret), f"{secret}", f"{secret!r:>20}", f"{secret:>20}",
        f"{secret}", repr([secret]), repr(Holder(secret)), caplog.text,
    ]  # fmt: skip
    for text in shown:
        assert "hunter2" not in text
        assert "***" in text


def test_it_is_written_nowhere() -> None:
    secret = Secret(TEXT)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.copy(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    assert not hasattr(secret, "__dict__")


def test_it_is_revealed_and_compared() -> None:
    assert Secret(TEXT).reveal() == TEXT
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret(TEXT + "x")
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1
    assert Secret(TEXT)
    assert not Secret("")
