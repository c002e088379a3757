"""Notices: a model is told between its calls, once, and a replay is told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lyra import Agent, Kernel, tool
from lyra.agents.session.shared import Notice, runtime_of
from lyra.agents.turn.turn import notice_message
from lyra.agents.turn.unfinished import find_unfinished_turn
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash


class Source:
    def __init__(self, *texts: str) -> None:
        self.left = {f"key {text}": text for text in texts}
        self.told: list[str] = []

    def waiting(self) -> list[Notice]:
        return [Notice(key, text) for key, text in self.left.items()]

    def on_taken(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.left.pop(key, None)
            self.told.append(key)


def texts(process: Any) -> list[str]:
    return [message.text for message in process.messages if message.role == "user"]


def test_a_notice_comes_with_the_next_call_and_starts_none() -> None:
    """After the message that begins a turn; one that comes during a turn is told before the next call of the model."""
    source = Source("first")

    def work() -> str:
        """Work."""
        source.left["key second"] = "second"
        return "worked"

    model = says(calls("work"), "done", "again")

    async def main() -> list[str]:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=model, tools=[tool(work)]), pid="a")
            runtime_of(kernel).notices["a"] = source
            await asyncio.sleep(0.01)
            assert model.requests == []
            await process.send("go")
            await process.send("more")
            return texts(process)

    mark = "(Notice by the program, not by the user.)"
    assert run(main()) == ["go", f"{mark}\nfirst", f"{mark}\nsecond", "more"]
    assert [message.role for message in model.requests[1].messages] == ["user", "user", "assistant", "tool", "user"]
    assert source.told == ["key first", "key second"]


def test_a_replay_is_told_the_same(tmp_path: Path) -> None:
    """The row of the journal counts, also where the source has other notices by now, or is not there any more."""
    store = str(tmp_path / "run.db")
    model = says({"text": "hangs", "first_s": 60}, "answered")
    agent = Agent("a", model=model)

    async def first() -> None:
        async with Crash(Kernel(store, programs=[agent])) as kernel:
            process = await kernel.spawn(agent, pid="a")
            runtime_of(kernel).notices["a"] = Source("first")
            process.send_async("go")
            while not model.requests:
                await asyncio.sleep(0.001)
            await kernel.durable()

    async def cut_off() -> list[str]:
        async with Kernel(store) as kernel:
            turn = find_unfinished_turn(kernel, "a")
            assert turn is not None
            return [message.text for message in turn.messages]

    async def second(source: Source | None) -> tuple[list[str], Source | None]:
        kernel = Kernel(store)
        await kernel.start()
        if source is not None:
            runtime_of(kernel).notices["a"] = source
        process = await kernel.spawn(agent, pid="a")
        while len(process.messages) < 3:
            await asyncio.sleep(0.001)
        told = texts(process)
        await kernel.close()
        return told, source

    run(first())
    assert run(cut_off()) == ["(Notice by the program, not by the user.)\nfirst"]
    told, source = run(second(Source("other")))
    assert told == ["go", "(Notice by the program, not by the user.)\nfirst"]
    assert source is not None
    assert source.told == ["key first"]
    assert run(second(None))[0] == told


def test_words_of_the_user_are_told_as_such() -> None:
    """Beside a notice of the program; a row of an earlier version, which has no third part, is the program's."""
    assert notice_message([["a", "done"]]).text == "(Notice by the program, not by the user.)\ndone"
    both = notice_message([["a", "done"], ["b", "use tabs", True]]).text
    assert both == (
        "(Notice by the program, not by the user.)\ndone\n(The user sent this while you were working.)\nuse tabs"
    )


def test_words_of_the_user_in_the_middle_of_a_turn_outlast_a_crash(tmp_path: Path) -> None:
    """They are in the journal once the model was given them: the turn that was cut off has them."""
    store = str(tmp_path / "run.db")

    class User(Source):
        def waiting(self) -> list[Notice]:
            return [notice._replace(by_user=True) for notice in super().waiting()]

    source = User()

    def work() -> str:
        """Work."""
        source.left["user 1"] = "use tabs"
        return "worked"

    model = says(calls("work"), {"text": "hangs", "first_s": 60})
    agent = Agent("a", model=model, tools=[tool(work)])

    async def first() -> None:
        async with Crash(Kernel(store, programs=[agent])) as kernel:
            process = await kernel.spawn(agent, pid="a")
            runtime_of(kernel).notices["a"] = source
            process.send_async("go")
            while len(model.requests) < 2:
                await asyncio.sleep(0.001)
            await kernel.durable()

    async def cut_off() -> list[str]:
        async with Kernel(store) as kernel:
            turn = find_unfinished_turn(kernel, "a")
            assert turn is not None
            return [message.text for message in turn.messages if message.role == "user"]

    run(first())
    assert run(cut_off()) == ["(The user sent this while you were working.)\nuse tabs"]
