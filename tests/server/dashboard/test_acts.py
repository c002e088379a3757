"""What people change is told with their name, and the audit log writes it; a viewer changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from lyra.cli.app import run as run_command
from lyra.core.event import Event
from lyra.observe.audit import attach_audit
from lyra.server.site import site
from tests.server.dashboard.support import ADA, VIEWER, Served, logged_in, served, serving
from tests.server.http.support import client, echo, in_loop


def _acts(kernel: Kernel) -> list[Event]:
    acts: list[Event] = []
    kernel.on_event(acts.append, kinds=("person.acted",))
    return acts


@served()
async def test_an_act_over_the_api_or_a_page_names_the_person(parts: Served) -> None:
    """Its act, its target and its outcome are told, of what was done and of what was refused."""
    acts = _acts(parts.kernel)
    await parts.ada.post("/api/agents/echo/chat", json={"message": "hello"})
    async with logged_in(parts, ADA) as browser:
        await browser.call("POST", "/api/agents/echo/chat", {"message": "hello"})
        await browser.call("POST", "/api/agents/nothing/chat", {"message": "hello"})
    await parts.operator.post("/api/processes/p-none/terminate", json={})
    told = [(act.data["person"], act.data["act"], act.data["target"], act.data["outcome"]) for act in acts]
    assert told == [
        ("ada", "agents.chat", "echo", "ok"),
        ("ada", "login", "", "ok"),
        ("ada", "agents.chat", "echo", "ok"),
        ("ada", "agents.chat", "nothing", "not_found"),
        ("operator", "processes.terminate", "p-none", "no_such_process"),
    ]


@served()
async def test_reading_is_no_act(parts: Served) -> None:
    acts = _acts(parts.kernel)
    await parts.operator.get("/api/processes")
    await parts.stranger.get("/")
    assert acts == []


@served()
async def test_an_act_of_a_user_is_seen_by_that_user_and_the_operator(parts: Served) -> None:
    acts = _acts(parts.kernel)
    await parts.ada.post("/api/agents/echo/chat", json={"message": "hello"})
    assert acts[0].data["user_id"] == "ada"


@served()
async def test_a_viewer_sees_all_and_changes_nothing(parts: Served) -> None:
    """Every endpoint that is not GET is refused with 403, by token and by cookie; the refusal is told. The paths of A2A
    and MCP take reading and changing requests, and refuse the latter themselves."""
    acts = _acts(parts.kernel)
    paths = [row for row in site() if row.method != "GET" and not row.is_open and row.name != "acts.logout"]
    assert {row.name for row in paths if row.checks_role} == {"a2a.request", "a2a.change_task", "mcp.ask"}
    changing = [row for row in paths if not row.checks_role]
    assert len(changing) > 10
    async with client(parts.address, VIEWER) as viewer, logged_in(parts, VIEWER) as browser:
        for endpoint in changing:
            path = "".join("/x" if part.startswith("{") else f"/{part}" for part in endpoint.path.split("/")[1:])
            answer = await viewer.request(endpoint.method, path, json={})
            assert answer.status_code == 403, endpoint.name
        answer = await browser.call("POST", "/api/agents/echo/chat", {"message": "hello"})
        assert answer.status_code == 403
        assert (await browser.http.get("/api/processes")).status_code == 200
    assert not parts.kernel.live
    refused = [act for act in acts if act.data["outcome"] == "denied"]
    assert len(refused) == len(changing) + 1
    assert {act.data["person"] for act in refused} == {"vera"}


def test_the_audit_log_has_the_acts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record names person, act, target and outcome, and `lyra audit view` shows it."""
    log, store = tmp_path / "audit.jsonl", tmp_path / "run.db"

    async def act() -> None:
        kernel = Kernel(store, programs=(echo(),))
        attach_audit(kernel, log)
        async with serving(kernel=kernel) as parts:
            await parts.ada.post("/api/agents/echo/chat", json={"message": "hello"})

    in_loop(act())
    records = [json.loads(line) for line in log.read_text().splitlines()]
    record = next(row for row in records if row["kind"] == "person.acted")
    expected = {
        "person": "ada",
        "role": "user",
        "act": "agents.chat",
        "target": "echo",
        "outcome": "ok",
        "user_id": "ada",
    }
    assert record["fields"] == expected
    assert run_command(["audit", "view", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "person.acted" in shown
    assert "ada" in shown


_MCP = {"accept": "application/json, text/event-stream"}


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@served()
async def test_a_refusal_in_the_form_of_a_protocol_is_no_success(parts: Served) -> None:
    """A2A and MCP answer 200 where they refuse: the record says the reason, and what it was about."""
    acts = _acts(parts.kernel)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    sent = await parts.ada.post("/a2a/echo", json=_rpc("SendMessage", {"message": message}))
    task_id = sent.json()["result"]["task"]["id"]
    await parts.bob.post("/a2a/echo", json=_rpc("CancelTask", {"id": task_id}))
    await parts.ada.post("/api/agents/echo/chat", json={"message": "hello", "session_id": "of-ada"})
    for session in ({"session_id": "of-ada"}, {}):
        arguments = {"message": "x", **session}
        await parts.bob.post("/mcp", json=_rpc("tools/call", {"name": "echo", "arguments": arguments}), headers=_MCP)
    told = [(act.data["person"], act.data["act"], act.data["target"], act.data["outcome"]) for act in acts]
    session_id = told[-1][2].removeprefix("echo ")
    assert told == [
        ("ada", "a2a.SendMessage", f"echo {task_id}", "ok"),
        ("bob", "a2a.CancelTask", f"echo {task_id}", "task_not_found"),
        ("ada", "agents.chat", "echo", "ok"),
        ("bob", "mcp.call", "echo of-ada", "denied"),
        ("bob", "mcp.call", f"echo {session_id}", "ok"),
    ]


@served()
async def test_reading_by_a_protocol_is_no_act(parts: Served) -> None:
    """Lists of tools and tasks, and bodies that are no request, write nothing down."""
    acts = _acts(parts.kernel)
    for _ in range(3):
        assert (await parts.bob.post("/mcp", json=_rpc("tools/list", {}), headers=_MCP)).status_code == 200
        assert (await parts.bob.post("/a2a/echo", json=_rpc("ListTasks", {}))).status_code == 200
        assert (await parts.bob.post("/a2a/echo", content=b"{")).status_code == 200
    assert acts == []


@served(requests_per_minute=3)
async def test_requests_over_the_rate_are_not_written_down(parts: Served) -> None:
    """One who is refused again and again does not fill the store."""
    acts = _acts(parts.kernel)
    async with client(parts.address, VIEWER) as viewer:
        statuses = [(await viewer.post("/api/runs", json={})).status_code for _ in range(6)]
    assert statuses == [403, 403, 403, 429, 429, 429]
    assert len(acts) == 3
