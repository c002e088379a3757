"""Modes follow the evidence: what each runs and compares, what promotes, what leads back, what survives a restart."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from lyra import vesper
from lyra.core.ids import ProcessRandom
from lyra.errors import ConfigError, ProcessError
from lyra.vesper.confidence import lower_bound
from lyra.vesper.evidence import keys
from lyra.vesper.evidence.modes import MODES, ORDER, bucket, find_allowed_mode, mode_named, route
from lyra.vesper.runtime.paths import DirectPath, PythonPath

DOUBLE = """\
node_id: double_v1
type: function
intent: double a number
inputs:
  number: {type: integer}
outputs:
  success:
    doubled: integer
flow:
  - step: double
    operation: arithmetic
    expression: "number * 2"
    output: doubled
"""


class Counting:
    """The direct path, with what it did; wrong for numbers above a limit, or broken for one number."""

    def __init__(self, *, wrong_above=None, breaks_at=None):
        self.path = DirectPath()
        self.start = self.path.start
        self.runs = Counter()
        self.wrong_above = wrong_above
        self.breaks_at = breaks_at

    def run(self, program, inputs, execution):
        self.runs["direct"] += 1
        number = inputs["number"]
        if number == self.breaks_at:
            raise ZeroDivisionError("planted")
        outcome = self.path.run(program, inputs, execution)
        if self.wrong_above is not None and number > self.wrong_above:
            return msgspec.structs.replace(outcome, outputs={"doubled": 0})
        return outcome


@pytest.fixture
def node():
    return vesper.load(DOUBLE)


@pytest.mark.parametrize(
    ("mode", "direct_runs", "compared"),
    [("python_only", 0, 0), ("shadow_direct", 100, 100), ("dual_verify", 100, 100)],
)
def test_each_mode_runs_and_compares_what_it_says(node, mode, direct_runs, compared):
    direct = Counting()
    with vesper.Runtime(direct=direct) as runtime:
        for number in range(100):
            assert runtime.execute(node, {"number": number}, mode).outputs == {"doubled": number * 2}
        evidence = runtime.evidence(node)
    assert direct.runs["direct"] == direct_runs
    assert (evidence.compared, evidence.divergences) == (compared, 0)


def test_direct_only_compares_a_random_hundredth():
    """The sample is drawn by a random key of the runtime, not by the number of an execution: two runtimes draw
    different ones, and the distances between two samples vary."""
    mode = mode_named("direct_only")
    samples = []
    for draw in (ProcessRandom(b"a"), ProcessRandom(b"b")):
        ways = [route(mode, "double_v1", {}, draw()) for _ in range(20_000)]
        assert {way.live for way in ways} == {"direct"}
        samples.append([number for number, way in enumerate(ways) if way.compare == "now"])
    assert all(130 < len(sample) < 270 for sample in samples)
    assert len(set(samples[0]) & set(samples[1])) < 10
    distances = {after - before for before, after in pairwise(samples[0])}
    assert len(distances) > 50
    first, second = vesper.Runtime(), vesper.Runtime()
    assert first._draw() != second._draw()


def test_direct_only_runs_the_direct_path_alone_but_for_its_sample(node):
    direct = Counting()
    with vesper.Runtime(direct=direct) as runtime:
        for number in range(300):
            runtime.execute(node, {"number": number}, "direct_only")
        compared = runtime.evidence(node).compared
    assert direct.runs["direct"] == 300
    assert compared < 30


def test_a_canary_takes_the_same_twentieth_in_every_process(node):
    live = [route(mode_named("canary_direct"), "double_v1", {"number": n}, 0.5).live for n in range(10_000)]
    assert 400 < live.count("direct") < 600
    assert [bucket("double_v1", {"number": n}) for n in range(3)] == [
        bucket("double_v1", {"number": n}) for n in range(3)
    ]
    assert bucket("double_v1", {"number": 1}) != bucket("other_v1", {"number": 1})


def test_a_divergence_blocks_and_leads_back(node, tmp_path):
    store = str(tmp_path / "lyra.db")
    with vesper.Runtime(store, direct=Counting(wrong_above=5)) as runtime:
        runtime.set_mode(node, "dual_verify", force=True)
        for number in range(5):
            runtime.execute(node, {"number": number})
        assert runtime.mode(node) == "dual_verify"
        assert runtime.execute(node, {"number": 9}).outputs == {"doubled": 18}
        assert runtime.mode(node) == "shadow_direct"
    with vesper.Runtime(store) as runtime:
        evidence = runtime.evidence(node)
        assert (evidence.compared, evidence.divergences, evidence.blocked) == (6, 1, True)
        assert evidence.found[0].inputs == {"number": 9}
        assert evidence.found[0].differences[0]["path"] == "root.doubled"
        assert [change["to"] for change in evidence.history] == ["dual_verify", "shadow_direct"]
        with pytest.raises(ConfigError, match="reproduced"):
            runtime.set_mode(node, "canary_direct")


def test_a_divergence_never_raises_the_mode(node):
    """A node in python_only stays there when a run in another mode finds a divergence; one that relies on the direct
    path goes back whatever the mode of that run."""
    with vesper.Runtime(direct=Counting(wrong_above=5)) as runtime:
        runtime.execute(node, {"number": 9}, "dual_verify")
        assert (runtime.mode(node), runtime.evidence(node).divergences) == ("python_only", 1)
        runtime.set_mode(node, "direct_only", force=True)
        runtime.execute(node, {"number": 9}, "shadow_direct")
        runtime.settle()
        assert (runtime.mode(node), runtime.evidence(node).divergences) == ("shadow_direct", 2)


def test_what_happens_to_a_node_is_told_as_events(node):
    events = []
    with vesper.Runtime(direct=Counting(wrong_above=5)) as runtime:
        runtime.on_event(events.append, ["vesper.mode", "vesper.compared", "vesper.diverged"])
        runtime.set_mode(node, "dual_verify", force=True)
        runtime.execute(node, {"number": 1})
        runtime.execute(node, {"number": 9})
        runtime.settle()
    kinds = [event.kind for event in events]
    assert kinds == ["vesper.mode", "vesper.diverged", "vesper.mode", "vesper.compared"]
    assert events[1].data["differences"][0]["path"] == "root.doubled"
    assert events[2].data["to"] == "shadow_direct"
    assert events[3].data["compared"] == 1


def test_a_changed_node_starts_again(node, tmp_path):
    changed = vesper.load(DOUBLE.replace("number * 2", "number * 2 + 0"))
    with vesper.Runtime(str(tmp_path / "lyra.db")) as runtime:
        runtime.execute(node, {"number": 1}, "dual_verify")
        assert runtime.evidence(node).compared == 1
        assert runtime.evidence(changed).compared == 0


SHOP = """\
node_id: shop_v1
type: function
intent: ask for a price
inputs: {price: {type: decimal, scale: 2}}
outputs: {success: {total: {type: decimal, scale: 2}}}
flow:
  - {step: ask, operation: call_node, node_id: tax_v1, parameters: {price: "{price}"}, output: answer}
  - {step: answer, operation: return, return_success: {total: "{answer.total}"}}
