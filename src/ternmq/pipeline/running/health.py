"""A small HTTP port of the pipeline for machines: ``/livez``, ``/readyz``, ``/metrics``.

A separate thread answers, from the result of the last round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ternmq.pipeline.running.runner import Round

_LATE: Final = 3.0
"""Rounds that may be missed before the pipeline counts as not ready."""


class Numbers(Collector):
    """The numbers reported; updated by the runner, read by the port. Thread-safe.

    Args:
        every_s: Seconds between rounds; 0: there is only one.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._lock = threading.Lock()
        self._last: Round | None = None
        self._ended = 0.0
        self._runs: dict[tuple[str, str], int] = {}
        self._rows: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        self._succeeded: dict[str, float] = {}

    def add(self, done: Round, ended: float) -> None:
        """Count a round that ended at a time (seconds since 1970)."""
        with self._lock:
            self._last, self._ended = done, ended
            for one in done.ran:
                result = "failed" if one.outcome is None else "done"
                key = one.job, result
                self._runs[key] = self._runs.get(key, 0) + 1
                self._seconds[one.job] = one.seconds
                if one.outcome is not None:
                    self._rows[one.job] = self._rows.get(one.job, 0) + one.outcome.rows
                    self._succeeded[one.job] = ended

    def not_ready(self, now: float) -> str:
        """Return why the pipeline is not ready; empty if it is."""
        with self._lock:
            if self._last is None:
                return "no round has ended yet"
            if self._last.failed:
                return "; ".join(f"{one.job} failed: {one.error}" for one in self._last.failed)
            late = now - self._ended
            if self._every_s and late > _LATE * self._every_s + self._last.seconds:
                return f"no round has ended for {late:.0f} s"
            return ""

    def collect(self) -> Iterable[Metric]:
        """Yield every metric family."""
        with self._lock:
            runs = CounterMetricFamily(
                "ternmq_pipeline_runs", "Runs of jobs.", labels=("job", "result")
            )
            for key, count in sorted(self._runs.items()):
                runs.add_metric(key, count)
            yield runs
            rows = CounterMetricFamily(
                "ternmq_pipeline_rows", "Rows that jobs wrote to tables.", labels=("job",)
            )
            for job, number in sorted(self._rows.items()):
                rows.add_metric((job,), number)
            yield rows
            for name, text, values in (
                ("seconds", "How long the job's last run took.", self._seconds),
                ("success_time_seconds", "When the job was done last.", self._succeeded),
            ):
                gauge = GaugeMetricFamily(f"ternmq_pipeline_{name}", text, labels=("job",))
                for job, value in sorted(values.items()):
                    gauge.add_metric((job,), value)
                yield gauge


class _Handler(BaseHTTPRequestHandler):
    numbers: Numbers
    registry: CollectorRegistry

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)
        elif path == "/livez":
            self._answer(200, b"ok\n")
        elif path == "/readyz":
            why = self.numbers.not_ready(time.time())
            self._answer(503 if why else 200, f"{why or 'ok'}\n".encode())
        else:
            self._answer(404, b"there are /livez, /readyz, /metrics\n")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
        del format, args


class HealthPort:
    """Serves the numbers over HTTP, from its creation on.

    Args:
        numbers: The numbers to report.
        host: Address to listen on.
        port: Port to listen on; 0 picks one.

    Raises:
        OSError: The address cannot be used.
    """

    def __init__(self, numbers: Numbers, host: str, port: int) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(numbers)
        handler = type("Handler", (_Handler,), {"numbers": numbers, "registry": registry})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
