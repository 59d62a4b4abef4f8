"""Tokens, rights and limits of readers at a broker that follows; what a backup does."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import ternmq
from ternmq.cluster.coordination.memory import MemoryCoordinator, Register
from ternmq.cluster.coordination.wishes import GroupSettings, pack_settings, settings_key
from ternmq.model.errors import Busy, Forbidden, NotPrimary, Unauthenticated
from ternmq.server.node.node import Node
from ternmq.settings import Mode, load
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, Push, Refusal
from tests.asynchronous import until
from tests.black_box.process import free_port
from tests.unit.server.node.kit import TOKEN, has_member
from tests.unit.server.node.test_applying import applied

DEADLINE = 30.0


def made(folder: Path, register: Register, name: str, **more: str) -> Node:
    settings = load(
        environ={
            "TERNMQ_DATA": str(folder / name), "TERNMQ_LISTEN": f"127.0.0.1:{free_port()}",
            "TERNMQ_HTTP": "off", "TERNMQ_NAME": name, "TERNMQ_CLUSTER": "sqlite:////not/used",
            "TERNMQ_CLUSTER_TOKEN": TOKEN, "TERNMQ_ADMIN_TOKEN": TOKEN,
            **{f"TERNMQ_{key.upper()}": value for key, value in more.items()},
        },
        mode=Mode.SERVE,
    )  # fmt: skip
    return Node(settings, coordinator=MemoryCoordinator(register))


@asynccontextmanager
async def group(
    folder: Path, both: Mapping[str, str], **more: str
) -> AsyncIterator[tuple[Node, Node]]:
    """Run a primary, and a broker that follows it with further settings."""
    register = Register()
    # Else b takes over when a busy machine lets both wait for some seconds.
    patient = GroupSettings(lease_us=60_000_000, silent_us=40_000_000)
    register.create(settings_key("main"), pack_settings(patient))
    a, b = made(folder, register, "a", **both), made(folder, register, "b", **both, **more)
    runs = []
    for one in (a, b):
        await one.start()
        runs.append(asyncio.create_task(one.run()))
        await until(lambda: a.server is not None and a.server._ready, "a leads", DEADLINE)
    try:
        yield a, b
    finally:
        for one, run in zip((b, a), reversed(runs), strict=True):
            one.stopping.set()
            await asyncio.wait_for(run, DEADLINE)


@asynccontextmanager
async def pair(folder: Path, **more: str) -> AsyncIterator[tuple[Node, Node]]:
    async with group(folder, {}, **more) as (a, b):
        await until(lambda: has_member(a), "b is a member", DEADLINE)
        yield a, b


def url(*nodes: Node) -> str:
    return "ternmq://" + ",".join(f"127.0.0.1:{one.port}" for one in nodes)


class Reader:
    """A connection that only reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._session = ClientSession()

    @classmethod
    async def of(cls, node: Node, app: str = "admin", token: str = TOKEN) -> Reader:
        """Connect; raises the refusal."""
        one = cls(*await asyncio.open_connection("127.0.0.1", node.port))
        hello = control.Hello(client="c" * 32, app=app, token=token, reads=True)
        one._writer.write(one._session.hello(hello))
        try:
            await one._next()
        except BaseException:
            one.close()
            raise
        return one

    async def _next(self) -> Answer:
        while True:
            async with asyncio.timeout(DEADLINE):
                data = await self._reader.read(1 << 20)
            if not data:
                raise EOFError
            for event in self._session.receive(data):
                if isinstance(event, Refusal):
                    raise event.error
                if not isinstance(event, Push):
                    return event

    async def ask(self, command: Command, body: bytes = b"") -> bytes:
        self._writer.write(self._session.ask(command, body)[1])
        return (await self._next()).body

    async def read(self, topic: str) -> int:
        asked = bodies.pack_read(bodies.Read(topic, 0, 0, 100, 0, 0))
        return bodies.unpack_rows(await self.ask(Command.READ, asked)).stop

    async def ended(self) -> bool:
        """Return whether the other side has closed the connection, or wait for it."""
        async with asyncio.timeout(DEADLINE):
            try:
                while await self._reader.read(1 << 20):
                    pass
            except ConnectionResetError:
                pass
        self.close()
        return True

    def close(self) -> None:
        self._writer.close()


async def admin(node: Node) -> ternmq.Client:
    return await ternmq.connect(url(node), app="admin", token=TOKEN)


async def filled(a: Node, b: Node) -> ternmq.Client:
    """Return a client of the primary, which has two topics that the follower has, too."""
    client = await admin(a)
    for topic in ("orders", "salaries"):
        await client.admin.create_topic(topic)
        await client.send(topic, "one")
    await applied(a, b)
    return client


