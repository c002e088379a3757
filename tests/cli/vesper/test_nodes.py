"""`vesper validate`, `show`, `compile`, `run` and `test`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.source import PYTHONPATH
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request
from tests.vesper.runtime.secrets import CARD, PURE

DISCOUNT = """\
node_id: discount_v1
type: function
intent: lower a price

inputs:
  price: {type: decimal, scale: 2, constraints: [positive]}
  percent: {type: integer, constraints: [{min: 0}]}

outputs:
  success:
    total: {type: decimal, scale: 2}
  error:
    error_code: enum[too_much]
    message: string

contracts:
  postconditions:
    - "success => total <= price"

flow:
  - step: check_percent
    operation: validation
    guards: ["percent <= 90"]
    on_failure:
      return_error: {error_code: too_much, message: "{percent} percent is too much"}
  - step: find_total
    operation: arithmetic
    expression: "price * (100 - percent) / 100"
    scale: 2
    output: total

testing:
  test_cases:
    - name: a_tenth
      inputs: {price: 99.90, percent: 10}
      expected_output: {success: true, total: 89.91}
"""


class Command:
    """`lyra vesper …` in a folder with a node."""

    def __init__(self, lyra):
        self._lyra = lyra
        self.folder = lyra.folder

    def __call__(self, *args):
        return self._lyra("vesper", *args)


@pytest.fixture
def vesper(lyra):
    (lyra.folder / "discount.vsp").write_text(DISCOUNT, encoding="utf-8")
    return Command(lyra)


def told(done):
    return json.loads(done.stdout)


def test_a_valid_node_is_valid(vesper):
    done = vesper("validate", "discount.vsp")
    assert (done.returncode, done.stdout) == (0, "valid\n")
    assert told(vesper("validate", "discount.vsp", "--json"))["valid"] is True


def test_every_mistake_has_its_place(vesper):
    text = DISCOUNT.replace('"percent <= 90"', '"percent <= "').replace("price * (100", "prize * (100")
    (vesper.folder / "wrong.vsp").write_text(text, encoding="utf-8")
    done = vesper("validate", "wrong.vsp", "--json")
    assert done.returncode == 2
    data = told(done)
    assert data["valid"] is False
    errors = [issue for issue in data["issues"] if issue["severity"] == "error"]
    assert len(errors) == 2
    assert {issue["line"] for issue in errors} == {23, 28}
    assert set(errors[0]) >= {"severity", "code", "message", "path", "line", "column"}
    shown = vesper("validate", "wrong.vsp").stderr
    assert "wrong.vsp:28:" in shown
    assert "^" in shown


def test_strict_counts_warnings_as_errors(vesper):
    text = DISCOUNT.replace("success => total <= price", "no_such_thing > 1")
    (vesper.folder / "odd.vsp").write_text(text, encoding="utf-8")
    assert vesper("validate", "odd.vsp").returncode == 0
    assert vesper("validate", "odd.vsp", "--strict").returncode == 2


def test_a_folder_is_all_its_nodes(vesper):
    (vesper.folder / "more").mkdir()
    (vesper.folder / "more" / "bad.vsp").write_text("node_id: x\n", encoding="utf-8")
    assert vesper("validate", ".").returncode == 2
    assert vesper("validate", "nothing.vsp").returncode == 2


def test_show_tells_what_a_node_takes_and_gives(vesper):
    shown = vesper("show", "discount.vsp").stdout
    assert "price: decimal(2)" in shown
    assert "success => total <= price" in shown
    assert told(vesper("show", "discount.vsp", "--json"))["pure"] is True


KINDS = """\
node_id: kinds_v1
type: function
intent: give values of many kinds
inputs:
  count: {type: integer, default: 2, constraints: [positive, {max: 9}]}
  note: {type: string, required: false}
outputs: {list: any, map: any, nothing: any, flag: boolean, text: string, price: decimal}
flow:
  - step: count_up
    operation: for_each
    input: "[1, 2]"
    as: item
    steps:
      - step: choose
        operation: conditional
        condition: item > 1
        then: [{step: high, operation: arithmetic, expression: item + 1}]
        else: [{step: low, operation: arithmetic, expression: item}]
  - operation: return
    return_success: {list: "{[1, 'ä', null]}", map: {a: true}, nothing: null, flag: true, text: "true", price: 1.50}
