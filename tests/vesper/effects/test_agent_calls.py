"""The operation `agent_call`: what a node gets of an agent's answer."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.core.rights.capability import Grant
from lyra.vesper.check.judge import program_of
from lyra.vesper.effects.performers import _PERFORMERS
from lyra.vesper.effects.request import EffectError
from lyra.vesper.nodes import load
from tests.agents.support import run
from tests.real_models import Answer, FakeVendor, Vendor
from tests.vesper.building import EXECUTION
from tests.vesper.paths import PATHS, RunPath

_TRIAGE = """
node_id: triage_v1
type: function
intent: let an agent sort a complaint
types:
  verdict:
    fields:
      queue: enum[billing, other]
      urgency: {type: integer, constraints: [{min: 1}, {max: 5}]}
inputs: {complaint: string}
outputs:
  success: {urgency: integer}
  error: {error_code: "enum[no_verdict]", message: string}
security: {capabilities_required: [agents.call.sorter]}
flow:
  - step: ask
    operation: agent_call
    agent: sorter
    prompt: "{complaint}"
    output_type: verdict
    output: verdict
    on_error:
      - {error_type: type_error, return_error: {error_code: no_verdict, message: "{error.message}"}}
  - {step: answer, operation: return, return_success: {urgency: "{verdict.urgency}"}}
"""


class _Sorter:
    """Answers each act with one value."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def perform(self, _: Any) -> Any:
        return self.answer


async def _answer(vendor: Vendor, **payload: str) -> Any:
    async with Kernel() as kernel:

        async def ask(agent: Any, prompt: str, pid: str, grant: Grant) -> Any:
            return await kernel.spawn(agent, pid=pid, grant=grant).send(prompt)

        world: Any = SimpleNamespace(ask_agent=ask, agents={"teller": Agent("teller", model=vendor.model)})
        request: Any = SimpleNamespace(kind="agent.call", payload={"agent": "teller", "prompt": "A story", **payload})
        return await _PERFORMERS["agent.call"](world, request, Grant(), "k")


def test_a_node_gets_a_whole_answer(vendor: Vendor, provider: FakeVendor) -> None:
    provider.say(Answer("The end."))
    assert run(_answer(vendor)) == "The end."


def test_a_cut_answer_is_an_error_of_the_step(vendor: Vendor, provider: FakeVendor) -> None:
    """Its kind is what rules of the node match: a verified step does not go on with half an answer."""
    provider.say(Answer("Once upon", is_cut=True))
    with pytest.raises(EffectError, match="cut off at its longest") as failed:
        run(_answer(vendor))
    assert failed.value.kind == "max_tokens"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("\n```\n[0.10]\n```\n", [Decimal("0.10")]),
        ('Here: ```json\n{"a": 1}\n```', None),
        ("```json\nyes```", None),
    ],
)
def test_an_answer_may_be_json_in_a_code_block(vendor: Vendor, provider: FakeVendor, text: str, value: Any) -> None:
    """With words around it, it is none."""
    provider.say(Answer(text))
    if value is not None:
        assert run(_answer(vendor, format="json")) == value
        return
    with pytest.raises(EffectError, match="is no JSON") as failed:
        run(_answer(vendor, format="json"))
    assert failed.value.kind == "bad_response"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("urgency", "message"),
    [
        (5, ""),
        (9, "the answer of ask does not hold: urgency: max: 5"),
        (0, "the answer of ask does not hold: urgency: min: 1"),
        (
            "soon",
            (
                "the answer of ask is no verdict {queue: enum[billing, other], urgency: integer}: "
                "it is {queue: string, urgency: string}"
            ),
        ),
    ],
)
def test_an_answer_keeps_the_constraints_of_its_type(path: RunPath, urgency: Any, message: str) -> None:
    """One that does not is a type error of the step: rules read what is wrong with it."""
    effects = _Sorter({"queue": "billing", "urgency": urgency})
    outcome = path(program_of(load(_TRIAGE)), {"complaint": "late"}, EXECUTION, effects)
    if not message:
        assert outcome.outputs == {"urgency": urgency}
        return
    assert outcome.error is not None
    assert outcome.error.fields == {"error_code": "no_verdict", "message": message}
