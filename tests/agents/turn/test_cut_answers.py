"""Answers that were cut off at max_tokens: said so, and not paid for again."""

from __future__ import annotations

import pytest

import lyra
from lyra import Agent, tool
from lyra.agents.turn.loop import STATUSES
from lyra.errors import AgentFailed
from lyra.kernel import health
from tests.agents.support import says


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    "reply",
    [
        {"text": "", "stop_reason": "max_tokens"},
        {"text": "", "thinking": "Let me think about it", "stop_reason": "max_tokens"},
    ],
)
def test_nothing_but_a_cut(reply):
    """No text and no whole call: max_tokens, after one call, and not `empty` after three."""
    model = says(reply)
    with pytest.raises(AgentFailed, match="cut off") as caught:
        lyra.run(Agent("a", model=model, tools=[add]), "x")
    assert caught.value.fields["status"] == "max_tokens"
    assert "raise max_tokens" in str(caught.value.hint)
    assert len(model.requests) == 1


def test_a_cut_structured_answer_is_not_asked_for_again():
    """It would be cut at the same place."""
    model = says({"text": '{"a": 1, "b": "xx', "stop_reason": "max_tokens"})
    with pytest.raises(AgentFailed) as caught:
        lyra.run(Agent("a", model=model, output=dict[str, int]), "x")
    assert caught.value.fields["status"] == "max_tokens"
    assert len(model.requests) == 1


def test_a_structured_answer_that_fits_in_spite_of_the_cut():
    """What can be read is an answer."""
    model = says({"text": '{"a": 1}', "stop_reason": "max_tokens"})
    assert lyra.run(Agent("a", model=model, output=dict[str, int]), "x") == {"a": 1}


def test_a_cut_text_is_an_answer_that_says_so():
    reply = lyra.run(Agent("a", model=says({"text": "Once upon", "stop_reason": "max_tokens"})), "x")
    assert (reply, reply.status) == ("Once upon", "max_tokens")


def test_the_health_monitor_knows_every_way_to_end_without_an_answer():
    """A hook that refuses a message or ends a turn does what it is there for: the agent is well."""
    assert set(STATUSES) - {"success", "message_refused", "ended_by_hook"} == health._NO_ANSWER
