"""``ternmq worker``: ``worker``, ``processes`` (several), ``sources`` (reloading), ``logs``."""
