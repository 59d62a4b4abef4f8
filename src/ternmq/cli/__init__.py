"""The command ``ternmq``: one file per group of commands.

Entry point: ``main.main``. Every command that cannot do what it was asked says so in one line that
tells what to do, on standard error, and exits with a documented status; no command shows a
traceback.

Reading order: ``commands`` (which there are, imported when called), ``main`` (how they end),
``connection`` with ``contexts`` (which broker, signals, pipes), ``output`` (terminals, pipes,
JSON), then any. ``exits`` has the statuses, ``problems`` which error leads to which, ``reference``
makes the page of the documents.

What commands share: ``parameters`` (values on the command line), ``shapes`` (how messages look),
``live`` (screens that change), ``page`` (what they show, line by line), ``failed`` (rows that
failed), ``finding``, ``archived``, ``percentiles``, ``priority``, ``pipeline_parts``. Parts of
commands: ``group_lag``, ``group_places``, ``group_replay``, ``message_trace``, ``redrive``,
``pipeline_care``, ``pipeline_replay``, ``pipeline_report``, ``pipeline_run``, ``worker_logs``,
``worker_processes`` with ``sources``.

Invariants: what was asked for is on standard output, everything else on standard error; rich is
imported only where a terminal is drawn on; what others wrote reaches a terminal escaped; tokens
are printed once, by the command that makes them; what destroys asks, or wants ``--yes``.
"""
