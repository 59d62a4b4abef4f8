"""The command ``ternmq``: one file per group of commands.

Entry point: ``main.main``. Every command that cannot do what it was asked says so in one line that
tells what to do, on standard error, and exits with a documented status; no command shows a
traceback.
"""
