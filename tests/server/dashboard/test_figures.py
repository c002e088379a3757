"""The figures of the header: what is counted once, and what is known of the time before the server began."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra.server.dashboard.layout import FiguresNow, HeaderFigures, sparkline
from lyra.server.identity import Caller
from lyra.server.site import begin_listening
from tests.server.dashboard.support import Served, elements, logged_in, served, serving, words
from tests.server.dashboard.test_trace_pages import CHAT, asking
from tests.server.http.support import in_loop


async def _fails(ctx: Any, why: str) -> None:
    del ctx
    raise ValueError(why)


async def _hands_on(ctx: Any, why: str) -> None:
    await ctx.spawn(_fails, why).wait()
    raise ValueError(why)


async def _hands_on_twice(ctx: Any, why: str) -> None:
    await ctx.spawn(_hands_on, why).wait()
    raise ValueError(why)


async def _fails_otherwise(ctx: Any) -> None:
    await ctx.spawn(_fails, "one fault").wait()
    raise ValueError("another fault")


@pytest.mark.parametrize(
    ("program", "arguments", "count"),
    [(_fails, ("x",), 1), (_hands_on, ("x",), 1), (_hands_on_twice, ("x",), 1), (_fails_otherwise, (), 2)],
)
def test_a_fault_that_is_handed_on_is_one_failure(program: Any, arguments: tuple[str, ...], count: int) -> None:
    """An agent fails, and with it the process that called it: one thing went wrong. Another fault is counted."""

    async def main() -> None:
        programs = (_fails, _hands_on, _hands_on_twice, _fails_otherwise)
        async with serving(*programs) as parts, logged_in(parts) as browser:
            await browser.page("/")
            for _ in range(2):
                await parts.kernel.spawn(program, *arguments).wait()
            assert f"{2 * count} failed/min" in words(await browser.page("/figures"))

    in_loop(main())


def test_the_spend_of_today_is_known_from_before_the_server_began(tmp_path: Path) -> None:
    """The sum and the hours of the small picture, read from the journal; each call once."""
    store = str(tmp_path / "lyra.db")

    async def figures(parts: Served) -> FiguresNow:
        async with logged_in(parts) as browser:
            await browser.page("/")
        shared: HeaderFigures = parts.face.app.parts.get_shared(HeaderFigures)
        while not (now := shared.read(Caller())).spent_micro_usd or not sum(now.hours_micro_usd):
            await asyncio.sleep(0.01)
        return now

    async def main() -> None:
        async with serving(asking(), store=store) as parts:
            begin_listening(parts.face.app.parts)
            await parts.ada.post(CHAT, json={"message": "weather?"})
            before = await figures(parts)
        async with serving(asking(), store=store) as parts:
            begin_listening(parts.face.app.parts)
            after = await figures(parts)
            await parts.ada.post(CHAT, json={"message": "weather?"})
            twice = await figures(parts)
        assert sum(before.hours_micro_usd) == before.spent_micro_usd > 0
        assert (after.spent_micro_usd, sum(after.hours_micro_usd)) == (before.spent_micro_usd,) * 2
        assert twice.spent_micro_usd == sum(twice.hours_micro_usd) == 2 * before.spent_micro_usd

    in_loop(main())


@served(asking())
async def test_a_user_sees_only_their_own_hours(parts: Served) -> None:
    await parts.operator.get("/")
    await parts.ada.post(CHAT, json={"message": "weather?"})
    shared: HeaderFigures = parts.face.app.parts.get_shared(HeaderFigures)
    assert sum(shared.read(Caller.for_user("ada")).hours_micro_usd) > 0
    assert sum(shared.read(Caller.for_user("bob")).hours_micro_usd) == 0


@pytest.mark.parametrize(("values", "count"), [((), 0), ((5,), 2), ((0, 0), 2), ((1, 5, 2), 3)])
def test_the_small_picture_is_drawn_across(values: tuple[int, ...], count: int) -> None:
    """Also in the first hour of a day, of which there is one figure."""
    (line,) = elements(sparkline(values), "polyline")
    points = str(line["points"] or "").split()
    assert len(points) == count
    if points:
        assert points[0].startswith("0.0,")
        assert points[-1].startswith("72.0,")
