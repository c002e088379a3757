"""`vesper debug`: an execution stops where a breakpoint says, on either path."""

from __future__ import annotations

import io
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from lyra.vesper.check.judge import program_of
from lyra.vesper.direct import numbers, steps
from lyra.vesper.ir import ForEachStep
from lyra.vesper.nodes import load
from lyra.vesper.runtime.stepping import WatchedPath
from tests import warm
from tests.cli.conftest import TARGET
from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_nodes import DISCOUNT
from tests.cli.vesper.test_replay import STOCK
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request, rows
from tests.vesper.runtime.secrets import CARD, DERIVED, PURE

ORDER = """\
node_id: pay_order_v1
type: function
intent: move an order
inputs: {order_id: string}
outputs:
  success: {state: string}
state_machines:
  order:
    initial: pending
    states: [pending, paid, refunded]
    transitions:
      - {from: pending, to: paid}
      - {from: paid, to: refunded}
flow:
  - step: pay
    operation: state_machine_transition
    state_machine: order
    entity: "{order_id}"
    from: pending
    to: paid
  - step: refund
    operation: state_machine_transition
    state_machine: order
    entity: "{order_id}"
    from: paid
    to: refunded
  - {step: say, operation: string_template, template: "refunded {order_id}", output: state}
"""
BROKEN = DISCOUNT.replace("success => total <= price", "success => total < price")
PATHS = pytest.mark.parametrize("path", ["python", "direct"])


@pytest.fixture
def vesper(lyra, monkeypatch):
    command = VesperCommand(lyra)
    nodes = (
        ("discount", DISCOUNT),
        ("order", ORDER),
        ("broken", BROKEN),
        ("card", PURE),
        ("mask", DERIVED),
        ("lines", LINES),
    )
    for name, text in nodes:
        (lyra.folder / f"{name}.vsp").write_text(text, encoding="utf-8")

    def run(*args, typed=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return command(*args)

    return run


def debug(vesper, *args, typed="", file="discount.vsp", inputs='{"price": "10.00", "percent": 20}'):
    return vesper("debug", file, "--input-json", inputs, *args, typed=typed)


@PATHS
def test_a_step_is_a_stop(vesper, path):
    done = debug(vesper, "--path", path, "--break-on", "step:find_total", typed="print percent\nlocals\ncontinue\n")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:2] == ["break step:find_total", "Location: find_total"]
    assert "  percent: 20" in lines
    assert "percent: 20" in lines
    assert lines[-2:] == ["success", "  total: 8.00"]


@PATHS
def test_steps_are_gone_through_one_by_one(vesper, path):
    """Without a breakpoint every step is a stop; `continue` then goes to the end."""
    done = debug(vesper, "--path", path, typed="next\nstep\n")
    assert [line for line in done.stdout.splitlines() if line.startswith("Location")] == [
        "Location: check_percent",
        "Location: find_total",
    ]
    done = debug(vesper, "--path", path, typed="continue\n")
    assert done.stdout.count("Location") == 1


@PATHS
@pytest.mark.parametrize(("percent", "stops"), [(20, 1), (5, 0)])
def test_an_expression_is_a_stop_once_it_is_true(vesper, path, percent, stops):
    inputs = json.dumps({"price": "10.00", "percent": percent})
    done = debug(vesper, "--path", path, "--break-on", "input.percent > 10", typed="continue\n" * 3, inputs=inputs)
    assert (done.returncode, done.stdout.count("break input.percent > 10")) == (0, stops)


@PATHS
def test_a_broken_contract_is_a_stop(vesper, path):
    inputs = '{"price": "10.00", "percent": 0}'
    done = debug(
        vesper, "--path", path, "--break-on", "contract_violation", typed="continue\n", file="broken.vsp", inputs=inputs
    )
    assert done.returncode == 1
    assert "break contract_violation\nLocation: find_total\n" in done.stdout
    assert "postcondition_failed" in done.stdout
    assert "break" not in debug(vesper, "--path", path, "--break-on", "contract_violation").stdout


@pytest.fixture
def parting(monkeypatch):
    """The direct path multiplies wrongly."""
    right = numbers.OPERATIONS["*"]
    monkeypatch.setitem(numbers.OPERATIONS, "*", lambda left, other: numbers.add(right(left, other), 1))


