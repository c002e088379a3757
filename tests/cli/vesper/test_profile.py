"""`vesper run --profile`: how long each step took."""

from __future__ import annotations

import json

import pytest

from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_debug import ORDER
from tests.cli.vesper.test_nodes import DISCOUNT

LOOP = """\
node_id: loop_v1
type: function
intent: add numbers
inputs: {ns: array<integer>}
outputs:
  success: {total: integer}
flow:
  - {step: start, operation: arithmetic, expression: "0", output: total}
  - step: each
    operation: for_each
    input: ns
    as: n
    steps:
      - {step: add, operation: arithmetic, expression: total + n, output: total}
"""


@pytest.fixture
def vesper(lyra):
    for name, text in (("discount", DISCOUNT), ("order", ORDER), ("loop", LOOP)):
        (lyra.folder / f"{name}.vsp").write_text(text, encoding="utf-8")
    return VesperCommand(lyra)


@pytest.mark.parametrize("path", ["python", "direct"])
def test_each_step_has_its_count_and_its_time(vesper, path):
    """Steps of a loop are counted for each round; the shares add up to the whole, and the run is no evidence."""
    run = ("run", "loop.vsp", "--input-json", json.dumps({"ns": [1, 2, 3]}), "--path", path, "--profile")
    told = vesper.json(*run)
    assert told["outputs"] == {"total": 6}
    rows = told["profile"]
    assert [(row["step"], row["count"]) for row in rows] == [("(entry)", 1), ("start", 1), ("each", 1), ("add", 3)]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert all(row["milliseconds"] >= 0 for row in rows)
    done = vesper(*run)
    assert done.stdout == "total: 6\n"
    assert [line.split()[-1] for line in done.stderr.splitlines()] == ["(entry)", "start", "each", "add"]
    assert vesper.json("confidence", "loop.vsp")["executions"] == {}


@pytest.mark.parametrize("path", ["python", "direct"])
def test_a_node_with_effects_has_a_profile(vesper, path):
    run = ("run", "order.vsp", "-i", "order_id=o1", "--path", path, "--profile")
    assert [row["step"] for row in vesper.json(*run)["profile"]] == ["(entry)", "pay", "refund", "say"]


@pytest.mark.parametrize("options", [("--path", "both"), ("--mode", "dual_verify")])
def test_a_profile_is_of_one_path(vesper, options):
    done = vesper("run", "discount.vsp", "-i", "price=1", "-i", "percent=1", "--profile", *options)
    assert done.returncode == 2
    assert "--profile measures one path" in done.stderr
    assert "profile" not in vesper.json("run", "discount.vsp", "-i", "price=1", "-i", "percent=1")
