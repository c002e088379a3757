"""Background commands of a session: listed with their output, stopped by id, and on record after the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lyra.tools.builtin import builtin_tools
from tests.sage.agent.task_support import Model, calls, opened, result, task


def start(command: str) -> dict[str, Any]:
    return calls({"name": "Bash", "arguments": {"command": command, "run_in_background": True}})


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return calls({"name": name, "arguments": arguments})


def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "work").mkdir(exist_ok=True)
    return {"tools": builtin_tools(str(tmp_path / "work")), "permissions": {"mode": "bypass"}}


async def test_a_command_is_listed_until_after_its_end(tmp_path: Path) -> None:
    """Running, then done or failed, with the line and the end of its output."""
    script = [start("echo begun; sleep 60"), start("echo quick"), start("echo bad; exit 3"), {"text": "ok"}]
    model = Model(lead=script)
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        await session.say("lead: go")
        await session.until(lambda: [record.state for record in session.tasks.list()] == ["running", "done", "failed"])
        await session.until(lambda: "begun" in session.tasks.get("bash_1").text)
        first, second, third = session.tasks.list()
        assert (first.id, first.kind, first.name, first.description) == (
            "bash_1",
            "command",
            "Bash",
            "echo begun; sleep 60",
        )
        assert (second.text, third.text) == ("quick\n", "bad\n")
        assert first.ended_at is None
        assert second.ended_at is not None
        assert await session.tasks.stop("bash_1")
        await session.until(lambda: session.state("bash_1") == "stopped")
        assert not await session.tasks.stop("bash_1")


async def test_commands_of_a_closed_session_are_lost_and_say_so(tmp_path: Path) -> None:
    """Nothing is left running; what they printed is there, for the user and by BashOutput, and numbers go on."""
    model = Model(
        lead=lambda request: {
            "lead: first": start("echo kept; echo kept too; sleep 60"),
            "second": use("BashOutput", bash_id="bash_1"),
            "third": start("echo new"),
            "fourth": use("KillShell", bash_id="bash_1"),
        }.get(request.messages[-1].text, {"text": "ok"})
    )
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        await session.say("lead: first")
        await session.until(lambda: "kept too" in session.tasks.get("bash_1").text)
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        record = session.tasks.get("bash_1")
        assert record.state == "lost"
        assert record.text == "kept\nkept too\n"
        assert not await session.tasks.stop("bash_1")
        await session.say("second")
        told = result(model.requests[-1])
        assert told.startswith("kept\nkept too\n")
        assert "ended with the session that had started it" in told
        await session.say("third")
        assert "started in the background as bash_2" in result(model.requests[-1])
        await session.say("fourth")
        assert "bash_1 does not run any more" in result(model.requests[-1])
        await session.until(lambda: session.state("bash_2") == "done")
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        assert [(record.id, record.state) for record in session.tasks.list()] == [
            ("bash_1", "lost"),
            ("bash_2", "done"),
        ]


async def test_a_sub_agents_command_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """Its id has the sub-agent's; it is no command of the caller."""
    model = Model(
        lead=[calls(task("work", run_in_background=True)), use("BashOutput", bash_id="bash_1"), {"text": "ok"}],
        work=[start("echo mine; sleep 60"), {"text": "never", "first_s": 60}],
    )
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        await session.say("lead: go")
        await session.until(lambda: len(session.tasks.list()) == 2)
        agent, command = session.tasks.list()
        assert command.id == f"{agent.id}.bash_1"
        assert command.caller == agent.id
        assert await session.tasks.stop(agent.id)
        await session.until(lambda: session.state(command.id) != "running")
        await session.until(lambda: session.state(agent.id) == "stopped")
    assert "there is no job 'bash_1'" in result(model.of("lead")[-1])


async def test_old_commands_are_forgotten(tmp_path: Path, monkeypatch: Any) -> None:
    """The list has a length; numbers are not given again."""
    monkeypatch.setattr("lyra.sage.agent.tasks.runs._KEPT_MAX", 2)
    model = Model(lead=[start("true 1"), start("true 2"), start("true 3"), {"text": "ok"}])
    async with opened(tmp_path, model, **settings(tmp_path)) as session:
        await session.say("lead: go")
        await session.until(lambda: all(record.state == "done" for record in session.tasks.list()))
        assert [record.id for record in session.tasks.list()][-1] == "bash_3"
        assert len(session.tasks.list()) <= 3
        assert session.tasks.commands.last("sage") == 3
