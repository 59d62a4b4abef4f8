"""TernMQ: a message broker in Python whose journal is the system.

At present the package holds the core as a library: the columnar batch and the journal's records
(``ternmq.record``), the journal itself (``ternmq.journal``) and the deterministic broker
(``ternmq.broker``). ``ARCHITECTURE.md`` says which folder is for what and in what order to read.

A package imports only packages below it: broker > journal > record > model. import-linter holds
that, and that the core has no clock, randomness, threads or network of its own.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
