"""The figures of an open session as plain data: what it has used, and what its context window is filled with.

`usage_figures` reads the UsageLog. `context_figures` measures the parts of the next request: the system prompt, what is
remembered, the tools, the messages. A provider counts a request as a whole; where it has, the parts are scaled to its
count, else they are estimates. Nothing here changes a session.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.agents.agent import Agent
from lyra.agents.declaration.context_policy import ContextPolicy
from lyra.agents.session.agent_cache import cache_of
from lyra.agents.session.session import SUMMARY_HEADING, AgentSession
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
from lyra.sage.session.usage_log import UsageSum

__all__ = ["context_figures", "usage_figures"]

_TOKENS_A_BYTE: Final = 0.3  # of text with spaces: prose has fewer, code a little more
_TOKENS_A_DENSE_BYTE: Final = 0.6
_IMAGE_TOKENS: Final = 1_500


# ---------------------------------------------------------------------- usage


def usage_figures(spending: SessionSpending, session: str) -> dict[str, Any]:
    """Tokens and dollars of the session, its last turn, its agents and models; `budget_usd` is its tightest limit."""
    log = spending.log
    total = next(iter(log.sums("session", session=session)), None)
    turns = log.sums("turn", session=session)
    limits = [limit for name, (_, limit) in spending.limits().items() if name != "sage.turn_budget_usd"]
    return {
        **_figures(total),
        "budget_usd": min(limits) / 1_000_000 if limits else None,
        "turn": _figures(turns[-1] if turns else None),
        "agents": {row.group: _figures(row) for row in log.sums("agent", session=session)},
        "models": {row.group: _figures(row) for row in log.sums("model", session=session)},
    }


def _figures(total: UsageSum | None) -> dict[str, Any]:
    if total is None:
        total = UsageSum("", 0.0, 0, 0, 0, 0, 0, 0, 0)
    return {
        "calls": total.calls,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cache_read_tokens": total.cache_read_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "cache_share": total.cache_share,
        "cost_usd": total.cost_usd,
    }


# ---------------------------------------------------------------------- context


def context_figures(agent: Agent, session: AgentSession | None, kernel: Kernel) -> dict[str, Any]:
    """Tokens of the next request by part, its `total`, the window of the model (None where it is not published), the
    tokens at which the conversation is compacted, and whether the counts are `estimated`."""
    system, memory, summary = _prompt_parts(agent)
    tools = session.tools.offered(session.messages) if session is not None else agent.toolbox
    messages = session.sent() if session is not None else ()
    tokens = {
        "system": _text_tokens(system),
        "memory": _text_tokens(memory),
        "tools": _tool_tokens(tools),
        "messages": _message_tokens(messages) + _text_tokens(summary),
    }
    total = sum(tokens.values())
    counted = session.ledger.sent(session.messages, session.window) if session and session.ledger.counted else 0
    if counted and total:
        tokens = {part: round(size * counted / total) for part, size in tokens.items()}
        total = counted
    window = context_window(_full_name(agent, kernel))
    share = (agent.context or ContextPolicy()).share
    return {
        "tokens": {**tokens, "total": total},
        "window": window,
        "compact_at": int(window * share) if window is not None and share is not None else None,
        "estimated": not counted,
    }


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
