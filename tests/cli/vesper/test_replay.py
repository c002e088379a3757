"""`vesper replay`: a stored execution is gone through, changed and run on, and acts outside only with --live."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import sys
from contextlib import closing

import pytest

from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_nodes import DISCOUNT
from tests.vesper.runtime.payments import PaymentServer, rows
from tests.vesper.runtime.secrets import CARD, DATABASE, DERIVED, GRANT, HTTP

GUARDED = DISCOUNT.replace(
    "    operation: arithmetic\n", '    operation: arithmetic\n    guards: ["percent > 0"]\n'
).replace("total: {type: decimal, scale: 2}", "total: {type: decimal, scale: 2, required: false}")


@pytest.fixture
def vesper(lyra, monkeypatch):
    command = VesperCommand(lyra)
    for name, text in (
        ("discount", DISCOUNT),
        ("guarded", GUARDED),
        ("card", HTTP),
        ("kept", DATABASE),
        ("mask", DERIVED),
    ):
        (lyra.folder / f"{name}.vsp").write_text(text, encoding="utf-8")

    def run(*args, typed=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return command(*args)

    return run


@pytest.fixture
def server():
    server = PaymentServer()
    yield server
    server.close()


def trace_of(vesper, file, inputs, *args):
    done = vesper("run", file, "--input-json", json.dumps(inputs), "--json", *args)
    return json.loads(done.stdout)["trace_id"]


def outside(server):
    rights = [word for right in GRANT for word in ("--grant", right)]
    return ["--provider", f"pay.example={server.url}", "--database", "sqlite:///cards.db", *rights]


def test_what_is_computed_from_a_sensitive_value_is_not_shown(vesper):
    trace = trace_of(vesper, "mask.vsp", {"card": CARD})
    done = vesper("replay", trace, typed="show 5\nedit 5\nedit 4 middle=other\nrun\nchanges\n")
    assert "zebra" not in done.stdout.lower() + done.stderr.lower()
    assert "  middle: [redacted]\n" in done.stdout
    assert "  again: -9876!\n" in done.stdout


def test_steps_are_listed_with_their_marks(vesper):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (0, f"Replaying execution: {trace}")
    assert lines[2].startswith("Timestamp: 20")
    assert lines[3:] == ["Step 1: check_percent ✓", "Step 2: find_total ✓", "success", "  total: 8.00"]


def test_a_failed_step_and_a_skipped_one_are_marked(vesper):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 95})
    assert (
        "Step 1: check_percent ✗ (too_much)\nerror too_much: 95 percent is too much\n" in vesper("replay", trace).stdout
    )
    trace = trace_of(vesper, "guarded.vsp", {"price": "10.00", "percent": 0})
    assert "Step 2: find_total –\n" in vesper("replay", trace).stdout


def test_a_step_is_edited_and_run_on(vesper):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace, typed="next\nnext\nnext\nset percent=50\nrun\nshow 2\nquit\nnext\n")
    lines = done.stdout.splitlines()
    assert "that was the last step" in lines
    place = lines.index("Re-executing from step 2...")
    assert lines[place + 1 : place + 4] == ["Step 2: find_total ✓", "success", "  total: 5.00"]
    assert "  percent: 50" in lines[place:]
    done = vesper("replay", trace, typed="edit 1 percent=95\nrun\n")
    assert "Step 1: check_percent ✗ (too_much)" in done.stdout


def test_an_execution_is_gone_through_both_ways(vesper):
    """By step, to a step, to one with a text, and to the one that failed."""
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 95})
    done = vesper("replay", trace, typed="find PERCENT\nback\ngoto 1\nback\nbreak error\ncontinue\nsteps\ngoto 9\n")
    shown = ["Step 1: check_percent ✗ (too_much)", "  price: 10.00", "  percent: 95"]
    start = "before the first of 1 steps"
    stop = ["breakpoint 1: error", "breakpoint 1: error"]
    expected = [*shown, start, *shown, start, *stop, *shown, "Step 1: check_percent ✗ (too_much)"]
    assert done.stdout.splitlines()[5:-1] == expected
    assert "there is no step 9" in done.stdout.splitlines()[-1]


def test_answers_are_json_on_lines(vesper):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace, "--json", typed="show 1\nedit 2 percent=50\nrun\nwhat\n")
    first, shown, edited, began, second, error = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 1
    assert [row["mark"] for row in first["steps"]] == ["✓", "✓"]
    assert shown["variables"] == {"price": "10.00", "percent": "20"}
    assert edited == {"message": "Step 2: percent = 50", "before": "20", "after": "50"}
    assert began == {"message": "Re-executing from step 2..."}
    assert second["outputs"] == {"total": "5.00"}
    assert "no command 'what'" in error["error"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("edit 9 percent=1", "there is no step 9 (1 to 2)"),
        ("edit x percent=1", "'x' is no number of a step"),
        ("edit 1 percnt=1", "check_percent has no value 'percnt'"),
        ("edit 1 percent", "'percent' is no NAME=VALUE"),
    ],
)
def test_wrong_commands_are_told_and_the_replay_goes_on(vesper, typed, told):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace, typed=f"{typed}\nhelp\n")
    assert done.returncode == 1
    assert told in done.stdout
    assert "  edit STEP NAME=VALUE  change a value" in done.stdout  # of the help, which comes after it


def test_an_unknown_trace_is_told_the_nearest(vesper):
    assert "no execution is stored yet" in vesper("replay", "trace_x").stderr
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace + "0")
    assert done.returncode == 2
    assert trace in done.stderr


def test_effects_are_answered_from_the_journal(vesper, server):
    """A replay performs nothing; an edit that changes a request is refused without --live and performed with it."""
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    assert len(server.requests) == 1
    done = vesper("replay", trace, typed="show 1\nedit 1 amount=7\nrun\nshow 1\n")
    assert "http.call: from the journal" in done.stdout
    assert "Step 1: call_server ✗" in done.stdout
    assert "refused, it was not recorded" in done.stdout
    assert "error needs_live: call_server asks for what was not recorded; say --live to perform it" in done.stdout
    assert done.returncode == 1
    assert len(server.requests) == 1
    done = vesper("replay", trace, "--live", *outside(server), typed="edit 1 amount=7\nrun\nshow 1\n")
    assert "http.call: performed" in done.stdout
    assert "  total: 8" in done.stdout
    assert done.returncode == 0
    assert [body["amount"] for _, body in server.requests] == [5, 7]
    assert server.requests[1][1]["card"] == CARD
    assert CARD not in done.stdout


def test_an_edit_after_an_effect_keeps_it_replayed(vesper, server):
    """Only what is different is live: the charge before the edited step is not made again."""
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, "--live", *outside(server), typed="edit 2 amount=70\nrun\n")
    assert "  total: 71" in done.stdout
    assert len(server.requests) == 1


def test_a_live_replay_needs_the_rights_of_the_node(vesper, server):
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, "--live", typed="edit 1 amount=7\nrun\n")
    assert "capability_denied" in done.stdout
    assert done.returncode == 1
    assert len(server.requests) == 1


def test_a_parameter_of_a_request_is_edited(vesper, server):
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, "--live", *outside(server), typed="edit 1 idempotency_key=other\nrun\n")
    assert "success" in done.stdout
    assert server.requests[1][1]["idempotency_key"] == "other"
    done = vesper("replay", trace, typed="edit 1 wrong=1\nrun\n")
    assert "the request has no parameter 'wrong'" in done.stdout
    assert done.returncode == 1


def test_a_live_replay_uses_the_database(vesper, server, lyra):
    """What comes after an edited step is asked again: `--database` says of whom."""
    with closing(sqlite3.connect(lyra.folder / "cards.db")) as connection, connection:
        connection.execute("CREATE TABLE cards (card TEXT, amount INTEGER)")
    trace = trace_of(vesper, "kept.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, "--live", *outside(server), typed="edit 1 amount=7\nrun\n")
    assert done.returncode == 0, done.stdout
    assert "  total: 8" in done.stdout
    assert rows(lyra.folder / "cards.db", "SELECT amount FROM cards") == [(5,), (7,)]


def test_a_database_node_is_replayed_without_its_database(vesper, server, lyra):
    with closing(sqlite3.connect(lyra.folder / "cards.db")) as connection, connection:
        connection.execute("CREATE TABLE cards (card TEXT, amount INTEGER)")
    trace = trace_of(vesper, "kept.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, typed="show 3\n")
    assert done.stdout.count("✓") == 4
    assert CARD not in done.stdout
    assert rows(lyra.folder / "cards.db", "SELECT count(*) FROM cards") == [(1,)]


def test_a_rule_of_the_node_does_not_hide_that_a_request_needs_live(vesper, server, lyra):
    """A rule for all errors would answer with an error of the node."""
    (lyra.folder / "card.vsp").write_text(HTTP.replace("error_type: card_declined", "error_type: any"))
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    done = vesper("replay", trace, "--json", typed="edit 1 amount=7\nrun\n")
    assert json.loads(done.stdout.splitlines()[-1])["error"]["code"] == "needs_live"
    assert done.returncode == 1


def test_the_last_run_decides_the_exit_code(vesper):
    """A mistake that was corrected is no failure, nor is the recorded error of an execution that is only looked at."""
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    assert vesper("replay", trace, typed="edit 1 percent=95\nrun\nedit 1 percent=5\nrun\n").returncode == 0
    assert vesper("replay", trace, typed="edit 1 percent=95\nrun\n").returncode == 1
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 95})
    assert vesper("replay", trace, typed="next\n").returncode == 0


STOCK = """\
node_id: stock_v1
type: function
intent: take from a stock
inputs: {item: string, count: integer}
outputs: {left: integer}
security: {capabilities_required: [database.read.stock, database.write.stock]}
flow:
  - step: take
    operation: transaction
    steps:
      - step: less
        operation: database_update
        table: stock
        where: {item: "{item}"}
        set: {quantity: "quantity - {count}"}
      - {step: look, operation: database_query, query: "SELECT quantity FROM stock WHERE item = {item}"}
  - {step: answer, operation: return, return_success: {left: "{query_result.quantity}"}}
