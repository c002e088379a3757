"""`vega runs`, `resume`, `cancel`, `answer` and `trace`: list, continue, end and answer durable runs, and show their
calls.

`vega.durable.runs` reads what a run is and how it stands; `start` executes it. A run that another process executes
is not touched: a cancellation or an answer is left in its folder as a note, which that process reads.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.commands.trust import ask_for_trust
from lyra.cli.render import document, moment, note, printable, table
from lyra.cli.vega.durable import (
    come_to,
    command,
    db_option,
    node_options,
    open_runs,
    remember_node_options,
    store_file,
)
from lyra.cli.vega.on_cluster import (
    cancel_on_cluster,
    cluster_option,
    open_on_cluster,
    refuse_beside_cluster,
    resume_on_cluster,
)
from lyra.errors import ConfigError, Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.store.space import Space
    from lyra.vega.durable.runs import DamagedRun, DurableRun, RunQuestion
    from lyra.vega.durable.trace import RunSpan


@click.command(cls=CliCommand, name="runs")
@db_option
@json_option
@click.pass_obj
def runs(invocation: Invocation, /, *, db: str | None, as_json: bool) -> None:
    """List durable runs: state, program, when it began, what it cost."""
    with open_runs(store_file(invocation, db)) as kept_runs:
        listed = [_facts(run) for run in kept_runs.all()]
    if as_json:
        document(listed)
    else:
        columns = ("run", "state", "file", "began", "cost", "lines")
        table(columns, [tuple(_cell(facts, column) for column in columns) for facts in listed])
    damaged = [facts["run"] for facts in listed if facts["state"] == "damaged"]
    if damaged:
        raise Corrupt(
            f"{len(damaged)} of {len(listed)} runs cannot be read: {', '.join(damaged)}",
            hint="`lyra store check` says what is wrong; restore the file from a backup",
        )


def _facts(run: DurableRun | DamagedRun) -> dict[str, Any]:
    from lyra.vega.durable.runs import DamagedRun

    if isinstance(run, DamagedRun):
        return {"run": run.id, "state": "damaged", "error": run.error.message}
    facts = run.brief()
    waiting = run.questions() if facts["state"] == "waiting" else []
    return {**facts, "questions": [_question(question) for question in waiting]}


def _cell(facts: dict[str, Any], column: str) -> str:
    if facts["state"] == "damaged" and column not in facts:
        return ""
    if column == "began":
        return moment(facts["began"])
    if column == "file" and facts["fork_of"]:
        return f"{facts['file']} (fork of {facts['fork_of']})"
    if column == "cost":
        return f"${facts['cost_usd']:.4f}"
    return str(facts[column])


def _question(question: RunQuestion) -> dict[str, Any]:
    return {"id": question.id, "kind": question.kind, "question": question.question, "message": question.message}


# ---------------------------------------------------------------- going on
@click.command(cls=CliCommand, name="resume", uses_trust=True)
@click.argument("run")
@db_option
@click.option("--tail", is_flag=True, help="Print only new output, not what was printed before.")
@click.option("--program", metavar="FILE", help="Continue with this program, if that is safe.")
@click.option("--trace", is_flag=True, help="Write each agent call, span and event to stderr, one JSON object a line.")
@click.option("--live", is_flag=True, help="Show processes, calls, cost and restarts on stderr while it runs.")
@cluster_option
@node_options
@json_option
@click.pass_context
def resume(
    ctx: click.Context,
    /,
    *,
    run: str,
    db: str | None,
    tail: bool,
    program: str | None,
    trace: bool,
    live: bool,
    cluster: str | None,
    database: str | None,
    providers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Continue a stopped run and print its whole output.

    It goes on with the program that it has; a file that was changed since takes over with --program, where that is
    safe. A run that is over prints its output again and calls no model.
    """
    from lyra.cli.vega.files import Files
    from lyra.cli.vega.output import ProgramOutput
    from lyra.cli.vega.start import go_on, with_run
    from lyra.vega.migrate.migration import plan_migration

    invocation = ctx.ensure_object(Invocation)
    if cluster is not None:
        refuse_beside_cluster(db=db, trace=trace, live=live, program=program)
        resume_on_cluster(ctx, cluster, run, ProgramOutput(collect=as_json), tail=tail)
        return
    remember_node_options(invocation, database, providers)
    ask_for_trust(invocation, os.curdir, quiet=trace)
    path = store_file(invocation, db)
    with open_runs(path) as kept_runs:
        model = kept_runs[run].began["model"]
    output = ProgramOutput(collect=as_json, trace=trace, model=model)
    if live and not as_json:
        output.watch()

    def act(space: Space, before: DurableRun | None) -> None:
        assert before is not None
        migration = None
        if program is not None:
            files = Files(program)
            migration = plan_migration(before, files.program(), files.texts, say=partial(command, invocation, space))
        elif not before.is_over and _is_edited(before):
            note(
                f"{before.file} was changed since; the run goes on with the program that it has "
                f"(with the changed one: {command(invocation, space, 'resume')} --program {before.file})"
            )
        go_on(ctx, space, before, output, migration=migration, tail=tail)

    with_run(path, run, act, make=False)


