"""The test cases of `vesper test`: nodes around a file, one act for both paths, and what is shown of what was found."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import msgspec
import pytest

from lyra.vesper.direct import run as direct_path
from tests.cli.vesper.command import VesperCommand

CALLER = """\
node_id: caller_v1
type: function
intent: call another node
inputs: {number: {type: integer, constraints: [{min: 0}, {max: 100}]}}
outputs: {success: {result: integer}, error: {error_code: "enum[failed]", message: string}}
flow:
  - step: ask
    operation: call_node
    node_id: other_v1
    inputs: {number: "{number}"}
    output: got
    on_error: [{error_type: any, return_error: failed}]
  - {step: answer, operation: return, return_success: {result: "{got.result}"}}
testing: {test_cases: [{name: four, inputs: {number: 4}, expected_output: {result: RESULT}}]}
"""
OTHER = """\
node_id: other_v1
type: function
intent: multiply a number
inputs: {number: integer}
outputs: {result: integer}
flow:
  - {step: multiply, operation: arithmetic, expression: "number * FACTOR", output: result}
"""
TAKE = """\
node_id: take_v1
type: function
intent: take units from the stock
inputs: {wanted: {type: integer, constraints: [{min: 1}, {max: 9}]}}
outputs: {success: {left: integer}, error: {error_code: "enum[effect_failed]", message: string}}
security: {capabilities_required: [database.read.stock, database.write.stock]}
flow:
  - {step: take, operation: database_update, table: stock, where: "units > 0", set: {units: "units - {wanted}"}}
  - {step: look, operation: database_query, query: "SELECT units FROM stock"}
  - {step: answer, operation: return, return_success: {left: "{query_result.units}"}}
testing:
  test_cases:
    - {name: two, inputs: {wanted: 2}, expected_output: {left: 8}}
    - {name: three, inputs: {wanted: 3}, expected_output: {left: 5}}
"""
GIVEN = ("--database", "sqlite:///s.db", "--grant", "database.read.stock", "--grant", "database.write.stock")
SHARE = """\
node_id: share_v1
type: function
intent: share a price
inputs: {price: {type: decimal, scale: 2, sensitive: SENSITIVE, constraints: [{min: 0}, {max: 100000}]}}
outputs: {success: {left: {type: decimal, scale: 2}}}
contracts: {postconditions: ["success => left >= 0"]}
flow:
  - {step: lower, operation: arithmetic, expression: "0.00 - price", scale: 2, output: left}
testing:
  test_cases: [{name: nothing, inputs: {price: 0.00}, expected_output: {left: 0.00}}]
  property_tests: [{property: small, invariant: "success => left > -1"}]
