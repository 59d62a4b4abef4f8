"""Options out of arguments and the environment."""

from __future__ import annotations

import os
from typing import Final

from ternmq.client.address import DEFAULT_URL, parse
from ternmq.client.options import Options
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import check_name

URL: Final = "TERNMQ_URL"
APP: Final = "TERNMQ_APP"
TOKEN: Final = "TERNMQ_TOKEN"  # noqa: S105 - the name of a variable


def options_of(
    url: str | None,
    app: str | None,
    token: str | None,
    timeout: float,
    max_processing_time: float,
) -> Options:
    """Return options; what is None comes from the url, then from the environment.

    Raises:
        InvalidUrl, InvalidName, InvalidRequest: Naming what cannot be.
    """
    address = parse(url or os.environ.get(URL) or DEFAULT_URL)
    for name, seconds in (("timeout", timeout), ("max_processing_time", max_processing_time)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise InvalidRequest(f"{name} is a number of seconds, not {type(seconds).__name__}")
        if not 0 < seconds < float("inf"):
            raise InvalidRequest(f"{name} must be more than 0 seconds, not {seconds}")
    app = app if app is not None else address.app or os.environ.get(APP, "")
    if app:
        check_name(app)
    token = token if token is not None else address.token or os.environ.get(TOKEN, "")
    return Options(
        address=address,
        app=app,
        token=token,
        timeout=timeout,
        max_processing_time=max_processing_time,
    )
