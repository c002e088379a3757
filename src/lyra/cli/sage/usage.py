"""`sage usage`: what sessions have used and cost, by day, session, model or agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, note, table

if TYPE_CHECKING:
    from lyra.sage.session.usage_log import UsageSum


_GROUPS: Final = ("day", "session", "model", "agent")


@click.command(cls=CliCommand)
@click.option("--days", type=click.IntRange(1, 36_500), default=30, show_default=True, help="How many days back.")
@click.option("--by", type=click.Choice(_GROUPS), default="day", show_default=True, help="What is summed.")
@json_option
@click.pass_obj
def usage(invocation: Invocation, *, days: int, by: Any, as_json: bool) -> None:
    """Show the tokens and the cost of sessions."""
    from lyra.core.clock import SystemClock
    from lyra.sage.session.usage_log import UsageLog, local_day

    now = SystemClock().now()
    with UsageLog() as log:
        sums = log.sums(by, days=days, now=now)
        today = log.spent(day=local_day(now))
    limit = invocation.config.sage.daily_budget_usd
    if as_json:
        document(
            {
                "by": by,
                "days": days,
                "rows": [_data(row) for row in sums],
                "cost_usd": None if any(row.unpriced_calls for row in sums) else _total(sums) / 1_000_000,
                "today_usd": today / 1_000_000,
                "daily_budget_usd": None if limit is None else limit / 1_000_000,
            }
        )
        return
    if not sums:
        note("no session has asked a model yet")
        return
    table((by, "calls", "input", "output", "from cache", "cost"), [_row(row) for row in sums])
    note(f"today {today}" + (f" of {limit}" if limit is not None else ""))


def _total(sums: list[UsageSum]) -> int:
    return sum(row.cost_micro_usd for row in sums)


def _data(row: UsageSum) -> dict[str, Any]:
    return {**row._asdict(), "cost_usd": row.cost_usd, "cache_share": row.cache_share}


def _row(row: UsageSum) -> tuple[str, ...]:
    cost = "?" if row.cost_usd is None else f"${row.cost_usd:.4f}"
    counts = (str(row.calls), f"{row.input_tokens}", f"{row.output_tokens}", f"{round(100 * row.cache_share)} %")
    return (row.group, *counts, cost)