"""


@pytest.fixture
def vesper(lyra) -> VesperCommand:
    return VesperCommand(lyra)


def test_a_node_calls_those_beside_its_own_file(vesper):
    """Files of several folders in one command: each has its own siblings, and those in `nodes/` beside it."""
    for folder, place, factor in (("one", "other.vsp", 2), ("two", "nodes/other.vsp", 3)):
        (vesper.folder / folder / place).parent.mkdir(parents=True)
        text = CALLER.replace("RESULT", str(4 * factor))
        (vesper.folder / folder / "caller.vsp").write_text(text, encoding="utf-8")
        (vesper.folder / folder / place).write_text(OTHER.replace("FACTOR", str(factor)), encoding="utf-8")
    rows = vesper.json("test", "one/caller.vsp", "two/caller.vsp", "one/caller.vsp", "--no-search")["tests"]
    assert [row["problems"] for row in rows] == [[], [], []]


@pytest.fixture
def stock(vesper: VesperCommand) -> VesperCommand:
    (vesper.folder / "take.vsp").write_text(TAKE, encoding="utf-8")
    with closing(sqlite3.connect(vesper.folder / "s.db")) as database:
        database.execute("CREATE TABLE stock (units INTEGER)")
        database.execute("INSERT INTO stock VALUES (10)")
        database.commit()
    return vesper


def test_each_case_acts_once(stock):
    """The second path is given what the first one got: it neither changes the rows again nor sees what was changed."""
    done = stock("test", "take.vsp", "--no-search", *GIVEN)
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(stock.folder / "s.db")) as database:
        assert database.execute("SELECT units FROM stock").fetchall() == [(5,)]


def test_a_second_run_acts_again(stock):
    """A run has idempotency keys of its own: nothing is answered from an earlier one, nothing counts as evidence."""
    text = TAKE.replace("inputs: {wanted: {", "inputs: {idempotency_key: string, wanted: {")
    text = text.replace("{wanted: 2}", "{idempotency_key: a, wanted: 2}").replace("left: 5", "left: 8")
    text = text.replace("{wanted: 3}", "{idempotency_key: a, wanted: 2}")
    (stock.folder / "take.vsp").write_text(text, encoding="utf-8")
    assert stock("test", "take.vsp", "--no-search", *GIVEN).returncode == 0
    with closing(sqlite3.connect(stock.folder / "s.db")) as database:
        assert database.execute("SELECT units FROM stock").fetchall() == [(8,)]
        database.execute("UPDATE stock SET units = 20")
        database.execute("DROP TABLE IF EXISTS lyra_effects")
        database.commit()
    done = stock("test", "take.vsp", "--no-search", *GIVEN)
    assert (done.returncode, done.stdout.count("left is 18, expected 8")) == (1, 2), done.stdout
    assert stock.json("status")["nodes"] == []


def test_a_node_calls_those_of_the_store(vesper):
    """As `vesper run` lets it."""
    (vesper.folder / "other.vsp").write_text(OTHER.replace("FACTOR", "2"), encoding="utf-8")
    assert vesper("repo", "add", "other.vsp", "--store").returncode == 0
    (vesper.folder / "other.vsp").unlink()
    (vesper.folder / "caller.vsp").write_text(CALLER.replace("RESULT", "8"), encoding="utf-8")
    assert vesper.json("test", "caller.vsp", "--no-search")["passed"] == 1


@pytest.mark.parametrize("wrong", ["outcome", "request", "no request", "crash"])
def test_a_case_fails_where_the_second_path_asks_or_ends_otherwise(stock, monkeypatch, wrong):
    """With the recorded answers: an outcome, a value in a request, a request that is not made, a path that raises."""
    right = direct_path.start

    async def start(program, inputs, execution, effects):
        if wrong == "crash":
            raise RuntimeError("broken")
        if wrong == "no request":
            program = msgspec.structs.replace(program, steps=program.steps[1:], digest=f"{program.digest}-less")
        given = {"wanted": inputs["wanted"] + 1} if wrong == "request" else inputs
        outcome = await right(program, given, execution, effects)
        return msgspec.structs.replace(outcome, outputs={"left": 99}) if wrong == "outcome" else outcome

    monkeypatch.setattr(direct_path, "start", start)
    rows = stock.json("test", "take.vsp", "--no-search", *GIVEN, code=1)["tests"]
    problems = [problem for row in rows for problem in row["problems"]]
    assert [row["passed"] for row in rows] == [False, False]
    assert all(problem.startswith("the paths differ: ") for problem in problems)
    words = {"outcome": "99", "request": "effects.take[0]", "no request": "not asked for", "crash": "broken"}
    assert words[wrong] in problems[0]


def test_what_was_found_is_shown_and_sensitive_values_are_not(vesper):
    """In `test` and in `verify`: the input of a violation, of a property, and in `vesper status`; also a float."""
    shown = {}
    for sensitive in ("false", "true"):
        (vesper.folder / "share.vsp").write_text(SHARE.replace("SENSITIVE", sensitive), encoding="utf-8")
        tested = vesper.json("test", "share.vsp", "-n", "20", code=1)
        verified = vesper.json("verify", "share.vsp", "-n", "100", code=1)
        shown[sensitive] = [
            *(row["input"]["price"] for row in (*tested["violations"], *verified["violations"])),
            *(row["property"]["inputs"][0]["price"] for row in tested["tests"] if row.get("property")),
            *(row["input"]["price"] for row in verified["breaches"]),
        ]
        assert "price" in vesper("test", "share.vsp", "-n", "20").stdout
    assert len(shown["true"]) == 4
    assert set(map(json.dumps, shown["true"])) == {'"[redacted]"'}
    assert '"[redacted]"' not in map(json.dumps, shown["false"])


EXPECTED = """\
node_id: expected_v1
type: function
intent: give values of many types
inputs: {number: integer}
outputs:
  success: {at: timestamp, took: duration, tags: set<string>, rows: array<row>, days: "map<timestamp, decimal>"}
  error: {error_code: "enum[low]", message: string, place: integer}
