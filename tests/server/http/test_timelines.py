"""Runs over HTTP: their steps, how they stood, forks of them and two of them side by side; each user's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra import Agent, tool
from lyra.core.event import Event
from lyra.models.sim import SimProvider
from lyra.server.owners import owner_of
from tests.server.http.support import VIEWER, Served, client, in_loop, served, serving

PRICE = {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}
made: list[str] = []  # real acts


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    made.append(city)
    return f"sunny in {city}"


def guide() -> Agent[Any]:
    calls = {"user": "weather in (\\w+)", "tool_calls": [{"name": "weather", "arguments": {"city": "{1}"}}]}
    replies = [{"tool": "weather", "text": "It is {result}."}, calls, {"text": "You said: {user}"}]
    return Agent("echo", model=SimProvider(script={"price": PRICE, "replies": replies}), tools=[weather])


Test = Callable[[Served, str], Coroutine[Any, Any, None]]


def with_run(test: Test) -> Callable[[Path], None]:
    """A test with a server on a store, and the session of a run of ada's."""

    def run(tmp_path: Path) -> None:
        async def main() -> None:
            made.clear()
            async with serving(guide(), store=str(tmp_path / "run.db")) as parts:
                body = {"message": "weather in Oslo", "session_id": "s"}
                answer = await parts.ada.post("/api/agents/echo/chat", json=body)
                assert answer.json()["text"] == "It is sunny in Oslo."
                await test(parts, "s")

        in_loop(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def steps_of(client: httpx.AsyncClient, run: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/api/runs/{run}/timeline")
    assert answer.status_code == 200, answer.text
    return answer.json()["steps"]  # type: ignore[no-any-return]


async def settled(parts: Served, run: str) -> list[dict[str, Any]]:
    """The steps of a fork, once its turn is over."""
    async with asyncio.timeout(30):
        while (steps := await steps_of(parts.ada, run))[-1]["kind"] != "turn":
            await asyncio.sleep(0.02)
    return steps


@with_run
async def test_the_steps_come_a_page_at_a_time(parts: Served, run: str) -> None:
    """By session and by pid; with the run in a few figures."""
    page = (await parts.ada.get(f"/api/runs/{run}/timeline", params={"after": 1, "limit": 2})).json()
    assert [step["kind"] for step in page["steps"]] == ["message", "model"]
    assert page["more"] is True
    assert page["run"]["steps"] == 6
    assert page["run"]["cost_usd"] > 0
    pid = page["run"]["pid"]
    assert await steps_of(parts.operator, pid) == await steps_of(parts.ada, run)
    last = (await parts.ada.get(f"/api/runs/{run}/timeline", params={"after": 5})).json()
    assert (len(last["steps"]), last["more"]) == (1, False)


@with_run
async def test_a_moment_has_conversation_budget_and_tree_as_they_were(parts: Served, run: str) -> None:
    moment = (await parts.ada.get(f"/api/runs/{run}/at/4")).json()
    assert moment["conversation"]["count"] == 3
    assert moment["step"]["name"] == "tool:weather"
    assert [row["state"] for row in moment["tree"]] == ["running"]
    assert moment["budget"][0]["used"]["tool_calls"] == 1
    assert (await parts.ada.get(f"/api/runs/{run}/at/0")).json()["conversation"]["count"] == 0
    for number, status in (("99", 400), ("x", 400), ("-1", 400)):
        assert (await parts.ada.get(f"/api/runs/{run}/at/{number}")).status_code == status
    other = await parts.ada.get(f"/api/runs/{run}/at/4", params={"process": "nobody"})
    assert other.status_code == 404


@with_run
async def test_a_fork_runs_on_in_the_server_and_belongs_to_the_same_user(parts: Served, run: str) -> None:
    """It can be talked to as a session; the tool is not called again, and the first run is as it was."""
    before = await steps_of(parts.ada, run)
    answer = await parts.operator.post(f"/api/runs/{run}/fork", json={"at": 4, "result": "snowing"})
    assert answer.status_code == 202, answer.text
    fork = answer.json()
    assert (fork["at"], fork["session_id"]) == (4, "s-fork-1")
    steps = await settled(parts, fork["pid"])
    assert steps[-1]["result"] == "It is snowing."
    assert made == ["Oslo"]
    assert await steps_of(parts.ada, run) == before
    assert owner_of(parts.kernel, fork["pid"]) == "ada"
    told = await parts.ada.post("/api/agents/echo/chat", json={"message": "hi", "session_id": fork["session_id"]})
    assert told.json()["text"] == "You said: hi"
    denied = await parts.bob.get(f"/api/runs/{fork['pid']}/timeline")
    assert denied.status_code == 404


@with_run
async def test_a_fork_takes_no_session_of_another_user(parts: Served, run: str) -> None:
    """Bob has one under the name that ada's fork would have had: he keeps it, and the fork has another name."""
    body = {"message": "mine", "session_id": "s-fork-1"}
    await parts.bob.post("/api/agents/echo/chat", json=body)
    fork = (await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, "prompt": "hello"})).json()
    assert fork["session_id"] == "s-fork-2"
    again = await parts.bob.post("/api/agents/echo/chat", json={**body, "message": "still mine"})
    assert again.json()["text"] == "You said: still mine"
    await settled(parts, fork["pid"])
    listed = [row["run_id"] for row in (await parts.ada.get("/api/runs")).json()["runs"]]
    assert listed == ["s", "s-fork-2"]