@PATHS
def test_a_divergence_is_a_stop(vesper, path, request):
    """Where it shows in the answer alone, at the end."""
    assert "break" not in debug(vesper, "--path", path, "--break-on", "divergence").stdout
    request.getfixturevalue("parting")
    done = debug(vesper, "--path", path, "--break-on", "divergence", typed="quit\n")
    assert "break divergence\nLocation: find_total\n  root.total: Decimal('8.00') | Decimal('8.01')\n" in done.stdout


LINES = """\
node_id: sum_lines_v1
type: function
intent: add up what lines cost
inputs: {prices: array<integer>, factor: integer}
outputs:
  success: {total: integer}
flow:
  - {step: begin, operation: arithmetic, expression: "0", output: sum}
  - step: each
    operation: for_each
    input: prices
    as: price
    steps:
      - {step: cost, operation: arithmetic, expression: "price * factor", output: cost}
      - {step: add, operation: arithmetic, expression: "sum + cost", output: sum}
  - {step: double, operation: arithmetic, expression: "sum + sum", output: total}
"""
FOUR = '{"prices": [3, 4], "factor": 2}'


def lines_of(vesper, *args, typed="", inputs=FOUR):
    return debug(vesper, *args, typed=typed, file="lines.vsp", inputs=inputs)


def test_both_paths_stand_side_by_side(vesper):
    """Location, variables and what is called next; nothing parts, and the answer is told once."""
    done = lines_of(vesper, "--comparative", typed="next\ncontinue\n")
    assert done.returncode == 0
    shown = done.stdout.split("break ")
    assert shown[0] == f"Comparative Debugging Session\n{'=' * 40}\n\n"
    assert (
        shown[2]
        == """step
PYTHON RUNTIME                    | DIRECT RUNTIME
----------------------------------+----------------------------------
Location: each                    | Location: each
Variables:                        | Variables:
  prices: [3,4]                   |   prices: [3,4]
  factor: 2                       |   factor: 2
  sum: 0                          |   sum: 0
About to call:                    | About to call:
  for price in run.spend(prices): |   for_each prices

success
  total: 28
"""
    )
    assert len(shown) == 3


@pytest.mark.usefixtures("parting")
@PATHS
def test_the_paths_stop_where_they_part(vesper, path):
    """At the first step that has other values, whichever path is live; not again while nothing else differs."""
    done = lines_of(vesper, "--comparative", "--path", path, "--break-on", "divergence", typed="continue\n" * 3)
    first, second, third = done.stdout.split("break ")[1:]
    assert first.startswith("divergence\n  after cost, cost: 6 | 7\n")
    assert "\nLocation: add               | Location: add\n" in first
    assert "\n  cost: 6                   ≠   cost: 7\n" in first
    assert second.startswith("divergence\n  after add, sum: 6 | 7\n")
    assert third.startswith("divergence\n  root.total: 28 | 32\n")


def test_paths_that_run_other_steps_part(vesper, monkeypatch):
    monkeypatch.setitem(steps._COMPILERS, ForEachStep, no_rounds)
    done = lines_of(vesper, "--comparative", "--break-on", "divergence", typed="quit\n")
    assert "break divergence\n  after each, location: cost | double\n" in done.stdout
    assert "\nLocation: cost " in done.stdout


def no_rounds(step, program, scope):
    return lambda frame: None


def test_an_execution_is_gone_back_through(vesper):
    """Earlier steps are looked at, and nothing is run again; `next` passes over what is inside a step."""
    typed = "goto 2\nnext\nback 2\ndelete 1\nnext\nnext\ngoto 3\nfind add\nsteps 1 2\n"
    done = lines_of(vesper, "--break-on", "step:cost", typed=typed)
    places = [line.removeprefix("Location: ") for line in done.stdout.splitlines() if line.startswith("Location")]
    assert places == ["cost", "each", "cost", "begin", "each", "double", "cost", "add"]
    assert "  1: begin  arithmetic 0\n  2: each  for_each prices\n" in done.stdout


