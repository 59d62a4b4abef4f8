"""The parts that a client is made of."""

from __future__ import annotations

from ternmq.client.admin.admin import Admin
from ternmq.client.admin.deadletters import DeadLetters
from ternmq.client.admin.lookup import Lookup
from ternmq.client.admin.replay import Replay
from ternmq.client.connection.options import Options
from ternmq.client.connection.session import Session
from ternmq.client.consumer.keeper import Keeper
from ternmq.client.consumer.puller import Puller
from ternmq.client.consumer.settler import Settler
from ternmq.client.content.codecs import Codecs
from ternmq.client.declaration.making import Making
from ternmq.client.handler.declarations import Declarations
from ternmq.client.prepared_ids import PreparedIds
from ternmq.client.producer.producer import Producer
from ternmq.client.producer.reports import Reporter


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
