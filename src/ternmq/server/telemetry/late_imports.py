"""Libraries that a broker imports at their first use, in a thread beside its loop.

A broker that moves no messages and is not scraped runs without them: it starts sooner, and uses
less memory while it is idle.

**numpy** takes 80 ms and 12 MB. It is imported

* at the start, before the broker listens, if recovery needs it: for run files of the index, a large
  window of deduplication, large batches behind the last STATE set;
* else by a job, as soon as a first connection uses a topic (it sends, pulls or reads).

Code that needs numpy imports it inside the function that uses it, or is in a module that is
imported that way. A request that needs it before the job is done waits for the rest of the 80 ms:
a first batch of 16 rows or more, or a look-up, in a broker that has moved no messages before. No
other request is running there yet.

**prometheus-client** takes 30 ms and 4 MB. It is imported by a job when the first scrape arrives,
which waits for it. Only `exposition` needs it.

The loop goes on meanwhile, but not evenly: Python's threads take turns of 5 ms, and none has one
while a shared library is loaded. A loop that ticks each millisecond was late at worst by 4 to 6 ms
beside numpy, and by 1 to 7 ms beside prometheus-client, in most of ten fresh processes each; by up
to 77 and 33 ms while other programs used both cores.

The jobs run in the read thread, because its other jobs are short; the background thread may be
filling a segment with zeros for seconds.
"""

from __future__ import annotations

from collections.abc import Callable


class Import:
    """A job that imports a library, so that no turn of the loop has to.

    Args:
        library: Name of the library, for the log.
        load: Imports it; may run in any thread.
        then: The runner of the job calls this in the loop afterwards.
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
            ImportError: It is not installed, or is broken.
        """
        self._load()


def load_numpy() -> None:
    """Import numpy."""
    import numpy  # noqa: F401, ICN001


def load_exposition() -> None:
    """Import the module that writes the answer to a scrape, and prometheus-client with it."""
    from ternmq.server.telemetry import exposition  # noqa: F401
