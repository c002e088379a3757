"""The pages of traces: what agents did, with what each call asked and got, also after a restart."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from lyra import Agent, tool
from lyra.models.sim import SimProvider
from tests.server.dashboard.support import ADA, BOB, OPERATOR, Served, elements, logged_in, served, serving, texts
from tests.server.http.support import in_loop

HOSTILE = "<img src=x onerror=alert(1)>"
CHAT = "/api/agents/echo/chat"


@tool
async def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city} {HOSTILE}"


def asking() -> Agent:
    script = {
        "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15},
        "replies": [
            {"tool": "weather", "text": "It is {result}."},
            {"tool_calls": [{"name": "weather", "arguments": {"city": HOSTILE}}]},
        ],
    }
    return Agent("echo", model=SimProvider(script=script), tools=[weather])


def trace_links(page: str) -> list[str]:
    return [str(link["href"]) for link in elements(page, "a") if re.search(r"traces/[0-9a-f]{32}$", str(link["href"]))]


@served(asking())
async def test_traces_are_listed_filtered_and_the_users_own(parts: Served) -> None:
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob, logged_in(parts, OPERATOR) as operator:
        assert "A trace of each conversation stands here" in texts(await ada.page("/traces"))
        await parts.ada.post(CHAT, json={"message": "weather?"})
        page = await ada.page("/traces")
        assert len(trace_links(page)) == 1
        assert "$0.0" in texts(page)
        for query, count in (
            ("agent=echo", 1),
            ("agent=other", 0),
            ("errors=1", 0),
            ("text=weather", 1),
            ("text=zzz", 0),
        ):
            assert len(trace_links(await ada.page(f"/traces?{query}"))) == count, query
        for order in ("slowest", "dearest"):
            assert len(trace_links(await ada.page(f"/traces?order={order}"))) == 1
        await ada.page("/traces?order=sideways", status=400)
        assert trace_links(await bob.page("/traces")) == []
        assert len(trace_links(await operator.page("/traces"))) == 1


@served(asking())
async def test_a_trace_of_another_user_is_not_shown(parts: Served) -> None:
    await parts.ada.post(CHAT, json={"message": "weather?"})
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob:
        (path,) = trace_links(await ada.page("/traces"))
        path = path.removeprefix(".")
        assert "Trace of echo" in texts(await ada.page(path))
        await bob.page(path, status=404)


def test_a_call_shows_request_answer_and_result_also_after_a_restart(tmp_path: Path) -> None:
    """The row of a tool leads to its arguments and result, that of a model to the messages and the answer."""
    store = str(tmp_path / "lyra.db")

    async def begin() -> None:
        async with serving(asking(), store=store) as parts:
            await parts.ada.post(CHAT, json={"message": f"weather? {HOSTILE}"})
            await parts.kernel.durable()
            await look(parts, "turn", "model", "tool", "model")

    async def again() -> None:
        async with serving(asking(), store=store) as parts:
            await look(parts, "session", "model", "tool", "model")

    async def look(parts: Served, *kinds: str) -> None:
        async with logged_in(parts, ADA) as ada:
            (path,) = trace_links(await ada.page("/traces"))
            page = await ada.page(path.removeprefix("."))
            assert [row["data-kind"] for row in elements(page, "tr") if "data-kind" in row] == list(kinds)
            rows = [str(row["data-key"]) for row in elements(page, "tr") if "data-kind" in row]
            model, tool_row, last = rows[1:]
            asked = await ada.page(f"{path.removeprefix('.')}?span={model}", region="call")
            assert f"weather? {HOSTILE}" in texts(asked)
            assert "calls weather" in texts(asked)
            called = await ada.page(f"{path.removeprefix('.')}?span={tool_row}", region="call")
            assert f"sunny in {HOSTILE} {HOSTILE}" in texts(called)
            assert "arguments" in texts(called)
            answered = await ada.page(f"{path.removeprefix('.')}?span={last}")
            assert f"It is sunny in {HOSTILE}" in texts(answered)
            for shown in (asked, called, answered, page):
                assert HOSTILE not in shown

    in_loop(begin())
    in_loop(again())


@served(asking())
async def test_without_a_store_a_tool_call_is_read_from_the_conversation(parts: Served) -> None:
    await parts.ada.post(CHAT, json={"message": "weather?"})
    async with logged_in(parts, ADA) as ada:
        (path,) = trace_links(await ada.page("/traces"))
        page = await ada.page(path.removeprefix("."))
        (row,) = [str(row["data-key"]) for row in elements(page, "tr") if row.get("data-kind") == "tool"]
        assert "sunny in" in texts(await ada.page(f"{path.removeprefix('.')}?span={row}", region="call"))
        (first, _) = [str(row["data-key"]) for row in elements(page, "tr") if row.get("data-kind") == "model"]
        model = texts(await ada.page(f"{path.removeprefix('.')}?span={first}", region="call"))
        assert "kept by a kernel with a store" in model


def hesitant() -> Agent:
    """Its model is overloaded at first, and its tool needs the answer of a person."""
    asks = {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
    replies = [
        {"tool": "weather", "text": "{result}"},
        {**asks, "error": {"kind": "overloaded", "attempts": 1}},
    ]
    return Agent(
        "echo",
        model=SimProvider(script={"replies": replies}),
        tools=[weather],
        permissions={"ask": ["weather"]},
        retry={"max_attempts": 3, "backoff": {"kind": "constant", "initial_s": 0.05}},
    )


@pytest.mark.parametrize("has_store", [True, False])
def test_retries_and_questions_are_hatched_and_the_decision_is_told(tmp_path: Path, has_store: bool) -> None:
    async def main() -> None:
        store = str(tmp_path / "lyra.db") if has_store else "memory"
        async with serving(hesitant(), store=store) as parts, logged_in(parts, ADA) as ada:
            async with asyncio.TaskGroup() as group:
                group.create_task(parts.ada.post(CHAT, json={"message": "weather?"}))
                while not (asked := (await parts.ada.get("/api/interrupts")).json()["interrupts"]):
                    await asyncio.sleep(0.01)
                await parts.ada.post(f"/api/interrupts/{asked[0]['id']}/answer", json={"approved": True})
            (path,) = trace_links(await ada.page("/traces"))
            path = path.removeprefix(".")
            page = await ada.page(path)
            bars = [row for row in elements(page, "rect") if str(row.get("class")).startswith("pause")]
            hatched = {row["fill"] for row in bars if row["width"] != "24"}  # those of the legend have this width
            assert hatched == {"url(#hatch-retry)", "url(#hatch-wait)"}
            assert "before the next try" in texts(page)
            assert "for a person: Allow weather?" in texts(page)
            if has_store:
                (row,) = [str(row["data-key"]) for row in elements(page, "tr") if row.get("data-kind") == "tool"]
                called = texts(await ada.page(f"{path}?span={row}", region="call"))
                assert "Permission: decisionask" in called
                assert "Permission: ruleweather" in called

    in_loop(main())