async def idler(ctx: Any) -> str:
    return str(await ctx.receive())


@with_run
async def test_a_fork_of_a_program_belongs_to_its_user(parts: Served, run: str) -> None:
    """Also where only the table of processes says whose it is, and not the pid."""
    parts.kernel.spawn(idler, pid="errand")
    parts.kernel.lifecycle.set_owner("errand", "ada")
    await parts.kernel.durable()
    fork = (await parts.ada.post("/api/runs/errand/fork", json={"at": 1})).json()
    assert owner_of(parts.kernel, fork["pid"]) == "ada"
    assert (await parts.ada.get(f"/api/runs/{fork['pid']}/timeline")).status_code == 200
    assert (await parts.bob.get(f"/api/runs/{fork['pid']}/timeline")).status_code == 404


@with_run
async def test_a_fork_is_an_act_of_the_person_who_made_it(parts: Served, run: str) -> None:
    """Also one that is refused: both are told with the name, the run and the outcome. A viewer forks nothing, and a
    server that is about to stop takes no fork."""
    acts: list[Event] = []
    parts.kernel.on_event(acts.append, kinds=("person.acted",))
    count = len(parts.kernel.processes)
    assert (await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, "reply": "x"})).status_code == 403
    async with client(parts.address, VIEWER) as viewer:
        assert (await viewer.get(f"/api/runs/{run}/timeline")).status_code == 200
        assert (await viewer.post(f"/api/runs/{run}/fork", json={"at": 5})).status_code == 403
    assert len(parts.kernel.processes) == count
    assert (await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, "prompt": "hi"})).status_code == 202
    told = [(act.data["person"], act.data["act"], act.data["target"], act.data["outcome"]) for act in acts]
    assert told[0] == ("ada", "runs.fork", run, "denied")
    assert told[1][1:] == ("runs.fork", run, "denied")
    assert told[1][0] not in ("", "ada")
    assert told[2] == ("ada", "runs.fork", run, "ok")
    parts.face.app.parts.is_draining = True
    assert (await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, "prompt": "hi"})).status_code == 503


@with_run
async def test_two_runs_are_compared(parts: Served, run: str) -> None:
    fork = (await parts.operator.post(f"/api/runs/{run}/fork", json={"at": 5, "reply": "It rains."})).json()
    await settled(parts, fork["pid"])
    compared = (await parts.ada.get(f"/api/runs/{run}/diff/{fork['pid']}")).json()
    assert compared["first_difference"] == 5
    assert compared["right"]["fork"] == {"of": compared["left"]["pid"], "at": 5}
    assert compared["left"]["cost_usd"] > compared["right"]["cost_usd"] == 0
    same = (await parts.ada.get(f"/api/runs/{run}/diff/{run}")).json()
    assert same["is_same"] is True


