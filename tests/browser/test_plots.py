"""Plots, waterfalls and graphs in a browser: drawn from their tables, used by keyboard, exported, followed live."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PAST, NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import PHONE, SCREEN, WatchedPage

_BOX_HEIGHTS = "[...document.querySelectorAll('.plot-box')].map((box) => box.getBoundingClientRect().height)"
_CLICK_FIRST_BAR = """() => {
  const bar = document.querySelector("#spend-by-day .plot-bar").getBoundingClientRect();
  const place = { clientX: bar.x + bar.width / 2, clientY: bar.y + bar.height / 2, bubbles: true };
  document.querySelector("#spend-by-day .plot-cursor").dispatchEvent(new MouseEvent("click", place));
}"""


@pytest.fixture
def worked_stage(stage: Stage, loop_runner: asyncio.Runner) -> Stage:
    """A stage whose agents have called their models."""

    async def work() -> None:
        await stage.office.bring(2)
        await stage.until(lambda: any(row.calls for row in _sums(stage)))

    loop_runner.run(work())
    return stage


def _sums(stage: Stage) -> list[Any]:
    face: Any = stage.server._faces[0]
    return list(face.app.parts.records.sums())


# ---------------------------------------------------------------- plots


@pytest.mark.long
async def test_a_plot_is_drawn_from_its_table_without_moving_anything(worked_stage: Stage, new_page: NewPage) -> None:
    """The boxes have their height before the script, each picture has a title, and each bar is a cell of the table."""
    async with new_page(java_script_enabled=False) as plain:
        await plain.go("/costs")
        before = await plain.page.evaluate(_BOX_HEIGHTS)
        assert await plain.page.locator(".plot-box svg").count() == 0
        assert await plain.page.locator("#spend-by-day td[data-value]").count() > 0
    async with new_page() as page:
        await page.go("/costs")
        await page.shown("#spend-by-day .plot-bar")
        assert await page.page.evaluate(_BOX_HEIGHTS) == before
        assert await page.page.locator(".plot-box svg[role=img] > title").count() == len(before) == 5
        cells = (
            "[...document.querySelectorAll('#spend-by-day td')].filter((cell) => Number(cell.dataset.value) > 0).length"
        )
        assert await page.page.locator("#spend-by-day .plot-bar").count() == await page.page.evaluate(cells)
        names = await page.page.locator("#spend-by-day .plot-legend li").all_inner_texts()
        assert "style" in {name.strip() for name in names}
        fills = await page.page.evaluate(
            "[...document.querySelectorAll('#spend-by-day .plot-bar')].map((bar) => bar.getAttribute('fill'))"
        )
        assert all(fill.startswith("url(#") for fill in fills)


async def test_a_plot_is_read_by_the_keyboard(worked_stage: Stage, browser_page: WatchedPage) -> None:
    """It is a slider: the arrow keys go from day to day, and the values are said and shown."""
    await browser_page.go("/costs")
    cursor = await browser_page.shown("#spend-by-day .plot-cursor")
    await cursor.focus()
    assert await cursor.get_attribute("role") == "slider"
    today = await cursor.get_attribute("aria-valuetext")
    assert today is not None
    assert "$" in today
    assert await browser_page.page.locator("#spend-by-day .plot-tip").is_visible()
    await browser_page.page.keyboard.press("ArrowLeft")
    assert await cursor.get_attribute("aria-valuenow") == "28"
    assert await cursor.get_attribute("aria-valuetext") != today
    await browser_page.page.keyboard.press("Home")
    assert await cursor.get_attribute("aria-valuenow") == "0"
    await browser_page.page.keyboard.press("Escape")
    assert not await browser_page.page.locator("#spend-by-day .plot-tip").is_visible()


async def test_a_plot_is_exported(worked_stage: Stage, browser_page: WatchedPage, tmp_path: Path) -> None:
    """SVG with its colours and without classes, PNG, and the table as CSV."""
    await browser_page.go("/costs")
    await browser_page.shown("#spend-by-day .plot-bar")
    contents: dict[str, bytes] = {}
    for word in ("SVG", "PNG", "CSV"):
        async with browser_page.page.expect_download() as starting:
            await browser_page.page.locator("#spend-by-day .plot-downloads button", has_text=word).click()
        path = tmp_path / word
        await (await starting.value).save_as(path)
        contents[word] = path.read_bytes()
    assert contents["SVG"].startswith(b"<svg")
    assert b"class=" not in contents["SVG"]
    assert b"rgb(" in contents["SVG"]
    assert contents["PNG"].startswith(b"\x89PNG")
    lines = contents["CSV"].decode().splitlines()
    assert lines[0].startswith("Day,")
    assert len(lines) == 31


async def test_a_click_on_a_bar_narrows_and_the_page_follows_new_calls(
    worked_stage: Stage, browser_page: WatchedPage
) -> None:
    await browser_page.go("/costs")
    await browser_page.shown("#spend-by-day .plot-bar")
    calls = sum(row.calls for row in _sums(worked_stage))
    cursor = browser_page.page.locator("#tokens .plot-cursor")
    await cursor.focus()
    before = await cursor.get_attribute("aria-valuetext")
    await worked_stage.office.bring(5)
    await worked_stage.until(lambda: sum(row.calls for row in _sums(worked_stage)) > calls)
    total = browser_page.page.locator("#spend table:not(figure table) tbody td:nth-child(2)")
    async with asyncio.timeout(30):
        while sum(int(text) for text in await total.all_inner_texts()) <= calls:
            await asyncio.sleep(0.05)
    async with asyncio.timeout(30):
        while await cursor.get_attribute("aria-valuetext") == before:
            await asyncio.sleep(0.05)
    await browser_page.shown("#spend-by-day .plot-bar")
    await browser_page.page.evaluate(_CLICK_FIRST_BAR)
    await browser_page.shown(".chosen code")
    assert "agent=" in browser_page.page.url


# ---------------------------------------------------------------- traces


async def test_a_row_of_the_waterfall_shows_its_call_in_place(worked_stage: Stage, browser_page: WatchedPage) -> None:
    """A click or Enter shows the call; the arrow keys go from row to row; the address can be kept."""
    await browser_page.go("/traces")
    await (await browser_page.shown("table a[href*='traces/']")).click()
    link = await browser_page.shown("tr[data-kind=model] .span-link")
    await link.click()
    await browser_page.shown("#call h3:has-text('Request')")
    assert await link.get_attribute("aria-current") == "true"
    assert "span=" in browser_page.page.url
    first = await browser_page.page.locator("#call").inner_text()
    await browser_page.page.reload()
    await browser_page.shown("#call h3:has-text('Request')")
    assert (await browser_page.page.locator("#call").inner_text()).split() == first.split()
    links = browser_page.page.locator(".span-link")
    await links.first.focus()
    await browser_page.page.keyboard.press("ArrowDown")
    await browser_page.page.keyboard.press("Enter")
    await browser_page.page.locator(".span-link[aria-current]").wait_for()
    assert await links.nth(1).get_attribute("aria-current") == "true"


# ---------------------------------------------------------------- nodes and pipelines


@PAST
async def test_a_node_is_rolled_back_and_the_other_page_follows(stage: Stage, new_page: NewPage) -> None:
    node = "/nodes/shipping_quote_v1"
    async with new_page() as page, new_page() as other:
        await other.go(node)
        await other.page.locator("#live[data-live=open]").wait_for()
        await page.go(node)
        await page.shown("#confidence .plot-band")
        mode = await page.page.locator("#node .state").first.inner_text()
        button = await page.shown("button:has-text('Roll back')")
        await button.click()
        await page.shown("#changes td:has-text('set by hand')")
        await other.shown("#changes td:has-text('set by hand')")
        assert await page.page.locator("#node .state").first.inner_text() != mode


_LABELS = """[...document.querySelectorAll("#confidence .plot-label")].map((label) => {
  const [box, plot] = [label.getBoundingClientRect(), label.closest("svg").getBoundingClientRect()];
  const lines = [...label.querySelectorAll("tspan")].map((line) => line.textContent);
  return { name: label.querySelector("title").textContent, shown: lines.join(" "),
    inside: box.left >= plot.left && box.right <= plot.right && box.top >= plot.top && box.bottom <= plot.bottom,
    top: box.top, bottom: box.bottom };
})"""


@PAST
@pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
async def test_the_labels_of_lines_are_read_whole(stage: Stage, new_page: NewPage, viewport: dict[str, int]) -> None:
    """None is cut off at the edge of the picture, and none lies over another."""
    async with new_page(viewport=viewport) as page:
        await page.go("/nodes/loyalty_points_v1")
        await page.shown("#confidence .plot-label")
        labels = await page.page.evaluate(_LABELS)
    assert any("needed for" in label["name"] for label in labels), labels
    assert [label["shown"] for label in labels] == [label["name"] for label in labels]
    assert all(label["inside"] for label in labels), labels
    ordered = sorted(labels, key=lambda label: label["top"])
    assert all(above["bottom"] <= below["top"] + 4 for above, below in pairwise(ordered)), labels


@PAST
async def test_promote_is_grey_with_the_reason_where_a_divergence_blocks_it(stage: Stage, new_page: NewPage) -> None:
    async with new_page() as page:
        await page.go("/nodes/loyalty_points_v1")
        promote = await page.shown("button:has-text('Promote')")
        assert await promote.is_disabled()
        text = await page.page.locator("main").inner_text()
        assert "a divergence could be reproduced" in text
        assert await page.page.locator(".divergence pre").count() > 0


_GATED = {
    "name": "gated",
    "agents": [
        {"name": "wait here", "agent": "gate", "stage_order": 1, "default_next": "wait there"},
        {"name": "wait there", "agent": "gate", "stage_order": 2, "default_next": "end"},
    ],
}
_PLACE = "document.querySelector('.envelope')?.getAttribute('cy')"


async def test_the_envelope_moves_while_the_page_is_open(stage: Stage, browser_page: WatchedPage) -> None:
    """The mark of the envelope is one element that moves from stage to stage, without a reload."""
    gate = asyncio.Semaphore(0)

    async def wait(_envelope: Any) -> dict[str, Any]:
        await gate.acquire()
        return {}

    async def run() -> None:
        async for _event in stage.kernel.execute_pipeline(_GATED, {"raw_input": "x"}, pid="gated-1"):
            pass

    stage.kernel.register_agent("gate", wait)
    page = browser_page.page
    await browser_page.go("/pipelines")
    await page.locator("#live[data-live=open]").wait_for()
    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await page.locator(".envelope.running").wait_for()
        await page.evaluate("window.mark = document.querySelector('.envelope')")
        first = float(await page.evaluate(_PLACE))
        gate.release()
        async with asyncio.timeout(30):
            while float(await page.evaluate(_PLACE)) <= first:
                await asyncio.sleep(0.02)
        gate.release()
        await page.locator(".envelope.ended").wait_for()
    assert await page.evaluate("window.mark === document.querySelector('.envelope')")


async def test_plots_and_graphs_fit_a_phone(worked_stage: Stage, new_page: NewPage) -> None:
    async with new_page(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        await page.go("/costs")
        await page.shown("#spend-by-day .plot-bar")
        widths = "[...document.querySelectorAll('.plot-box svg')].map((svg) => svg.getBoundingClientRect().right)"
        assert max(await page.page.evaluate(widths)) <= PHONE["width"]
        assert await page.overflow_px() <= 0


_FRAME = """async ([unit, peak, times]) => {
  const script = [...document.scripts].find((row) => row.src.endsWith("plot.js")).src;
  const { axisTicks, frameOf } = await import(script.replace("plot.js", "plot_scales.js"));
  const cells = times.map(() => ({ value: peak }));
  const series = [{ name: "x", roles: ["line"], cells }];
  const data = { kind: "lines", unit, low: null, steps: times.map((at) => ({ at })), series };
  const frame = frameOf(data, 600, 200);
  const texts = axisTicks(frame.low, frame.high, unit).map((tick) => tick.text);
  const places = times.map((_, index) => frame.x(index));
  return { texts, places, found: places.map((place) => frame.indexAt(place + 1)) };
}"""


async def test_axes_name_different_values_and_are_to_scale(stage: Stage, browser_page: WatchedPage) -> None:
    """No two labels of an axis are equal, whatever the amounts; what was twice as long ago lies twice as far away."""
    await browser_page.go("/costs")
    await browser_page.page.wait_for_function("[...document.scripts].some((row) => row.src.endsWith('plot.js'))")
    for unit in ("usd", "ms", "share", ""):
        for peak in (0.0000031, 0.0004, 0.011, 0.02, 0.3, 1.0, 4.6, 17.0, 999.0, 12_345.0, 9_800_000.0):
            drawn = await browser_page.page.evaluate(_FRAME, [unit, peak, [0, 60, 600, 6_000]])
            assert len(set(drawn["texts"])) == len(drawn["texts"]) > 1, (unit, peak, drawn["texts"])
            left, first, second, right = drawn["places"]
            assert (first - left) / (right - left) == pytest.approx(0.01)
            assert (second - left) / (right - left) == pytest.approx(0.1)
            assert drawn["found"] == [0, 1, 2, 3]
    drawn = await browser_page.page.evaluate(_FRAME, ["usd", 0.0151, [0, 1]])
    assert drawn["texts"] == ["$0", "$0.005", "$0.010", "$0.015"]
