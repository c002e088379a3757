"""Two runs are the same where the same happened in both, and differ from the first step on where it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.cli.replay.command import _lines
from lyra.models.sim import SimProvider
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import compare_runs
from lyra.server.dashboard.run_view import difference_view
from lyra.store.protocol import Store
from lyra.store.space import open_to_read

_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def timeline(store: str, pid: str) -> RunTimeline:
    _opened.append(open_to_read(store))
    return RunTimeline(StoredRows(_opened[-1]), pid)


async def page(text: str) -> str:
    return text


async def parts(text: str) -> list[str]:
    return ["x"] * 300 + [text]


async def reader(ctx: Any, ending: str) -> None:
    """Reads pages whose beginning is the same in all runs, and whose end is not."""
    await ctx.do(page, "short")
    await ctx.do(page, "a" * 5_000 + ending)


async def collector(ctx: Any, ending: str) -> None:
    await ctx.do(parts, ending)


async def counter(ctx: Any, count: int, last: str) -> str:
    for _ in range(count):
        await ctx.do(page, "same", idempotent=True)
    return str(await ctx.do(page, last))


async def child(ctx: Any) -> str:
    return f"{ctx.pid} {'y' * 400} {ctx.pid}"


async def parent(ctx: Any) -> Any:
    return (await ctx.spawn(child).wait()).result


def run(store: str, program: Any, **runs: tuple[Any, ...]) -> None:
    async def main() -> None:
        async with Kernel(store, programs=[reader, collector, counter, child, parent]) as kernel:
            for pid, arguments in runs.items():
                await kernel.spawn(program, *arguments, pid=pid).wait()

    asyncio.run(main())


@pytest.mark.parametrize(("program", "first"), [(reader, 3), (collector, 2)], ids=["a long text", "a long list"])
def test_values_that_differ_only_behind_the_text_that_is_shown_differ(store: str, program: Any, first: int) -> None:
    """What a step shows is cut; what is compared is not."""
    run(store, program, left=("1",), same=("1",), right=("2",))
    left, same, right = (timeline(store, pid) for pid in ("left", "same", "right"))
    left.steps[0].request = same.steps[0].request = right.steps[0].request = ""  # the argument itself is not cut
    assert left.steps[first - 1].result == right.steps[first - 1].result
    assert compare_runs(left, same).first is None
    assert compare_runs(left, right).first == first


def test_a_pid_that_is_also_a_word_makes_no_difference(store: str) -> None:
    """A run whose pid is the name of its agent, and stands in its messages, is the same as another that says so."""

    async def main() -> None:
        desk = Agent("desk", model=SimProvider(script={"replies": [{"text": "at the desk"}]}))
        async with Kernel(store, programs=[desk]) as kernel:
            for pid in ("desk", "other"):
                await (await kernel.spawn(desk, pid=pid)).send("is the desk open?")

    asyncio.run(main())
    assert compare_runs(timeline(store, "desk"), timeline(store, "other")).first is None


def test_a_value_that_is_the_pid_is_a_value(store: str) -> None:
    """A pid that a person chose does not stand for the process where the program says the same word."""
    run(store, counter, left=(0, "left"), right=(0, "right"))
    left, right = timeline(store, "left"), timeline(store, "right")
    left.steps[0].request = right.steps[0].request
    assert compare_runs(left, right).first == 2


def test_pids_inside_long_values_count_by_their_place(store: str) -> None:
    """Children have other pids in every run, also where they are named in a text that is too long to show."""
    run(store, parent, one=(), **{f"between-{number}": () for number in range(20)}, two=())
    one, two = timeline(store, "one"), timeline(store, "two")
    assert len(one.pids[1]) < len(two.pids[1])
    assert compare_runs(one, two).first is None


def test_the_first_difference_of_long_runs_is_shown(store: str) -> None:
    """However far behind: by `lyra diff`, over HTTP and on the page; each shows as many steps as it has room for."""
    run(store, counter, left=(2_100, "left"), right=(2_100, "right"))
    compared = compare_runs(timeline(store, "left"), timeline(store, "right"))
    compared.left.steps[0].request = compared.right.steps[0].request
    compared = compare_runs(compared.left, compared.right)
    assert compared.first == 2_102
    lines = _lines(compared, every=False)
    assert "step 2102 is the first that differs:" in lines
    assert [line for line in lines if line.startswith("-") and "left" in line and " 2102 " in line]
    steps = compared.to_data()["steps"]
    assert [row["right"]["result"] for row in steps if row["number"] == 2_102] == ["right"]
    assert len(steps) <= 2_000
    assert 'class="first-difference"' in str(difference_view(compared, lambda pid, number: f"{pid}/{number}"))
