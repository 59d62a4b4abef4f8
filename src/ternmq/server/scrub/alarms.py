"""Alarms about damaged bytes of the journal."""

from __future__ import annotations

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.broker.ledger.alarms import DAMAGED, MENDED, Alarms
from ternmq.model.errors import JournalFull
from ternmq.server.engine.engine import Core
from ternmq.server.scrub.scrubber import Scrubber


class DamageAlarms:
    """Raises alarms for what the scrub has found. Not thread-safe: call it from the broker's loop.

    ``damaged`` lasts as long as the damage. ``mended`` is about an event: it stays until an
    operator clears it, since the disk that has damaged bytes may do so again.
    """

    def __init__(self, core: Core, scrubber: Scrubber) -> None:
        self._core = core
        self._scrubber = scrubber

    def look(self, now_us: int) -> None:
        """Take over what is new; called once a second."""
        core, mended = self._core, self._scrubber.mended
        core.broker.alarming.of_disk = {
            AlarmKey(DAMAGED, file): text for file, text in self._scrubber.wrong().items()
        }
        alarms = Alarms(core.broker.ledger)
        while mended and core.failure is None:
            try:
                alarms.raise_(now_us, MENDED, mended[0].file, mended[0].text)
            except JournalFull:
                return  # a later call finds it again
            mended.popleft()
            core.touch()