@with_run
async def test_each_change_of_a_fork_is_taken_over_http(parts: Served, run: str) -> None:
    """A reply, a prompt, a model, a system prompt; a change that does not fit is refused with the steps it fits."""
    for change, answer in (
        ({"at": 5, "reply": "no"}, "no"),
        ({"at": 5, "prompt": "hello"}, "You said: hello"),
        ({"at": 5, "model": "sim/echo"}, "weather in Oslo"),
        ({"at": 3, "system": "short"}, "It is sunny in Oslo."),
    ):
        fork = await parts.operator.post(f"/api/runs/{run}/fork", json=change)
        assert fork.status_code == 202, fork.text
        assert (await settled(parts, fork.json()["pid"]))[-1]["result"] == answer
    assert made == ["Oslo", "Oslo"]
    wrong = await parts.operator.post(f"/api/runs/{run}/fork", json={"at": 4, "reply": "x"})
    assert wrong.status_code == 400
    assert "steps that can: 3, 5" in wrong.text
    for body in ({"at": 0}, {}, {"at": 1, "nonsense": 1}, {"at": 2, "reply": "x", "prompt": "y"}):
        assert (await parts.ada.post(f"/api/runs/{run}/fork", json=body)).status_code == 400


@with_run
async def test_a_user_changes_what_a_chat_lets_them_say_and_nothing_else(parts: Served, run: str) -> None:
    """To invent answers of models and tools, or to choose a model or a system prompt, needs an operator."""
    count = len(parts.kernel.processes)
    for change in (
        {"reply": "x"},
        {"result": "x"},
        {"model": "sim/echo"},
        {"system": "x"},
        {"prompt": "x", "model": "y"},
    ):
        refused = await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, **change})
        assert refused.status_code == 403, change
    assert len(parts.kernel.processes) == count
    fork = await parts.ada.post(f"/api/runs/{run}/fork", json={"at": 5, "prompt": "hello"})
    assert (await settled(parts, fork.json()["pid"]))[-1]["result"] == "You said: hello"


@with_run
async def test_runs_of_another_user_are_denied(parts: Served, run: str) -> None:
    """Steps, moments, forks and comparisons; nothing is started."""
    count = len(parts.kernel.processes)
    pid = (await parts.ada.get(f"/api/runs/{run}/timeline")).json()["run"]["pid"]
    own = (await parts.bob.post("/api/agents/echo/chat", json={"message": "x", "session_id": "b"})).json()
    for word in (run, pid):
        for path in ("timeline", "at/1", "diff/b"):
            assert (await parts.bob.get(f"/api/runs/{word}/{path}")).status_code == 404
        assert (await parts.bob.post(f"/api/runs/{word}/fork", json={"at": 2})).status_code == 404
        assert (await parts.bob.get(f"/api/runs/{own['session_id']}/diff/{word}")).status_code == 404
    assert len(parts.kernel.processes) == count + 1
    assert (await parts.ada.get("/api/runs/none/timeline")).status_code == 404  # in the same words as what is not hers
    assert (await parts.operator.get("/api/runs/none/timeline")).status_code == 404


@served()
async def test_a_kernel_without_a_store_says_so(parts: Served) -> None:
    await parts.ada.post("/api/agents/echo/chat", json={"message": "x", "session_id": "s"})
    answer = await parts.ada.get("/api/runs/s/timeline")
    assert answer.status_code == 409
    assert "--db" in answer.text


@pytest.mark.parametrize("path", ["timeline", "at/1"])
def test_a_run_is_read_again_after_a_restart(tmp_path: Path, path: str) -> None:
    """From the store, also where its process has ended."""

    async def main() -> None:
        store = str(tmp_path / "run.db")
        async with serving(guide(), store=store) as parts:
            await parts.ada.post("/api/agents/echo/chat", json={"message": "hello", "session_id": "s"})
        async with serving(guide(), store=store) as parts:
            answer = await parts.ada.get(f"/api/runs/s/{path}")
            assert answer.status_code == 200, answer.text

    in_loop(main())
