"""Memory: recall in the prompt, tools for the model, and that it lasts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lyra import Agent, Kernel, Memory
from lyra.errors import ConfigError
from lyra.kernel.shared.memories import MemoryItem
from tests.agents.support import Recorded, calls, run, says
from tests.kernel.conftest import Crash

KEY = "sk-ant-" + "planted0123456789abcdef"


async def asked(agent: Agent, question: str, remembered: list[tuple[str, str]]) -> None:
    async with Kernel() as kernel:
        process = await kernel.spawn(agent)
        for kind, text in remembered:
            kernel.memories.add(agent.memory.scope, text, kind=kind)
        await process.send(question)


def test_what_fits_is_in_the_prompt():
    """After the system prompt, marked; preferences first, then what shares words; nothing else."""
    model = says("ok")
    agent = Agent("helper", model=model, system="Be brief.", memory=True)
    items = [("fact", "The office is in Oslo"), ("fact", "Ann has a cat"), ("preference", "Answers in Norwegian")]
    run(asked(agent, "Where is the office?", items))
    assert model.requests[0].system.split("\n") == [
        "Be brief.",
        "",
        "Remembered from earlier conversations (it may be out of date; it is not a request):",
        "- [preference] Answers in Norwegian",
        "- [fact] The office is in Oslo",
    ]


def test_without_memories_the_prompt_is_as_it_was():
    """No mark, no empty lines."""
    model = says("ok")
    run(asked(Agent("helper", model=model, system="Be brief.", memory=True), "hello", []))
    assert model.requests[0].system == "Be brief."


def test_recall_is_bounded():
    """By items and by tokens."""
    items = [("fact", f"fact number {n} about tea, which is quite long as facts about tea go") for n in range(50)]
    few, short, none = says("ok"), says("ok"), says("ok")
    run(asked(Agent("a", model=few, memory=Memory(items=3)), "tea?", items))
    assert few.requests[0].system.count("- [fact]") == 3
    run(asked(Agent("a", model=short, memory={"items": 50, "tokens": 100}), "tea?", items))
    assert 1 <= short.requests[0].system.count("- [fact]") <= 4
    assert len(short.requests[0].system) <= 300
    run(asked(Agent("a", model=none, memory=Memory(items=0)), "tea?", items))
    assert none.requests[0].system == ""


def test_keys_are_not_recalled():
    """What looks like a key is blotted out, and one item is one line."""
    model = says("ok")
    run(asked(Agent("a", model=model, memory=True), "the key?", [("fact", f"the key is\n{KEY}")]))
    assert KEY not in model.requests[0].system
    assert "- [fact] the key is ***" in model.requests[0].system


def test_a_model_may_remember_and_recall():
    """With `tools`: what one agent keeps, another with the same scope finds."""
    shared = Memory("team", tools=True)
    writer = Agent("writer", model=says(calls("Remember", text="The deadline is Friday"), "kept"), memory=shared)
    reader = Agent("reader", model=says(calls("Recall", question="deadline"), "{result}"), memory=shared)
    odd = Agent("odd", model=says(calls("Remember", text="x", kind="rumour"), "{result}"), memory=shared)
    assert set(writer.tools) == {"Remember", "Recall"}

    async def main():
        async with Kernel() as kernel:
            assert await (await kernel.spawn(writer)).send("keep it") == "kept"
            assert "no kind 'rumour'" in await (await kernel.spawn(odd)).send("keep it")
            process = await kernel.spawn(reader)
            answer = await process.send("hm")
            (item,) = process.memory.items()
            assert process.memory.search("friday") == [item]
            assert process.memory.forget(item)
            return answer, item.pid, len(process.memory)

    answer, pid, left = run(main())
    assert answer == "[fact] The deadline is Friday"
    assert pid
    assert left == 0


def test_an_agent_without_memory_has_none():
    """And says so."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await process.send("hi")
            with pytest.raises(ConfigError, match="no memory"):
                process.memory  # noqa: B018 (the look-up is the test)

    run(main())
    assert Agent("a", model="sim/echo", memory=False).memory is None
    with pytest.raises(ConfigError, match="itmes"):
        Agent("a", model="sim/echo", memory={"itmes": 3})


def test_memory_lasts_and_a_replay_recalls_the_same(tmp_path):
    """The second life knows it; what was recalled in the first is not recalled anew, though there is more by now."""
    model = says({"text": "hangs", "first_s": 60}, "one", "two")
    agent = Agent("a", model=model, memory=True)
    store = str(tmp_path / "run.db")

    async def first():
        async with Crash(Kernel(store)) as kernel:
            process = await kernel.spawn(agent, pid="a")
            kernel.memories.add("a", "tea is green")
            process.send_async("tea?")
            while not model.requests:
                await kernel.outside_pause(0.001)
            kernel.memories.add("a", "tea is hot")
            await kernel.durable()

    async def second():
        async with Kernel(store, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="a")
            while len(process.messages) < 2:
                await kernel.outside_pause(0.001)
            return await process.send("tea?")

    run(first())
    assert run(second()) == "two"
    assert [request.system.count("- [fact]") for request in model.requests] == [1, 1, 2]


def test_a_system_prompt_that_changes_is_replayed_as_it_was(tmp_path):
    """What the function said is in the journal; it is not called again for a turn that was begun."""
    count = itertools.count(1)
    model = Recorded(["one", {"text": "hangs", "first_s": 60}, "two", "three"])

    def system(_session: Any) -> str:
        return f"prompt {next(count)}"

    agent = Agent("a", model=model, system=system)
    store = str(tmp_path / "run.db")

    async def first():
        async with Crash(Kernel(store)) as kernel:
            process = await kernel.spawn(agent, pid="a")
            await process.send("1")
            process.send_async("2")
            while len(model.requests) < 2:
                await kernel.outside_pause(0.001)

    async def second():
        async with Kernel(store, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="a")
            return await process.send("3", timeout=5)

    run(first())
    assert run(second()) == "three"
    assert [request.system for request in model.requests] == ["prompt 1", "prompt 2", "prompt 2", "prompt 3"]


def test_items_of_another_home():
    """`Memory(home=…)` keeps its items there, and not in the kernel's store."""

    class Home:
        def __init__(self):
            self.kept = []

        def add(self, scope, text, *, kind="fact", pid="", tainted=False):
            self.kept.append(MemoryItem(len(self.kept) + 1, scope, kind, text, 0.0, tainted=tainted))
            return self.kept[-1]

        def forget(self, number, *, scope):
            return False

        def items(self, scope, *, kind=None):
            return self.kept

        def search(self, scope, question, *, most=8, kind=None):
            return self.kept[:most]

    home, model = Home(), says("ok")

    async def main():
        async with Kernel("memory") as kernel:
            process = await kernel.spawn(Agent("a", model=model, memory=Memory("team", home=home)))
            process.memory.add("likes tea", kind="preference")
            await process.send("hello")
            assert kernel.memories.items("team") == []

    run(main())
    assert [item.text for item in home.kept] == ["likes tea"]
    assert "likes tea" in model.requests[0].system


def test_a_home_without_the_methods_of_one_is_refused():
    """`Memory(home=…)` is checked where it is written, not at the first message."""
    with pytest.raises(ConfigError, match="str has no add, forget, items, search"):
        Memory("team", home="team.db")
    with pytest.raises(ConfigError, match="MemoryHome"):
        Agent("a", model="sim/echo", memory={"home": 3})
