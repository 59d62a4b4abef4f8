"""Running streaming queries to their end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

WAIT_S = 280
_NOT_STARTED = "Python worker failed to connect back"
"""Spark gives the process of a source ten seconds to start, whatever else the machine does."""


def finish(
    start: Callable[[], Any], tries: int = 4, wait_s: float = WAIT_S
) -> list[dict[str, Any]]:
    """Run a query to its end; return what Spark says of its batches with rows.

    One whose source did not even start, because the machine was busy, is started again.
    """
    while True:
        tries -= 1
        query = start()
        try:
            assert query.awaitTermination(wait_s), "the query does not end"
        except Exception as error:
            if tries and _NOT_STARTED in str(error):
                continue
            raise
        progress = [json.loads(one.json) for one in query.recentProgress]
        return [one for one in progress if one["numInputRows"]]
