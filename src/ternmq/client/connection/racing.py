"""One attempt to connect: to one broker, or to the first of several that accepts HELLO.

``Choice`` decides which address is tried when; a race has the connections and their timeouts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ternmq.client.connection.address import Address
from ternmq.client.connection.choosing import Choice, Failure, verdict
from ternmq.client.connection.connecting import closed_at_once, known_at, refused, silent
from ternmq.client.connection.dial import connected
from ternmq.client.connection.known import Known
from ternmq.client.connection.link import Link
from ternmq.client.connection.options import Options
from ternmq.client.connection.raising import own
from ternmq.model.errors import TernMQError


class _Attempt(NamedTuple):
    """A connection to one address."""

    address: Address
    opening: asyncio.Future[None]
    """Done when HELLO is answered or the connection has ended."""


class Race:
    """Connections of which the first that is accepted stays. Loop only.

    The owner of the links reports to it: ``accepts`` when HELLO is answered, ``lost`` when a
    connection ends.

    Args:
        loop: The client's loop.
        options: Timeout and pauses.
        addresses: In the order in which they are tried.
        new_link: Makes a link.
        known: Which of the addresses were learned.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        addresses: Sequence[Address],
        new_link: Callable[[], Link],
        known: Known,
    ) -> None:
        self._loop = loop
        self._options = options
        self._addresses = addresses
        self._new_link = new_link
        self._known = known
        self._choice = Choice(addresses, options.backoff)
        self._attempts: dict[Link, _Attempt] = {}
        """The links that are not accepted yet, and have not failed."""
        self._won = False
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Connect; return when a link was accepted.

        Raises:
            TernMQError: No address serves: the ``verdict``.
        """
        choice = self._choice
        if len(self._addresses) == 1:
            for address in choice.begin(self._loop.time()):
                await self._try(address)
        else:
            await self._try_all()
        if self._won:
            return
        failure = verdict(choice.failures())
        self._choice = Choice((), self._options.backoff)  # see ``raising``
        cause = failure.__cause__
        raise own(failure) from cause

    async def _try_all(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            await self._until_over(tasks)
        except GeneratorExit:  # the loop has ended with this in it: nothing can be awaited
            raise
        except BaseException:
            await _end(tasks)
            raise
        await _end(tasks)

    async def _until_over(self, tasks: set[asyncio.Task[None]]) -> None:
        """Try addresses, each in a task, until one has accepted or all have failed."""
        choice, loop = self._choice, self._loop
        while not self._won:
            for address in choice.begin(loop.time()):
                task = loop.create_task(self._try(address))
                task.add_done_callback(self._over)
                tasks.add(task)
            if choice.over:
                return
            at = choice.next_at()
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if at == math.inf else at):
                    await self._changed.wait()
            for task in [one for one in tasks if one.done()]:
                tasks.remove(task)
                task.result()  # raises what is no failure to connect

    def _over(self, task: asyncio.Task[None]) -> None:
        self._changed.set()

    async def _try(self, address: Address) -> None:
        """Connect to an address; if that fails, tell the choice why."""
        loop, link = self._loop, self._new_link()
        opening: asyncio.Future[None] = loop.create_future()
        self._attempts[link] = _Attempt(address, opening)
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await connected(loop, address, link)
                await opening
        except TimeoutError:
            self._failed(address, silent(address, accepted=link.accepted), None)
            self._drop(link)
        except OSError as error:
            self._failed(address, refused(address, error), error)
            self._drop(link)
        except TernMQError as error:
            self._failed(address, own(error), error.__cause__)
            self._drop(link)
        except asyncio.CancelledError:
            self._drop(link)
            raise
        finally:
            if opening.done() and not opening.cancelled():
                opening.exception()  # marks it as retrieved
            del opening  # see ``raising``

    def _drop(self, link: Link) -> None:
        """End an attempt, unless it was accepted; the later end of its connection is ignored."""
        if self._attempts.pop(link, None) is not None:
            link.abort()

    def _failed(self, address: Address, error: TernMQError, cause: BaseException | None) -> None:
        error = self._known.refusal(address, error)
        error.__cause__ = cause
        self._choice.failed(address, error, self._loop.time())

    # -- for the owner of the links

    def address_of(self, link: Link) -> Address | None:
        """Return the address of a link that is not accepted yet; None: it has failed, or ended."""
        attempt = self._attempts.get(link)
        return None if attempt is None else attempt.address

    def accepts(self, link: Link) -> Address | None:
        """Return the address of a link whose HELLO was answered; None: another one was first."""
        attempt = self._attempts.get(link)
        if attempt is None or self._won:
            return None
        del self._attempts[link]
        self._won = True
        self._changed.set()
        if not attempt.opening.done():
            attempt.opening.set_result(None)
        return attempt.address

    def lost(self, link: Link, error: Exception | None) -> None:
        """Take the end of a connection; ``error`` as in ``Owner.link_lost``."""
        attempt = self._attempts.get(link)
        if attempt is None or attempt.opening.done():
            return
        address = attempt.address
        attempt.opening.set_exception(
            own(known_at(address, error))
            if isinstance(error, TernMQError)
            else closed_at_once(address, error)
        )

    def obstacle(self) -> TernMQError | None:
        """Return why no broker has accepted yet: what failed, and what is waited for."""
        if self._won:
            return None
        found = {one.address: one for one in self._choice.failures()}
        for link, attempt in self._attempts.items():
            error = silent(attempt.address, accepted=link.accepted)
            found.setdefault(attempt.address, Failure(attempt.address, error))
        told = [found[address] for address in self._addresses if address in found]
        return verdict(told) if told else None

    def leave_behind(self) -> None:
        """Close this process's copies of the connections after a fork."""
        for link in self._attempts:
            link.leave_behind()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