"""


def test_a_transaction_is_gone_through_from_its_record(vesper, lyra):
    """Its statements are answered by the journal; one that was edited is refused, or, with --live, performed with all
    of the transaction."""
    (lyra.folder / "stock.vsp").write_text(STOCK, encoding="utf-8")
    with closing(sqlite3.connect(lyra.folder / "stock.db")) as database, database:
        database.execute("CREATE TABLE stock (item TEXT, quantity INTEGER)")
        database.execute("INSERT INTO stock VALUES ('apple', 9), ('pear', 9)")
    rights = ["--grant", "database.read.stock", "--grant", "database.write.stock"]
    setup = ["--database", "sqlite:///stock.db", *rights]
    trace = trace_of(vesper, "stock.vsp", {"item": "apple", "count": 2}, *setup)
    done = vesper("replay", trace)
    steps = ["Step 1: take ✓", "Step 2: less ✓", "Step 3: look ✓", "Step 4: answer ✓", "success", "  left: 7"]
    assert re.sub(r"(?m)  \d+ ms$", "", done.stdout).splitlines()[3:] == steps
    done = vesper("replay", trace, typed="edit 3 p0=pear\nrun\nquit\n")
    assert "look asks for what was not recorded" in done.stdout
    done = vesper("replay", trace, "--live", *setup, typed="edit 3 p0=pear\nrun\nquit\n")
    assert done.stdout.splitlines()[-3:] == ["  left: 9", "Changed:", "  left: 7 -> 9"], done.stdout + done.stderr
    assert rows(lyra.folder / "stock.db", "SELECT quantity FROM stock") == [(5,), (9,)]


SLOW = """\
node_id: slow_v1
type: function
intent: charge a card
inputs: {amount: integer}
outputs:
  success: {id: string}
  error: {error_code: "enum[too_slow]", message: string}