def _is_edited(run: DurableRun) -> bool:
    """Return whether a file that the program was made of reads another way by now; one that is gone does not."""
    import os

    from lyra.cli.vega.files import Files

    folder = run.began["folder"]
    for name, text in run.sources().items():
        path = os.path.join(folder, name)
        try:
            if os.path.isfile(path) and Files(path).text() != text:
                return True
        except ConfigError:  # no text any more
            return True
    return False


# ---------------------------------------------------------------- ending, answering
@click.command(cls=CliCommand, name="cancel")
@click.argument("run")
@db_option
@cluster_option
@json_option
@click.pass_obj
def cancel(invocation: Invocation, /, *, run: str, db: str | None, cluster: str | None, as_json: bool) -> None:
    """Cancel a run, also one that another process executes."""
    with _find_run(invocation, db, cluster, run) as kept_run:
        was = kept_run.state
    if was in _OVER:
        state = was
    else:
        state = _cancel(store_file(invocation, db), run) if cluster is None else cancel_on_cluster(cluster, run)
    if as_json:
        document({"run": run, "was": was, "state": state})
    else:
        click.echo(
            printable(f"run {run} is cancelled" if was != state == "cancelled" else f"run {run} was {state} already")
        )


_OVER = ("finished", "failed", "cancelled")


@contextmanager
def _find_run(invocation: Invocation, db: str | None, cluster: str | None, run: str) -> Iterator[DurableRun]:
    """Provide a run that has begun, in a file or on a cluster."""
    if cluster is not None:
        refuse_beside_cluster(db=db)
        with open_on_cluster(cluster, run) as kept_run:
            yield kept_run
        return
    with open_runs(store_file(invocation, db)) as kept_runs:
        yield kept_runs[run]


def _cancel(path: str, run: str) -> str:
    """Ask the process that runs it to end it, and wait for that; end it here where no process runs it. The state of
    the run afterwards: it may have ended by itself first."""
    import asyncio

    from lyra.vega.durable.durable_run import cancel_note, end

    space, before = come_to(path, run)
    try:
        space.leave_note(cancel_note())
        assert before is not None
        asyncio.run(end(space, before))
        return type(before)(space).state
    finally:
        space.close()


