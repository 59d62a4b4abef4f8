"""Functions that handle messages: how they are declared and called.

Reading order: ``declarations``, ``signature``, ``depends``, ``injection``, ``yielding``,
``lifespans``, ``middleware``, ``composing`` (all of these around one call), ``handlers`` (loops
that call them), ``counts`` (what they did), ``draining`` (the end), ``blocking`` (functions that
run in threads), ``unawaited`` (coroutines that nobody awaits).

Invariant: an error is raised or logged, not both.
"""
