"""Over TLS, what came in several records at once was read into copies of the buffer, and lost.

asyncio reads one record after the other into slices of what ``get_buffer`` returned. A slice of a
``bytearray`` is a copy, so the bytes behind the first record were those of an earlier read.
"""

from __future__ import annotations

import logging
import random
import subprocess
from pathlib import Path

import pytest

import ternmq
from ternmq.testing import broker
from tests.asynchronous import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

RECORD = 16_384
"""Most bytes of one record of TLS."""


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=broker", "-keyout", key, "-out", cert,
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_what_comes_in_many_records_is_whole(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Both ways: large sends to the broker, large pulls from it, over one connection."""
    cert, key = certificate
    noise = random.Random(11)
    bodies = [noise.randbytes(RECORD * number // 2) for number in range(1, 40)]
    with broker(manual=False, settings={"tls_cert": str(cert), "tls_key": str(key)}) as one:
        async with ternmq.connect(f"ternmqs://127.0.0.1:{one.port}?ca={cert}") as client:
            await client.admin.create_topic("orders")
            link = client._session.link
            for body in bodies:
                await client.send("orders", body)
            await client.send_many("orders", bodies)
            got: list[bytes] = []
            while batch := await client.pull("orders", group="g", max_messages=1000, wait=0.2):
                got += batch.bodies
                await batch.ack()
            assert got == bodies * 2
            assert client._session.link is link, "the connection was never cut"
    told = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert not told, told
