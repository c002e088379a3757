"""Divergences of the command line: every mode tells them, `vesper divergences` lists them, and nothing else is one."""

from __future__ import annotations

import errno
import json
import shlex

import msgspec
import pytest

from lyra.cli.vesper import replay
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct import expressions
from lyra.vesper.direct import run as direct_path
from lyra.vesper.evidence import differential
from lyra.vesper.ir import AssignStep
from lyra.vesper.nodes import load
from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_debug import ORDER
from tests.cli.vesper.test_nodes import DISCOUNT
from tests.vesper.runtime.secrets import CARD, PURE

INPUTS = {"price": "10.00", "percent": 20}
RUN = ("run", "discount.vsp", "--input-json", json.dumps(INPUTS))


@pytest.fixture
def vesper(lyra):
    for name, text in (("discount", DISCOUNT), ("order", ORDER), ("card", PURE)):
        (lyra.folder / f"{name}.vsp").write_text(text, encoding="utf-8")
    return VesperCommand(lyra)


def wrong(program, inputs, execution, effects=None):
    """The direct path with another answer for every success."""
    outcome = right(program, inputs, execution)
    return msgspec.structs.replace(outcome, outputs=dict.fromkeys(outcome.outputs, "-1"))


def breaks(program, inputs, execution, effects=None):
    raise ZeroDivisionError("planted")


right = direct_path.run


@pytest.mark.parametrize("option", ["--path both", "--mode shadow_direct", "--mode dual_verify"])
def test_a_run_that_compares_tells_a_divergence(vesper, monkeypatch, option):
    """By its exit code, in its JSON and on stderr; the outputs are Python's."""
    assert vesper.json(*RUN, *option.split())["divergences"] == []
    monkeypatch.setattr(direct_path, "run", wrong)
    told = vesper.json(*RUN, *option.split(), code=1)
    assert (told["status"], told["outputs"]) == ("success", {"total": "8.00"})
    (row,) = told["divergences"]
    assert (row["input"], row["where"]) == (INPUTS, "root.total")
    assert (row["python"]["outputs"], row["direct"]["outputs"]) == ({"total": "8.00"}, {"total": "-1"})
    done = vesper(*RUN, *option.split())
    assert (done.returncode, done.stdout) == (1, "total: 8.00\n")
    assert "error[divergence]" in done.stderr
    assert "root.total" in done.stderr


def test_a_crash_of_the_live_direct_path_is_told(vesper, monkeypatch):
    """Python answers for it."""
    monkeypatch.setattr(direct_path, "run", breaks)
    told = vesper.json(*RUN, "--mode", "direct_only", code=1)
    assert (told["status"], told["path"]) == ("success", "python")
    assert told["divergences"][0]["direct"]["status"] == "crash"
    assert "planted" in told["divergences"][0]["direct"]["error"]["message"]


def test_divergences_are_listed_with_what_reproduces_them(vesper, monkeypatch):
    """The command that is told shows the same divergence again."""
    assert vesper.json("divergences", "discount.vsp") == {"node": "discount_v1", "divergences": []}
    monkeypatch.setattr(direct_path, "run", wrong)
    vesper(*RUN, "--path", "both")
    (row,) = vesper.json("divergences", "discount.vsp", code=1)["divergences"]
    assert row["input"] == INPUTS
    assert row["python"] == {"status": "success", "outputs": {"total": "8.00"}, "error": None}
    assert row["direct"] == {"status": "success", "outputs": {"total": "-1"}, "error": None}
    assert row["where"] == "root.total"
    words = shlex.split(row["reproduce"])
    assert words[0] == "vesper"
    again = vesper.json(*words[1:], code=1)["divergences"][0]
    assert {key: again[key] for key in ("input", "python", "direct", "where")} == {
        key: row[key] for key in ("input", "python", "direct", "where")
    }
    done = vesper("divergences", "discount.vsp")
    assert done.returncode == 1
    assert row["reproduce"] in done.stdout


def test_what_verify_finds_is_listed_with_both_outcomes(vesper, monkeypatch):
    assert differential.default_paths()[1] is right
    monkeypatch.setattr(direct_path, "run", breaks)
    done = vesper("verify", "discount.vsp", "-n", "20")
    assert done.returncode == 1, done.stderr
    rows = [
        row for row in vesper.json("divergences", "discount.vsp", code=1)["divergences"] if row["input"] is not None
    ]
    assert rows
    assert {row["python"]["status"] for row in rows} <= {"success", "error"}
    assert {row["direct"]["status"] for row in rows} == {"crash"}


def test_where_the_paths_part_is_a_step(vesper, monkeypatch):
    """A closure of the direct path is wrong: the step whose values differ first is named."""
    step = next(step for step in program_of(load(DISCOUNT)).steps if step.name == "find_total")
    assert isinstance(step, AssignStep)
    kind = type(step.value)
    usual = expressions.COMPILERS[kind]

    def planted(expression, scope):
        evaluate = usual(expression, scope)
        return (lambda frame: evaluate(frame) + 1) if expression == step.value else evaluate

    monkeypatch.setitem(expressions.COMPILERS, kind, planted)
    monkeypatch.setattr(direct_path._path, "_compiled", {})
    row = vesper.json(*RUN, "--path", "both", code=1)["divergences"][0]
    assert row["where"] == "step find_total: root.total"


def test_a_listed_divergence_tells_no_sensitive_value(vesper, monkeypatch):
    monkeypatch.setattr(direct_path, "run", wrong)
    vesper("run", "card.vsp", "--input-json", json.dumps({"card": CARD, "amount": 3}), "--path", "both")
    done = vesper("divergences", "card.vsp", "--json")
    assert done.returncode == 1
    assert CARD not in done.stdout
    assert "[redacted]" in done.stdout


FULL = OSError(errno.ENOSPC, "full")
CLOSED = BrokenPipeError(errno.EPIPE, "closed")


@pytest.mark.parametrize(
    ("file", "failure"),
    [
        *((file, failure) for file in ("discount.vsp", "order.vsp") for failure in (FULL, CLOSED)),
        ("discount.vsp", KeyboardInterrupt()),
    ],
)
def test_a_failure_around_a_path_is_no_divergence(vesper, monkeypatch, failure, file):
    """A reader that closes, a full disk and Ctrl-C while a node is debugged say nothing about its paths."""

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(replay, "print_answer", fail)
    inputs = INPUTS if file == "discount.vsp" else {"order_id": "o1"}
    done = vesper("debug", file, "--path", "direct", "--input-json", json.dumps(inputs))
    assert done.returncode != 0
    monkeypatch.undo()
    data = vesper.json("confidence", file)
    assert (data["divergences"], data["blocked"], data["executions"]) == (0, False, {})
