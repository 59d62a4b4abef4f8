"""The audit of a broker, run as the pipeline runs it, and what it said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.client.connection.address import Address
from ternmq.pipeline.archive.archive import ArchiveJob
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.audit.job import AuditJob
from ternmq.pipeline.audit.schema import AUDIT, FINDINGS
from ternmq.pipeline.job.job import Context, Outcome, told
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.spark.broker.connecting import Broker

LATER_US = 25 * 60_000_000
"""So much later, what is sent now is judged."""


def now_us() -> int:
    return time.time_ns() // 1000


class Audit:
    """Audits the broker at a port into a folder of tables."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.tables = Folder(str(folder))

    def run(
        self,
        now: int | None = None,
        *,
        spark: Any = None,
        clock: int | None = None,
        **settings: str,
    ) -> Outcome:
        job = AuditJob()
        with closing(Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{self.port}"))) as bulk:
            return job.run(
                Context(
                    "audit",
                    self.tables,
                    Broker((Address("127.0.0.1", self.port),)),
                    bulk,
                    now_us() + LATER_US if now is None else now,
                    options={"bootstrap.servers": f"127.0.0.1:{self.port}"},
                    spark=spark,
                    settings=told(job, settings),
                    clock_us=clock,
                )
            )

    def archive(self) -> None:
        with closing(Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{self.port}"))) as bulk:
            ArchiveJob(bulk, Archive(self.tables)).once(now_us())

    def rows(self, **wanted: object) -> list[Mapping[str, Any]]:
        return self._read(AUDIT, wanted)

    def findings(self, **wanted: object) -> list[Mapping[str, Any]]:
        return self._read(FINDINGS, wanted)

    def verdicts(self, tier: str = "stored") -> set[str]:
        return {row["verdict"] for row in self.rows(tier=tier)}

    def total(self, name: str, tier: str = "stored") -> int:
        return sum(row[name] or 0 for row in self.rows(tier=tier))

    def named(self, kind: str, **wanted: object) -> list[str]:
        """Return the ids of messages that are named, in the order of their sequences."""
        found = self.findings(kind=kind, **wanted)
        return [one["message_id"] for one in sorted(found, key=lambda one: one["sequence"])]

    def _read(self, spec: Any, wanted: Mapping[str, object]) -> list[Mapping[str, Any]]:
        rows = Table.open(self.tables, spec, create=False).read().to_pylist()
        return [row for row in rows if wanted.items() <= row.items()]