def test_expressions_are_printed_and_watched(vesper):
    typed = "print factor * 2 + prices.length\nprint nothing\nprint factor +\nwatch sum\n"
    typed += "continue\n" * 3 + "breaks\ndelete 1\ncontinue\n"
    done = lines_of(vesper, typed=typed)
    assert "factor * 2 + prices.length: 6\n" in done.stdout
    assert "nothing has no value here\n" in done.stdout
    assert [line for line in done.stdout.splitlines() if " -> " in line] == [
        "  sum: null -> 0",
        "  sum: 0 -> 6",
        "  sum: 6 -> 14",
    ]
    assert "1: watch sum\ndeleted 1: watch sum\nsuccess\n" in done.stdout
    assert done.returncode == 1  # one command was wrong


def test_an_expression_over_a_sensitive_value_is_not_shown(vesper):
    inputs = json.dumps({"card": CARD, "amount": 500})
    done = debug(vesper, "--comparative", typed="print slice(card, 0, 4)\n", file="card.vsp", inputs=inputs)
    assert "slice(card, 0, 4): [redacted] | [redacted]" in done.stdout
    assert CARD not in done.stdout


def test_commands_come_from_a_file(vesper, lyra):
    """`break` sets what `--break-on` does; a command that is wrong is told, and the exit code is 1."""
    (lyra.folder / "go").write_text("# to the end\nbreak sum > 10\nbreak step:nowhere\ncontinue\ncontinue\n")
    done = lines_of(vesper, "--commands", "go")
    assert "break sum > 10\nLocation: double\n" in done.stdout
    assert "there is no step 'nowhere' in sum_lines_v1" in done.stdout
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "  total: 28")
    assert lines_of(vesper, "--commands", "gone").returncode == 2


def test_stops_of_both_paths_are_json(vesper):
    done = lines_of(vesper, "--comparative", "--json", typed="continue\n")
    stop, end = map(json.loads, done.stdout.splitlines())
    assert (stop["break"], stop["python"]["location"], stop["direct"]["location"]) == ("step", "begin", "begin")
    assert stop["python"]["variables"] == {"prices": "[3,4]", "factor": "2"}
    assert stop["direct"]["call"] == "arithmetic 0"
    assert (end["status"], end["outputs"]) == ("success", {"total": "28"})


@PATHS
def test_both_paths_of_a_transaction_are_one_act(vesper, lyra, path):
    """The path that is not live waits inside it, and then follows; the database is changed once."""
    (lyra.folder / "stock.vsp").write_text(STOCK, encoding="utf-8")
    with closing(sqlite3.connect(lyra.folder / "stock.db")) as database, database:
        database.execute("CREATE TABLE stock (item TEXT, quantity INTEGER)")
        database.execute("INSERT INTO stock VALUES ('apple', 9)")
    rights = ["--grant", "database.read.stock", "--grant", "database.write.stock"]
    words = ["--comparative", "--path", path, "--database", "sqlite:///stock.db", *rights]
    inputs = '{"item": "apple", "count": 2}'
    done = debug(vesper, *words, file="stock.vsp", inputs=inputs, typed="step\nstep\nquit\n")
    assert "Location: (follows when the steps around this one are over)" in done.stdout
    assert rows(lyra.folder / "stock.db", "SELECT quantity FROM stock") == [(9,)]  # rolled back
    done = debug(vesper, *words, file="stock.vsp", inputs=inputs, typed="step\nstep\nstep\ncontinue\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "  left: 7"), done.stdout
    assert "break divergence" not in done.stdout
    assert rows(lyra.folder / "stock.db", "SELECT quantity FROM stock") == [(7,)]


@PATHS
def test_a_transition_is_a_stop_before_it_is_made(vesper, path):
    """What follows `quit` is not done: the order is still paid, not refunded."""
    inputs = '{"order_id": "o1"}'
    form = "state_transition:paid->refunded"
    done = debug(vesper, "--path", path, "--break-on", form, typed="quit\n", file="order.vsp", inputs=inputs)
    assert done.returncode == 1
    assert f'break {form}\nLocation: refund\n  order_id: "o1"\n' in done.stdout
    assert "cancelled" in done.stdout
    again = debug(vesper, "--path", path, "--break-on", form, typed="continue\n", file="order.vsp", inputs=inputs)
    assert "invalid_transition" in again.stdout  # o1 is paid, no longer pending
    other = '{"order_id": "o2"}'
    done = debug(vesper, "--path", path, "--break-on", form, typed="continue\n", file="order.vsp", inputs=other)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "  state: refunded o2")


