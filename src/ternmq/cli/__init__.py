"""The command ``ternmq``: one file per group of commands.

Entry point: ``main.main``. A command that fails prints one line on standard error that says what to
do, and exits with a documented status; no command shows a traceback.

Reading order: ``commands`` (the list of commands, imported when called), ``main`` (how they end),
``connection`` with ``contexts`` (which broker, signals, pipes), ``output`` (terminals, pipes,
JSON), then any. ``exits`` has the statuses, ``problems`` maps errors to them, ``reference`` makes
the reference page.

Shared parts: ``parameters`` (values on the command line), ``shapes`` (how messages look), ``live``
(screens that change), ``page`` (their content, line by line), ``failed`` (failed messages),
``finding``, ``archived``, ``percentiles``, ``priority``, ``pipeline_parts``. Parts of
commands: ``group_lag``, ``group_places``, ``group_replay``, ``message_trace``, ``redrive``,
``pipeline_care``, ``pipeline_replay``, ``pipeline_report``, ``pipeline_run``, ``worker_logs``,
``worker_processes`` with ``sources``.

Invariants: results are on standard output, everything else on standard error; rich is imported only
to draw on a terminal; text from others reaches a terminal escaped; a token is printed once, by the
command that makes it; a command that destroys something asks first, or needs ``--yes``.
"""