async def test_tokens_are_checked(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        client = await filled(a, b)
        one = await Reader.of(b)
        assert await one.read("orders") == 1
        one.close()
        for app, token in (("admin", "wrong"), ("admin", ""), ("", ""), ("nobody", TOKEN)):
            with pytest.raises(Unauthenticated):
                await Reader.of(b, app, token)
        await client.close()


async def test_rights_are_those_of_the_primary(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        client = await filled(a, b)
        token = await client.admin.put_app("shop", ["consume:orders"])
        await applied(a, b)
        one = await Reader.of(b, "shop", token)
        assert await one.read("orders") == 1
        with pytest.raises(Forbidden):
            await one.read("salaries")
        listed = control.decode_answer(
            await one.ask(Command.TOPIC_LIST, control.encode(control.TopicList())), control.Topics
        )
        assert [topic.spec.name for topic in listed.topics] == ["orders"]
        await client.admin.put_app("shop", ["consume:salaries"])
        await applied(a, b)
        with pytest.raises(Forbidden):
            await one.read("orders")
        assert await one.read("salaries") == 1
        one.close()
        await client.close()


@pytest.mark.parametrize("how", ["another token", "removed"])
async def test_a_token_that_is_not_valid_any_more_ends_the_connection(
    tmp_path: Path, how: str
) -> None:
    async with pair(tmp_path) as (a, b):
        client = await filled(a, b)
        token = await client.admin.put_app("shop", ["consume:orders"])
        await applied(a, b)
        one, other = await Reader.of(b, "shop", token), await Reader.of(b)
        if how == "removed":
            await client.admin.delete_app("shop")
        else:
            await client.admin.put_app("shop", ["consume:orders"], new_token=True)
        await applied(a, b)
        assert await one.ended()
        assert await other.read("orders") == 1
        with pytest.raises(Unauthenticated):
            await Reader.of(b, "shop", token)
        other.close()
        await client.close()


async def test_connections_are_limited(tmp_path: Path) -> None:
    async with pair(tmp_path, connections_per_app="3") as (a, b):
        client = await filled(a, b)
        held = [await Reader.of(b) for _ in range(3)]
        with pytest.raises(Busy):
            await Reader.of(b)
        held.pop().close()

        async def one_more() -> bool:
            try:
                held.append(await Reader.of(b))
            except Busy:
                return False
            return True

        async with asyncio.timeout(DEADLINE):
            while not await one_more():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for one in held:
            one.close()
        await client.close()


async def test_a_backup_answers_no_reader(tmp_path: Path) -> None:
    """It has no state: it would have to load it for readers."""
    async with group(tmp_path, {}, follower="backup") as (a, b):
        client = await admin(a)
        await client.admin.create_topic("orders")
        await client.send("orders", 1)
        with pytest.raises(NotPrimary, match="b does not lead"):
            await Reader.of(b)
        reader = ternmq.connect(url(b, a), app="admin", token=TOKEN)
        found = [one.value async for one in reader.read("orders", from_="replica")]
        assert found == [1]
        assert reader.behind() is None
        for one in (client, reader):
            await one.close()


async def test_readers_go_when_the_views_go_and_come_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (a, b):
        client = await filled(a, b)
        one = await Reader.of(b)
        replica = b._replica
        assert replica is not None
        assert b._showing.readers == 1
        replica.applying.discard()
        assert await one.ended()
        assert b._showing.readers == 0
        await client.send("orders", "two")
        await applied(a, b)
        again = await Reader.of(b)
        assert await again.read("orders") == 2
        again.close()
        await client.close()


async def test_a_promotion_goes_on_after_readers(tmp_path: Path) -> None:
    """The views that were read are those of the reign; nothing of the readers is left in them."""
    async with pair(tmp_path) as (a, b):
        client = await filled(a, b)
        one = await Reader.of(b)
        assert await one.read("orders") == 1
        replica = b._replica
        assert replica is not None
        standby = replica.applying._standby
        assert standby is not None
        a.stopping.set()
        await until(lambda: b.server is not None and b.server._ready, "b leads", DEADLINE)
        assert await one.ended()
        assert b.server is not None
        assert b.server.core.broker.views is standby.views
        client = await admin(b)
        await client.send("orders", "two")
        assert [row.value async for row in client.read("orders")] == ["one", "two"]
        await client.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_readers_come_over_tls(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    tls = {"tls_cert": cert, "tls_key": key, "cluster_ca": cert}
    async with group(tmp_path, tls) as (a, b):
        await until(lambda: has_member(a), "b is a member", DEADLINE)
        address = f"ternmqs://127.0.0.1:{a.port},127.0.0.1:{b.port}?ca={cert}"
        async with ternmq.connect(address, app="admin", token=TOKEN) as client:
            await client.admin.create_topic("orders")
            for number in range(50):
                await client.send("orders", f"{number}" + "x" * 20_000)
            await applied(a, b)
            found = [one.value async for one in client.read("orders", from_="replica")]
            assert [int(one.rstrip("x")) for one in found] == list(range(50))
            assert client.behind() is not None