types: {row: {fields: {day: timestamp, name: string}}}
contracts: {postconditions: ["success => took == lenght", "success => took > other"]}
flow:
  - {step: check, operation: validation, guards: [number > 0], on_failure: {return_error: {error_code: low, place: "{number}"}}}
  - {step: other, operation: arithmetic, expression: 10 / (number - 5)}
  - {step: at, operation: arithmetic, expression: "timestamp('2024-03-01T10:00:00Z')"}
  - {step: took, operation: arithmetic, expression: hours(2)}
  - {step: tags, operation: arithmetic, expression: "distinct(['b', 'a'])"}
  - {step: rows, operation: arithmetic, expression: "[{day: at, name: 'a'}]"}
  - {step: days, operation: arithmetic, expression: "{(at): 1.50}"}
testing:
  test_cases:
    - {name: case, inputs: {number: NUMBER}, expected_output: {EXPECTED}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("number", "expected", "problem"),
    [
        (1, 'at: "2024-03-01T12:00:00+02:00"', ""),
        (1, "took: 2h", ""),
        (1, "tags: [b, a]", ""),
        (1, 'rows: [{day: "2024-03-01 10:00:00"}]', ""),
        (1, 'days: {"2024-03-01T11:00:00+01:00": 1.5}', ""),
        (1, "success: {took: 120m}", ""),
        (0, "error_code: low, place: 0", ""),
        (0, "", ""),
        (1, 'at: "2024-03-01T12:00:00"', "at is '2024-03-01T10:00:00Z', expected '2024-03-01T12:00:00'"),
        (1, "took: two", "took is '7200', expected 'two'"),
        (1, "tags: [c, a]", "tags[1] is 'b', expected 'c'"),
        (1, 'rows: [{day: "2024-03-02"}]', "rows[0].day is '2024-03-01T10:00:00Z', expected '2024-03-02'"),
        (1, "success: {took: 1h}", "took is '7200', expected '1h'"),
        (5, "", "the node ended with division_by_zero: division by zero"),
    ],
)
def test_expected_values_are_read_by_their_types(vesper, number, expected, problem):
    """Another text of the same moment, duration or set is no failure. A case that expects nothing fails where the node
    breaks, not where it answers with an error of its own."""
    text = EXPECTED.replace("NUMBER", str(number)).replace("{EXPECTED}", f"{{{expected}}}")
    (vesper.folder / "expected.vsp").write_text(text, encoding="utf-8")
    (row,) = vesper.json("test", "expected.vsp", "--no-search", code=1 if problem else 0)["tests"]
    assert row["problems"][:1] == ([problem] if problem else [])


def test_contracts_that_nothing_judges_are_named(vesper):
    """By `test`, `verify` and `prove`, not by `validate` alone: nobody should take them for contracts that hold."""
    text = EXPECTED.replace("NUMBER", "1").replace("{EXPECTED}", "{}").replace("10 / (number - 5)", "5")
    (vesper.folder / "expected.vsp").write_text(text)
    reasons = ["success => took == lenght: `lenght` is not defined", "success => took > other: `other` is not defined"]
    tested = vesper.json("test", "expected.vsp", "--no-search")["warnings"]
    assert tested == [f"expected.vsp: never judged: {reason}" for reason in reasons]
    assert vesper.json("verify", "expected.vsp", "-n", "50")["warnings"][:2] == [f"never judged: {r}" for r in reasons]
    rows = vesper.json("prove", "expected.vsp")["results"][:2]
    assert [(row["kind"], row["verdict"]) for row in rows] == [("postcondition", "unknown")] * 2
    assert [f"{row['expression']}: {row['reason']}" for row in rows] == [
        reason.replace(": `", ": never judged: `") for reason in reasons
    ]