"""
TAX = """\
node_id: tax_v1
type: function
intent: add tax
inputs: {price: {type: decimal, scale: 2}}
outputs: {success: {total: {type: decimal, scale: 2}}}
flow:
  - {step: add, operation: arithmetic, expression: price * 1.19, scale: 2, rounding: half_even, output: total}
"""


def test_evidence_ends_where_a_called_node_changes_its_rounding(tmp_path):
    """A node, the nodes that it calls, Lyra's paths and the tier: a change of any starts again."""
    store, shop = str(tmp_path / "lyra.db"), vesper.load(SHOP)
    tax, other = vesper.load(TAX), vesper.load(TAX.replace("half_even", "half_up"))
    with vesper.Runtime(store, nodes=[tax]) as runtime:
        runtime.execute(shop, {"price": "1.00"}, "dual_verify")
        assert runtime.evidence(shop).compared == 1
        runtime.set_mode(shop, "direct_only", force=True)
    with vesper.Runtime(store, nodes=[other]) as runtime:
        assert (runtime.evidence(shop).compared, runtime.mode(shop)) == (0, "python_only")
    with vesper.Runtime(store, nodes=[tax]) as runtime:
        assert (runtime.evidence(shop).compared, runtime.mode(shop)) == (1, "direct_only")


@pytest.mark.parametrize("changed", ["tier", "paths"])
def test_evidence_ends_where_the_paths_change(node, tmp_path, monkeypatch, changed):
    with vesper.Runtime(str(tmp_path / "lyra.db")) as runtime:
        runtime.execute(node, {"number": 1}, "dual_verify")
        assert runtime.evidence(node).compared == 1
    direct = DirectPath()
    if changed == "tier":
        direct.tier = "native"
    else:
        monkeypatch.setattr(keys, "paths_version", lambda: "another")
    with vesper.Runtime(str(tmp_path / "lyra.db"), direct=direct) as runtime:
        assert runtime.evidence(node).compared == 0


def test_only_distinct_accepted_inputs_count(node):
    """The same input again, and one that the entry refuses, are compared and show nothing."""
    with vesper.Runtime() as runtime:
        for number in ("x", 1, 1, 2, 2**62):
            runtime.execute(node, {"number": number}, "dual_verify")
        evidence = runtime.evidence(node)
    assert (evidence.compared, evidence.distinct, evidence.accepted, evidence.successes) == (5, 4, 3, 2)
    assert (evidence.reached, evidence.unreached) == (["double"], [])


