"""An application that does plain things, beside one that does what is wrong."""

from __future__ import annotations

import threading

import ternmq
import ternmq.sync


class Others:
    """An application without transactions, at work during the block."""

    def __init__(self, url: str) -> None:
        self.done = 0
        self._url = url
        self._over = threading.Event()
        self._failed: list[ternmq.TernMQError] = []
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        assert not self._failed, self._failed

    def _work(self) -> None:
        try:
            with ternmq.sync.connect(self._url, timeout=30) as client:
                client.admin.create_topic("others")
                client.admin.create_group("others", "g")
                while not (self._over.is_set() and self.done):
                    client.send("others", b"%d" % self.done)
                    (delivery,) = client.pull("others", group="g", wait=30)
                    assert delivery.body == b"%d" % self.done
                    delivery.ack()
                    self.done += 1
        except ternmq.TernMQError as error:
            self._failed.append(error)
