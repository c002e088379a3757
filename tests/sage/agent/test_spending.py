"""What a session costs, and the limits of a turn, a session, a day and a run."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.budgets.money import Money
from lyra.core.clock import SystemClock
from lyra.errors import BudgetExceeded, StoreError
from lyra.sage.agent.live import LiveSession
from lyra.sage.session.usage_log import USAGE_FILE, UsageCall, UsageLog
from tests.sage.open_session import PRICE, Project, call, say

ANSWER = {"text": "done", "usage": {"input_tokens": 40_000, "output_tokens": 10_000}}  # half a dollar


def opened(project: Project, *flags: str, replies: tuple[Any, ...] = (ANSWER,) * 4, **more: Any) -> LiveSession:
    return project.open(model=project.script(*replies, price=PRICE), flags=flags, **more)


async def test_every_call_is_in_the_log(project: Project) -> None:
    """By turn, agent and model, with what came from the cache; also one of a helper."""
    helped = call("Task", description="look", prompt="look")
    cached = {"text": "done", "usage": {"input_tokens": 400, "output_tokens": 10, "cache_read_tokens": 300}}
    async with opened(project, replies=(cached, helped, ANSWER, ANSWER)) as session:
        await say(session, "one")
        await say(session, "two")
        log = session.spending.log
        turns = {total.group: total for total in log.sums("turn", session=session.id)}
        assert (turns["1"].calls, turns["2"].calls) == (1, 3)
        assert turns["1"].cache_read_tokens == 300
        assert turns["1"].cost_micro_usd > 0
        agents = {total.group: total.calls for total in log.sums("agent")}
        assert agents.pop("sage") == 3
        assert list(agents.values()) == [1]
        assert session.record.cost_usd == sum(total.cost_micro_usd for total in log.sums("session")) / 1_000_000


async def test_the_budget_of_a_turn(project: Project) -> None:
    """`sage.turn_budget_usd`: what is done about one message stops there; the next message has its own."""
    reads = {**call("Glob", pattern="*"), "usage": ANSWER["usage"]}
    budget = "sage.turn_budget_usd=$1.20"
    async with opened(project, budget, replies=(reads, reads, reads, ANSWER, ANSWER)) as session:
        lines = await say(session, "go")
        assert lines[-1]["status"] == "budget_exceeded"
        (error,) = [line for line in lines if line["type"] == "error"]
        assert "sage.turn_budget_usd" in error["message"]
        assert 0 < (session.turns[0].cost_usd or 0) < 1.2
    async with opened(project, "sage.turn_budget_usd=$20") as session:
        assert (await say(session, "go"))[-1]["status"] == "success"


async def test_the_budget_of_a_session_counts_all_its_runs(project: Project) -> None:
    """`sage.session_budget_usd`: once it is spent the next turn is refused, also after the session was opened again."""
    async with opened(project, "sage.session_budget_usd=$20") as session:
        await say(session, "one")
        spent = session.spending.log.sum_cost(session=session.id)
        assert spent == Money(500_000)
    async with opened(project, "sage.session_budget_usd=$0.50", resume="") as session:
        with pytest.raises(
            BudgetExceeded, match=r"this session has spent \$0\.50, and sage.session_budget_usd"
        ) as over:
            await say(session, "two")
        assert over.value.fields["setting"] == "sage.session_budget_usd"
        assert len(session.turns) == 1
    async with opened(project, "sage.session_budget_usd=$0.50") as session:
        assert session.spending.limits()["sage.session_budget_usd"] == (Money(0), Money(500_000))


async def test_the_budget_of_a_day_is_shared_by_sessions(project: Project) -> None:
    """`sage.daily_budget_usd`: a turn gets what is left, and is refused where nothing is; yesterday does not count."""
    yesterday = SystemClock().now() - 86_400
    with UsageLog(project.data) as log:
        log.add(UsageCall(session="s", turn=1, agent="a", model="m", cost_micro_usd=10**9), now=yesterday)
    async with opened(project, "sage.daily_budget_usd=$20") as session:
        await say(session, "one")
    with UsageLog(project.data) as log:
        log.add(UsageCall(session="s", turn=1, agent="a", model="m", cost_micro_usd=19_490_000), now=yesterday + 86_400)
    async with opened(project, "sage.daily_budget_usd=$20") as session:
        lines = await say(session, "a long question, " * 200)
        assert lines[-1]["status"] == "budget_exceeded", "a cent is left of the day"
        assert "sage.daily_budget_usd" in lines[-2]["message"]
    with UsageLog(project.data) as log:
        log.add(UsageCall(session="s", turn=1, agent="a", model="m", cost_micro_usd=10**6), now=yesterday + 86_400)
    async with opened(project, "sage.daily_budget_usd=$20") as session:
        with pytest.raises(BudgetExceeded, match="today's sessions have spent"):
            await say(session, "three")


async def test_the_budget_of_a_run_is_new_in_the_next(project: Project) -> None:
    """`--max-budget-usd` holds for all turns of one run, and a later run of the same session has its own."""
    async with opened(project, options={"budget": Money(20_000_000)}) as session:
        await say(session, "one")
        assert session.spending.limits()["--max-budget-usd"] == (Money(500_000), Money(20_000_000))
    async with opened(project, resume="", options={"budget": Money(1)}) as session:
        assert (await say(session, "two"))[-1]["status"] == "budget_exceeded"
    async with opened(project, resume="") as session:
        assert (await say(session, "three"))[-1]["status"] == "success"


async def interrupted(session: LiveSession) -> Any:
    line: Any = None
    async for line in session.send("tell a long story"):
        if line["type"] == "text_delta":
            await session.interrupt()
    return line


SLOW = {"text": "word " * 40, "chunk_s": 0.05}


async def test_an_interrupted_answer_has_tokens_and_a_price(project: Project) -> None:
    """The question and what arrived of the answer are counted, and the cost of the session stays known."""
    async with opened(project, replies=(SLOW, ANSWER)) as session:
        assert (await interrupted(session))["status"] == "interrupted"
        (turn,) = session.spending.log.sums("turn", session=session.id)
        assert (turn.calls, turn.unpriced_calls) == (1, 0)
        assert turn.input_tokens > 100
        assert 1 <= turn.output_tokens < 40
        assert turn.cost_micro_usd == (turn.input_tokens + turn.output_tokens) * 10
        assert session.usage().total.cost_usd == session.record.cost_usd == turn.cost_micro_usd / 1_000_000


async def test_an_interrupted_answer_costs_all_that_a_limit_set_aside(project: Project) -> None:
    """A provider may go on after the connection is closed: the log and the budget count the same, on the high side."""
    async with opened(project, "sage.session_budget_usd=$20", replies=(SLOW,)) as session:
        await interrupted(session)
        spent = session.spending.log.sum_cost(session=session.id)
        assert spent >= 8_192 * 10, "the longest answer"
        assert spent == session.process.metrics.cost_micro_usd
        assert session.spending.limits()["sage.session_budget_usd"][0] == spent
    async with opened(project, options={"budget": Money(20_000_000)}, replies=(SLOW,)) as session:
        await interrupted(session)
        spent = session.spending.log.sum_cost(session=session.id)
        assert session.spending.limits()["--max-budget-usd"][0] == spent >= 8_192 * 10


async def test_a_failed_call_leaves_the_cost_known(project: Project) -> None:
    """A request that was refused costs nothing, also for a model whose price is not known."""
    refused = {"error": {"kind": "auth", "message": "no"}}
    model = project.script(refused, price="unknown")
    async with project.open(model=model) as session:
        assert (await say(session, "hello"))[-1]["status"] != "success"
        assert session.usage().total.cost_usd == 0.0


async def test_a_damaged_log_stops_only_what_has_a_limit(project: Project) -> None:
    project.data.mkdir()
    (project.data / USAGE_FILE).write_text("not a database" * 100)
    async with opened(project) as session:
        assert (await say(session, "one"))[-1]["status"] == "success"
        assert "cannot be used" in session.spending.problem
    async with opened(project, "sage.daily_budget_usd=$20") as session:
        with pytest.raises(StoreError):
            await say(session, "two")
