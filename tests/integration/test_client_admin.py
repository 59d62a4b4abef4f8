"""Administration, rights, TLS, traces, reports."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from ternmq.wire.control import GrantInfo
from tests.asynchronous import until
from tests.integration.client_shapes import API


async def test_counts_stay_when_a_client_is_closed(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send("orders", b"x")
    assert (client.stats().stored, client.stats().connections_open) == (1, 0)


def test_counts_stay_when_a_blocking_client_is_closed(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send("orders", b"x")
        assert client.stats().connections_open == 1
    assert (client.stats().stored, client.stats().connections_open) == (1, 0)
    with pytest.raises(ternmq.ClientClosed):
        client.send("orders", b"x")
    unused = ternmq.sync.connect(real.url)
    unused.close()
    assert unused.stats().requests == 0


def test_options_and_codecs_of_a_client_cannot_be_replaced(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    for name in ("options", "codecs"):
        with pytest.raises(AttributeError):
            setattr(client, name, None)


async def test_topics(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic(
            "a", queues=2, durability="fast", retention=timedelta(hours=1)
        )
        with pytest.raises(ternmq.TopicExists):
            await client.admin.create_topic("a")
        info = await client.admin.topic("a")
        assert (info.spec.queues, info.spec.retention_us) == (2, 3_600_000_000)
        receipt = await client.send("a", b"x")
        assert (receipt.offset, receipt.durable) == (None, False)
        await client.admin.change_topic("a", retention=timedelta(hours=2))
        assert (await client.admin.topic("a")).spec.retention_us == 7_200_000_000
        assert [one.spec.name for one in await client.admin.topics()] == ["a"]
        await client.admin.delete_topic("a")
        with pytest.raises(ternmq.UnknownTopic):
            await client.admin.topic("a")
        with pytest.raises(ternmq.InvalidRequest):
            await client.admin.create_topic("b", durability="strange")


async def test_groups(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b"%d" % n for n in range(10)])
        await client.admin.create_group("orders", "g", tags="a || b")
        await client.admin.change_group(
            "orders", "g", tags="", retry=ternmq.RetryPolicy(attempts=3), window=100
        )
        spec = (await client.admin.group("orders", "g")).spec
        assert (spec.tags, spec.retry.attempts, spec.window) == ("", 3, 100)
        await client.admin.pause_group("orders", "g")
        with pytest.raises(ternmq.GroupPaused):
            await client.pull("orders", group="g", wait=0)
        await client.admin.resume_group("orders", "g")
        assert len(await client.pull("orders", group="g", max_messages=4)) == 4
        (told,) = await client.admin.reset_group("orders", "g", 2, queue=0, dry_run=True)
        assert (told.offset, told.unread) == (2, 8)
        await client.admin.reset_group("orders", "g", "latest")
        assert (await client.admin.group("orders", "g")).queues[0].lag == 0
        await client.admin.reset_group("orders", "g", datetime(2000, 1, 1, tzinfo=UTC))
        assert (await client.admin.group("orders", "g")).queues[0].lag == 10
        await client.admin.skip("orders", "g", queue=0, offset=7)
        (first, *_) = await client.pull("orders", group="g")
        assert first.offset == 7
        await client.admin.delete_group("orders", "g")
        with pytest.raises(ternmq.UnknownGroup):
            await client.admin.group("orders", "g")


async def test_lists_are_lists_and_one_by_name_is_there_or_not(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        assert await client.admin.topics(["orders"]) == []
        assert await client.admin.groups("orders") == []
        assert await client.admin.groups("orders", "g") == []
        with pytest.raises(ternmq.UnknownTopic):
            await client.admin.topic("orders")
        with pytest.raises(ternmq.UnknownTopic):
            await client.admin.group("orders", "g")
        await client.admin.create_topic("orders")
        assert await client.admin.groups("orders", "g") == []
        with pytest.raises(ternmq.UnknownGroup):
            await client.admin.group("orders", "g")
        with pytest.raises(ternmq.UnknownGroup):
            await client.admin.change_group("orders", "g", window=7)
        await client.admin.create_group("orders", "g")
        assert [one.group for one in await client.admin.groups("orders", "g")] == ["g"]
        assert [one.group for one in await client.admin.groups(group="g")] == ["g"]


async def test_what_a_reset_takes(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        await client.send_many("orders", [b"a", b"b"])
        for to, offset in [
            (ternmq.Start.LATEST, 2), (ternmq.Start.EARLIEST, 0), ("latest", 2), ("earliest", 0),
        ]:  # fmt: skip
            (told,) = await client.admin.reset_group("orders", "g", to)
            assert told.offset == offset
        for wrong in (None, 1.5, True, timedelta(hours=1)):
            with pytest.raises(ternmq.InvalidRequest, match="to is an offset, a datetime"):
                await client.admin.reset_group("orders", "g", wrong)
        with pytest.raises(ternmq.InvalidRequest, match="earliest"):
            await client.admin.reset_group("orders", "g", "first")


async def test_times_of_a_wrong_type(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        with pytest.raises(ternmq.InvalidRequest, match="retention is a number of s"):
            await client.admin.create_topic("orders", retention="1h")
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        with pytest.raises(ternmq.InvalidRequest, match="lease is a number of seconds"):
            await client.admin.change_group("orders", "g", lease="30s")
        await client.send("orders", b"x")
        (delivery,) = await client.pull("orders", group="g")
        with pytest.raises(
            ternmq.InvalidRequest, match="number of seconds or a timedelta, not str"
        ):
            await delivery.retry("10s")
        with pytest.raises(
            ternmq.InvalidRequest, match="number of seconds or a timedelta, not str"
        ):
            await delivery.extend("10s")
        with pytest.raises(
            ternmq.InvalidRequest, match="number of seconds or a timedelta, not str"
        ):
            ternmq.Retry("later", after="10s")  # type: ignore[arg-type]
        await delivery.ack()
    with pytest.raises(ternmq.InvalidRequest, match="timeout is a number of seconds or a"):
        ternmq.connect(real.url, timeout="10s")  # type: ignore[arg-type]


async def test_who_is_there(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        (session,) = await client.admin.clients()
        assert session.connected
        assert session.library.startswith("ternmq-python")
        assert (await client.admin.status()).epoch == 1


async def test_nothing_kept(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        for id_ in ("0:1", "mine"):
            with pytest.raises(ternmq.MessageNotFound):
                await client.get("orders", id_)
        with pytest.raises(ternmq.InvalidRequest):
            await client.get("orders")
        assert await client.find("orders", key="k") == []
        with pytest.raises(ternmq.InvalidRequest, match="time zone"):
            await client.find("orders", key="k", since=datetime(2026, 1, 1))  # noqa: DTZ001


@contextmanager
def guarded() -> Iterator[InProcessBroker]:
    with broker(
        manual=False, settings={"auth": True, "admin_token": "root-token-of-the-test"}
    ) as one:
        yield one


async def test_apps_and_their_rights(api: API) -> None:
    with guarded() as one:
        with pytest.raises(ternmq.Unauthenticated):
            await api.connect(one.url)
        with pytest.raises(ternmq.Unauthenticated):
            await api.connect(one.url, app="admin", token="wrong")
        async with api.connect(one.url, app="admin", token="root-token-of-the-test") as admin:
            await admin.admin.create_topic("orders")
            await admin.admin.create_topic("secret")
            token = await admin.admin.put_app(
                "shop", [GrantInfo(right="produce", topic="orders")], owner="me"
            )
            async with api.connect(one.url, app="shop", token=token) as shop:
                await shop.send("orders", b"x")
                with pytest.raises(ternmq.Forbidden):
                    await shop.send("secret", b"x")
                with pytest.raises(ternmq.Forbidden):
                    await shop.pull("orders", group="g", wait=0)
                with pytest.raises(ternmq.Forbidden):
                    await shop.admin.delete_topic("orders")
                assert [info.spec.name for info in await shop.admin.topics()] == ["orders"]
            assert [app.app for app in await admin.admin.apps()] == ["admin", "shop"]
            await admin.admin.delete_app("shop")
            with pytest.raises(ternmq.Unauthenticated):
                await api.connect(one.url, app="shop", token=token)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, and its key."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=broker", "-keyout", str(key), "-out", str(cert),
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_over_tls(
    api: API, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    settings = {"tls_cert": str(cert), "tls_key": str(key)}
    with broker(manual=False, settings=settings) as one:
        url = f"ternmqs://127.0.0.1:{one.port}"
        async with api.connect(f"{url}?ca={cert}") as client:
            await client.admin.create_topic("orders")
            await client.admin.create_group("orders", "g")
            await client.admin.change_group("orders", "g", lease=timedelta(seconds=3))
            await client.send("orders", b"x")
            (delivery,) = await client.pull("orders", group="g")
            until_before = delivery.lease_until
            # The keeper comes over TLS as well.
            await until(lambda: delivery.lease_until > until_before, "extended", 30.0)
            await delivery.ack()
        with pytest.raises(ternmq.CannotConnect, match=re.escape(f"{url}?ca=FILE trusts")):
            await api.connect(url)
        # For a client whose address cannot be changed.
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        async with api.connect(url) as client:
            assert [info.spec.name for info in await client.admin.topics()] == ["orders"]
        # The name is checked whatever is trusted.
        with pytest.raises(ternmq.CannotConnect, match="with a name that it contains"):
            await api.connect(f"ternmqs://localhost:{one.port}")


async def test_counts_are_reported(real: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b"x"] * 10)
        await client.send("orders", b"y")
        control = client._session.control

        async def noted(command, request, answer, seconds=None):
            asked.append(request)
            return await control(command, request, answer, seconds)

        monkeypatch.setattr(client._session, "control", noted)
    (report,) = asked
    (entry,) = report.entries
    assert (report.topic, report.producer) == ("orders", client._producer.id)
    assert (entry.sent, entry.given_up) == (11, 0)
    assert (entry.first, entry.stop, entry.closed) == (1, 12, True)


async def test_an_idle_connection_is_kept() -> None:
    with broker(manual=False, settings={"heartbeat": "500ms"}) as one:
        async with ternmq.connect(one.url) as client:
            link = client._session.link
            asked = client.stats().requests
            await until(lambda: client.stats().requests >= asked + 5, "five heartbeats", 60.0)
            assert client._session.link is link


async def test_a_broker_that_falls_silent_is_left() -> None:
    from tests.integration.proxy import Proxy

    with broker(manual=False, settings={"heartbeat": "50ms"}) as one:
        async with Proxy(one.port) as proxy, ternmq.connect(proxy.url) as client:
            proxy.mute = True
            await until(lambda: proxy.made > 1)
            proxy.mute = False
            await client.admin.create_topic("orders")
