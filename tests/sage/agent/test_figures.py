"""The figures of a session: usage by turn, agent and model; the context by part."""

from __future__ import annotations

from lyra.agents.session.shared import runtime_of
from tests.sage.open_session import PRICE, Project, call, say

USAGE = {"input_tokens": 1_000, "output_tokens": 500, "cache_read_tokens": 250}


async def test_what_a_session_has_used(project: Project) -> None:
    """Of all its turns, of the last one, of each agent and model; `budget_usd` is its tightest limit."""
    helped = {**call("Task", description="look", prompt="look"), "usage": USAGE}
    replies = [{"text": "a", "usage": USAGE}, helped, {"text": "b", "usage": USAGE}, {"text": "c", "usage": USAGE}]
    flags = ("sage.session_budget_usd=$3", "sage.daily_budget_usd=$9", "sage.turn_budget_usd=$2")
    async with project.open(model=project.script(*replies, price=PRICE), flags=flags) as session:
        assert session.usage().total.calls == 0
        await say(session, "one")
        await say(session, "two")
        usage = session.usage()
        model = session.model
    assert (usage.total.calls, usage.turn.calls, usage.budget_usd) == (4, 3, 3.0)
    assert (usage.total.input_tokens, usage.total.cache_read_tokens, usage.total.cache_share) == (4_000, 1_000, 0.25)
    assert usage.total.cost_micro_usd > usage.turn.cost_micro_usd > 0
    assert usage.agents["sage"].calls == 3
    assert list(usage.models) == [model]


async def test_what_the_context_is_filled_with(project: Project) -> None:
    """Before the first call estimates; after it the parts add up to what the provider counted."""
    async with project.open({"text": "a", "usage": {"input_tokens": 9_000, "output_tokens": 1_000}}) as session:
        context = session.context()
        assert context.estimated
        assert context.window is None, "a simulated model has none"
        assert context.tokens.messages == 0
        assert min(context.tokens.system, context.tokens.tools) > 0
        await say(session, "hello " * 2_000)
        context = session.context()
        *parts, total = context.tokens
        assert not context.estimated
        assert total == 10_000
        assert abs(sum(parts) - total) <= len(parts)
        assert context.tokens.messages > context.tokens.memory == 0


async def test_rules_and_a_summary_are_parts(project: Project) -> None:
    replies = [{"text": text} for text in ("a", "b", "a summary of it", "c")]
    (project.folder / "AGENTS.md").write_text("Tea comes first. " * 20)
    async with project.open(*replies, options={"trusted": True}) as session:
        await say(session, "one")
        before = session.context().tokens
        assert before.memory > 0
        await say(session, "two " * 50)
        await session.compact()
        await say(session, "three")
        assert "a summary" in runtime_of(session.kernel).sessions["sage"].window.summary
        assert abs(session.context().tokens.system - before.system) < 10, "the summary counts as messages"


async def test_the_window_of_a_published_model(project: Project) -> None:
    async with project.open(model="anthropic/claude-sonnet-4-5") as session:
        context = session.context()
    assert context.window is not None
    assert context.compact_at is not None
    assert context.window >= 200_000
    assert 0 < context.compact_at < context.window


async def test_a_plan_is_kept(project: Project) -> None:
    """The answer of a turn in plan mode; it is there when the session is opened again."""
    async with project.open({"text": "no plan"}, {"text": "1. read\n2. write"}) as session:
        await say(session, "one")
        assert "plan" not in session.facts.settings
        await session.set_mode("plan")
        await say(session, "two")
    async with project.open(resume="") as session:
        assert session.facts.settings["plan"] == "1. read\n2. write"
