"""The page of costs: by agent, model, key and user, narrowed, as a table, as a plot's data and as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lyra import Agent
from lyra.cli.main import main
from lyra.core.clock import SystemClock
from lyra.kernel import Child, Kernel
from lyra.models.sim import SimProvider
from lyra.server.dashboard.pages.costs import OTHERS, CostFilter, by_day, costs_csv, filter_sums, group_totals
from lyra.server.dashboard.words import PlotColumn, PlotStep, money, plot, value_text
from lyra.server.http.past.records import CostSum
from lyra.server.identity import Caller
from tests.server.dashboard.support import ADA, BOB, OPERATOR, Served, elements, logged_in, served, serving, texts
from tests.server.dashboard.test_trace_pages import CHAT, asking
from tests.server.gateway.support import ServedGateway, serving_gateway
from tests.server.http.support import in_loop

DAY = "2026-11-17"
NOON = 1_794_916_800.0  # of that day


def cost(agent: str = "a", micro_usd: int = 10, **fields: Any) -> CostSum:
    values = {"model": "m", "day": DAY, "owner": "ada", "calls": 1, **fields}
    return CostSum(agent=agent, cost_micro_usd=micro_usd, **values)


# ---------------------------------------------------------------- sums


def test_sums_are_narrowed_to_what_was_chosen_and_to_the_caller() -> None:
    sums = [cost("a"), cost("b", key="k1"), cost("c", owner="bob"), cost("d", day="2026-01-01")]
    operator = Caller()
    assert [row.agent for row in filter_sums(sums, CostFilter({}), operator, NOON)] == ["a", "b", "c"]
    assert [row.agent for row in filter_sums(sums, CostFilter({}), Caller.for_user("ada"), NOON)] == ["a", "b"]
    assert [row.agent for row in filter_sums(sums, CostFilter({"key": "k1"}), operator, NOON)] == ["b"]
    assert [row.agent for row in filter_sums(sums, CostFilter({"key": "(no key)"}), operator, NOON)] == ["a", "c"]
    assert len(filter_sums(sums, CostFilter({}, 366), operator, NOON)) == 4


def test_days_are_stacked_with_the_dearest_first_and_the_rest_together() -> None:
    sums = [cost(f"agent{number}", micro_usd=100 - number) for number in range(12)]
    days = by_day(sums, "agent", ["2026-11-16", DAY])
    assert days.groups[:2] == ["agent0", "agent1"]
    assert days.groups[-1] == OTHERS
    assert len(days.groups) == 8
    (empty_day, no_costs), (day, costs) = days.rows
    assert (empty_day, sum(no_costs)) == ("2026-11-16", 0)
    assert (day, sum(costs)) == (DAY, sum(100 - number for number in range(12)))
    assert costs[-1] == sum(100 - number for number in range(7, 12))
    (first, *_) = group_totals(sums, "agent")
    assert (first.group, first.calls, first.micro_usd) == ("agent0", 1, 100)


def test_the_csv_has_no_formulas() -> None:
    rows = list(csv.reader(io.StringIO(costs_csv([cost("=HYPERLINK(1)", micro_usd=1_500_000), cost('a,"b"')]))))
    assert rows[0][:5] == ["day", "agent", "model", "key", "user"]
    assert {row[1] for row in rows[1:]} == {"'=HYPERLINK(1)", 'a,"b"'}
    assert sorted(row[10] for row in rows[1:]) == ["0.000010", "1.500000"]
    for text in ("+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1"):
        for field in ("agent", "model", "key", "owner"):
            (_, row) = csv.reader(
                io.StringIO(costs_csv([msgspec.structs.replace(cost(), **{field: text})]), newline="")
            )
            assert f"'{text}" in row, (field, text)


# ---------------------------------------------------------------- the plot


def test_a_plot_has_its_data_as_a_table_before_any_script() -> None:
    columns = [PlotColumn("p50", "line low"), PlotColumn("<b>", "line high", "costs?agent=x")]
    html = plot("latency", "Latency", "about", columns, [PlotStep("12:00", "12", [1.5, None])], unit="ms")
    (figure,) = elements(html, "figure")
    assert (figure["id"], figure["data-plot"], figure["data-unit"]) == ("latency", "lines", "ms")
    cells = elements(html, "td")
    assert cells[0]["data-value"] == "1.5"
    assert "data-value" not in cells[1]
    assert "<b>" not in html.replace("&lt;b&gt;", "")
    heads = elements(html, "th")
    assert [head.get("data-role") for head in heads[1:3]] == ["line low", "line high"]
    assert heads[2]["data-href"] == "costs?agent=x"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "usd", "–"),
        (1.5, "usd", "$1.50"),
        (1500.0, "ms", "1.5 s"),
        (0.5, "share", "50.000 %"),
        (1200, "", "1,200"),
    ],
)
def test_values_are_written_in_their_unit(value: float | None, unit: str, text: str) -> None:
    assert value_text(value, unit) == text


# ---------------------------------------------------------------- the page


@served(asking())
async def test_costs_are_shown_by_day_and_narrowed(parts: Served) -> None:
    async with logged_in(parts, OPERATOR) as operator, logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob:
        assert "What calls of models cost stands here" in texts(await operator.page("/costs"))
        await parts.ada.post(CHAT, json={"message": "weather?"})
        for by in ("agent", "model", "key", "user"):
            page = await ada.page(f"/costs?by={by}")
            figures = {figure["id"]: figure for figure in elements(page, "figure")}
            assert figures["spend-by-day"]["data-plot"] == "stacked"
            assert set(figures) == {"spend-by-day", "latency", "tokens", "cache", "trouble"}
        page = await ada.page("/costs")
        assert "echo" in texts(page)
        narrower = [str(link["href"]) for link in elements(page, "a") if "agent=echo" in str(link.get("href"))]
        assert narrower
        assert "agent: echo" in texts(await ada.page(narrower[0].removeprefix(".")))
        assert "What calls of models cost stands here" in texts(await ada.page("/costs?agent=other"))
        assert "What calls of models cost stands here" in texts(await bob.page("/costs"))
        for wrong in ("by=colour", "range=century", "days=0"):
            await ada.page(f"/costs?{wrong}", status=400)
        for name in ("hour", "day", "month"):
            spend = await ada.page(f"/costs?range={name}", region="series")
            assert "data-value" in spend


@served(asking())
async def test_the_csv_has_what_the_caller_may_see(parts: Served) -> None:
    await parts.ada.post(CHAT, json={"message": "weather?"})
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob:
        answer = await ada.http.get("/costs.csv?days=7")
        assert answer.headers["content-type"].startswith("text/csv")
        assert "attachment" in answer.headers["content-disposition"]
        head, row = list(csv.reader(io.StringIO(answer.text)))
        values = dict(zip(head, row, strict=True))
        assert (values["agent"], values["calls"], values["user"]) == ("echo", "2", "ada")
        assert float(values["cost_usd"]) > 0
        assert len(list(csv.reader(io.StringIO((await bob.http.get("/costs.csv")).text)))) == 1


@served(asking())
async def test_all_addresses_are_relative(parts: Served) -> None:
    """The pages work below a path at which the application is mounted."""
    await parts.ada.post(CHAT, json={"message": "weather?"})
    async with logged_in(parts, ADA) as ada:
        trace_id = (await parts.ada.get("/api/traces")).json()["traces"][0]["trace_id"]
        for path in ("/costs", "/traces", f"/traces/{trace_id}", "/nodes", "/pipelines", "/services"):
            page = await ada.page(path)
            pairs = [(name, "href") for name in ("a", "link")] + [
                ("script", "src"),
                ("form", "action"),
                ("th", "data-href"),
            ]
            addresses = [str(row[key]) for name, key in pairs for row in elements(page, name) if row.get(key)]
            assert addresses
            assert [address for address in addresses if address.startswith("/") or "://" in address] == []


@served()
async def test_restarts_of_supervised_processes_are_counted(parts: Served) -> None:
    await parts.operator.get("/api/costs")  # opens the parts

    async def failing(ctx: Any) -> None:
        raise ValueError("again")

    supervisor = parts.kernel.supervise([Child("x", failing)], max_restarts=3, window_s=60)
    await supervisor.wait()
    points = parts.face.app.parts.records.series.points("hour", parts.kernel.clock.now(), lambda _user: True)
    assert sum(point.restarts for point in points) == 3


def test_costs_of_gateway_keys_are_told_also_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call through the gateway counts for its key: when it happens, and as the journal tells it later. One with a
    token of the server counts for no key, of a model as of an agent."""
    store = str(tmp_path / "lyra.db")

    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}
    clerk = Agent("clerk", model=SimProvider(script={"replies": [{"text": "yes"}], "price": price}))

    async def spend() -> None:
        async with serving_gateway(store=store, programs=(clerk,)) as parts:
            async with parts.client(await parts.key("ci")) as http:
                body = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
                answer = await http.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
            for model in ("openai/gpt-4o-mini", "agent/clerk"):
                answer = await parts.operator.post("/v1/chat/completions", json={**body, "model": model})
                assert answer.status_code == 200, answer.text
            await look(parts)

    async def look_again() -> None:
        async with serving_gateway(store=store, programs=(clerk,)) as parts:
            await look(parts)

    async def look(parts: ServedGateway) -> None:
        groups = (await parts.operator.get("/api/costs", params={"by": "key"})).json()["groups"]
        assert [(group["key"], group["calls"]) for group in groups if group["key"]] == [("ci", 1)]
        assert "ci" in texts((await parts.operator.get("/costs?by=key")).text)

    in_loop(spend())
    capsys.readouterr()
    assert main(["cost", store, "--by", "key", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["key"], row["calls"]) for row in listed["rows"]] == [("ci", 1)]
    in_loop(look_again())