"""


def test_outputs_are_printed_as_json_and_texts_as_they_are(vesper):
    (vesper.folder / "kinds.vsp").write_text(KINDS, encoding="utf-8")
    done = vesper("run", "kinds.vsp")
    assert done.stdout.splitlines() == [
        'list: [1, "ä", null]', 'map: {"a": true}', "nothing: null", "flag: true", "text: true", "price: 1.50",
    ], done.stderr  # fmt: skip


def test_show_tells_constraints_defaults_and_steps_inside_steps(vesper):
    (vesper.folder / "kinds.vsp").write_text(KINDS, encoding="utf-8")
    lines = vesper("show", "kinds.vsp").stdout.splitlines()
    assert "  count: integer, default 2, positive, max: 9" in lines
    assert "  note: string or null (optional)" in lines
    start = lines.index("  count_up: for_each")
    assert lines[start + 1 : start + 6] == [
        "    choose: conditional", "      then:", "        high: arithmetic", "      else:", "        low: arithmetic",
    ]  # fmt: skip


def test_good_files_are_told_beside_bad_ones(vesper):
    (vesper.folder / "bad.vsp").write_text("node_id: x\n", encoding="utf-8")
    done = vesper("validate", "bad.vsp", "discount.vsp")
    assert (done.returncode, done.stdout) == (2, "discount.vsp: valid\n")


def test_show_draws_the_steps(vesper):
    """The picture goes to stdout, or into the file that is named; options that do not go together are refused."""
    drawn = vesper("show", "discount.vsp", "--graph")
    assert drawn.stdout.startswith("<svg ")
    assert "check_percent" in drawn.stdout
    assert vesper("show", "discount.vsp", "--graph", "-o", "short.svg").returncode == 0
    result = vesper("show", "discount.vsp", "--graph", "--output", "discount.svg")
    assert (result.returncode, result.stdout) == (0, "")
    for name in ("short.svg", "discount.svg"):
        assert (vesper.folder / name).read_text(encoding="utf-8") == drawn.stdout
    assert vesper("show", "discount.vsp", "--graph", "--json").returncode == 2
    assert "add --graph" in vesper("show", "discount.vsp", "--output", "x.svg").stderr
    assert vesper("show", "discount.vsp", "--graph", "--output", "no/such/x.svg").returncode == 2


def test_a_compiled_node_runs_on_its_own(vesper):
    assert vesper("compile", "discount.vsp").returncode == 0
    file = vesper.folder / "discount.py"
    assert file.read_text(encoding="utf-8").startswith("# AUTO-GENERATED - DO NOT EDIT\n")
    assert vesper("compile", "discount.vsp", "-o", "other.py").returncode == 0
    assert vesper("compile", "discount.vsp", "--output", "third.py").returncode == 0
    assert (vesper.folder / "third.py").read_bytes() == file.read_bytes()
    assert (vesper.folder / "other.py").read_bytes() == file.read_bytes()
    code = "from decimal import Decimal; import other; print(other.discount_v1(price=Decimal('10.00'), percent=50))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=vesper.folder,
        env={"PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Decimal('5.00')" in done.stdout


@pytest.mark.parametrize("path", ["python", "direct", "both"])
def test_run_gives_the_outputs_of_each_path(vesper, path):
    done = vesper("run", "discount.vsp", "-i", "price=99.90", "-i", "percent=10", "--path", path, "--json")
    assert done.returncode == 0, done.stderr
    data = told(done)
    assert data["status"] == "success"
    assert data["outputs"] == {"total": "89.91"}
    assert data["error"] is None
    assert data["path"] == path
    assert data["trace_id"]


def test_run_in_a_mode(vesper):
    done = vesper("run", "discount.vsp", "-i", "price=1", "-i", "percent=0", "--mode", "dual_verify", "--json")
    assert told(done)["mode"] == "dual_verify"
    assert told(vesper("confidence", "discount.vsp", "--json"))["compared"] == 1
    assert vesper("run", "discount.vsp", "--mode", "fast", "-i", "price=1", "-i", "percent=1").returncode == 2


def test_errors_of_a_node_are_exit_code_1(vesper):
    done = vesper("run", "discount.vsp", "--input-json", '{"price": "5.00", "percent": 95}', "--json")
    assert done.returncode == 1
    assert told(done)["error"]["code"] == "too_much"
    assert told(done)["error"]["message"] == "95 percent is too much"
    done = vesper("run", "discount.vsp", "-i", "price=x", "-i", "percent=1", "--json")
    assert (done.returncode, told(done)["error"]["code"], told(done)["error"]["phase"]) == (1, "invalid_input", "input")
    assert vesper("run", "discount.vsp", "-i", "price").returncode == 2
    assert vesper("run", "discount.vsp", "--input-json", "{").returncode == 2
    assert vesper("run", "no_such_node").returncode == 2


def test_a_node_is_named_by_its_id(vesper):
    assert vesper("run", "discount_v1", "--input", "price=1.00", "--input", "percent=0").stdout == "total: 1.00\n"


def test_a_node_with_effects_needs_its_rights(vesper, tmp_path):
    server = PaymentServer()
    path = tmp_path / "orders.db"
    url = make_database(path)
    node = NODE.read_text(encoding="utf-8").replace(", guard: order_not_locked", "")
    (vesper.folder / "payment.vsp").write_text(node, encoding="utf-8")
    words = ["run", "payment.vsp", "--input-json", json.dumps(request(7)), "--json", "--database", url]
    words += ["--provider", f"stripe={server.url}"]
    try:
        done = vesper(*words)
        assert (done.returncode, told(done)["error"]["code"]) == (3, "capability_denied")
        assert server.requests == []
        done = vesper(*words, *(word for right in GRANT for word in ("--grant", right)))
        assert done.returncode == 0, done.stdout + done.stderr
        assert told(done)["outputs"]["transaction_id"] == "ch_1"
    finally:
        server.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT amount FROM transactions").fetchall() == [("12.50",)]
    assert vesper("run", str(NODE), "--provider", "stripe").returncode == 2
    assert vesper("run", str(NODE), "--database", "mysql://x").returncode == 2


def test_test_cases_run_on_both_paths(vesper):
    done = vesper("test", "discount.vsp")
    assert (done.returncode, done.stdout) == (0, "passed  discount.vsp: a_tenth\n1 passed, 0 failed\n")
    (vesper.folder / "discount.vsp").write_text(DISCOUNT.replace("89.91", "89.90"), encoding="utf-8")
    done = vesper("test", "--json")
    assert done.returncode == 1
    assert told(done)["tests"][0]["problems"] == [
        "total is '89.91', expected '89.90'",
    ]


def test_property_tests_print_the_inputs_that_break_them(vesper):
    tests = '  property_tests: [{property: cheap, invariant: "success => total < 5"}, {property: idempotency}]\n'
    (vesper.folder / "discount.vsp").write_text(DISCOUNT + tests, encoding="utf-8")
    done = vesper("test", "-n", "30")
    assert done.returncode == 1
    assert "FAILED  discount.vsp: cheap\n    does not hold: success => total < 5\n" in done.stdout
    assert '    with {"price"' in done.stdout
    assert "passed  discount.vsp: idempotency\n    30 inputs, " in done.stdout
    rows = told(vesper("test", "-n", "30", "--json"))["tests"]
    assert [row["passed"] for row in rows] == [True, False, True]
    assert rows[1]["property"]["inputs"][0]["percent"] == 0
    assert rows[2]["property"]["checked"] == 30
    broken = DISCOUNT + '  property_tests: [{property: cheap, invariant: "total <"}]\n'
    (vesper.folder / "discount.vsp").write_text(broken, encoding="utf-8")
    assert vesper("test").returncode == 2


def test_a_property_that_no_accepted_input_was_tried_with_is_not_shown(vesper):
    """The node refuses everything: a property that holds for refusals alone is no pass."""
    refuses = DISCOUNT.partition("\ntesting:")[0].replace('"percent <= 90"', '"percent < 0"')
    tests = "\ntesting: {property_tests: [{property: idempotency}]}\n"
    (vesper.folder / "discount.vsp").write_text(refuses + tests, encoding="utf-8")
    done = vesper("test", "--no-search")
    assert done.returncode == 1
    assert "not shown  discount.vsp: idempotency\n    200 inputs, 0 of them accepted\n    it refused" in done.stdout
    assert done.stdout.endswith("0 passed, 0 failed, 1 not shown\n")
    data = vesper("test", "--json", "--no-search")
    assert data.returncode == 1
    assert (told(data)["passed"], told(data)["failed"], told(data)["not_shown"]) == (0, 0, 1)
    (row,) = told(data)["tests"]
    assert (row["passed"], row["property"]["shown"], row["property"]["accepted"]) == (False, False, 0)


def test_test_cases_of_a_node_with_effects_are_given_what_it_needs(vesper, tmp_path):
    case = """
