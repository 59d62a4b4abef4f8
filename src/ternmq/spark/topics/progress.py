"""Reports the progress of streaming queries to the broker, including their last batch.

Spark calls a source's ``commit`` for a batch when the next one begins, so never for the last.
Listeners are notified of each batch. Both only move a group forward, so they may be used together.
The group is a copy: the query itself depends on its checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from ternmq.model.errors import TernMQError
from ternmq.spark.broker.bulk_port import connect as connect_bulk
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.offsets import of_json
from ternmq.spark.broker.port import Port
from ternmq.spark.topics.options import read_options
from ternmq.spark.topics.plan import Planner
from ternmq.spark.topics.reading import group_name, report
from ternmq.spark.topics.table import Use

log: Final = logging.getLogger("ternmq.spark")


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Reports the progress of one query as a group.

        spark.streams.addListener(ProgressListener(options, query="orders-to-lake"))

    Args:
        options: Options of the source.
        query: Name of the query (``queryName``); others are ignored.
        connect: Creates a port.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        query: str,
        connect: Callable[[Broker], Port] = connect_bulk,
    ) -> None:
        self._options = read_options(options, Use.STREAM_READ)
        self._query = query
        self._connect = connect
        self._port: Port | None = None

    @property
    def group(self) -> str:
        """The group whose offsets are committed."""
        return self._options.group or group_name(self._options)

    def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: ANN401, N802
        """Report the end of the batch."""
        if event.progress.name == self._query and self._options.report:
            self.tell([source.endOffset for source in event.progress.sources])

    def onQueryIdle(self, event: Any) -> None:  # noqa: ANN401, N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ANN401, ARG002, N802
        """Close the connection; it is opened again if another query reports."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def tell(self, ends: list[Any]) -> None:
        """Report the offsets of a query's sources; sources other than topics are ignored."""
        for end in ends:
            try:
                told = json.loads(end) if isinstance(end, str) else end
                if self._port is None:
                    self._port = self._connect(self._options.broker)
                planner = Planner(self._options, self._port)
                report(planner, self._port, self.group, of_json(told))
            except (TernMQError, ValueError, AttributeError) as error:
                log.debug("the progress of query %s is not reported: %s", self._query, error)
