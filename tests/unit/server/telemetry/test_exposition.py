"""Prometheus's text format: what the broker hands to its library arrives as it is meant."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ternmq.server.telemetry.exposition import text
from ternmq.server.telemetry.families import counter, counter_by, gauge, gauge_by


def test_a_gauge_and_a_counter_whole() -> None:
    families = [
        gauge("apps", "Apps that are here.", 3),
        counter("sync_seconds", "Seconds in syncs.", 0.25),
    ]
    assert text(families).decode() == (
        "# HELP ternmq_apps Apps that are here.\n# TYPE ternmq_apps gauge\nternmq_apps 3.0\n"
        "# HELP ternmq_sync_seconds_total Seconds in syncs.\n"
        "# TYPE ternmq_sync_seconds_total counter\n"
        "ternmq_sync_seconds_total 0.25\n"
    )


def test_values_belong_to_their_labels() -> None:
    numbers = gauge_by("bytes", "Bytes.", ("what", "app"), [(("a\nb", 'q"\\'), 1), (("", "x"), 2)])
    (family,) = text_string_to_metric_families(text([numbers]).decode())
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"what": "a\nb", "app": 'q"\\'}, 1),
        ({"what": "", "app": "x"}, 2),
    ]


def test_a_family_without_series_keeps_its_head() -> None:
    written = text([counter_by("refusals", "Refused.", ("error",), [])]).decode()
    assert written == (
        "# HELP ternmq_refusals_total Refused.\n# TYPE ternmq_refusals_total counter\n"
    )
