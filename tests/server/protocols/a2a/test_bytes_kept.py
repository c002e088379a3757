"""What the tasks of a user take is bounded in bytes, in the server's memory and in what the next task is told."""

from __future__ import annotations

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError

from lyra import Agent
from lyra.core import limits
from lyra.server.protocols.a2a import tasks as tasks_module
from tests.server.protocols.a2a.support import BOB, in_loop, message, scripted, serving, task_of

TEXT = "x" * 10_000  # an echo of it is kept twice


def test_ended_tasks_of_a_user_are_forgotten_when_they_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; small tasks, and those of other users, stay."""
    monkeypatch.setattr(tasks_module, "A2A_TASKS_BYTES_MAX", 50_000)
    assert limits.A2A_TASKS_BYTES_MAX > 2**20

    async def main() -> None:
        async with serving() as served, served.client() as client, served.client(token=BOB) as other:
            his = await task_of(other, message(TEXT))
            tasks = [await task_of(client, message(f"{number} {TEXT}")) for number in range(4)]
            small = [await task_of(client, message(str(number))) for number in range(5)]
            with pytest.raises(TaskNotFoundError):
                await client.get_task(pb.GetTaskRequest(id=tasks[0].id))
            for task in (tasks[-1], *small):
                await client.get_task(pb.GetTaskRequest(id=task.id))
            await other.get_task(pb.GetTaskRequest(id=his.id))

    in_loop(main())


def test_open_tasks_that_take_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is refused while the open tasks of its user leave no room for it, and taken once one has ended."""
    monkeypatch.setattr(tasks_module, "A2A_TASKS_BYTES_MAX", 25_000)
    waits = scripted("slow", {"text": "never", "first_s": 600})

    async def main() -> None:
        async with serving(waits) as served, served.client("slow", polling=True) as client:
            first, _second = [await task_of(client, message(TEXT)) for _ in range(2)]
            with pytest.raises(Exception, match="25000 bytes"):
                await task_of(client, message(TEXT))
            await client.cancel_task(pb.CancelTaskRequest(id=first.id))
            assert (await task_of(client, message(TEXT))).id

    in_loop(main())


def test_the_next_task_is_told_the_newest_of_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is left out, the oldest first."""
    monkeypatch.setattr(tasks_module, "A2A_CONTEXT_BYTES_MAX", 50_000)

    async def main() -> None:
        async with serving(Agent("echo", model="sim/echo")) as served, served.client() as client:
            for number in range(5):
                await task_of(client, message(f"{number} {TEXT}", context_id="c-1"))
            await task_of(client, message("last", context_id="c-1"))
            sessions = list(served.kernel.parts["agents"].sessions.values())
            told = next(session.messages for session in sessions if session.messages[-1].text == "last")
            assert [row.text[0] for row in told if row.role == "user"] == ["3", "4", "l"]

    in_loop(main())
