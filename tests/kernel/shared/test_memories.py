"""Memories: short texts that outlive the process that learned them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.core.limits import MEMORY_TEXT_MAX
from lyra.errors import ConfigError
from lyra.kernel import Kernel
from tests.kernel.conftest import Crash, run


def texts(items):
    return [item.text for item in items]


def test_add_search_forget(target):
    """By scope, the best first; the same thing twice is one thing."""

    async def main():
        async with Kernel(target) as kernel:
            memories = kernel.memories
            tea = memories.add("ann", "Ann likes green tea", kind="preference")
            memories.add("ann", "The office is in Oslo")
            memories.add("bob", "Bob likes coffee")
            assert memories.add("ann", "Ann likes green tea ", kind="preference") == tea
            assert texts(memories.search("ann", "which tea?")) == ["Ann likes green tea"]
            assert texts(memories.search("ann", "tea office", kind="fact")) == ["The office is in Oslo"]
            assert memories.search("bob", "tea") == []
            assert memories.scopes() == ["ann", "bob"]
            assert memories.forget(tea.id, scope="ann")
            assert not memories.forget(tea.id, scope="ann")
            assert memories.search("ann", "tea") == []
            assert texts(memories.items("ann")) == ["The office is in Oslo"]

    run(main())


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "killed"])
def test_memories_survive(path, crashed):
    """A clean close (a snapshot) and a crash (the journal) both bring them back, ids included."""

    async def first():
        kernel = Kernel(path)
        async with Crash(kernel) if crashed else kernel:
            forgotten = kernel.memories.add("a", "the first")
            kernel.memories.add("a", "the second")
            kernel.memories.forget(forgotten.id, scope="a")
            await kernel.durable()

    async def second():
        async with Kernel(path) as kernel:
            assert texts(kernel.memories.items("a")) == ["the second"]
            assert texts(kernel.memories.search("a", "second")) == ["the second"]
            return kernel.memories.add("a", "the third").id

    run(first())
    assert run(second()) == 3


def test_a_full_scope_loses_its_oldest(monkeypatch):
    """There is a bound, and it is the old ones that go."""
    monkeypatch.setattr("lyra.kernel.shared.memories.MEMORY_ITEMS_MAX", 3)

    async def main():
        async with Kernel() as kernel:
            for n in range(5):
                kernel.memories.add("a", f"number {n}")
            return texts(kernel.memories.items("a"))

    assert run(main()) == ["number 2", "number 3", "number 4"]


def test_a_key_is_not_kept(path):
    """What looks like one is blotted out before it is written."""
    key = "sk-ant-" + "planted0123456789abcdef"

    async def main():
        async with Kernel(path) as kernel:
            return kernel.memories.add("a", f"the key is {key}").text

    assert run(main()) == "the key is ***"
    assert all(key.encode() not in file.read_bytes() for file in Path(path).parent.iterdir())


def test_what_is_no_memory_is_refused():
    """Empty, too long, no text."""

    async def main():
        async with Kernel() as kernel:
            for wrong in ("  ", "x" * (MEMORY_TEXT_MAX + 1), 7):
                with pytest.raises(ConfigError):
                    kernel.memories.add("a", wrong)  # type: ignore[arg-type]
            with pytest.raises(ConfigError):
                kernel.memories.add("", "text")

    run(main())
