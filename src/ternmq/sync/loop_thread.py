"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from ternmq.client.blocking import Portal

T = TypeVar("T")


class LoopThread(Portal):
    """A portal into a loop that it runs; the thread does not keep the process alive."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._thread = threading.Thread(target=self._run, name="ternmq-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator; leaving closes it."""
        try:
            while True:
                found = self.call(_next(source))
                if found is _END:
                    return
                yield found
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                self.call(close())


async def _cancel_all() -> None:
    """End what other threads still wait for."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_END: Any = object()


async def _next(source: AsyncIterator[T]) -> T:
    # StopAsyncIteration may not leave through a future.
    try:
        return await anext(source)
    except StopAsyncIteration:
        end: T = _END
        return end
