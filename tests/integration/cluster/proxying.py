"""A TCP proxy that loses the answer to one request, or the request itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class LosingProxy:
    """Stands between a coordinator and its server. Loop only.

    Attributes:
        port: Where it listens.
        lost: Requests that were lost, or whose answers were.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._marks: tuple[bytes, ...] = ()
        self._pass_on = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def lose(self, mark: bytes, *, made: bool) -> None:
        """Cut the connection of the next request that contains some bytes.

        Args:
            mark: The bytes.
            made: The server gets the request; only its answer is lost.
        """
        self._marks = (mark, mark.hex().encode())  # the driver of MySQL sends values in hex
        self._pass_on = made

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers |= {writer, back}
            answers = asyncio.create_task(self._answers(there, writer))
            self._tasks.add(answers)
            answers.add_done_callback(self._tasks.discard)
            cut = await self._requests(reader, back)
            writer.transport.abort()
            if not cut:
                back.transport.abort()  # else the server may need it to do the request
            await answers

    async def _requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> bool:
        """Pass requests on until the connection ends; return whether one was lost."""
        while data := await reader.read(65536):
            if any(mark in data for mark in self._marks):
                self._marks = ()
                self.lost += 1
                if self._pass_on:
                    back.write(data)
                    await back.drain()
                return True
            back.write(data)
            await back.drain()
        return False

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(65536):
            if not writer.is_closing():
                writer.write(data)
        writer.transport.abort()
