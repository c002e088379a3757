"""A session's digest: the name of its transcript, computed when it is read."""

from __future__ import annotations

from lyra.agents.agent import Agent
from lyra.agents.session.session import AgentSession
from lyra.agents.turn.model_call import request_digest
from lyra.core.effect import canonical_hash
from lyra.core.message import Message
from lyra.kernel.kernel import Kernel
from lyra.models.provider import Request
from lyra.models.tokens import ConversationTokens, Estimator
from tests.agents.support import run

FIRST, SECOND = Message("user", "a"), Message("assistant", "b")
CHAIN = bytes.fromhex("170bbe1f959b0bfe27ae6ac560d7c8dc")


def session(agent: Agent | None = None, *, durable: bool = True) -> AgentSession:
    return AgentSession(agent or Agent("a", model="sim/echo"), ConversationTokens(Estimator()), durable=durable)


def test_the_digest_is_the_same_whenever_it_is_asked_for():
    """Message by message or at the end; and the one that journals of earlier versions hold."""
    at_once, at_the_end = session(), session()
    for message in (FIRST, SECOND):
        at_once.messages.append(message)
        assert at_once.digest
        at_the_end.messages.append(message)
    assert at_once.digest == at_the_end.digest == CHAIN
    assert at_the_end.to_data()["chain"] == CHAIN


def test_a_turn_that_did_not_happen_leaves_the_digest_as_it_was():
    """Also when what was cut back had not been counted yet, and when it had."""
    for is_asked in (True, False):
        talk = session()
        talk.messages.append(FIRST)
        mark, digest = len(talk.messages), talk.digest
        talk.messages.append(Message("user", "never"))
        if is_asked:
            assert talk.digest != digest
        talk.cut_back(mark, digest)
        assert talk.digest == digest
        talk.messages.append(SECOND)
        assert talk.digest == CHAIN


def test_a_session_that_comes_back_goes_on_with_its_digest():
    """What it has replayed is in it already."""
    before, after, whole = session(), session(), session()
    before.messages.append(FIRST)
    after.replay(before.to_data())
    after.messages.append(SECOND)
    assert after.digest == CHAIN
    whole.messages.append(FIRST)
    whole.messages.append(SECOND)
    assert after.digest == whole.digest


def test_without_a_journal_there_is_no_digest():
    talk = session(durable=False)
    talk.messages.append(FIRST)
    assert talk.digest == b""


def test_a_question_is_known_by_all_its_settings():
    """The hash that is kept for the next call is that of its own system prompt and tools, and of its own agent."""
    agents = [Agent("a", model="sim/echo", temperature=value) for value in (1, 1.0, None)]
    for agent in agents:
        talk = session(agent)
        for system in ("x", "y", "y", "x"):
            request = Request(model="m", messages=(), system=system, temperature=agent.temperature, max_tokens=5)
            settings = (system, [], 5, agent.temperature)
            assert request_digest(talk, request) == canonical_hash("settings", settings, {})


def test_a_stopped_agent_ends_with_the_reason_it_was_given():
    """Who waits for its process, and the list of processes, see that reason."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await process.stop("no longer needed")
            other = await kernel.spawn(Agent("a", model="sim/echo"))
            await other.stop()
            return (await process.wait()).reason, (await other.wait()).reason

    assert run(main()) == ("no longer needed", "shutdown")
