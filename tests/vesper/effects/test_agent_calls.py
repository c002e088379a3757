"""The operation `agent_call`: what a node gets of an agent's answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.core.rights.capability import Grant
from lyra.vesper.effects.performers import _PERFORMERS
from lyra.vesper.effects.request import EffectError
from tests.agents.support import run
from tests.real_models import Answer, FakeVendor, Vendor


async def _answer(vendor: Vendor) -> Any:
    async with Kernel() as kernel:

        async def ask(agent: Any, prompt: str, pid: str, grant: Grant) -> Any:
            return await kernel.spawn(agent, pid=pid, grant=grant).send(prompt)

        world: Any = SimpleNamespace(ask_agent=ask, agents={"teller": Agent("teller", model=vendor.model)})
        request: Any = SimpleNamespace(kind="agent.call", payload={"agent": "teller", "prompt": "A story"})
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
