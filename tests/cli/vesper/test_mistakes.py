"""Mistakes of files, as each command shows them; and mistakes of command lines."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_nodes import DISCOUNT

TWICE = """\
node_id: twice_v1
type: function
intent: have keys twice
inputs:
  a: integr
  a: integer
outputs:
  x: integer
  x: integer
flow:
  - {step: s, operation: arithmatic, expression: "a + 1", output: x}
"""
WRONG = DISCOUNT.replace("price * (100", "prize * (100")


@pytest.fixture
def vesper(lyra):
    for name, text in (("discount.vsp", DISCOUNT), ("twice.vsp", TWICE), ("wrong.vsp", WRONG), ("empty.vsp", "")):
        (lyra.folder / name).write_text(text, encoding="utf-8")
    (lyra.folder / "binary.vsp").write_bytes(b"\xff\xfe\x00")
    (lyra.folder / "nodes_of_none").mkdir()
    return VesperCommand(lyra)


COMMANDS = (
    ["run"],
    ["debug"],
    ["compile"],
    ["show"],
    ["test"],
    ["verify"],
    ["confidence"],
    ["mode"],
    ["repo", "add"],
    ["repo", "add", "--store"],
    ["validate"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("file", "places"),
    [
        ("twice.vsp", ["5:6: error[unknown_type]", "6:3: error[syntax]", "9:3: error[syntax]", "11:26: error[unknown"]),
        ("wrong.vsp", ["28:18: error[undefined_name]"]),
        ("empty.vsp", ["1:1: error[wrong_form]"]),
        ("binary.vsp", ["1:1: error["]),
    ],
)
def test_every_command_shows_mistakes_with_place_and_caret(vesper, command, file, places):
    done = vesper(*command, file)
    assert done.returncode == 2, done.stderr
    for place in places:
        assert f"{file}:{place}" in done.stderr
    assert "{'" not in done.stderr
    assert file in ("empty.vsp", "binary.vsp") or "\n    " in done.stderr
    if file == "wrong.vsp":
        line = next(text for text in done.stderr.splitlines() if "prize" in text and "expression" in text)
        caret = done.stderr.splitlines()[done.stderr.splitlines().index(line) + 1]
        assert line[caret.index("^") :].startswith("prize")


@pytest.mark.parametrize("name", ["binary.vsp", "nothing.vsp", "nodes_of_none", "empty.vsp"])
def test_validate_prints_json_whatever_the_file_is(vesper, name):
    data = vesper.json("validate", name, code=2)
    assert data["valid"] is False
    (issue,) = data["issues"]
    assert (issue["file"], issue["severity"]) == (name, "error")


def test_a_file_that_cannot_be_read_hides_no_mistakes_of_others(vesper):
    data = vesper.json("validate", "binary.vsp", "nothing.vsp", "wrong.vsp", "discount.vsp", code=2)
    errors = {(issue["file"], issue["code"]) for issue in data["issues"] if issue["severity"] == "error"}
    assert errors == {("binary.vsp", "unreadable"), ("nothing.vsp", "unreadable"), ("wrong.vsp", "undefined_name")}
    shown = vesper("validate", "binary.vsp", "nothing.vsp", "wrong.vsp").stderr
    assert "binary.vsp:1:1: error[unreadable]" in shown
    assert "wrong.vsp:28:18: error[undefined_name]" in shown


def test_a_key_that_is_written_twice_hides_no_other_mistake(vesper):
    data = vesper.json("validate", "twice.vsp", code=2)
    errors = [(issue["line"], issue["code"]) for issue in data["issues"] if issue["severity"] == "error"]
    assert errors == [(5, "unknown_type"), (6, "syntax"), (9, "syntax"), (11, "unknown_operation")]


def test_fmt_and_test_go_on_after_a_file_that_cannot_be_read(vesper):
    done = vesper("fmt", "--check", "binary.vsp", "nothing.vsp", "twice.vsp", "discount.vsp")
    assert done.returncode == 2
    for part in ("binary.vsp:1:1: error[parse]", "nothing.vsp cannot be read", "twice.vsp:6:3: error[parse]"):
        assert part in done.stderr
    assert (vesper.folder / "twice.vsp").read_text(encoding="utf-8") == TWICE
    done = vesper("test", "nothing.vsp", "binary.vsp", "discount.vsp")
    assert (done.returncode, "1 passed" in done.stdout) == (2, True)


def test_an_input_that_is_given_twice_is_a_mistake(vesper):
    inputs = ("-i", "price=1.00", "-i", "percent=1")
    assert vesper("run", "discount.vsp", *inputs).returncode == 0
    for more in (("-i", "percent=2"), ("--input-json", json.dumps({"percent": 3}))):
        done = vesper("run", "discount.vsp", *inputs, *more)
        assert (done.returncode, "'percent' is given twice" in done.stderr) == (2, True)


def test_a_denied_run_tells_its_path(vesper):
    text = DISCOUNT.replace("flow:\n", "security: {capabilities_required: [events.publish.done]}\nflow:\n").replace(
        "    output: total\n",
        "    output: total\n  - {step: tell, operation: event_publish, event_type: done, data: {}}\n",
    )
    (vesper.folder / "telling.vsp").write_text(text, encoding="utf-8")
    inputs = ("-i", "price=1.00", "-i", "percent=1")
    for mode, path in (("python_only", "python"), ("direct_only", "direct")):
        done = vesper("run", "telling.vsp", *inputs, "--mode", mode, "--json")
        data = json.loads(done.stdout)
        assert (data["error"]["code"], data["path"]) == ("capability_denied", path)


CALLEE = """\
node_id: fee_v1
type: function
intent: find the fee
inputs: {amount: integer}
outputs: {success: {fee: integer}, error: {error_code: "enum[too_small, too_large]"}}
flow:
  - {operation: validation, step: low, guards: [amount > 1], on_failure: {return_error: {error_code: too_small}}}
  - {operation: validation, step: high, guards: [amount < 9], on_failure: {return_error: {error_code: too_large}}}
  - {operation: return, return_success: {fee: "{amount}"}}