security: {capabilities_required: [network.http_client.api.stripe.com]}
flow:
  - {step: check, operation: validation, guards: ["amount > 0"]}
  - step: charge
    operation: external_api_call
    provider: stripe
    endpoint: /v1/charges
    headers: {Idempotency-Key: k}
    parameters: {amount: "{amount}"}
    timeout: 50ms  # of the server
    on_success: {extract: {id: response.id}}
    on_error: [{error_type: any, return_error: too_slow}]
"""


def test_a_fix_is_tried_and_written_on_request(vesper, lyra):
    """A step is modified, the run goes on and tells what that changed; `y` writes the parameter into the file, where
    all else stays as it is."""
    file = lyra.folder / "slow.vsp"
    file.write_text(SLOW, encoding="utf-8")
    server = PaymentServer(delay_s=0.3)
    words = ["--provider", f"stripe={server.url}", "--grant", "network.http_client.api.stripe.com"]
    try:
        trace = trace_of(vesper, "slow.vsp", {"amount": 5}, *words)
        assert re.search(r"Step 2: charge ✗ \(timeout\)  \d+ ms\n", vesper("replay", trace).stdout)
        typed = "modify step 2\nmodify step 2 timeout=30s\nrun\n"
        done = vesper("replay", trace, "--live", *words, typed=f"{typed}n\n")
        assert "    timeout: 0.05s\n" in done.stdout
        assert "  Change: timeout 0.05s -> 30s\nRe-executing from step 2...\n" in done.stdout
        assert re.search(r"Step 2: charge ✓  \d+ ms\nsuccess\n  id: ch_1\n", done.stdout)
        assert "  step 2 charge: ✗ -> ✓\n  status: error -> success\n  error: too_slow -> (none)\n" in done.stdout
        assert done.stdout.endswith("Success! Apply fix? [y/N]\nnot written\n")
        assert file.read_text() == SLOW
        done = vesper("replay", trace, "--live", *words, typed=f"{typed}y\n")
        assert done.stdout.endswith(
            "written to slow.vsp:\n  -    timeout: 50ms  # of the server\n  +    timeout: 30s  # of the server\n"
        )
        assert file.read_text() == SLOW.replace("50ms", "30s")
        assert (done.returncode, vesper("run", "slow.vsp", "-i", "amount=5", *words).returncode) == (0, 0)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("apply", "nothing is changed"),
        ("edit 1 percent=1\nrun\napply", "percent is a value of this execution"),
        ("changes", "nothing is changed"),
        ("y", "there is no command 'y'"),
    ],
)
def test_what_cannot_be_applied_is_told(vesper, lyra, typed, told):
    trace = trace_of(vesper, "discount.vsp", {"price": "10.00", "percent": 20})
    done = vesper("replay", trace, typed=f"{typed}\n")
    assert told in done.stdout
    assert "Apply fix" not in done.stdout
    assert (lyra.folder / "discount.vsp").read_text() == DISCOUNT


def test_a_timeout_is_a_duration(vesper, server):
    trace = trace_of(vesper, "card.vsp", {"card": CARD, "amount": 5}, *outside(server))
    assert "'soon' is no duration" in vesper("replay", trace, typed="edit 1 timeout=soon\n").stdout


DECLINED = """\
node_id: declined_v1
type: function
intent: charge, and undo
inputs: {amount: integer}
outputs: {success: {id: string}, error: {error_code: "enum[declined]"}}
security: {capabilities_required: [network.http_client.api.stripe.com]}
flow:
  - step: charge
    operation: external_api_call
    provider: stripe
    endpoint: /v1/charges
    parameters: {amount: "{amount}"}
    headers: {Idempotency-Key: "key_{amount}"}
    retry_policy: {max_attempts: 1}
    on_error:
      - error_type: any
        compensation_steps:
          - {step: undo, operation: arithmetic, expression: amount - 1, output: left}
        return_error: {error_code: declined}
  - {step: keep, operation: arithmetic, expression: charge.id, output: id}
"""


def test_an_act_that_failed_is_marked_with_its_own_error(vesper, lyra, server):
    """Not the step that compensated for it, and not the code that a rule answered; an answer without a message has no
    colon, values that no step has written are left out."""
    (lyra.folder / "declined.vsp").write_text(DECLINED, encoding="utf-8")
    server.answers.append((402, {"error": {"code": "card_declined"}}))
    words = ["--provider", f"stripe={server.url}", "--grant", "network.http_client.api.stripe.com"]
    trace = trace_of(vesper, "declined.vsp", {"amount": 5}, *words)
    done = vesper("replay", trace, typed="goto 1\nbreak error card_declined\ngoto 0\ncontinue\n")
    lines = done.stdout.splitlines()
    failed, undone, ended = lines[3:6]
    assert re.fullmatch(r"Step 1: charge ✗ \(card_declined\)  \d+ ms", failed)
    assert (undone, ended) == ("Step 2: undo ✓", "error declined")
    assert lines[6:9] == [failed, "  amount: 5", "  http.call: from the journal"]
    assert lines.count(failed) == 3