def test_a_broken_direct_path_breaks_no_execution(node):
    with vesper.Runtime(direct=Counting(breaks_at=3)) as runtime:
        runtime.set_mode(node, "direct_only", force=True)
        assert runtime.execute(node, {"number": 3}).outputs == {"doubled": 6}
        assert runtime.mode(node) == "shadow_direct"
        assert runtime.evidence(node).blocked


def test_a_promotion_needs_its_evidence(node):
    with vesper.Runtime() as runtime:
        with pytest.raises(ConfigError, match=r"0\.999"):
            runtime.set_mode(node, "dual_verify")
        assert runtime.mode(node) == "python_only"
        runtime.set_mode(node, "dual_verify", force=True)
        assert runtime.evidence(node).forced
        assert runtime.mode(node) == "dual_verify"


@pytest.mark.parametrize(
    ("compared", "mode"),
    [
        (0, "shadow_direct"),
        (999, "shadow_direct"),
        (1_000, "canary_direct"),
        (10_813, "canary_direct"),
        (10_814, "dual_verify"),
        (108_230, "dual_verify"),
        (108_231, "direct_only"),
    ],
)
def test_the_gates(compared, mode):
    assert find_allowed_mode(compared, 0, blocked=False) == mode
    assert find_allowed_mode(compared, 0, blocked=True) == "shadow_direct"


def test_promotion_goes_step_by_step(node):
    from lyra.vesper.evidence.differential import ComparisonReport
    from lyra.vesper.evidence.seen import ACCEPTED, SUCCEEDED, SeenInputs

    with vesper.Runtime() as runtime:
        seen = SeenInputs()
        for number in range(110_000):
            seen.add(number * 4, ACCEPTED | SUCCEEDED)
        goals = ("double",)
        runtime.add_report(node, ComparisonReport(110_000, 0, (), 1.0, seen=seen.data, goals=goals, reached=goals))
        assert [runtime.promote(node) for _ in range(5)] == [*ORDER[1:], "direct_only"]


def test_wrong_inputs_are_outcomes_in_every_mode(node):
    with vesper.Runtime() as runtime:
        for mode in MODES:
            for inputs in ({"number": "x"}, {}, {"number": 1, "more": 2}, {"number": object()}):
                outcome = runtime.execute(node, inputs, mode)
                assert outcome.error is not None
                assert outcome.error.code == "invalid_input"


def test_an_unknown_mode_is_refused(node):
    with vesper.Runtime() as runtime, pytest.raises(ConfigError, match="no mode"):
        runtime.execute(node, {"number": 1}, "fast")


def test_python_is_the_answer_where_both_run(node):
    """The direct path is wrong; the caller of dual_verify gets Python's answer."""
    assert isinstance(vesper.Runtime().paths["python"], PythonPath)
    with vesper.Runtime(direct=Counting(wrong_above=-1)) as runtime:
        assert runtime.execute(node, {"number": 4}, "dual_verify").outputs == {"doubled": 8}


def test_evidence_has_its_confidence(node):
    """Not rounded, and the same bound as for the figures alone."""
    with vesper.Runtime(direct=Counting(wrong_above=1_500)) as runtime:
        evidence = runtime.evidence(node)
        assert (evidence.compared, evidence.divergences, evidence.confidence, evidence.blocked) == (0, 0, 0.0, False)
        for number in range(1_200):
            runtime.execute(node, {"number": number}, "dual_verify")
        evidence = runtime.evidence(node)
        assert (evidence.compared, evidence.divergences, evidence.blocked) == (1_200, 0, False)
        assert evidence.confidence == lower_bound(1_200, 0) == runtime.confidence(node)
        assert evidence.confidence != round(evidence.confidence, 6)
        runtime.execute(node, {"number": 2_000}, "dual_verify")
        evidence = runtime.evidence(node)
        assert (evidence.compared, evidence.divergences, evidence.blocked) == (1_201, 1, True)
        assert evidence.confidence == lower_bound(1_200, 1)


@pytest.mark.parametrize("mode", ["python_only", "dual_verify", "direct_only"])
def test_a_closed_runtime_executes_nothing(node, mode):
    runtime = vesper.Runtime()
    assert runtime.execute(node, {"number": 1}, mode).status == "success"
    runtime.close()
    with pytest.raises(ProcessError, match="closed"):
        runtime.execute(node, {"number": 1}, mode)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_a_closed_runtime_has_no_file_of_its_store_open(tmp_path):
    """Also while somebody keeps the runtime: its store is closed, not left to the garbage collector."""
    store = tmp_path / "lyra.db"

    def open_files():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return [path for path in map(os.path.realpath, links) if path.startswith(str(store))]

    runtime = vesper.Runtime(str(store))
    assert runtime.execute(vesper.load(DOUBLE), {"number": 2}).outputs == {"doubled": 4}
    assert open_files()
    runtime.close()
    assert open_files() == []
