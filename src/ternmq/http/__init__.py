"""HTTP for machines: a port that answers probes and scrapers; brokers and workers have one.

Entry point: ``port.HttpPort``. Invariant: a peer gets one answer, within a bounded time; peers that
send nothing keep no others out.
"""
