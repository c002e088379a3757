"""What sub-agents have used: tokens, calls and money by pid, of finished turns and of the one that is under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lyra.agents.session.shared import runtime_of
from lyra.sage.agent.tasks.state import COUNTED, StoredTask

if TYPE_CHECKING:
    from lyra.agents.session.session import Metrics
    from lyra.kernel.kernel import Kernel


def counts_of(metrics: Metrics) -> dict[str, int]:
    """The counts of an agent process itself, without its helpers'."""
    return {name: getattr(metrics, name) for name in COUNTED}


def usage_of(task: StoredTask, kernel: Kernel | None) -> dict[str, int]:
    """What a sub-agent has used so far."""
    stored = {name: task.usage.get(name, 0) for name in COUNTED}
    session = runtime_of(kernel).sessions.get(task.id) if kernel is not None else None
    if session is None or session.metrics.calls < stored["calls"]:  # it is not replayed yet
        return stored
    return counts_of(session.metrics)


def cost_usd(usage: Mapping[str, int]) -> float | None:
    """None where a call had no known price."""
    return None if usage["unpriced_calls"] else usage["cost_micro_usd"] / 1_000_000


def usage_words(usage: Mapping[str, int]) -> str:
    calls, tokens, cost = usage["tool_calls"], usage["input_tokens"] + usage["output_tokens"], cost_usd(usage)
    money = "" if not cost else f", ${cost:.2f}" if cost >= 0.01 else f", ${cost:.4f}"
    return f"{calls} tool{'' if calls == 1 else 's'}, {tokens} tokens{money}"
