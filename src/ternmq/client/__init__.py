"""The client library: what applications import, all of it through ``ternmq`` itself.

It has no thread of its own but one: everything runs in the event loop of whoever uses it, save the
keeper, which extends leases on a thread with a socket of its own, so that a blocked loop does not
end them. ``ternmq.sync`` is the same client behind a loop in a thread.

Reading order: ``address`` and ``options`` (what connect is told), ``link`` (one connection),
``session`` (the connections one after the other that make a session), ``message``, ``outgoing``,
``singles``, ``many``, ``receipts``, ``lanes``, ``placing``, ``producer`` and ``resending``
(sending), ``lease``, ``delivery``, ``deliveries``, ``settler`` and ``keeper`` (what was received,
and what became of it), ``puller`` and ``consumer`` (receiving), ``handlers`` (running functions),
``codecs`` (bodies), ``admin``, ``deadletters``, ``lookup``, ``again``, ``stats``, ``client`` (the
class that has all of it).

Invariants: what is sent again is sent with the same bytes; batches of an ordered topic leave one
after the other; a delivery is settled once; a lease nobody holds is released; an outcome that is
not known is never told as a failure or a success.
"""