@click.command(cls=CliCommand, name="answer")
@click.argument("run")
@click.argument("text", required=False)
@click.option("--question", metavar="ID", help="Which question, where several wait; its id or the beginning of it.")
@click.option("--yes", "approved", flag_value=True, default=None, type=bool, help="Allow what is asked about.")
@click.option("--no", "approved", flag_value=False, type=bool, help="Refuse what is asked about.")
@click.option("--data", metavar="JSON", help="Plain data as the answer.")
@db_option
@cluster_option
@json_option
@click.pass_obj
def answer(
    invocation: Invocation,
    /,
    *,
    run: str,
    text: str | None,
    question: str | None,
    approved: bool | None,
    data: str | None,
    db: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Answer a question of a run; without an answer, list its questions.

    A confirmation takes --yes or --no, an effect in doubt the word retry, skip or fail, any other question a TEXT. A
    stopped run takes the answer when it goes on: `vega resume`.
    """
    from lyra.vega.durable.durable_run import answer_note

    with _find_run(invocation, db, cluster, run) as kept_run:
        waiting = kept_run.questions()
        if text is None and approved is None and data is None:
            _list(kept_run, waiting, as_json=as_json)
            return
        resume, more = (command(invocation, kept_run.space, verb) for verb in ("resume", "answer"))
        asked = _choose_question(kept_run, waiting, question, resume)
        kept_run.space.leave_note(answer_note(asked.id, _response(more, asked, text, approved, data)))
        at_work = bool(kept_run.owner)
        left = len(waiting) - 1
    if as_json:
        document({"run": run, "question": asked.id, "kind": asked.kind, "at_work": at_work})
    elif not at_work:
        asks = f"; it asks {left} more: {more}" if left else ""
        note(f"the answer is kept; the run takes it when it goes on: {resume}{asks}")


def _list(run: DurableRun, waiting: list[RunQuestion], *, as_json: bool) -> None:
    if as_json:
        document({"run": run.id, "state": run.state, "questions": [_question(question) for question in waiting]})
        return
    if not waiting:
        note(_nothing(run))
    for question in waiting:
        click.echo(printable(f"{question.id} ({question.kind}): {question.question}"))
        if question.message:
            click.echo(printable("\n".join(f"  {line}" for line in question.message.split("\n"))))


def _choose_question(run: DurableRun, waiting: list[RunQuestion], wanted: str | None, resume: str) -> RunQuestion:
    matching = [question for question in waiting if wanted is None or question.id.startswith(wanted)]
    if len(matching) == 1:
        return matching[0]
    if wanted is not None and not matching and any(key.startswith(wanted) for key in run.find_answered_questions()):
        raise ConfigError(f"question {wanted} is answered already", hint=f"go on with the run: {resume}", run=run.id)
    if not waiting:
        raise ConfigError(_nothing(run), hint="`vega runs` shows how it stands", run=run.id)
    listed = ", ".join(question.id for question in waiting)
    sentence = (
        f"run {run.id} asks no question {wanted!r}" if not matching else f"run {run.id} asks {len(matching)} questions"
    )
    raise ConfigError(sentence, hint=f"say which one: --question ID, of {listed}", run=run.id)


def _nothing(run: DurableRun) -> str:
    kept = len(run.find_answered_questions())
    return f"run {run.id} asks nothing" + (
        f" more: {kept} {'answer is' if kept == 1 else 'answers are'} kept" if kept else ""
    )


def _response(
    answer: str, asked: RunQuestion, text: str | None, approved: bool | None, data: str | None
) -> dict[str, Any]:
    response: dict[str, Any] = {}
    if data is not None:
        try:
            response["data"] = json.loads(data)
        except json.JSONDecodeError as error:
            raise ConfigError(f"--data is no JSON: {error}", key="--data") from None
    if asked.kind == "confirmation":
        # Yes or no, in either form; a text beside --yes or --no says why.
        consent = _CONSENT.get(text.lower()) if text is not None and approved is None else approved
        if consent is None:
            raise ConfigError("this question is answered with yes or no", hint="--yes, or --no", key="TEXT")
        return response | {"approved": consent} | ({"text": text} if text else {})
    if asked.kind == "in_doubt":
        return response | {"decision": _decision(text, approved, data)}
    if approved is not None and asked.kind == "clarification":
        raise ConfigError("this question is answered with a text", hint=f"{answer} TEXT", key="TEXT")
    if approved is not None:
        response["approved"] = approved
    if text is not None and text.strip():
        response["text"] = text
    if not response:
        raise ConfigError("an empty text is no answer", hint="say something, or give --data JSON", key="TEXT")
    return response


def _decision(text: str | None, approved: bool | None, data: str | None) -> str:
    if text not in _DOUBT or approved is not None:
        given = repr(text) if text is not None else "--yes" if approved else "--no" if approved is False else "--data"
        raise ConfigError(f"{given} is no answer to that", hint=f"one of {', '.join(_DOUBT)}", key="TEXT")
    if data is not None and text != "skip":
        raise ConfigError(f"{text} takes no --data", hint="only what is skipped has a result to be given", key="--data")
    return text


_CONSENT = {"yes": True, "y": True, "no": False, "n": False}
_DOUBT = ("retry", "skip", "fail")


# ---------------------------------------------------------------- trace

_QUIET = ("supervise",)  # what only stands between others


@click.command(cls=CliCommand, name="trace")
@click.argument("run")
@db_option
@json_option
@click.pass_obj
def trace(invocation: Invocation, /, *, run: str, db: str | None, as_json: bool) -> None:
    """Show the calls of a run as a tree, with cost, latency and retries."""
    from lyra.vega.durable.trace import trace as trace_of

    with open_runs(store_file(invocation, db)) as runs:
        kept_run = runs[run]
        told = trace_of(kept_run)
        if as_json:
            migrations = [
                {"at": entry["at"], "hash": entry["hash"], "changes": entry["changes"]}
                for entry in kept_run.facts.migrations
            ]
            facts = {"migrations": migrations, "since": told.since, "unlisted_calls": told.unlisted}
            document({"run": kept_run.id, "state": kept_run.state, **facts, "trace": told.root.to_data()})
            return
        click.echo(printable(f"run {kept_run.id}: {kept_run.state}"))
        for migration in kept_run.facts.migrations:
            for change in migration["changes"]:
                click.echo(printable(f"migrated after {migration['at'] - kept_run.began_at:.0f} s: {change}"))
        if told.since is not None:
            click.echo(f"rows before {moment(told.since)} are not kept: {told.unlisted} calls are only in the sums")
        for line in _lines(told.root):
            click.echo(printable(line))


def _lines(root: RunSpan) -> list[str]:
    lines = []
    todo = [(0, root)]
    while todo:
        depth, span = todo.pop()
        if span.name not in _QUIET:
            lines.append("  " * depth + _line(span))
            depth += 1
        todo += [(depth, inner) for inner in reversed(span.spans)]
    return lines


def _line(span: RunSpan) -> str:
    if span.kind == "event":
        return f"event {span.name}"
    took = "" if span.latency_ms is None else f"{span.latency_ms} ms"
    why = f"{span.status}: {span.error.splitlines()[0]}" if span.error else span.status
    parts = [f"{span.kind} {span.name}", why, took]
    if span.calls or span.micro_usd:
        parts.append(f"{span.input_tokens}+{span.output_tokens} tokens{' (estimated)' if span.estimated else ''}")
        parts.append(f"${span.micro_usd / 1_000_000:.6f}")
    parts += [f"{name}={value}" for name, value in span.attributes.items()]
    if span.retries:
        parts.append(f"{span.retries} retries" if span.retries > 1 else "1 retry")
    return "  ".join(part for part in parts if part)
