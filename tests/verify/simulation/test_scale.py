"""The simulation of a large cluster: its bounds hold, and it notices what would break them."""

from __future__ import annotations

import pytest

from lyra.cluster import placement
from lyra.cluster.directory import View
from verify.simulation import scale


def test_deaths_joins_and_drains_stay_bounded() -> None:
    """Every shard is open again in time, and none moves twice."""
    result = scale.run(40, 400_000, seed=3)
    assert result.faults == []
    start, died, joined, drained = result.figures
    assert start.shards_moved == 160
    assert died.shards_moved == joined.shards_moved == 16
    assert 0 < died.most_without_owner_s == died.seconds < 10.0
    assert joined.most_without_owner_s == pytest.approx(scale.OPEN_S + 2_500 * scale.OPEN_A_PROCESS_S + scale.CLOSE_S)
    assert drained.seconds < 600.0


def test_what_a_beat_reads_does_not_grow_with_the_cluster() -> None:
    """Four times the hosts read about four times the rows, not sixteen times."""
    small, large = (scale.run(hosts, hosts * 10_000).figures[2] for hosts in (20, 80))
    assert large.rows_read_a_second < 8 * small.rows_read_a_second


def test_a_plan_that_gives_nothing_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that join and get nothing, and hosts that keep all while they drain, are faults."""
    plan = placement.plan

    def keep_all(view: View, me: str) -> placement.HostPlan:
        return placement.HostPlan(take=plan(view, me).take)

    monkeypatch.setattr(placement, "plan", keep_all)
    faults = scale.run(20, 200_000, within_s=60.0).faults
    assert any("join" in fault for fault in faults)
    assert any("drained" in fault for fault in faults)
