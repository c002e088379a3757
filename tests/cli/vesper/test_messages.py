"""What the commands about nodes tell a newcomer: rights, databases, agents, failed cases, too little evidence."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

KEEP = """\
node_id: keep_v1
type: function
intent: keep an order
inputs: {order_id: string}
outputs: {success: {order_id: string}, error: {error_code: "enum[effect_failed, lost]", message: string}}
security: {capabilities_required: [database.write.orders]}
flow:
  - step: keep
    operation: database_write
    table: orders
    data: {id: "{order_id}"}
    on_error: RULES
  - {operation: return, return_success: {order_id: "{order_id}"}}
testing:
  test_cases: [{name: one, inputs: {order_id: o1}, expected_output: {order_id: o1}}]
"""
PLAIN, LOST = (
    KEEP.replace("RULES", "[]"),
    KEEP.replace("RULES", "[{error_type: any, return_error: {error_code: lost}}]"),
)
ASKS = """\
node_id: asks_v1
type: function
intent: reach what was not handed in
inputs: {text: string}
outputs: {success: {a: any}, error: {error_code: "enum[lost]", message: string}}
security: {capabilities_required: [RIGHT]}
flow:
  - step: ask
    operation: OPERATION
    output: a
    on_error: [{error_type: any, return_error: {error_code: lost}}]
  - {operation: return, return_success: {a: "{a}"}}
"""
DOUBLE = """\
node_id: double_v1
type: function
intent: double a number
inputs: {n: {type: integer, constraints: ["> 0", "< 3000"]}}
outputs: {double: integer}
contracts: {postconditions: ["double < 5000"]}
flow:
  - {step: double, operation: arithmetic, expression: n * 2}
  - {operation: return, return_success: {double: "{double}"}}
testing:
  test_cases: [{name: one, inputs: {n: 1}, expected_output: {double: 2}}]