def test_other_fields_of_an_error_are_shown(vesper):
    (vesper.folder / "expected.vsp").write_text(EXPECTED.replace("NUMBER", "1").replace("{EXPECTED}", "{}"))
    done = vesper("run", "expected.vsp", "-i", "number=-3")
    assert (done.stdout, done.stderr.splitlines()[-1], done.returncode) == ("place: -3\n", "error[low]", 1)


def test_rights_that_a_called_node_lacks_are_told(stock):
    """A rule for any error may make another error of it; `show` names the rights of called nodes beside the own."""
    caller = """\
node_id: caller_v1
type: function
intent: have another node take units
inputs: {wanted: {type: integer, constraints: [{min: 1}, {max: 9}]}}
outputs: {success: {left: integer}, error: {error_code: "enum[failed]", message: string}}
flow:
  - step: take
    operation: call_node
    node_id: take_v1
    inputs: {wanted: "{wanted}"}
    on_error: [{error_type: any, return_error: failed}]
  - {operation: return, return_success: {left: "{take.left}"}}
testing: {test_cases: [{name: two, inputs: {wanted: 2}, expected_output: {left: 8}}]}
"""
    (stock.folder / "caller.vsp").write_text(caller, encoding="utf-8")
    sentence = (
        "take_v1, which caller_v1 calls, lacks rights: say --grant database.read.stock --grant database.write.stock"
    )
    done = stock("run", "caller.vsp", "-i", "wanted=2")
    assert (done.returncode, f"warning: {sentence}" in done.stderr) == (1, True), done.stderr
    assert stock.json("test", "caller.vsp", "--no-search", code=1)["warnings"] == [f"caller.vsp: {sentence}"]
    done = stock("test", "caller.vsp", "--no-search", *GIVEN)
    assert (done.returncode, "lacks rights" in done.stderr) == (0, False)
    shown = stock("show", "caller.vsp").stdout
    assert "called nodes need:\n  database.read.stock (take_v1)\n  database.write.stock (take_v1)\n" in shown


ANSWERED = """\
node_id: stock_up_v1
type: function
intent: order what is missing, in rounds
inputs: {items: array<string>}
outputs: {success: {ordered: integer}, error: {error_code: "enum[no_shop, effect_failed]"}}
security: {capabilities_required: [network.http_client.shop, database.read.stock]}
flow:
  - {step: begin, operation: arithmetic, expression: "0", output: ordered}
  - step: each
    operation: for_each
    input: items
    as: item
    steps:
      - {step: look, operation: database_query, query: "SELECT quantity FROM stock WHERE item = {item}"}
      - step: order
        operation: external_api_call
        provider: shop
        endpoint: /orders
        parameters: {item: "{item}"}
        on_error: [{error_type: any, return_error: no_shop}]
      - {step: add, operation: arithmetic, expression: "ordered + order.count", output: ordered}
testing:
  test_cases:
    - name: two rounds
      inputs: {items: [a, b]}
      answers: {look: [], look (2): [{quantity: 1}], order: {count: 2}, order (2): {count: 3}}
      expected_output: {ordered: 5}
    - name: no shop
      inputs: {items: [a]}
      answers: {look: [], order: {error: timeout}}
      expected_output: {success: false, error_code: no_shop}
"""


def test_the_answers_of_acts_stand_in_a_case(lyra):
    """No right, provider or database is needed; what is asked and not answered, or the other way, fails the case."""
    file = lyra.folder / "answered.vsp"

    def run(text):
        file.write_text(text, encoding="utf-8")
        data = json.loads(lyra("vesper", "test", "answered.vsp", "--no-search", "--json").stdout)
        assert data["warnings"] == []
        return [row["problems"] for row in data["tests"]]

    assert run(ANSWERED) == [[], []]
    assert run(ANSWERED.replace("order (2): {count: 3}", "order (2): {count: 4}"))[0] == ["ordered is 6, expected 5"]
    assert (
        run(ANSWERED.replace("look: [], order: {e", "order: {e"))[1][0]
        == "`answers` has nothing for `look`, a db.query"
    )
    extra = ANSWERED.replace("order: {error: timeout}", "order: {error: timeout}, add: 1")
    assert run(extra)[1] == ["nothing asked for the answer of `add`"]