"""
CALLER = """\
node_id: order_v1
type: function
intent: add a fee
inputs: {amount: integer}
outputs: {success: {fee: integer}, error: {error_code: "enum[too_small]"}}
flow:
  - {step: ask, operation: call_node, node_id: fee_v1, inputs: {amount: "{amount}"}}
  - {operation: return, return_success: {fee: "{ask.fee}"}}
"""


def test_codes_of_a_called_node_that_are_not_declared_are_told(vesper, lyra):
    """The node that is called stands beside the file; codes that the caller maps or declares are no mistake."""
    (lyra.folder / "fee.vsp").write_text(CALLEE, encoding="utf-8")
    for text, left in (
        (CALLER, "`fee_v1` can answer with `too_large`, which this node does not declare"),
        (CALLER.replace("enum[too_small]", "enum[too_small, too_large]"), ""),
        (
            CALLER.replace(
                "node_id: fee_v1,", "on_error: [{error_type: any, return_error: too_small}], node_id: fee_v1,"
            ),
            "",
        ),
    ):
        (lyra.folder / "order.vsp").write_text(text, encoding="utf-8")
        issues = vesper.json("validate", "order.vsp")["issues"]
        told = [issue["message"] for issue in issues if issue["code"] == "undeclared_error"]
        assert told == ([left] if left else [])


def test_a_node_that_is_called_and_not_found_is_told_with_the_folders(vesper, lyra):
    (lyra.folder / "order.vsp").write_text(CALLER, encoding="utf-8")
    (lyra.folder / "fee.vsp").write_text("node_id: fee_v1\n", encoding="utf-8")
    told = [issue for issue in vesper.json("validate", "order.vsp")["issues"] if issue["code"] == "unknown_node"]
    assert [(issue["severity"], issue["line"]) for issue in told] == [("warning", 7)]
    assert told[0]["message"] == "no node `fee_v1` is found, and without it the step ends with `not_configured`"
    assert re.search(
        r"; searched: \., nodes; .* in the store \S+\.db; these files have mistakes: .*\bfee\.vsp", told[0]["hint"]
    )
    (lyra.folder / "fee.vsp").write_text(CALLEE, encoding="utf-8")
    assert "unknown_node" not in {issue["code"] for issue in vesper.json("validate", "order.vsp")["issues"]}


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("{amount: ", "{amunt: ", ("error", "unknown_input", "`fee_v1` has no input `amunt`", "`amount`")),
        ('{amount: "{amount}"}}', "{}}", ("error", "missing_input", "`fee_v1` needs the input `amount`", "")),
        ('amount: "{amount}"', "amount: many", ("error", "type", "`amount` of `fee_v1` does not take it", "")),
        ('amount: "{amount}"', 'amount: ["{amount}"]', ("error", "type", "array<integer> is no integer", "")),
        ("ask.fee", "ask.fees", ("warning", "unknown_field", "`fee_v1` has no output `fees`", "`fee`")),
        (
            "type: too_large",
            "type: to_large",
            ("warning", "unreachable", "never answers with `to_large`", "`too_"),
        ),
    ],
)
def test_a_call_is_checked_against_the_node_that_it_calls(vesper, lyra, right, wrong, told):
    (lyra.folder / "fee.vsp").write_text(CALLEE, encoding="utf-8")
    rules = "on_error: [{error_type: too_large, return_error: too_small}], node_id: fee_v1,"
    text = CALLER.replace("node_id: fee_v1,", rules)
    codes = {"unknown_input", "missing_input", "unknown_field", "unreachable"}
    (lyra.folder / "order.vsp").write_text(text, encoding="utf-8")
    assert not codes & {issue["code"] for issue in vesper.json("validate", "order.vsp")["issues"]}
    (lyra.folder / "order.vsp").write_text(text.replace(right, wrong), encoding="utf-8")
    issues = json.loads(vesper("validate", "order.vsp", "--json").stdout)["issues"]
    severity, code, message, hint = told
    rows = [issue for issue in issues if (issue["severity"], issue["code"]) == (severity, code)]
    assert any(message in row["message"] and hint in (row["hint"] or "") for row in rows)
