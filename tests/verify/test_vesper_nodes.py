"""The cases of example nodes pass, and both paths agree on accepted inputs; `make nodes` compares 110 000 of each."""

from __future__ import annotations

import pytest

from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.nodes.sections import read_node
from tests.cases import ALL
from verify.compare import vesper_nodes

NODES = dict(vesper_nodes.example_nodes())


def test_the_examples_are_there() -> None:
    assert {"order_total", "shipping_quote", "loyalty_points", "payment_handler", "tutorial_0"} <= NODES.keys()


@pytest.mark.parametrize("name", NODES)
def test_both_paths_agree_on_accepted_inputs(name: str) -> None:
    node, _ = read_node(NODES[name], name)
    assert node is not None
    count = 1_000 if ALL or name == "payment_handler" else 300  # that one has parts that few inputs reach
    report = differential.test_node(node, 6_000, accepted=count)
    assert (report.counts.accepted >= count or report.complete, report.kept, report.unreached) == (True, (), ())
    assert report.counts.successes >= vesper_nodes.SUCCEEDING_MIN * report.compared


def test_a_divergence_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong direct path is seen by the long run, with its first divergence."""
    paths = differential.default_paths()

    def wrong(program, inputs, execution, effects=None):
        outcome = direct(program, inputs, execution, effects)
        return outcome if outcome.error is None else type(outcome)("success", {})

    monkeypatch.setattr(differential, "default_paths", lambda: (paths[0], wrong))
    rows = list(vesper_nodes.run(20, 0))
    assert any(row.divergences and row.first for row in rows)


def test_the_nodes_of_tests_are_compared_when_they_are_asked_for() -> None:
    """Each one that is right, and those that are shown to users only once."""
    others = dict(vesper_nodes.test_nodes())
    assert len(others) > 200
    assert "language/vesper/call_node/calls_another" in others
    assert not others.keys() & NODES.keys()
    rows = vesper_nodes.run(1, 0, with_tests=True)
    assert [next(rows).is_shown for _ in range(len(NODES) + 2)] == [True] * len(NODES) + [False] * 2
