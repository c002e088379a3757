"""An agent made again from the journal alone: name and model, where that is all there was to it.

The journal names the agent and its model, and knows each question by a hash of the conversation and the settings that
it was asked with. An agent without a system prompt, tools and other settings of its own gives the same hash: then the
journal has enough. For any other agent its declaration is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.agents.agent import Agent
from lyra.agents.session.session import AgentSession
from lyra.agents.turn.model_call import request_digest
from lyra.core.effect import canonical_hash
from lyra.core.message import Message
from lyra.errors import LyraError
from lyra.kernel.journal import rows
from lyra.models.provider import Request
from lyra.models.tokens import ConversationTokens, Estimator

if TYPE_CHECKING:
    from typing import Any

    from lyra.observe.timeline.step import RunStep
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store


def restored_agent(timeline: RunTimeline, store: Store) -> Agent[Any] | None:
    """The agent that a run is a conversation with; None where the journal does not have enough."""
    word, _, name = timeline.program.partition(":")
    asked = next((step for step in timeline.steps if step.kind == "model" and step.pid == timeline.pid), None)
    if word != "agent" or asked is None or asked.agent != name or "/" not in asked.model:
        return None
    try:
        agent = Agent(name, model=asked.model)
    except LyraError:
        return None
    return agent if _is_same(agent, timeline, store, asked) else None


def _is_same(agent: Agent[Any], timeline: RunTimeline, store: Store, asked: RunStep) -> bool:
    """Whether the agent asks what was asked then, in the same words and with the same settings."""
    record = next(store.read(after=asked.seq - 1, upto=asked.seq))
    started = rows.DECODERS[record.kind].decode(record.data)
    conversation = timeline.state(asked.number - 1).conversations[timeline.pid]
    session = AgentSession(agent, ConversationTokens(Estimator()), durable=True)
    session.messages += [Message(message["role"], message["text"]) for message in conversation.messages]
    request = Request(
        model=asked.model,
        messages=session.sent(),
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        top_p=agent.top_p,
    )
    digest = request_digest(session, request)
    return bool(canonical_hash(started.name, (digest,), {}) == started.hash)
