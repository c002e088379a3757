"""Sessions, runs, interrupts, traces, costs, services and events over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra import tool
from lyra.models.sim import SimProvider
from tests.server.http.support import Event, Served, echo, events_of, in_loop, scripted, served, serving, text_of

CHAT = "/api/agents/echo/chat"


async def read_events(client: httpx.AsyncClient, url: str, until: str, **options: Any) -> list[Event]:
    """The events of a stream up to the first of this word."""
    text = ""
    async with client.stream("GET", url, **options) as response:
        assert response.status_code == 200
        async for piece in response.aiter_text():
            text += piece
            events = events_of(text)
            if any(event.word == until for event in events):
                return events
    return events_of(text)


# ---------------------------------------------------------------- sessions


@served()
async def test_a_session_is_listed_shown_and_ended(parts: Served) -> None:
    session_id = (await parts.ada.post(CHAT, json={"message": "hello", "session_id": "mine"})).json()["session_id"]
    assert session_id == "mine"
    (row,) = (await parts.ada.get("/api/sessions")).json()["sessions"]
    assert (row["session_id"], row["agent"], row["user_id"], row["state"]) == ("mine", "echo", "ada", "ready")
    shown = (await parts.ada.get("/api/sessions/mine")).json()
    assert [(row["role"], row["text"]) for row in shown["messages"]] == [("user", "hello"), ("assistant", "hello")]
    await parts.ada.delete("/api/sessions/mine")
    over = await parts.ada.post(CHAT, json={"message": "x", "session_id": "mine"})
    assert over.status_code == 409
    assert (await parts.ada.get("/api/sessions/other")).status_code == 404


SLOW = scripted("echo", {"text": "one two three four five six seven eight", "chunk_s": 0.1})


@served(SLOW)
async def test_an_answer_is_given_up_and_the_session_goes_on(parts: Served) -> None:
    async with asyncio.TaskGroup() as group:
        body = {"message": "x", "session_id": "s"}
        reading = group.create_task(parts.ada.post(f"{CHAT}/stream", json=body))
        while (await parts.ada.post("/api/sessions/s/cancel")).status_code != 200:
            await asyncio.sleep(0.01)
        while not reading.done() and not (await parts.ada.post("/api/sessions/s/cancel")).json()["cancelled"]:
            await asyncio.sleep(0.01)
        events = events_of((await reading).text)
    assert events[-1].data["status"] == "cancelled"
    assert (await parts.ada.get("/api/sessions/s")).json()["alive"]


# ---------------------------------------------------------------- runs


@served()
async def test_a_run_works_without_a_reader_and_is_asked_later(parts: Served) -> None:
    started = await parts.ada.post("/api/runs", json={"agent": "echo", "message": "a long task"})
    assert started.status_code == 202
    run = f"/api/runs/{started.json()['run_id']}"
    result = (await parts.ada.get(f"{run}/result", params={"wait_s": 30})).json()
    assert (result["status"], result["text"]) == ("success", "a long task")
    assert (await parts.ada.get(run)).json() == result
    assert (await parts.ada.get("/api/runs")).json()["runs"] == [result]
    assert (await parts.bob.get("/api/runs")).json()["runs"] == []
    assert text_of(events_of((await parts.ada.get(f"{run}/events")).text)) == "a long task"


@served(SLOW)
async def test_the_result_of_a_run_that_goes_on_is_a_conflict(parts: Served) -> None:
    run_id = (await parts.ada.post("/api/runs", json={"agent": "echo", "message": "x"})).json()["run_id"]
    assert (await parts.ada.get(f"/api/runs/{run_id}")).json()["status"] == "running"
    assert (await parts.ada.get(f"/api/runs/{run_id}/result")).status_code == 409


# ---------------------------------------------------------------- interrupts


async def careful(ctx: Any) -> Any:
    return (await ctx.ask("Delete all of it?", kind="confirmation")).approved


@served()
async def test_a_question_is_listed_and_its_answer_lets_the_process_go_on(parts: Served) -> None:
    handle = parts.kernel.spawn(careful, pid="careful")
    parts.kernel.submit("hers", user_id="ada")
    mine = parts.kernel.create_interrupt("hers", "clarification", question="Which one?")
    while len((await parts.operator.get("/api/interrupts")).json()["interrupts"]) < 2:
        await asyncio.sleep(0.01)
    (asked,) = (await parts.operator.get("/api/interrupts", params={"pid": "careful"})).json()["interrupts"]
    assert (asked["question"], asked["status"]) == ("Delete all of it?", "pending")
    answered = await parts.operator.post(f"/api/interrupts/{asked['id']}/answer", json={"approved": False})
    assert answered.json()["response"]["approved"] is False
    assert (await handle.wait()).result is False
    assert (await parts.operator.post(f"/api/interrupts/{asked['id']}/answer", json={"text": "x"})).status_code == 409
    assert [row["id"] for row in (await parts.ada.get("/api/interrupts")).json()["interrupts"]] == [mine.id]
    empty = await parts.ada.post(f"/api/interrupts/{mine.id}/answer", json={})
    assert empty.status_code == 400
    taken_back = await parts.ada.post(f"/api/interrupts/{mine.id}/cancel", json={"reason": "never mind"})
    assert (taken_back.json()["status"], taken_back.json()["reason"]) == ("cancelled", "never mind")
    assert (await parts.ada.get("/api/interrupts/int_none")).status_code == 404


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def careful_agent() -> Any:
    from lyra import Agent

    asks = {"tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}
    replies = [{"tool": "weather", "text": "{result}"}, asks]
    permissions = {"ask": ["weather"]}
    return Agent("echo", model=SimProvider(script={"replies": replies}), tools=[weather], permissions=permissions)


@served(careful_agent())
async def test_a_question_of_an_agent_is_in_its_stream_and_its_answer_lets_it_go_on(parts: Served) -> None:
    async with asyncio.TaskGroup() as group:
        body = {"message": "weather?", "session_id": "s"}
        reading = group.create_task(parts.ada.post(f"{CHAT}/stream", json=body))
        while not (asked := (await parts.ada.get("/api/interrupts")).json()["interrupts"]):
            await asyncio.sleep(0.01)
        assert asked[0]["user_id"] == "ada"
        answer = f"/api/interrupts/{asked[0]['id']}/answer"
        assert (await parts.bob.post(answer, json={"approved": True})).status_code == 404
        assert (await parts.ada.post(answer, json={"approved": True})).status_code == 200
        events = events_of((await reading).text)
    (question,) = [event for event in events if event.word == "interrupt"]
    assert question.data["id"] == asked[0]["id"]
    assert events[-1].data["text"] == "sunny in Oslo"


# ---------------------------------------------------------------- traces and costs


def priced() -> Any:
    from lyra import Agent

    script = {
        "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15},
        "replies": [
            {"tool": "weather", "text": "It is {result}."},
            {"tool_calls": [{"name": "weather", "arguments": {"city": "Rome"}}]},
        ],
    }
    return Agent("echo", model=SimProvider(script=script), tools=[weather])


@served(priced())
async def test_traces_and_costs_are_the_callers(parts: Served) -> None:
    answer = (await parts.ada.post(CHAT, json={"message": "weather?"})).json()
    assert answer["text"] == "It is sunny in Rome."
    (line,) = (await parts.ada.get("/api/traces")).json()["traces"]
    trace = (await parts.ada.get(f"/api/traces/{line['trace_id']}")).json()
    spans = [span for root in trace["spans"] for span in (root, *root["children"])]
    kinds = [span["kind"] for span in spans]
    assert kinds.count("model") == 2
    assert kinds.count("tool") == 1
    report = (await parts.ada.get("/api/costs")).json()
    (group,) = report["groups"]
    assert (group["key"], group["calls"]) == ("echo", 2)
    assert report["total_usd"] > 0
    for by in ("model", "day", "user"):
        (group,) = (await parts.operator.get("/api/costs", params={"by": by})).json()["groups"]
        assert group["calls"] == 2
    assert (await parts.bob.get("/api/costs")).json()["groups"] == []
    assert (await parts.bob.get("/api/traces")).json()["traces"] == []
    assert (await parts.bob.get(f"/api/traces/{line['trace_id']}")).status_code == 404


def test_costs_outlive_the_server(tmp_path: Path) -> None:
    """What the journal tells counts together with what came since, and once."""
    store = str(tmp_path / "lyra.db")

    async def spend() -> list[dict[str, Any]]:
        async with serving(priced(), store=store) as parts:
            await parts.ada.post(CHAT, json={"message": "weather?"})
            for _ in range(2):
                report = (await parts.ada.get("/api/costs")).json()
            assert (await parts.bob.get("/api/costs")).json()["groups"] == []
            return list(report["groups"])

    (first_time,) = in_loop(spend())
    (second_time,) = in_loop(spend())
    assert (first_time["calls"], second_time["calls"]) == (2, 4)
    assert second_time["cost_usd"] == pytest.approx(2 * first_time["cost_usd"])


def test_traces_outlive_the_server(tmp_path: Path) -> None:
    """After a restart a trace is read from the journal, under the id that it had; users see their own alone."""
    store = str(tmp_path / "lyra.db")

    async def begin() -> str:
        async with serving(priced(), store=store) as parts:
            await parts.ada.post(CHAT, json={"message": "weather?"})
            (line,) = (await parts.ada.get("/api/traces")).json()["traces"]
            return str(line["trace_id"])

    async def look(trace_id: str) -> None:
        async with serving(priced(), store=store) as parts:
            (line,) = (await parts.ada.get("/api/traces")).json()["traces"]
            assert line["trace_id"] == trace_id
            assert line["cost_usd"] > 0
            trace = (await parts.ada.get(f"/api/traces/{trace_id}")).json()
            spans = [span for root in trace["spans"] for span in (root, *root["children"])]
            assert sorted(span["kind"] for span in spans) == ["model", "model", "session", "tool"]
            assert (await parts.bob.get(f"/api/traces/{trace_id}")).status_code == 404

    in_loop(look(in_loop(begin())))


@served()
async def test_a_caller_outside_is_the_parent_of_the_trace(parts: Served) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    header = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    await parts.ada.post(CHAT, json={"message": "x"}, headers=header)
    assert (await parts.ada.get(f"/api/traces/{trace_id}")).status_code == 200


# ---------------------------------------------------------------- services, system, events


@served()
async def test_a_service_is_shown_and_given_work(parts: Served) -> None:
    parts.kernel.register_service({"name": "upper", "max_concurrent": 2})
    parts.kernel.register_handler("upper", lambda request: {"text": request.metadata["text"].upper()})
    (row,) = (await parts.ada.get("/api/services")).json()["services"]
    assert (row["name"], row["status"], row["max_concurrent"]) == ("upper", "healthy", 2)
    answer = await parts.ada.post("/api/services/upper/dispatch", json={"metadata": {"text": "abc"}})
    assert answer.json()["metadata"]["text"] == "ABC"
    assert (await parts.ada.get("/api/services/none")).status_code == 404
    parts.kernel.submit("his", user_id="bob")
    foreign = await parts.ada.post("/api/services/upper/dispatch", json={"pid": "his"})
    assert foreign.status_code == 404


@served()
async def test_the_status_counts_processes_and_readiness_ends_with_the_server(parts: Served) -> None:
    parts.kernel.submit("a")
    status = (await parts.operator.get("/api/system")).json()
    assert (status["total_processes"], status["process_counts"]["new"]) == (1, 1)
    assert (await parts.stranger.get("/readyz")).json() == {"status": "ready"}
    parts.face.app.parts.is_draining = True
    refused = await parts.stranger.get("/readyz")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert (await parts.stranger.get("/healthz")).status_code == 200
    refused = await parts.ada.post(CHAT, json={"message": "x"})
    assert refused.status_code == 503
    assert refused.headers["retry-after"]


@served()
async def test_metrics_count_requests_by_route_and_are_the_operators(parts: Served) -> None:
    await parts.ada.post(CHAT, json={"message": "x"})
    await parts.ada.get("/api/processes/some-pid-0123")
    assert (await parts.ada.get("/metrics")).status_code == 403
    answer = await parts.operator.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'lyra_http_requests_total{method="POST",route="/api/agents/{name}/chat",status="200"} 1.0' in answer.text
    assert "some-pid-0123" not in answer.text


@served(echo())
async def test_events_come_to_the_owner_of_their_process(parts: Served) -> None:
    """A user sees the events of its own processes; the operator all; a reader may choose kinds, and reads on."""
    async with asyncio.TaskGroup() as group:
        url, kinds = "/api/events", {"kinds": "process.created"}
        hers = group.create_task(read_events(parts.ada, url, "process.created", params=kinds))
        all_of_them = group.create_task(read_events(parts.operator, url, "process.terminated"))
        while parts.face.app.parts.feed.readers < 2:
            await asyncio.sleep(0.01)
        parts.kernel.submit("his", user_id="bob")
        parts.kernel.submit("hers", user_id="ada")
        parts.kernel.terminate("hers")
    assert [event.data["pid"] for event in hers.result()] == ["hers"]
    assert {event.data["pid"] for event in all_of_them.result()} == {"his", "hers"}
    first_event = all_of_them.result()[0]
    parts.kernel.submit("later", user_id="ada")
    again = await read_events(parts.operator, url, "process.created", headers={"last-event-id": first_event.id})
    assert again[0].id == all_of_them.result()[1].id
    assert (await parts.ada.get(url, params={"kinds": "no.such"})).status_code == 400
    assert (await parts.ada.get(url, params={"pid": "his"})).status_code == 404


@served(careful_agent())
async def test_reading_a_turn_that_waits_again_and_again_costs_nothing(parts: Served) -> None:
    """A stream that is not kept any more is told anew, by one stream for all who ask while a person is waited for."""
    asking = asyncio.create_task(
        parts.ada.post("/api/agents/echo/chat", json={"message": "weather?", "session_id": "s"})
    )
    while not (await parts.ada.get("/api/interrupts")).json()["interrupts"]:
        await asyncio.sleep(0.01)
    streams = parts.face.app.parts.chats._streams
    before = len(streams)
    for number in range(5):
        headers = {"last-event-id": f"s:gone{number}.0"}
        async with parts.ada.stream("GET", "/api/agents/echo/chat/stream", headers=headers) as answer:
            assert "session" in await anext(answer.aiter_text())
    assert len(streams) - before == 1
    asking.cancel()
