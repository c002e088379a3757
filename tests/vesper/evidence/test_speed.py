"""A node that becomes slower than its own past is told, once, also after its file was changed."""

from __future__ import annotations

import sys
import threading

import pytest

from lyra import vesper
from lyra.vesper.evidence.state import MEDIANS_KEPT, WINDOW, EvidenceState, LatestExecutions, PathSpeed
from lyra.vesper.runtime import runtime as runtime_module

NODE = """\
node_id: paced_v1
type: function
intent: double a number
inputs: {n: integer}
outputs: {success: {doubled: integer}}
flow:
  - {step: double, operation: arithmetic, expression: "n * 2", output: doubled}
"""


class Paced:
    """A clock whose every look takes as long as it is told."""

    pace_s = 0.001
    time_s = 0.0

    @classmethod
    def monotonic(cls):
        cls.time_s += cls.pace_s
        return cls.time_s

    @staticmethod
    def now():
        return 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(Paced, "pace_s", 0.001)
    monkeypatch.setattr(runtime_module, "SystemClock", Paced)
    return Paced


def run_windows(runtime, node, windows):
    for _ in range(windows):
        for number in range(WINDOW):
            runtime.execute(node, {"n": number})
        runtime.settle()


def test_a_slower_node_is_told_once_by_an_alert(clock, monkeypatch, tmp_path):
    """Two windows in a row are needed; the alert names the path and both medians, and the state lasts."""
    node, store, alerts = vesper.load(NODE), str(tmp_path / "lyra.db"), []
    with vesper.Runtime(store) as runtime:
        runtime.on_event(alerts.append, ["vesper.alert"])
        run_windows(runtime, node, 4)
        monkeypatch.setattr(clock, "pace_s", 0.0013)
        run_windows(runtime, node, 2)
        assert alerts == []  # not much slower
        monkeypatch.setattr(clock, "pace_s", 0.002)
        run_windows(runtime, node, 1)
        assert alerts == []  # once may be chance
        run_windows(runtime, node, 3)
    assert [alert.data["condition"] for alert in alerts] == ["slower than its own past"]
    figures = alerts[0].data["figures"]
    assert figures["path"] == "python"
    assert float(figures["latest_ms"]) > 1.5 * float(figures["usual_ms"])
    with vesper.Runtime(store) as runtime:
        runtime.on_event(alerts.append, ["vesper.alert"])
        assert runtime.state.slow_paths("paced_v1") == {"python"}
        run_windows(runtime, node, 1)
        monkeypatch.setattr(clock, "pace_s", 0.001)
        run_windows(runtime, node, 1)
        assert runtime.state.slow_paths("paced_v1") == set()
    assert len(alerts) == 1


def test_a_changed_node_is_measured_by_its_past(clock, monkeypatch):
    changed = vesper.load(NODE.replace("n * 2", "n * 2 + 0"))
    with vesper.Runtime() as runtime:
        run_windows(runtime, vesper.load(NODE), 3)
        monkeypatch.setattr(clock, "pace_s", 0.002)
        run_windows(runtime, changed, 2)
        assert [alert["condition"] for alert in runtime.evidence(changed).alerts] == ["slower than its own past"]


def test_errors_are_no_measure(clock, monkeypatch):
    """Refused inputs take their own time; only successes are a pace."""
    node = vesper.load(NODE)
    with vesper.Runtime() as runtime:
        run_windows(runtime, node, 3)
        monkeypatch.setattr(clock, "pace_s", 0.5)
        for _ in range(3 * WINDOW):
            assert runtime.execute(node, {"n": "x"}).status == "error"
        runtime.settle()
        assert runtime.state.slow_paths("paced_v1") == set()


def test_a_lasting_pace_becomes_the_past():
    speed = PathSpeed()
    speed.add([1.0] * WINDOW * 3)
    speed.add([3.0] * WINDOW * (MEDIANS_KEPT - 1))
    assert (speed.is_slow, speed.usual_ms) == (True, 1.0)
    speed.add([3.0] * WINDOW)
    assert (speed.is_slow, speed.usual_ms) == (False, 3.0)


def test_snapshots_keep_the_past():
    state = EvidenceState()
    row = {"node": "a_v1", "digest": "d", "compared": 0, "errors": 0, "executions": {}, "times": {"python": [1.0, 2.0]}}
    state.apply("vesper.compared", "", 0.0, row)
    again = EvidenceState()
    again.load(state.dump())
    assert again.speeds == state.speeds
    again.load(state.dump()[:2])  # of before
    assert again.speeds == {}


def test_figures_are_read_while_other_threads_execute_the_node():
    latest, is_over = LatestExecutions(), threading.Event()
    for number in range(WINDOW):
        latest.add(failed=False, milliseconds=float(number))

    def execute():
        while not is_over.is_set():
            latest.add(failed=False, milliseconds=1.0)

    before = sys.getswitchinterval()
    threads = [threading.Thread(target=execute) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(300):
            assert latest.figures()["executions"] == WINDOW
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