def test_the_end_of_the_input_leaves_the_debugger(vesper):
    done = debug(vesper, "--break-on", "step:find_total")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "error cancelled: the debugger was left")


def test_without_a_node_it_is_the_only_one_here(vesper, lyra):
    """As the forms of breakpoints are shown: `vesper debug --break-on FORM`. Of several nodes none is guessed."""
    given = ("--input-json", '{"price": "10.00", "percent": 20}', "--break-on", "input.percent > 10")
    (lyra.folder / "order.vsp").unlink()
    files = sorted(file.name for file in lyra.folder.glob("*.vsp"))
    for file in files:
        if file != "discount.vsp":
            (lyra.folder / file).unlink()
    done = vesper("debug", *given, typed="continue\n")
    assert done.returncode == 0, done.stderr
    assert "break input.percent > 10" in done.stdout
    (lyra.folder / "nodes").mkdir()
    (lyra.folder / "nodes/other.vsp").write_text((lyra.folder / "discount.vsp").read_text())
    done = vesper("debug", *given)
    assert done.returncode == 2
    assert "which node?" in done.stderr
    assert "2 here: discount.vsp, nodes/other.vsp" in done.stderr


@pytest.mark.parametrize(
    "form",
    ["breakfast", "step:find_totl", "state_transition:paid", "state_transition:a->b", "percent +", "nothing > 3"],
)
def test_an_unknown_form_is_bad_usage(vesper, form):
    done = debug(vesper, "--break-on", form)
    assert (done.returncode, done.stdout) == (2, "")
    assert "hint" in done.stderr or "(" in done.stderr


def test_a_transition_between_unknown_states_is_bad_usage(vesper):
    form = "state_transition:paid->refundet"
    done = debug(vesper, "--break-on", form, file="order.vsp", inputs='{"order_id": "o1"}')
    assert (done.returncode, done.stdout) == (2, "")
    assert "'refundet'" in done.stderr
    assert "refunded" in done.stderr


def test_stops_are_json_on_lines(vesper):
    done = debug(vesper, "--break-on", "step:find_total", "--json", typed="locals\nwhat\ncontinue\n")
    stop, values, error, end = map(json.loads, done.stdout.splitlines())
    assert (stop["break"], stop["location"]) == ("step:find_total", "find_total")
    assert values["variables"]["percent"] == "20"
    assert "what" in error["error"]
    assert (end["status"], end["outputs"]) == ("success", {"total": "8.00"})


@PATHS
def test_sensitive_values_are_not_shown(vesper, path):
    inputs = json.dumps({"card": CARD, "amount": 500})
    done = debug(
        vesper, "--path", path, "--break-on", "contract_violation", "--break-on", "step:check_amount",
        typed="locals\nprint card\nstep\nstep\n", file="card.vsp", inputs=inputs,
    )  # fmt: skip
    assert "card: [redacted]" in done.stdout
    assert CARD not in done.stdout + done.stderr


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_computed_from_a_sensitive_value_is_not_shown(vesper, wide):
    """By name, in an expression, as an output; what is declared `sensitive: false`, and what comes of it, is."""
    done = debug(
        vesper, *["--comparative"] * wide, file="mask.vsp", inputs=json.dumps({"card": CARD}),
        typed="next 4\nlocals\nprint middle\nprint lower(tail)\nprint again\nwatch middle\ncontinue\n",
    )  # fmt: skip
    assert "zebra" not in done.stdout.lower() + done.stderr.lower()
    assert "middle: [redacted]" in done.stdout
    assert "lower(tail): [redacted]" in done.stdout
    assert f"again: {'(none) | ' * wide}-9876!" in done.stdout  # the Python path computes only what is used
    assert done.stdout.endswith("success\n  tail: [redacted]\n  shown: -9876\n")


