"""How the processes of the demo talk with their conductor: in lines, JSON on the way to it."""

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
    """Yield the lines of standard input as they come."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    async for line in reader:
        yield line.decode().strip()