starts: list[str] = []


async def shaky(ctx: Any, word: str) -> None:
    """Crashes the first two times."""
    starts.append(word)
    if len(starts) < 3:
        raise RuntimeError("overloaded")
    await ctx.receive()


async def steady(ctx: Any, word: str) -> None:
    await ctx.receive()


def test_restarts_of_the_time_before_the_server_are_counted_once(tmp_path: Path) -> None:
    """From the journal, as costs are; children that were started once are none, and those of today's server are not
    counted twice."""
    store = str(tmp_path / "run.db")
    starts.clear()

    async def main() -> None:
        async with Kernel(store, programs=[shaky, steady]) as kernel:
            children = [Child("shaky", shaky, ("x",)), Child("a", steady, ("a",)), Child("b", steady, ("b",))]
            await kernel.supervise(children, pid="team")
            while len(starts) < 3:
                await asyncio.sleep(0.01)
            await kernel.durable()
        async with serving(store=store) as parts:
            await parts.operator.get("/api/costs")
            records = parts.face.app.parts.records
            points = records.series.points("hour", parts.kernel.clock.now(), lambda _: True)
            assert sum(point.restarts for point in points) == 2

    in_loop(main())


class WrongClock(SystemClock):
    """The machine's clock, ahead by so much; a test may set it right."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def now(self) -> float:
        return SystemClock.now() + self.ahead_s


async def _spent(parts: Served, *answers: str) -> int:
    """Have the agent answer so often; what that cost, in micro-dollars."""
    total_usd = 0.0
    for message in answers:
        answer = await parts.ada.post(CHAT, json={"message": message})
        assert answer.status_code == 200, answer.text
        total_usd += answer.json()["usage"]["cost_usd"]
    return round(total_usd * 1_000_000)


async def _check_all_costs(parts: Served, micro_usd: int, traces: int) -> None:
    """Every screen has the whole amount, and every trace is listed with the last one first."""
    assert (await parts.operator.get("/api/costs")).json()["total_usd"] == pytest.approx(micro_usd / 1e6)
    rows = list(csv.DictReader(io.StringIO((await parts.operator.get("/costs.csv")).text)))
    assert round(sum(float(row["cost_usd"]) for row in rows) * 1_000_000) == micro_usd
    points = parts.face.app.parts.records.series.points("hour", parts.kernel.core.now(), lambda _: True)
    assert sum(point.micro_usd for point in points) == micro_usd
    async with logged_in(parts) as browser:
        await browser.page("/")  # reads the past for the header
        await asyncio.sleep(0)
        assert f"{money(micro_usd)} for model calls since midnight" in await browser.page("/")
        plotted = (await browser.page("/costs")).partition('id="spend-by-day"')[2].partition("</figure>")[0]
        values = [float(row["data-value"] or 0) for row in elements(plotted, "td")]
        assert round(sum(values) * 1_000_000) == micro_usd
    listed = (await parts.operator.get("/api/traces")).json()["traces"]
    assert len(listed) == traces
    assert (await parts.operator.get("/api/traces", params={"limit": 1})).json()["traces"] == listed[:1]
    pid = (await parts.ada.get(f"/api/traces/{listed[0]['trace_id']}")).json()["spans"][0]["pid"]
    assert parts.kernel.agent(pid).messages[0].text == "last"


@pytest.mark.parametrize("ahead_s", [600, 40 * 86_400])
def test_what_was_paid_before_the_clock_was_set_back_is_on_every_screen(tmp_path: Path, ahead_s: float) -> None:
    """Costs, CSV, pages, the header's "today" and the traces have what an earlier server stamped later than now, and
    what this one goes on to stamp when the clock is set back under it."""
    store = str(tmp_path / "run.db")

    async def main() -> None:
        async with serving(kernel=Kernel(store, clock=WrongClock(ahead_s), programs=[asking()])) as parts:
            paid = await _spent(parts, "one", "two")
        clock = WrongClock(0)
        async with serving(kernel=Kernel(store, clock=clock, programs=[asking()])) as parts:
            paid += await _spent(parts, "three")
            clock.ahead_s = -ahead_s
            paid += await _spent(parts, "last")
            await _check_all_costs(parts, paid, traces=4)

    in_loop(main())
