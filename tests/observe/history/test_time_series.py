"""Figures over time: three resolutions, bounded, by user, with percentiles."""

from __future__ import annotations

import pytest

from lyra.observe.history.time_series import RESOLUTIONS, LatencyCounts, TimeSeries

NOW = 1_800_000_000.0


def test_percentiles_are_within_a_tenth() -> None:
    counts = LatencyCounts()
    for milliseconds in range(1, 1001):
        counts.add(milliseconds)
    for percent in (50, 95, 99):
        value = counts.percentile(percent)
        assert value is not None
        assert value == pytest.approx(percent * 10, rel=0.1)
    assert LatencyCounts().percentile(50) is None


def test_a_call_counts_in_every_resolution_and_for_its_user_alone() -> None:
    series = TimeSeries()
    series.add_call(NOW, "ada", latency_ms=100, is_error=True, input_tokens=10, cached_tokens=4, micro_usd=7)
    series.add_restart(NOW, "bob")
    for name, resolution in RESOLUTIONS.items():
        points = series.points(name, NOW, lambda _user: True)
        assert len(points) == resolution.steps
        last = points[-1]
        assert (last.calls, last.errors, last.input_tokens, last.cached_tokens) == (1, 1, 10, 4)
        assert (last.micro_usd, last.restarts, last.latency.count) == (7, 1, 1)
        assert sum(point.calls for point in points[:-1]) == 0
        of_ada = series.points(name, NOW, lambda user: user == "ada")[-1]
        assert (of_ada.calls, of_ada.restarts) == (1, 0)


def test_old_steps_are_dropped_and_late_calls_of_the_past_are_not_kept() -> None:
    series = TimeSeries()
    series.add_call(NOW - 7_200, "", latency_ms=1, is_error=False)
    series.add_call(NOW, "", latency_ms=1, is_error=False)
    series.add_call(NOW - 7_200, "", latency_ms=1, is_error=False)
    assert sum(point.calls for point in series.points("hour", NOW, lambda _user: True)) == 1
    assert sum(point.calls for point in series.points("day", NOW, lambda _user: True)) == 3
    for minute in range(500):
        series.add_call(NOW + 60 * minute, "", latency_ms=1, is_error=False)
    assert len(series._steps["hour"]) == RESOLUTIONS["hour"].steps


def test_users_without_room_are_counted_for_the_operator() -> None:
    series = TimeSeries()
    for number in range(1_500):
        series.add_call(NOW, f"user{number}", latency_ms=1, is_error=False)
    everything = series.points("hour", NOW, lambda _user: True)[-1]
    assert everything.calls == 1_500
    assert series.points("hour", NOW, lambda user: user == "user1499")[-1].calls == 0