def test_a_node_with_effects_is_given_what_it_needs(vesper, lyra, tmp_path):
    """Inputs by name, rights, a database, providers; each is missed where it is left out."""
    server = PaymentServer()
    node = NODE.read_text(encoding="utf-8").replace(", guard: order_not_locked", "")
    (lyra.folder / "payment.vsp").write_text(node, encoding="utf-8")
    inputs = [word for name, value in request(7).items() for word in ("--input", f"{name}={value}")]
    database = ["--database", make_database(tmp_path / "orders.db")]
    provider = ["--provider", f"stripe={server.url}"]
    rights = [word for right in GRANT for word in ("--grant", right)]
    try:
        assert (
            "capability_denied"
            in vesper("debug", "payment.vsp", *inputs, *database, *provider, typed="continue\n").stdout
        )
        assert vesper("debug", "payment.vsp", *inputs, *provider, *rights, typed="continue\n").returncode == 1
        assert server.requests == []
        fresh = ["--set", "kernel.store=fresh.db"]
        assert vesper("debug", "payment.vsp", *inputs, *database, *rights, *fresh, typed="continue\n").returncode == 1
        words = [*inputs, *database, *provider, *rights, "--set", "kernel.store=last.db"]
        done = vesper("debug", "payment.vsp", *words, typed="continue\n")
        assert (done.returncode, len(server.requests)) == (0, 1), done.stdout + done.stderr
    finally:
        server.close()


@PATHS
def test_both_paths_of_a_payment_charge_once(vesper, lyra, tmp_path, path):
    """Transitions, a query, a call, writes and an event: the paths agree at every step, and one of them acts."""
    server = PaymentServer()
    node = NODE.read_text(encoding="utf-8").replace(", guard: order_not_locked", "")
    (lyra.folder / "payment.vsp").write_text(node, encoding="utf-8")
    words = [word for name, value in request(7).items() for word in ("--input", f"{name}={value}")]
    words += ["--database", make_database(tmp_path / "orders.db"), "--provider", f"stripe={server.url}"]
    words += [word for right in GRANT for word in ("--grant", right)]
    try:
        typed = "step 50\ngoto 5\n"
        done = vesper("debug", "payment.vsp", "--comparative", "--path", path, *words, typed=typed)
        assert (done.returncode, len(server.requests)) == (0, 1), done.stdout + done.stderr
        assert "break divergence" not in done.stdout
    finally:
        server.close()


@pytest.mark.usefixtures("parting")
def test_paths_that_ask_for_other_acts_part(vesper, lyra):
    """At the step behind the act, whose request differs; the live path's was made."""
    server = PaymentServer()
    text = WAITING.replace('{amount: "{amount}"}}', '{amount: "{amount * 2}"}}', 1)
    (lyra.folder / "waiting.vsp").write_text(text, encoding="utf-8")
    words = ["--provider", f"stripe={server.url}", "--grant", "network.http_client.api.stripe.com", "-i", "amount=5"]
    try:
        done = vesper("debug", "waiting.vsp", "--comparative", "--break-on", "divergence", *words, typed="quit\n")
    finally:
        server.close()
    assert "break divergence\n  after first, root.effects.first[0]: request " in done.stdout
    assert "\nLocation: second " in done.stdout
    assert [body["amount"] for _, body in server.requests] == [10]


