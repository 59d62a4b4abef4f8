"""The lines between the demo's processes and the conductor; those to the conductor are JSON."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import TextIO

import msgspec


def tell(**facts: int | str) -> None:
    """Write facts to standard output, as one line."""
    sys.stdout.buffer.write(msgspec.json.encode(facts) + b"\n")
    sys.stdout.buffer.flush()


async def lines_of(stream: TextIO) -> AsyncIterator[str]:
    """Yield the lines of standard input as they arrive."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    async for line in reader:
        yield line.decode().strip()
