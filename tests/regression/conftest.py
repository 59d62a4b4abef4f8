"""The same tests against the client and against its blocking twin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import pytest_pyfunc_call
from tests.integration.client_shapes import API, AsyncAPI, BlockingAPI

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(params=["async", "blocking"])
def api(request: pytest.FixtureRequest) -> API:
    """Make clients of one kind; both look asynchronous."""
    return AsyncAPI() if request.param == "async" else BlockingAPI()


@pytest.fixture
def real() -> Iterator[InProcessBroker]:
    """Run a broker with the machine's clocks."""
    with broker(manual=False) as one:
        yield one


@pytest.fixture
def timed() -> Iterator[InProcessBroker]:
    """Run a broker whose time the test moves."""
    with broker() as one:
        yield one