def test_a_path_that_crashes_parts_from_the_other(vesper, monkeypatch):
    def crash(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(numbers.OPERATIONS, "*", crash)
    done = lines_of(vesper, "--comparative", "--break-on", "divergence", typed="continue\n" * 3)
    assert "break divergence\n  after cost, location: add | cost (ended)\n" in done.stdout
    assert "ZeroDivisionError: planted" in done.stdout
    done = lines_of(vesper, "--path", "direct", typed="continue\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "error crash: ZeroDivisionError: planted")


def test_inputs_by_name(vesper):
    for flag in ("-i", "--input"):
        done = vesper("debug", "discount.vsp", flag, "price=99.90", flag, "percent=10", typed="continue\n")
        assert (done.returncode, "total: 89.91" in done.stdout) == (0, True), done.stdout + done.stderr
    assert vesper("debug", "discount.vsp").returncode == 1  # without inputs


WAITING = """\
node_id: waiting_v1
type: function
intent: ask a server that takes its time, then another one
inputs: {amount: integer}
outputs: {total: integer}
security: {capabilities_required: [network.http_client.api.stripe.com]}
flow:
  - {step: first, operation: external_api_call, provider: stripe, endpoint: /v1, parameters: {amount: "{amount}"}}
  - {step: second, operation: external_api_call, provider: stripe, endpoint: /v2, parameters: {amount: "{amount}"}}
  - {step: answer, operation: arithmetic, expression: "amount", output: total}
"""


class ToldServer(PaymentServer):
    """Tells when it is asked."""

    def __init__(self, *, delay_s):
        self.asked = threading.Event()
        super().__init__(delay_s=delay_s)

    def charge(self, key, body):
        self.asked.set()
        return super().charge(key, body)


@pytest.mark.parametrize("words", [["--comparative"], pytest.param([], marks=pytest.mark.long)])
def test_ctrl_c_ends_a_script_before_the_next_step(lyra, words):
    """While an act is under way: the act ends, the next one is not begun, and the node stays as trusted as it was."""
    server = ToldServer(delay_s=1.0)
    (lyra.folder / "waiting.vsp").write_text(WAITING, encoding="utf-8")
    command = [*warm.command(TARGET), "vesper", "debug", "waiting.vsp", "-i", "amount=5", *words]
    command += ["--provider", f"stripe={server.url}", "--grant", "network.http_client.api.stripe.com"]
    try:
        with start(lyra, command) as debugger:
            debugger.stdin.write("step\nstep\ncontinue\n")
            debugger.stdin.flush()
            assert server.asked.wait(30)
            debugger.send_signal(signal.SIGINT)
            debugger.communicate(timeout=30)
        assert (debugger.returncode, len(server.requests)) == (130, 1)
    finally:
        server.close()
    done = lyra("vesper", "divergences", "waiting.vsp")
    assert "no divergence is known" in done.stdout


def start(lyra, command):
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=lyra.folder, text=True, env=lyra.env, stdin=pipe, stdout=pipe, stderr=pipe)


def test_a_reader_that_closes_ends_the_debugger(vesper, lyra):
    """`vesper debug … | head -2` waits for nothing, and is no divergence."""
    words = ["vesper", "debug", "lines.vsp", "--input-json", FOUR, "--comparative"]
    command = [*warm.command(TARGET), *words]
    with start(lyra, command) as debugger:
        assert debugger.stdout.readline() == "Comparative Debugging Session\n"
        debugger.stdout.close()
        debugger.stdout = None
        debugger.communicate("locals\n" * 500 + "continue\n", timeout=30)
    assert debugger.returncode != 0
    assert "no divergence is known" in vesper("divergences", "lines.vsp").stdout


WAYS = """\
node_id: ways_v1
type: function
intent: do two things at once
inputs: {name: string, note: {type: string, required: false}}
outputs: {left: string, right: string}
flow:
  - step: both
    operation: parallel
    steps:
      - {operation: string_template, template: "a {name}", output: left}
      - {operation: string_template, template: "b {name}", output: right}
"""


@pytest.mark.parametrize("wide", [(), ("--comparative",)], ids=["one", "both"])
def test_only_what_has_a_value_is_listed_and_texts_are_quoted(vesper, lyra, wide):
    """A text is told from a number; an input that is null is a value, a variable of a later step is not."""
    (lyra.folder / "ways.vsp").write_text(WAYS, encoding="utf-8")
    done = debug(vesper, *wide, typed="watch left\ncontinue\n", file="ways.vsp", inputs='{"name": "Ada \\"1\\""}')
    lines = [re.split(r" +[|] +", line)[0] for line in done.stdout.splitlines()]
    assert '  name: "Ada \\"1\\""' in lines
    assert "  note: null" in lines
    assert not [line for line in lines if line.startswith(("  left: null", "  right:"))]
    assert "About to call: parallel" in lines if not wide else "  parallel" in lines
    assert "_watch" not in done.stdout
    assert '  left: (none) -> a Ada "1"' in lines


def test_the_line_of_an_act_is_the_one_that_asks_for_it():
    """Not the one that puts the state of a transition into a variable."""
    lines = WatchedPath("python", lambda *_: {}).code_lines(program_of(load(NODE)))
    for step in ("start_processing", "record_charge", "finish_order"):
        assert lines[step].startswith(f"await run.perform('{step}', "), lines[step]
    assert lines["charge_card"].startswith("charge_card = await run.perform('charge_card', 'http.call', ")
    assert lines["validate_request"].startswith("if ")
