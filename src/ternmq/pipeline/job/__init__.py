"""What every job of the pipeline has in common: ``job``, and ``described`` for Spark's interface."""
