"""`vesper debug`: an execution stops where a breakpoint says, on either path."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.cli.vesper.command import VesperCommand
from tests.cli.vesper.test_nodes import DISCOUNT
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request
from tests.vesper.runtime.secrets import CARD, PURE

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
    for name, text in (("discount", DISCOUNT), ("order", ORDER), ("broken", BROKEN), ("card", PURE)):
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


@PATHS
def test_a_divergence_is_a_stop(vesper, path, monkeypatch):
    from lyra.vesper.values.outcome import Outcome

    def wrong(*_):
        return Outcome("success", {"total": "9"}, None, "")

    other = "lyra.vesper.direct.run.run" if path == "python" else "lyra.vesper.python.run.run"
    assert "break" not in debug(vesper, "--path", path, "--break-on", "divergence").stdout
    monkeypatch.setattr(other, wrong)
    done = debug(vesper, "--path", path, "--break-on", "divergence", typed="quit\n")
    assert "break divergence\nLocation: find_total\n" in done.stdout
    assert "root.total" in done.stdout


@PATHS
def test_a_transition_is_a_stop_before_it_is_made(vesper, path):
    """What follows `quit` is not done: the order is still paid, not refunded."""
    inputs = '{"order_id": "o1"}'
    form = "state_transition:paid->refunded"
    done = debug(vesper, "--path", path, "--break-on", form, typed="quit\n", file="order.vsp", inputs=inputs)
    assert done.returncode == 1
    assert f"break {form}\nLocation: refund\n  order_id: o1\n" in done.stdout
    assert "cancelled" in done.stdout
    again = debug(vesper, "--path", path, "--break-on", form, typed="continue\n", file="order.vsp", inputs=inputs)
    assert "invalid_transition" in again.stdout  # o1 is paid, no longer pending
    other = '{"order_id": "o2"}'
    done = debug(vesper, "--path", path, "--break-on", form, typed="continue\n", file="order.vsp", inputs=other)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "  state: refunded o2")


def test_the_end_of_the_input_leaves_the_debugger(vesper):
    done = debug(vesper, "--break-on", "step:find_total")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "error cancelled: the debugger was left")


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


def test_inputs_by_name(vesper):
    for flag in ("-i", "--input"):
        done = vesper("debug", "discount.vsp", flag, "price=99.90", flag, "percent=10", typed="continue\n")
        assert (done.returncode, "total: 89.91" in done.stdout) == (0, True), done.stdout + done.stderr
    assert vesper("debug", "discount.vsp").returncode == 1  # without inputs
