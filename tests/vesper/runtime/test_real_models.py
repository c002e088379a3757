"""`agent_call` on real models: a node asks an agent of each vendor, its tool is called, and its answer is the value."""

from __future__ import annotations

from typing import Any

import msgspec

from lyra import Agent, tool, vesper
from tests.real_models import Answer, Call, FakeVendor, Vendor

CALL = Call("add", {"a": 2, "b": 3})
GRANT = ["agents.call.adder", "process.spawn:adder", "process.send:adder", "model.use", "tool.use"]
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


def test_a_node_without_the_rights_asks_no_model(vendor: Vendor, provider: FakeVendor) -> None:
    """The agent has no more rights than the node: what is missing is named."""
    agent: Agent[Any] = Agent("adder", model=vendor.model)
    for missing in GRANT[:-1]:
        grant = [right for right in GRANT if right != missing]
        with vesper.Runtime(agents={"adder": agent}, grant=grant) as runtime:
            outcome = runtime.execute(vesper.load(NODE), {"question": "2 + 3?"})
        assert outcome.error is not None
        assert outcome.error.code == "capability_denied"
        assert missing in outcome.error.message
    assert provider.requests == []
