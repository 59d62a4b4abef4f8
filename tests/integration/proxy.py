"""A proxy that cuts connections, loses answers, or holds them back."""

from __future__ import annotations

import asyncio
from typing import Self


class Proxy:
    """Stands between a client and a broker. Loop only.

    Attributes:
        url: What to connect to.
        mute: Answers of the broker are thrown away.
        open: Connections that stand.
        made: Connections that were made.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuse = False
        self.mute = False
        self.made = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"ternmq://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.made += 1
        try:
            if self._refuse:
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.add(back)
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer, answers=True))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in list(self._writers):
                if one is writer:
                    one.transport.abort()
            self._tasks.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        while data := await reader.read(65536):
            if answers and self.mute:
                continue
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    def cut(self) -> None:
        """End every connection at once."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()

    def refuse(self, *, on: bool) -> None:
        """Take connections only to end them."""
        self._refuse = on
