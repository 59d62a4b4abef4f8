"""The command ``ternmq``: one file per group of commands.

Entry point: ``main.main``. A command that fails prints one line on standard error that says what to
do, and exits with a documented status; no command shows a traceback.

Reading order: ``commands`` (the list of commands, imported when called), ``main`` (how they end),
``reach`` (which broker, signals, pipes), ``terminal`` (terminals, pipes, JSON), then any of
``topics``, ``groups``, ``outbox``, ``broker``, ``pipeline``, ``worker``, ``http`` and ``demo``.
``reference`` makes the reference page, ``completion`` completes words for shells.

Invariants: results are on standard output, everything else on standard error; rich is imported only
to draw on a terminal; text from others reaches a terminal escaped; a token is printed once, by the
command that makes it; a command that destroys something asks first, or needs ``--yes``.
"""
