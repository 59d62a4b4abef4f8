"""Messages a second, of the last ten."""

from __future__ import annotations

from ternmq.server.telemetry.counters import Counters
from ternmq.server.telemetry.rates import Rates


def test_they_are_an_average_of_ten_seconds() -> None:
    counters = Counters()
    rates = Rates(counters)
    rates.look(100.0)
    assert (rates.sent, rates.delivered) == (0.0, 0.0)
    counters.sent_rows += 500
    counters.delivered_rows += 250
    rates.look(105.0)
    assert (rates.sent, rates.delivered) == (100.0, 50.0)
    rates.look(110.0)
    assert (rates.sent, rates.delivered) == (50.0, 25.0)
    rates.look(115.0)
    rates.look(120.0)
    assert (rates.sent, rates.delivered) == (0.0, 0.0)
    counters.sent_rows += 30
    for second in range(121, 200):
        rates.look(float(second))
        assert len(rates._samples) < 13
    assert rates.sent == 0.0
