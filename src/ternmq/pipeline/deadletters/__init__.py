"""Dead letters as a table: ``deadletters`` (places, fingerprints, redrive), ``job``."""

from ternmq.pipeline.deadletters.deadletters import places, redrive, rows_since

__all__ = ["places", "redrive", "rows_since"]