testing:
  test_cases:
    - name: pays
      inputs: {amount: 12.50, order_id: ord_0000000000000001, user_id: user_1, payment_token: tok_visa,
               idempotency_key: key_00000001}
      expected_output: {success: true, transaction_id: ch_1}
"""
    node = NODE.read_text(encoding="utf-8").replace(", guard: order_not_locked", "")
    (vesper.folder / "payment.vsp").write_text(node.partition("\ntesting:")[0] + case, encoding="utf-8")
    server = PaymentServer()
    given = ["-n", "1", "--database", make_database(tmp_path / "orders.db"), "--provider", f"stripe={server.url}"]
    rights = [word for right in GRANT for word in ("--grant", right)]
    try:
        assert vesper("test", "payment.vsp", "--no-search", *given).returncode == 1
        done = vesper("test", "payment.vsp", *given, *rights)
        assert done.returncode == 0, done.stdout
        assert len(server.requests) == 1
        fresh = ["-n", "1", "--database", make_database(tmp_path / "other.db"), "--set", "kernel.store=other.db"]
        assert vesper("test", "payment.vsp", "--no-search", *fresh, *rights).returncode == 1  # no provider
    finally:
        server.close()


def test_sensitive_inputs_are_not_in_the_output_of_errors(vesper):
    """Neither as JSON nor as text."""
    (vesper.folder / "card.vsp").write_text(PURE, encoding="utf-8")
    inputs = json.dumps({"card": CARD, "amount": 500})
    done = vesper("run", "card.vsp", "--input-json", inputs, "--json")
    assert told(done)["error"]["message"] == "no 500 with [redacted]"
    plain = vesper("run", "card.vsp", "--input-json", inputs)
    assert "no 500 with [redacted]" in plain.stderr
    assert CARD not in done.stdout + done.stderr + plain.stdout + plain.stderr
