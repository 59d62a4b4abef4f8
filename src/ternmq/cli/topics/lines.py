"""Reads the lines of a file or of standard input, as many at a time as are available."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from ternmq.cli.terminal.exits import ExitCode, Failed

_MOST: Final = 1000
"""Most lines returned at a time."""
_MOST_BYTES: Final = 8 << 20
_LINE_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 18


async def line_batches(path: str) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Yield lines with their numbers, as many at a time as are available.

    A thread reads them, because a person or program that writes them may be slow; it reads ahead at
    most two batches.
    """
    loop = asyncio.get_running_loop()
    waiting: deque[tuple[int, bytes] | BaseException | None] = deque()
    arrived = asyncio.Event()
    woken = False  # by the thread, and the loop has not looked at what waits since
    room = threading.Semaphore(2 * _MOST)

    def tell(item: tuple[int, bytes] | BaseException | None) -> None:
        nonlocal woken
        waiting.append(item)
        if not woken:  # a wake-up for each line would fill the loop's pipe
            woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
                loop.call_soon_threadsafe(arrived.set)

    def read() -> None:
        try:
            descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY)
            for number, line in enumerate(_lines(descriptor), 1):
                room.acquire()
                tell((number, line))
            tell(None)
        except BaseException as error:  # noqa: BLE001 - raised again by the reader of the queue
            tell(error)

    threading.Thread(target=read, daemon=True, name="lines").start()
    ended = False
    while not ended:
        batch: list[tuple[int, bytes]] = []
        size = 0
        while not waiting:
            await arrived.wait()
            arrived.clear()
            woken = False
        item = waiting.popleft()
        while True:
            if item is None:
                ended = True
            elif isinstance(item, BaseException):
                if batch:
                    yield batch
                raise item
            else:
                room.release()
                batch.append(item)
                size += len(item[1])
            if ended or len(batch) >= _MOST or size >= _MOST_BYTES or not waiting:
                break
            item = waiting.popleft()
        if batch:
            yield batch


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield lines without their ends; a line larger than any broker accepts is an error.

    Reads the descriptor itself: a thread that waits inside Python's buffered reader would disturb
    the end of the process.
    """
    number, rest = 0, b""
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
        for line in whole:
            number += 1
            yield line.removesuffix(b"\r")
        if len(rest) > _LINE_BYTES:
            raise Failed(f"line {number + 1} has more than 16 MiB", ExitCode.USAGE)
    if rest:
        yield rest.removesuffix(b"\r")
