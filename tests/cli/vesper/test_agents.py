"""`vesper run` of a node that asks agents: the model, the rights and the budget stand on the command line."""

from __future__ import annotations

import io

import pytest

from tests.cli.vesper.command import VesperCommand
from tests.real_models import Answer, FakeVendor, Vendor, write_settings
from tests.vesper.runtime.test_real_models import GRANT, NODE

CALLER = """\
node_id: caller_v1
type: function
intent: have another node ask
inputs: {question: string}
outputs: {success: {answer: any}}
security: {capabilities_required: [agents.call.adder]}
flow:
  - {step: asked, operation: call_node, node_id: ask_v1, inputs: {question: "{question}"}}
  - {operation: return, return_success: {answer: "{asked.answer}"}}
"""


@pytest.fixture
def vesper(lyra, vendor: Vendor, provider: FakeVendor):
    lyra.env.update(vendor.variables(provider.url))
    write_settings(vendor, lyra.folder / "home")
    (lyra.folder / "ask.vsp").write_text(NODE, encoding="utf-8")
    (lyra.folder / "caller.vsp").write_text(CALLER, encoding="utf-8")
    return VesperCommand(lyra)


def arguments(vendor: Vendor, file: str = "ask.vsp") -> list[str]:
    return ["run", file, "-i", "question=2 + 3?", "--model", vendor.model, "--grant", GRANT[0]]


def test_a_node_is_run_with_a_model(vesper, vendor: Vendor, provider: FakeVendor) -> None:
    """Also the second time on the same store, and where a node that it calls asks the agent."""
    provider.say(Answer("It is 5."), Answer("It is five."), Answer("Five."))
    assert vesper.json(*arguments(vendor))["outputs"] == {"answer": "It is 5."}
    assert vesper.json(*arguments(vendor))["outputs"] == {"answer": "It is five."}
    assert vesper.json(*arguments(vendor, "caller.vsp"))["outputs"] == {"answer": "Five."}
    assert [request.texts[-1] for request in provider.requests] == ["Please: 2 + 3?"] * 3


def test_the_debugger_asks_a_model(vesper, vendor: Vendor, provider: FakeVendor, monkeypatch) -> None:
    """With the options of `vesper run`."""
    monkeypatch.setattr("sys.stdin", io.StringIO("continue\n" * 9))
    provider.say(Answer("It is 5."))
    done = vesper("debug", *arguments(vendor)[1:])
    assert done.returncode == 0, done.stderr
    assert "success\n  answer: It is 5.\n" in done.stdout
    monkeypatch.setattr("sys.stdin", io.StringIO("continue\n" * 9))
    assert "budget" in vesper("debug", *arguments(vendor)[1:], "--budget", "$0.000001").stdout


def test_a_budget_stops_the_agents(vesper, vendor: Vendor, provider: FakeVendor) -> None:
    """The model is not asked for more than that; a text that is no amount is refused."""
    provider.say(Answer("It is 5."))
    done = vesper(*arguments(vendor), "--budget", "$0.000001")
    assert (done.returncode, provider.requests) == (1, [])
    assert "budget" in done.stderr
    done = vesper(*arguments(vendor), "--budget", "much")
    assert done.returncode == 2
    assert "write dollars" in done.stderr


TESTS = "testing: {test_cases: [{name: five, inputs: {question: 2 + 3?}, expected_output: {answer: It is 5.}}]}\n"


def test_test_cases_ask_a_model(vesper, vendor: Vendor, provider: FakeVendor) -> None:
    """Once for both paths; also where a node that the tested one calls asks. A budget stops them."""
    for name, text in (("ask.vsp", NODE), ("caller.vsp", CALLER)):
        (vesper.folder / name).write_text(text + TESTS, encoding="utf-8")
    provider.say(Answer("It is 5."), Answer("It is 5."), Answer("It is 6."))
    given = ("--no-search", "--grant", GRANT[0])
    done = vesper("test", "ask.vsp", "caller.vsp", *given, "--model", vendor.model)
    assert (done.returncode, len(provider.requests)) == (0, 2), done.stdout
    done = vesper("test", "ask.vsp", *given, "--model", vendor.model)
    assert done.returncode == 1
    assert "answer is 'It is 6.'" in done.stdout
    done = vesper("test", "ask.vsp", *given, "--model", vendor.model, "--budget", "$0.000001")
    assert (done.returncode, len(provider.requests)) == (1, 3)
    assert "budget" in done.stdout
    assert "say --model NAME" in vesper("test", "ask.vsp", *given).stdout


def test_without_a_model_the_error_says_what_to_do(vesper, vendor: Vendor, provider: FakeVendor) -> None:
    done = vesper("run", "ask.vsp", "-i", "question=2 + 3?", "--grant", GRANT[0])
    assert done.returncode == 2
    assert "--model" in done.stderr
    assert provider.requests == []
