"""Commands that show figures: cost, context, status."""

from __future__ import annotations

from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import PRICE, Project, call, say

USAGE = {"input_tokens": 4_000, "output_tokens": 1_000, "cache_read_tokens": 1_000}


async def test_the_cost_of_turns_agents_session_and_day(project: Project) -> None:
    """With what came from the cache; the limits that are set stand below."""
    helped = {**call("Task", description="look", prompt="look"), "usage": USAGE}
    replies = [helped, *({"text": "done", "usage": USAGE} for _ in range(3))]
    async with project.open(
        model=project.script(*replies, price=PRICE), flags=("sage.daily_budget_usd=$10",)
    ) as session:
        await say(session, "one")
        await say(session, "two")
        result = await run(session, "/cost")
        turns, agents, totals, limits = (rows(result, number) for number in range(4))
        cents = 3 * (3_000 + 1_000 + 1_000) / 1_000  # a cent for a thousand tokens; a fourth is free or not
        assert turns[0][:5] == ["1", "3", "12 000", "3 000", "25 %"]
        assert float(turns[0][5].removeprefix("$")) <= cents / 100
        assert [row[1] for row in turns] == ["3", "1"]
        assert {row[0]: row[1] for row in agents}["sage"] == "3"
        assert [(row[0], row[1]) for row in totals] == [("this session", "4"), ("today", "4")]
        assert totals[0][5] == totals[1][5] != "$0.00"
        assert limits[0][0] == "sage.daily_budget_usd"
        assert rows(await run(session, "/cost model"))[0][0] == session.model
        assert rows(await run(session, "/cost turn")) == turns
        assert rows(await run(session, "/usage session"))[0][0] == session.id


async def test_an_unknown_price_is_no_zero(project: Project) -> None:
    async with project.open(model=project.script({"text": "x"}, price="unknown")) as session:
        await say(session, "one")
        assert rows(await run(session, "/cost"))[0][5] == "?"


async def test_the_context_as_bars(project: Project) -> None:
    """One for each part, of the window where it is known; a bar for what is free."""
    async with project.open({"text": "a", "usage": USAGE}) as session:
        await say(session, "hello")
        result = await run(session, "/context")
        assert [row[0] for row in rows(result)] == ["system prompt", "tools", "messages"]
        assert result.blocks[0]["title"] == f"{session.model}: 5 000 tokens"
    async with project.open(model="anthropic/claude-sonnet-4-5") as session:
        result = await run(session, "/context")
        assert rows(result)[-1][0] == "free"
        assert "about" in result.blocks[0]["title"]
        assert "compacted from" in result.blocks[0]["title"]
        assert result.blocks[0]["of"] == session.context().window


async def test_the_status_is_one_table(project: Project) -> None:
    flags = ("sage.session_budget_usd=$3",)
    async with project.open(flags=flags, options={"mode": "plan"}) as session:
        await say(session, "hello")
        status = dict(rows(await run(session, "/status")))
        assert status["session"] == f"{session.id}  hello"
        assert (status["model"], status["mode"]) == ("sim/echo", "plan")
        assert status["sandbox"] in ("bubblewrap", "landlock", "none: commands do not run")
        assert status["sage.session_budget_usd"] == "$0.00 of $3.00"
        assert status["MCP"] == "no server"
        assert "forked from" not in status
        first = session.id
        await session.switch(first, fork=True)
        assert dict(rows(await run(session, "/status")))["forked from"] == first
        session.spending.problem = "it is full"
        assert "it is full" in words(await run(session, "/status"))
