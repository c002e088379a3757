"""The figures of an open session: what it has used, and what its context window is filled with.

`usage_figures` reads the UsageLog. `context_figures` measures the parts of the next request: the system prompt, what is
remembered, the tools, the messages. A provider counts a request as a whole; where it has, the parts are scaled to its
count, else they are estimates. Nothing here changes a session.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.agents.agent import Agent
from lyra.agents.declaration.context_policy import ContextPolicy
from lyra.agents.session.session import SUMMARY_HEADING, AgentSession, cache_of
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.memory import REMEMBERED_MARK
from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.models.context_windows import context_window
from lyra.models.request import Request
from lyra.models.tokens import MESSAGE_TOKENS, TOOLS_TOKENS, Measure, Size
from lyra.sage.agent.session_prompt import SessionPrompt
from lyra.sage.agent.spending import SessionSpending
from lyra.sage.commands.session_protocol import ContextFigures, ContextTokens, UsageFigures
from lyra.sage.session.usage_log import UsageSum

_TOKENS_A_BYTE: Final = 0.3  # of text with spaces: prose has fewer, code a little more
_TOKENS_A_DENSE_BYTE: Final = 0.6
_IMAGE_TOKENS: Final = 1_500
_NOTHING_USED: Final = UsageSum("", 0.0, 0, 0, 0, 0, 0, 0, 0)


# ---------------------------------------------------------------------- usage


def usage_figures(spending: SessionSpending, session: str) -> UsageFigures:
    """Return what the session, its last turn, its agents and its models have used, and its tightest limit."""
    log = spending.log
    turns = log.sums("turn", session=session)
    limits = [limit for name, (_, limit) in spending.limits().items() if name != "sage.turn_budget_usd"]
    return UsageFigures(
        total=next(iter(log.sums("session", session=session)), _NOTHING_USED),
        turn=turns[-1] if turns else _NOTHING_USED,
        agents={row.group: row for row in log.sums("agent", session=session)},
        models={row.group: row for row in log.sums("model", session=session)},
        budget_usd=min(limits) / 1_000_000 if limits else None,
    )


# ---------------------------------------------------------------------- context


def context_figures(agent: Agent, session: AgentSession | None, kernel: Kernel) -> ContextFigures:
    """Measure the next request by part, against the window of the model."""
    system, memory, summary = _prompt_parts(agent)
    tools = session.tools.offered(session.messages) if session is not None else agent.toolbox
    messages = session.sent() if session is not None else ()
    parts = (
        _text_tokens(system),
        _text_tokens(memory),
        _tool_tokens(tools),
        _message_tokens(messages) + _text_tokens(summary),
    )
    total = sum(parts)
    counted = session.ledger.sent(session.messages, session.window) if session and session.ledger.counted else 0
    if counted and total:
        system_size, memory_size, tools_size, messages_size = (round(size * counted / total) for size in parts)
        tokens = ContextTokens(system_size, memory_size, tools_size, messages_size, total=counted)
    else:
        tokens = ContextTokens(*parts, total=total)
    window = context_window(_full_name(agent, kernel))
    share = (agent.context or ContextPolicy()).share
    return ContextFigures(
        tokens,
        window=window,
        compact_at=int(window * share) if window is not None and share is not None else None,
        estimated=not counted,
    )


def _full_name(agent: Agent, kernel: Kernel) -> str:
    try:
        return runtime_of(kernel).models.find(agent.model)[2]
    except ConfigError:  # such as a key that is missing: the first turn says so
        return str(agent.model)


def _prompt_parts(agent: Agent) -> tuple[str, str, str]:
    """The system prompt of the last call without its remembered items and summary, and those two."""
    known = cache_of(agent).settings
    prompt = known[0] if known is not None else _first_prompt(agent.system)
    prompt, _, summary = prompt.partition(SUMMARY_HEADING)
    system, mark, memory = prompt.partition(REMEMBERED_MARK)
    return system, f"{mark}{memory}", summary


def _text_tokens(text: str) -> int:
    return _tokens(Measure().size(Request(model="", messages=(), system=text))) if text else 0


def _first_prompt(system: Any) -> str:
    """The system prompt before any call: a text, or that which a SessionPrompt would give now."""
    return system.now() if isinstance(system, SessionPrompt) else system if isinstance(system, str) else ""


def _tool_tokens(tools: tuple[Tool, ...]) -> int:
    return TOOLS_TOKENS + _tokens(Measure().size(Request(model="", messages=(), tools=tools))) if tools else 0


def _message_tokens(messages: tuple[Message, ...]) -> int:
    return _tokens(Measure().messages(messages)) + MESSAGE_TOKENS * len(messages)


def _tokens(size: Size) -> int:
    return int(size.wordy * _TOKENS_A_BYTE + size.dense * _TOKENS_A_DENSE_BYTE) + size.images * _IMAGE_TOKENS
