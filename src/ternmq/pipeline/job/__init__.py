"""What every job of the pipeline has in common: ``job``."""
