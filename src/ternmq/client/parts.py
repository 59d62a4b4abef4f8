"""The parts that a client is made of."""

from __future__ import annotations

from ternmq.client.admin import Admin
from ternmq.client.again import Replay
from ternmq.client.codecs import Codecs
from ternmq.client.deadletters import DeadLetters
from ternmq.client.declarations import Declarations
from ternmq.client.keeper import Keeper
from ternmq.client.lookup import Lookup
from ternmq.client.making import Making
from ternmq.client.options import Options
from ternmq.client.prepared_ids import PreparedIds
from ternmq.client.producer import Producer
from ternmq.client.puller import Puller
from ternmq.client.reports import Reporter
from ternmq.client.session import Session
from ternmq.client.settler import Settler


class Parts:
    """The common parts of ``Sending``, ``Receiving`` and ``Client``.

    Args:
        options: Settings.
        codecs: Codecs to use; None: new ones.
        declarations: Declared handlers, topics and middlewares; None: none yet.
        served: Whether threads call it through its loop, as in ``ternmq.sync``.
    """

    def __init__(
        self,
        options: Options,
        codecs: Codecs | None = None,
        declarations: Declarations | None = None,
        *,
        served: bool = False,
    ) -> None:
        self._declarations = Declarations() if declarations is None else declarations
        self.options = options
        self.codecs = codecs or Codecs()
        self._session = session = Session(options, served=served)
        self.admin = Admin(session)
        making = Making(session, self._declarations.topics, self.admin.redeclaring)
        self._producer = Producer(session, making)
        self._prepared_ids = PreparedIds()
        self._settler = Settler(session)
        self._puller = Puller(session, self._settler, making)
        self._keeper = Keeper(session, self._settler)
        self._reporter = Reporter(session, self._producer)
        session.members += [self._settler, self._settler.policies, self._producer, self._reporter]
        self._lookup = Lookup(session, self.codecs)
        self._replay = Replay(session)
        self.deadletters = DeadLetters(session, self.codecs)
