"""`agent_call` on real models: a node asks an agent of each vendor, its tool is called, and its answer is the value."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lyra import Agent, tool, vesper
from lyra.vesper.check import check_text
from tests.real_models import VENDORS, Answer, Call, FakeVendor, Vendor

CALL = Call("add", {"a": 2, "b": 3})
GRANT = ["agents.call.adder"]  # what `validate` names
MODES = ["python_only", "direct_only", "dual_verify"]
NODE = """\
node_id: ask_v1
type: function
intent: ask an agent

inputs:
  question: string

outputs:
  success:
    answer: any

security: {capabilities_required: [agents.call.adder]}

flow:
  - step: ask
    operation: agent_call
    agent: adder
    prompt: "Please: {question}"
    output: answer
  - step: done
    operation: return
    return_success: {answer: "{answer}"}
"""


class Sum(msgspec.Struct):
    total: int


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_node_asks_an_agent(vendor: Vendor, provider: FakeVendor) -> None:
    """The prompt has the node's values in it; the thought is no part of the answer."""
    provider.say(Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5.", thinking="So."))
    agent: Agent[Any] = Agent("adder", model=vendor.model, tools=[add], thinking_tokens=2_000)
    with vesper.Runtime(agents={"adder": agent}, grant=GRANT) as runtime:
        outcome = runtime.execute(vesper.load(NODE), {"question": "2 + 3?"})
    assert outcome.error is None
    assert outcome.outputs == {"answer": "It is 5."}
    assert provider.requests[0].texts == ["Please: 2 + 3?"]
    assert provider.requests[1].results == ["5"]
    assert provider.requests[1].signatures == ([provider.answered[0].signature] if vendor.thinks_aloud else [])


def test_an_answer_of_an_output_type_is_a_value(vendor: Vendor, provider: FakeVendor) -> None:
    """Its fields are fields of the step's output."""
    provider.say(Answer('{"total": 5}'))
    agent: Agent[Any] = Agent("adder", model=vendor.model, output=Sum)
    with vesper.Runtime(agents={"adder": agent}, grant=GRANT) as runtime:
        outcome = runtime.execute(vesper.load(NODE), {"question": "2 + 3?"})
    assert (outcome.error, outcome.outputs) == (None, {"answer": {"total": 5}})


def test_a_node_asks_with_the_rights_that_validate_names(vendor: Vendor, provider: FakeVendor) -> None:
    """Those are enough, and without them no model is asked."""
    agent: Agent[Any] = Agent("adder", model=vendor.model)
    undeclared = NODE.replace("[agents.call.adder]", "[]")
    named = [issue.hint for issue in check_text(undeclared) if issue.code == "undeclared_capability"]
    assert named == [f"add {right} to security.capabilities_required" for right in GRANT]
    with vesper.Runtime(agents={"adder": agent}, grant=["agents.call.other", "model.use"]) as runtime:
        outcome = runtime.execute(vesper.load(NODE), {"question": "2 + 3?"})
    assert outcome.error is not None
    assert outcome.error.code == "capability_denied"
    assert GRANT[0] in outcome.error.message
    assert provider.requests == []


def test_a_tool_of_the_agent_has_no_right_that_the_node_lacks(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    """What a tool needs besides is a right of the node, too."""
    (tmp_path / "kept.txt").write_text("the secret", encoding="utf-8")

    @tool(needs=[f"fs.read:{tmp_path}/kept.txt"])
    def read() -> str:
        """Read the file."""
        return (tmp_path / "kept.txt").read_text(encoding="utf-8")

    agent: Agent[Any] = Agent("adder", model=vendor.model, tools=[read])
    for grant, is_read in ((GRANT, False), ([*GRANT, f"fs.read:{tmp_path}/**"], True)):
        before = len(provider.requests)
        provider.say(Answer(calls=(Call("read", {}),)), Answer("Done."))
        with vesper.Runtime(agents={"adder": agent}, grant=grant) as runtime:
            outcome = runtime.execute(vesper.load(NODE), {"question": "What is kept?"})
        assert outcome.error is None
        assert ("the secret" in str(provider.requests[before + 1].results)) is is_read


@pytest.mark.parametrize("vendor", VENDORS[:1], ids=["anthropic"], indirect=True)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        ("integer", "5", 5),
        ("'array<string>'", '["a", "b"]', ["a", "b"]),
        ("verdict", '{"fine": true, "score": 0.25}', {"fine": True, "score": Decimal("0.25")}),
        ("'enum[yes, no]'", "yes", "yes"),
        ("string", "5", "5"),
        ("integer", '"five"', "type_error"),
        ("verdict", '{"fine": true}', "type_error"),
        ("'enum[yes, no]'", "perhaps", "type_error"),
        ("integer", "It is five.", "no_answer"),
    ],
)
def test_an_answer_is_of_the_output_type_of_its_step(
    provider: FakeVendor, vendor: Vendor, mode: str, kind: str, said: str, value: Any
) -> None:
    """On every path; what is no JSON is `bad_response`, what has another type a `type_error`."""
    types = "types: {verdict: {fields: {fine: boolean, score: decimal}}}\ninputs:"
    text = NODE.replace("inputs:", types, 1).replace("agent: adder", f"agent: adder\n    output_type: {kind}")
    text = text.replace(
        "    output: answer\n",
        "    output: answer\n    on_error:\n      - {error_type: bad_response, return_error: no_answer}\n",
        1,
    )
    provider.say(Answer(said))
    agent: Agent[Any] = Agent("adder", model=vendor.model)
    with vesper.Runtime(agents={"adder": agent}, grant=GRANT) as runtime:
        node = vesper.load(text)
        outcome = runtime.execute(node, {"question": "2 + 3?"}, mode)
        assert runtime.evidence(node).divergences == 0
    ended = outcome.outputs["answer"] if outcome.error is None else outcome.error.code
    assert ended == value


def test_what_agents_spend_is_bounded(vendor: Vendor, provider: FakeVendor) -> None:
    """The budget is that of the runtime; a node whose agent has none left fails."""
    provider.say(Answer("It is 5."))
    agent: Agent[Any] = Agent("adder", model=vendor.model)
    with vesper.Runtime(agents={"adder": agent}, grant=GRANT, budget="$0.000001") as runtime:
        outcome = runtime.execute(vesper.load(NODE), {"question": "2 + 3?"})
    assert outcome.error is not None
    assert outcome.error.code == "effect_failed"
    assert "budget" in outcome.error.message.lower()
