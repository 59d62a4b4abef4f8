from __future__ import annotations

import base64

import pytest

from ternmq.http.api.credentials import Credential, credential_of
from ternmq.model.errors import Unauthenticated


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def test_none() -> None:
    assert credential_of({}) == Credential("", "")


def test_basic_and_bearer() -> None:
    assert credential_of(basic("shop:tmq_x:y")) == Credential("shop", "tmq_x:y")
    bearer = {"Authorization": "bearer tmq_x ", "Ternmq-App": "shop"}
    assert credential_of(bearer) == Credential("shop", "tmq_x")


@pytest.mark.parametrize(
    "headers",
    [
        basic("shop"),
        {"Authorization": "Basic !!!"},
        {"Authorization": f"Basic {base64.b64encode(bytes([255, 58])).decode()}"},
        {"Authorization": "Bearer tmq_x"},
        {"Authorization": "Digest x"},
        {"Authorization": "Basic " + "a" * 5000},
    ],
)
def test_what_is_not_understood_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        credential_of(headers)