"""
GRANT = ("--grant", "database.write.orders")


@pytest.fixture
def vesper(lyra):
    def call(command, text, *options):
        (lyra.folder / "node.vsp").write_text(text, encoding="utf-8")
        return lyra("vesper", command, "node.vsp", *options)

    return call


def test_a_right_that_is_missing_has_one_name_and_exit_code_3(vesper):
    done = vesper("run", PLAIN, "-i", "order_id=o1")
    assert done.returncode == 3
    assert (
        "needs the right database.write.orders, which was not granted: say --grant database.write.orders" in done.stderr
    )
    assert "db.write" not in done.stderr
    assert (
        json.loads(vesper("run", PLAIN, "-i", "order_id=o1", "--json").stdout)["error"]["code"] == "capability_denied"
    )


@pytest.mark.parametrize("text", [PLAIN, LOST])
def test_a_node_without_its_database_says_what_to_do(vesper, text):
    """A mistake of the command line is no error that a node's rules answer: exit code 2."""
    done = vesper("run", text, "-i", "order_id=o1", *GRANT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[not_configured]: no database was named: say --database sqlite:///FILE")


def test_a_database_file_that_is_not_there_is_not_made(vesper, lyra):
    done = vesper("run", LOST, "-i", "order_id=o1", *GRANT, "--database", "sqlite:///typo.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error[not_configured]: there is no database file typo.db in ")
    assert not (lyra.folder / "typo.db").exists()


def test_an_error_of_a_database_names_its_file(vesper, lyra):
    (lyra.folder / "shop.db").touch()
    done = vesper("run", PLAIN, "-i", "order_id=o1", *GRANT, "--database", "sqlite:///shop.db")
    assert done.returncode == 1
    assert "no such table: orders (in the database shop.db)" in done.stderr


@pytest.mark.parametrize(
    ("right", "operation", "message"),
    [
        ("agents.call.clerk", "agent_call\n    agent: clerk\n    prompt: hello", "say --model NAME"),
        (
            "network.http_client.bank",
            "external_api_call\n    provider: bank\n    endpoint: /x",
            "say --provider bank=URL",
        ),
        ("custom.shop.price", "custom.shop.price", "give Runtime(custom=…)"),
        ("database.read.t", "call_node\n    node_id: nowhere_v1\n    parameters: {}", "no node 'nowhere_v1' is known"),
    ],
    ids=["agent", "provider", "function", "node"],
)
@pytest.mark.parametrize("path", ["python", "direct"])
def test_what_was_not_handed_in_is_swallowed_by_no_rule(vesper, right, operation, message, path):
    text = ASKS.replace("RIGHT", right).replace("OPERATION", operation)
    done = vesper("run", text, "-i", "text=a", "--grant", right, "--path", path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error[not_configured]: ")
    assert message in done.stderr


def test_a_failed_case_shows_the_error_of_the_node(vesper, lyra):
    done = vesper("test", PLAIN, "--no-search")
    assert done.returncode == 1
    assert "    the node ended with capability_denied: keep_v1 needs the right database.write.orders" in done.stdout


def test_cases_of_a_node_that_acts_run_over_a_database_of_their_own(vesper, lyra):
    """As docs/how-to/nodes.md says: each case acts once, over what `--database` names."""
    with closing(sqlite3.connect(lyra.folder / "scratch.db")) as database:
        database.execute("CREATE TABLE orders (id TEXT)")
        database.commit()
    done = vesper("test", PLAIN, "--no-search", *GRANT, "--database", "sqlite:///scratch.db")
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(lyra.folder / "scratch.db")) as database:
        assert database.execute("SELECT id FROM orders").fetchall() == [("o1",)]


def test_the_help_of_an_input_says_which_are_texts(vesper, lyra):
    shown = " ".join(lyra("vesper", "run", "--help").stdout.split())
    assert "taken as it stands where the input is a text" in shown
    assert "JSON where it can be read" not in shown


def test_a_breach_refuses_a_promotion_and_is_shown(vesper, lyra):
    """`verify`, `confidence`, `mode` and `status` agree about a node whose contract an input breaks."""
    done = vesper("verify", DOUBLE)
    assert done.returncode == 1
    assert "the node breaks its contract: postcondition_failed: double < 5000" in done.stdout
    assert "allows shadow_direct (blocked by a broken contract)" in done.stdout
    assert "double_v1 breaks its contract: postcondition_failed: double < 5000" in lyra("vesper", "status").stdout
    assert "blocked by a broken contract" in lyra("vesper", "confidence", "node.vsp").stdout
    assert lyra("vesper", "mode", "node.vsp", "shadow_direct").returncode == 0
    refused = lyra("vesper", "mode", "node.vsp", "canary_direct")
    assert refused.returncode == 1
    assert "the node breaks its contract: postcondition_failed: double < 5000" in refused.stderr
    rows = json.loads(lyra("vesper", "status", "--json").stdout)["nodes"]
    assert [row["breaches"][0]["input"] for row in rows] == [{"n": 2500}]


LOOKUP = """\
node_id: vat_v1
type: function
intent: look a rate up
inputs: {country: string}
outputs: {success: {rate: integer}, error: {error_code: "enum[unknown]"}}
flow:
  - {step: rates, operation: arithmetic, expression: "{CH: 8, DE: 19, FR: 20}", output: rates}
  - step: known
    operation: validation
    guards: ["country IN rates"]
    on_failure: {return_error: {error_code: unknown}}
  - {step: look, operation: arithmetic, expression: "get(rates, country, 0)", output: rate}
"""


def test_a_lookup_with_few_keys_says_how_it_can_be_promoted(vesper):
    """What it advises is true: with the constraint, the node is tried on all of its inputs."""
    done = vesper("verify", LOOKUP, "-n", "200")
    advice = (
        "a promotion needs 1000: the node looks `country` up among 3 texts; all other texts take one way through it; "
    )
    assert f"{advice}with the constraint `one_of: [CH, DE, FR]` it is tried on all of them" in done.stderr
    few = LOOKUP.replace("country: string", "country: {type: string, constraints: [{one_of: [CH, DE, FR]}]}")
    data = json.loads(vesper("verify", few, "--json").stdout)
    assert (data["complete"], data["successes"], data["allowed"]) == (True, 3, "direct_only")
    longer = LOOKUP.replace("get(rates, country, 0)", "get(rates, country, 0) + country.length")
    assert "one way" not in vesper("verify", longer, "-n", "100").stderr


def test_few_inputs_are_told(vesper):
    """An unknown confidence says why; `test` and `verify` warn where few inputs came to the end of the node."""
    text = DOUBLE.replace('["double < 5000"]', "[]").replace('["> 0", "< 3000"]', "[]")
    text = text.replace("flow:\n", "flow:\n  - {step: rare, operation: validation, guards: [n * n == 81 OR n == 1]}\n")
    done = vesper("verify", text, "-n", "300")
    assert "confidence unknown (too few inputs: " in done.stdout
    assert "inputs succeeded (under 15%)" in done.stderr
    assert "a promotion needs 1000: raise -n" in done.stderr
    assert "inputs succeeded (under 15%)" in vesper("test", text, "-n", "30").stderr
    assert len(json.loads(vesper("verify", text, "-n", "300", "--json").stdout)["warnings"]) == 2
