"""`lyra ps`: the processes of a store or a server."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, moment, note, table
from lyra.cli.views.folded import Folded
from lyra.cli.views.source import run_option, source, target_argument
from lyra.observe.history.processes import ProcessRecord


@click.command(cls=CliCommand)
@target_argument
@click.option("-a", "--all", "every", is_flag=True, help="Those that ended, too.")
@click.option("--state", metavar="STATE", help="Only those in this state: running, waiting, terminated …")
@click.option("--user", metavar="USER", help="Only those of this user.")
@run_option
@json_option
@click.pass_obj
def ps(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    every: bool,
    state: str | None,
    user: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """List processes: state, age, spending, what each waits for."""
    with source(invocation, target, run=run) as rows:
        records = list(Folded(rows).processes.records.values())
    chosen = [
        record
        for record in records
        if (record.state == state if state else every or record.is_live) and (user is None or record.user_id == user)
    ]
    if as_json:
        document([record.to_data() for record in chosen])
        return
    if not chosen:
        note(f"no process{'' if every or state else ' is alive; -a shows those that ended'}")
        return
    table(
        ("pid", "name", "program", "state", "began", "calls", "tokens", "cost", "what"),
        [
            (
                record.pid,
                record.name,
                record.program or "(worker)",
                state_words(record),
                moment(record.created_at),
                str(record.calls),
                str(record.tokens),
                dollars(record.micro_usd),
                _what(record),
            )
            for record in chosen
        ],
    )


def state_words(record: ProcessRecord) -> str:
    """Its state, and how it ended."""
    return f"{record.state}: {record.reason}" if not record.is_live and record.reason else record.state


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.4f}" if micro_usd else "-"


def _what(record: ProcessRecord) -> str:
    """What a person would want to know next: an open question, a call that crashes cut off, an error, a stage."""
    attempts = max(record.attempts.values(), default=0)
    cut_off = f"a call was cut off by a crash, attempt {attempts + 1}" if attempts else ""
    if record.questions:
        question = f"asks: {next(iter(record.questions.values()))}"
        return f"{question} ({cut_off})" if attempts > 1 else question
    return record.error or cut_off or record.stage
