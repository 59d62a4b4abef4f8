"""Messages that meet with all that messages meet with, at a real broker; and what that comes to."""

from __future__ import annotations

import time
from typing import Any

import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.pipeline.job.job import Context
from ternmq.pipeline.trace.commits import PIPELINE
from ternmq.pipeline.trace.schema import EVENTS
from ternmq.spark.broker.connecting import Broker, addresses
from ternmq.spark.journal.broker import BrokerJournal
from ternmq.spark.journal.events import Events
from tests.unit.pipeline.trace_reference import Reference, micros

_prepared: list[Any] = []
"""What the first day leaves undecided."""


def address(real):
    return Broker(addresses("url", f"127.0.0.1:{real.port}", tls=False, ca=""))


def context(real, tables, job, now=0, spark=None, **settings):
    """Return what a job is given; its client is to be closed."""
    told = {one.name: one.default for one in job.settings} | settings
    return Context(
        job=job.name, tables=tables, broker=address(real), now_us=now, settings=told, spark=spark,
        bulk=Bulk(BulkOptions(url=f"ternmq://127.0.0.1:{real.port}")),
        options={"bootstrap.servers": f"127.0.0.1:{real.port}"},
    )  # fmt: skip


def run(real, tables, job, now=0, spark=None, **settings):
    """Run a job; return what it came to."""
    one = context(real, tables, job, now, spark, **settings)
    try:
        return job.run(one)
    finally:
        one.bulk.close()


def reference(real):
    """Return what the plain reference makes of a broker's journal, pipeline groups left out."""
    port = BrokerJournal(address(real))
    bounds = port.bounds()
    events = Events(port.names(bounds.oldest))
    for page in port.pages(bounds.oldest, bounds.end):
        events.add(page)
    port.close()
    found = Reference()
    times = ("time", "born_time")
    for event in events.table(EVENTS).to_pylist():
        if not (event["group"] or "").startswith(PIPELINE):
            found.apply(event | {name: micros(event[name]) for name in times})
    return found


def first_day(real):
    """Two groups, retries, rejected and released ones, a reset, a skip."""
    with ternmq.sync.connect(real.url, app="shop") as client:
        client.admin.create_topic("orders", queues=2)
        client.admin.create_topic("quiet")
        client.send("quiet", b"nobody listens")
        client.send_many(
            "orders", [ternmq.sync.Message(b"%d" % n, key=f"k{n % 7}") for n in range(200)]
        )
        client.admin.create_group("orders", "billing", start="earliest")
        client.admin.create_group("orders", "mail", start="latest")
        taken(client, "billing", retry=20, reject=5)
        for n in range(30):
            client.send("orders", b"single %d" % n, key=f"k{n}")
        taken(client, "mail", leave=3)
        _prepared[:] = client.prepare("orders", [b"t"] * 3, writer="w", batch_id=1)
        client.admin.skip(
            "orders", "mail", queue=0, offset=client.admin.groups("orders", "mail")[0].queues[0].end
        )


def second_day(real):
    """A group that is born late and one that ends; what waited comes again."""
    with ternmq.sync.connect(real.url, app="shop") as client:
        taken(client, "billing", most=400)
        client.commit_prepared("w", 1, _prepared, digest=7)
        client.prepare("orders", [b"never"], writer="w", batch_id=2)
        client.abort_prepared("w", 2)
        client.replay("orders", "billing", offsets=range(5, 15), queue=0)
        client.deadletters.redrive("orders", "billing", [0], queue=1)
        taken(client, "billing", reject=1)
        client.admin.create_group("orders", "late", start="earliest")
        taken(client, "late", most=50)
        client.admin.reset_group("orders", "late", "earliest")
        client.send_many("orders", [b"more"] * 40)
        taken(client, "billing", retry=2)
        client.admin.delete_group("orders", "mail")


def taken(client, group, *, most=500, retry=0, reject=0, leave=0):
    """Pull until a group has come far, and settle."""
    got = 0
    while got < most:
        pulled = client.pull("orders", group=group, max_messages=most - got, wait=0.05)
        if not len(pulled):
            return
        got += len(pulled)
        rows = list(range(len(pulled)))
        for count, settle in ((retry, pulled.retry), (reject, pulled.reject)):
            some, rows = rows[:count], rows[count:]
            if some:
                settle(rows=some, reason=f"TypeError: row {time.time_ns()} is broken")
        rows = rows[leave:]
        if rows:
            pulled.ack(rows=rows)
