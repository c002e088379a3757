"""Agents behind the gateway: a model `agent/NAME`, or the bare name of an agent, is answered by that agent.

The agent's process is a child of the key's, so that what it spends counts in the key's budget, and a revoked key ends
it. The rest is as for clients with a token (`lyra.server.http.compat`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.errors import BudgetExceeded
from lyra.server.gateway.refusals import money_held
from lyra.server.http.compat import anthropic, openai
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Budget
    from lyra.server.gateway.keys import GatewayKey
    from lyra.server.http.endpoint import HttpCall


_COMPAT: Final = {
    endpoint.path: endpoint for endpoint in (*openai.ENDPOINTS, *anthropic.ENDPOINTS) if endpoint.method == "POST"
}
_PREFIX: Final = "agent/"


def agent_of(call: HttpCall, model: str) -> str:
    """The agent that a model's name means; "" where it means none."""
    if model.startswith(_PREFIX):
        return model.removeprefix(_PREFIX)
    return model if "/" not in model and model in call.parts.chats.directory.agents() else ""


async def ask_agent(call: HttpCall, key: GatewayKey, agent: str) -> Any:
    """The answer of an agent, in the form of the endpoint that was asked."""
    key.settings.require(f"{_PREFIX}{agent}")
    compat = _COMPAT.get(call.endpoint.path)
    if compat is None:
        raise HttpRefusal(404, "agents are asked by /v1/chat/completions or /v1/messages")
    call.endpoint = compat
    call.take_body(call.raw_body)
    call.parent = key.process
    try:
        return await compat.handler(call)
    except BudgetExceeded as error:
        if held := _held(error, key.process.budget):
            raise money_held(held) from error
        raise


def _held(error: BudgetExceeded, budget: Budget) -> int:
    """Return what calls in flight hold of a key's budget, where that alone is why the money is not there; else 0."""
    asked, limit = error.fields.get("asked"), error.fields.get("limit")
    if error.fields.get("dimension") != "usd" or not isinstance(asked, int) or not isinstance(limit, int):
        return 0
    left, unspent = budget.spendable("usd"), budget.spendable("usd", with_reserved=True)
    would_fit = error.fields.get("used", 0) + asked <= limit and asked <= (unspent or 0)
    return (unspent or 0) - (left or 0) if would_fit else 0
