"""What a process cost is what it and those below it spent, on every screen, whoever else spends in the same kernel."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra import Agent
from lyra.server.dashboard.words import money
from lyra.testing.mock import MockServer
from tests.server.dashboard.support import ADA, logged_in, texts
from tests.server.http.support import Served, in_loop, serving

LONG = "Tell me everything about the tides of the northern sea, and of the southern one. " * 40


def agents() -> tuple[Agent[Any], ...]:
    """Two agents without a budget, on models of two vendors with real prices."""
    return Agent("claude", model="anthropic/claude-sonnet-4-5"), Agent("gpt", model="openai/gpt-4.1")


async def _talk(client: httpx.AsyncClient, agent: str, message: str) -> tuple[str, float]:
    """Begin a conversation of one message; its id and what the answer says it cost."""
    answer = await client.post(f"/api/agents/{agent}/chat", json={"message": message})
    assert answer.status_code == 200, answer.text
    return answer.json()["session_id"], answer.json()["usage"]["cost_usd"]


async def _shown(parts: Served, client: httpx.AsyncClient, session_id: str) -> list[float]:
    """What each answer of the API says that a conversation has cost."""
    listed = (await client.get("/api/sessions")).json()["sessions"]
    (row,) = [row for row in listed if row["session_id"] == session_id]
    one = (await client.get(f"/api/sessions/{session_id}")).json()
    pid = row["pid"]
    processes = (await client.get("/api/processes")).json()["processes"]
    (process,) = [process for process in processes if process["pid"] == pid]
    alone = (await client.get(f"/api/processes/{pid}")).json()
    block = parts.kernel.get_process(pid)
    assert process["usage"]["llm_calls"] == block.usage.llm_calls == 1
    assert process["usage"]["tokens_in"] == block.usage.tokens_in > 0
    return [row["cost_usd"], one["cost_usd"], process["cost_usd"], alone["cost_usd"]]


async def _check(parts: Served, hers: tuple[str, float], his: tuple[str, float]) -> None:
    for client, (session_id, cost_usd) in ((parts.ada, hers), (parts.bob, his)):
        assert await _shown(parts, client, session_id) == [pytest.approx(cost_usd, abs=1e-6)] * 4
    costs = (await parts.operator.get("/api/costs")).json()
    assert costs["total_usd"] == pytest.approx(hers[1] + his[1], abs=1e-6)


async def _check_pages(parts: Served, session_id: str, cost_usd: float) -> None:
    """The pages have the same amount: the list, the conversation, its process with its budget, the runs."""
    amount = money(round(cost_usd * 1_000_000))
    pid = (await parts.ada.get(f"/api/sessions/{session_id}")).json()["pid"]
    async with logged_in(parts, ADA) as browser:
        listed = texts(await browser.page("/chat"))
        assert re.findall(r"\$[\d.]+", listed.partition("claude · ")[2])[0] == amount
        assert f"this conversation: {amount}" in texts(await browser.page(f"/chat/claude?session_id={session_id}"))
        process = texts(await browser.page(f"/processes/{pid}"))
        assert f"Cost{amount}" in process
        assert f"money{amount}" in process
        assert amount in texts(await browser.page("/runs"))


def test_two_users_at_once_are_each_told_their_own_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users talk at once to agents without a budget of their own; every screen tells each what they spent, also
    when the server has been started again."""

    async def main() -> None:
        async with MockServer({"replies": [{"text": "It is the moon. " * 30}] * 2}) as models:
            for name, value in models.env.items():
                monkeypatch.setenv(name, value)
            async with serving(*agents(), store=tmp_path / "store.db") as parts:
                hers, his = await asyncio.gather(_talk(parts.ada, "claude", "Why?"), _talk(parts.bob, "gpt", LONG))
                assert hers[1] > 0
                assert his[1] > 0
                await _check(parts, hers, his)
                await _check_pages(parts, *hers)
            async with serving(*agents(), store=tmp_path / "store.db") as parts:
                await _check(parts, hers, his)
                await _check_pages(parts, *hers)

    in_loop(main())
