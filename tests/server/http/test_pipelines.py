"""Pipelines over HTTP: started, followed, asked for their result, ended, and going on after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra import Kernel
from tests.server.http.support import Served, events_of, in_loop, served, serving

TWO: dict[str, Any] = {
    "name": "two",
    "agents": [
        {"name": "first", "stage_order": 1, "default_next": "second"},
        {"name": "second", "stage_order": 2, "default_next": "end"},
    ],
}


async def first(envelope: Any) -> dict[str, Any]:
    return {"heard": envelope.raw_input, "user": envelope.user_id}


async def second(envelope: Any) -> dict[str, Any]:
    return {"heard": envelope.outputs["first"]["heard"].upper()}


def staged(kernel: Kernel) -> Kernel:
    kernel.register_agent("first", first)
    kernel.register_agent("second", second)
    return kernel


@served(kernel=staged(Kernel()))
async def test_a_pipeline_is_started_followed_and_asked_for_its_result(parts: Served) -> None:
    started = await parts.ada.post("/api/pipelines", json={"pipeline": TWO, "input": "hello"})
    assert started.status_code == 202, started.text
    run = f"/api/pipelines/{started.json()['run_id']}"
    result = (await parts.ada.get(f"{run}/result", params={"wait_s": 30})).json()
    assert result["status"] == "completed"
    assert result["outputs"]["first"] == {"heard": "hello", "user": "ada"}
    assert result["outputs"]["second"] == {"heard": "HELLO"}
    events = events_of((await parts.ada.get(f"{run}/events")).text)
    words = [event.word for event in events if event.word.startswith("stage_")]
    assert words == ["stage_started", "stage_completed", "stage_started", "stage_completed"]
    assert events[-1].word == "pipeline_completed"
    again = events_of((await parts.ada.get(f"{run}/events", headers={"last-event-id": events[2].id})).text)
    assert again == events[3:]
    assert [row["run_id"] for row in (await parts.ada.get("/api/pipelines")).json()["runs"]] == [result["run_id"]]


@served(kernel=staged(Kernel()))
async def test_a_wrong_pipeline_is_refused_before_it_begins(parts: Served) -> None:
    for wrong in ({}, {"name": "x", "agents": [{"name": "nope", "stage_order": 1}]}):
        refused = await parts.ada.post("/api/pipelines", json={"pipeline": wrong})
        assert refused.status_code == 400, refused.text
    assert (await parts.ada.get("/api/pipelines")).json()["runs"] == []


async def never(envelope: Any) -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


def stuck() -> Kernel:
    kernel = Kernel()
    kernel.register_agent("first", never)
    kernel.register_agent("second", second)
    return kernel


@served(kernel=stuck())
async def test_a_pipeline_is_ended(parts: Served) -> None:
    run_id = (await parts.ada.post("/api/pipelines", json={"pipeline": TWO})).json()["run_id"]
    assert (await parts.ada.get(f"/api/pipelines/{run_id}/result")).status_code == 409
    assert (await parts.ada.get(f"/api/pipelines/{run_id}")).json()["status"] == "running"
    ended = (await parts.ada.delete(f"/api/pipelines/{run_id}")).json()
    assert (ended["status"], ended["terminal_reason"]) == ("failed", "user_cancelled")


def test_a_pipeline_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The run, its owner and its result are in the store."""
    store = str(tmp_path / "lyra.db")

    async def begin() -> str:
        kernel = Kernel(store)
        kernel.register_agent("first", first, idempotent=True)
        kernel.register_agent("second", never, idempotent=True)
        async with serving(kernel=kernel, stop_s=0.2) as parts:
            run_id = (await parts.ada.post("/api/pipelines", json={"pipeline": TWO, "input": "x"})).json()["run_id"]
            while (await parts.ada.get(f"/api/pipelines/{run_id}")).json()["current_stage"] != "second":
                await asyncio.sleep(0.01)
            return str(run_id)

    async def go_on(run_id: str) -> None:
        async with serving(kernel=staged(Kernel(store))) as parts:
            assert (await parts.bob.get(f"/api/pipelines/{run_id}")).status_code == 404
            events = events_of((await parts.ada.get(f"/api/pipelines/{run_id}/events")).text)
            assert events[-1].word == "pipeline_completed"
            result = (await parts.ada.get(f"/api/pipelines/{run_id}/result", params={"wait_s": 30})).json()
            assert result["outputs"]["second"] == {"heard": "X"}

    in_loop(go_on(in_loop(begin())))
