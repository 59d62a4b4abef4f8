"""Libraries that a broker imports when it first needs them, in a thread beside its loop.

A broker that listens, moves no messages and is not scraped does without them: it starts sooner,
and is smaller while it is idle.

**numpy** takes 80 ms and 12 MB. It is imported

* at the start, before the broker listens, if what is read there needs it: run files of the index,
  a large window of deduplication, large batches behind the last STATE set;
* else by a job, as soon as a first connection uses a topic (it sends, pulls or reads).

What needs numpy imports it where it uses it, in a function, or is a module that is imported where
it is used. Only who needs it before the job is done waits for the rest of the 80 ms: a first batch
of 16 rows or more to a broker that nobody has sent to or pulled from, a look-up in one. Nothing
else is under way there yet.

**prometheus-client** takes 30 ms and 4 MB. It is imported by a job when the first scrape comes,
which waits for it. Only `exposition` needs it.

The loop goes on meanwhile, but not evenly: Python's threads take turns of 5 ms, and none has one
while a shared library is loaded. A loop that ticks each millisecond was late at worst by 4 to 6 ms
beside numpy, and by 1 to 7 ms beside prometheus-client, in most of ten fresh processes each; by up
to 77 and 33 ms while others used both cores.

The jobs are the read thread's, for its other jobs are short; one of the background thread may fill
a segment with zeros for seconds.
"""

from __future__ import annotations

from collections.abc import Callable


class Import:
    """A job that imports a library, so that no turn does.

    Args:
        library: Its name, for the log.
        load: Imports it; in any thread.
        then: For whoever runs the job: what to call in the loop afterwards.
    """

    def __init__(
        self, library: str, load: Callable[[], None], then: Callable[[], None] = lambda: None
    ) -> None:
        self.library = library
        self.then = then
        self._load = load

    def run(self) -> None:
        """Import it.

        Raises:
            ImportError: It is not there, or is broken.
        """
        self._load()


def load_numpy() -> None:
    """Import numpy."""
    import numpy  # noqa: F401, ICN001


def load_exposition() -> None:
    """Import what writes the answer to a scrape, and prometheus-client with it."""
    from ternmq.server import exposition  # noqa: F401
