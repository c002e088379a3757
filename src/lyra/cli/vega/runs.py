"""`vega runs`, `vega resume`, `vega cancel`, `vega answer`: durable runs, looked at and gone on with.

What a run is and how it stands is read by `durable.runs`; a life of one is lived by `vega_start`. A run that another
process is at work on is not touched: who wants its end, or answers its question, leaves it a note.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import Command, Session, json_option
from lyra.cli.render import document, moment, note, printable, table
from lyra.cli.vega.durable import come_to, command, db_option, opened, store_file
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.store.space import Space
    from lyra.vega.durable.runs import DurableRun, RunQuestion

__all__ = ["answer", "cancel", "resume", "runs"]


@click.command(cls=Command, name="runs")
@db_option
@json_option
@click.pass_obj
def runs(session: Session, /, *, db: str | None, as_json: bool) -> None:
    """List durable runs: state, program, when it began, what it cost."""
    with opened(store_file(session, db)) as found:
        listed = [_facts(run) for run in found]
    if as_json:
        document(listed)
        return
    columns = ("run", "state", "file", "began", "cost", "lines")
    table(columns, [tuple(_cell(facts, column) for column in columns) for facts in listed])


def _facts(run: DurableRun) -> dict[str, Any]:
    facts = run.brief()
    waiting = run.questions() if facts["state"] == "waiting" else []
    return {**facts, "questions": [_question(question) for question in waiting]}


def _cell(facts: dict[str, Any], column: str) -> str:
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
@click.command(cls=Command, name="resume")
@click.argument("run")
@db_option
@click.option("--tail", is_flag=True, help="Print only what comes now, not what was printed before.")
@click.option("--program", metavar="FILE", help="Go on with this program, where that is safe.")
@click.option("--trace", is_flag=True, help="Write each agent call to stderr as one JSON object a line.")
@click.option("--live", is_flag=True, help="Show processes, calls, cost and restarts on stderr while it runs.")
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
    as_json: bool,
) -> None:
    """Go on with a run that was stopped, and print its whole output.

    It goes on with the program that it has; a file that was changed since takes over with --program, where that is
    safe. A run that is over prints its output again and asks nobody for anything.
    """
    from lyra.cli.vega.files import Files
    from lyra.cli.vega.run import Calls, Output
    from lyra.cli.vega.start import go_on, with_run
    from lyra.vega.migrate.migration import migrated

    session = ctx.ensure_object(Session)
    path = store_file(session, db)
    with opened(path) as found:
        _ = found[run]
    output = Output(collect=as_json)
    if live and not as_json:
        output.watch()

    def act(space: Space, before: DurableRun | None) -> None:
        assert before is not None
        migration = None
        if program is not None:
            files = Files(program)
            migration = migrated(before, files.program(), files.texts, say=partial(command, session, space))
        elif not before.is_over and _is_edited(before):
            note(
                f"{before.file} was changed since; the run goes on with the program that it has "
                f"(with the changed one: {command(session, space, 'resume')} --program {before.file})"
            )
        calls = Calls(trace=output.warn if trace else None, model=before.began["model"])
        heard = trace or as_json
        go_on(ctx, space, before, output, calls, migration=migration, heard=heard, as_json=as_json, tail=tail)

    with_run(path, run, act, make=False)


def _is_edited(run: DurableRun) -> bool:
    """Whether a file that the program was made of reads another way by now; one that is gone does not."""
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
@click.command(cls=Command, name="cancel")
@click.argument("run")
@db_option
@json_option
@click.pass_obj
def cancel(session: Session, /, *, run: str, db: str | None, as_json: bool) -> None:
    """End a run for good, also one that another process is at work on."""
    path = store_file(session, db)
    with opened(path) as found:
        one = found[run]
        was = one.state
    state = was if was in _OVER else _cancel(path, run)
    if as_json:
        document({"run": run, "was": was, "state": state})
    else:
        click.echo(
            printable(f"run {run} is cancelled" if was != state == "cancelled" else f"run {run} was {state} already")
        )


_OVER = ("finished", "failed", "cancelled")


def _cancel(path: str, run: str) -> str:
    """Tell whoever is at work on it and wait for that; where nobody is, end it here. How it stands then: it may have
    come to its own end first."""
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


@click.command(cls=Command, name="answer")
@click.argument("run")
@click.argument("text", required=False)
@click.option("--question", metavar="ID", help="Which question, where several wait; its id or the beginning of it.")
@click.option("--yes", "approved", flag_value=True, default=None, type=bool, help="Allow what is asked about.")
@click.option("--no", "approved", flag_value=False, type=bool, help="Refuse what is asked about.")
@click.option("--data", metavar="JSON", help="Plain data as the answer.")
@db_option
@json_option
@click.pass_obj
def answer(
    session: Session,
    /,
    *,
    run: str,
    text: str | None,
    question: str | None,
    approved: bool | None,
    data: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """Answer what a run asks; without an answer, list its questions.

    A confirmation takes --yes or --no, an effect in doubt the word retry, skip or fail, any other question a TEXT. A
    run that nobody is at work on takes the answer when it goes on: `vega resume`.
    """
    from lyra.vega.durable.durable_run import answer_note

    path = store_file(session, db)
    with opened(path) as found:
        one = found[run]
        waiting = one.questions()
        if text is None and approved is None and data is None:
            _list(one, waiting, as_json=as_json)
            return
        resume, more = (command(session, one.space, verb) for verb in ("resume", "answer"))
        asked = _chosen(one, waiting, question, resume)
        one.space.leave_note(answer_note(asked.id, _response(more, asked, text, approved, data)))
        at_work = bool(one.owner)
        left = len(waiting) - 1
    if as_json:
        document({"run": run, "question": asked.id, "kind": asked.kind, "at_work": at_work})
    elif not at_work:
        asks = f"; it asks {left} more: {more}" if left else ""
        note(f"the answer is kept; the run takes it when it goes on: {resume}{asks}")


def _list(run: DurableRun, waiting: list[RunQuestion], *, as_json: bool) -> None:
    if as_json:
        document({"run": run.id, "state": run.state, "questions": [_question(one) for one in waiting]})
        return
    if not waiting:
        note(_nothing(run))
    for one in waiting:
        click.echo(printable(f"{one.id} ({one.kind}): {one.question}"))
        if one.message:
            click.echo(printable("\n".join(f"  {line}" for line in one.message.split("\n"))))


def _chosen(run: DurableRun, waiting: list[RunQuestion], wanted: str | None, resume: str) -> RunQuestion:
    found = [one for one in waiting if wanted is None or one.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if wanted is not None and not found and any(key.startswith(wanted) for key in run.answered()):
        raise ConfigError(f"question {wanted} is answered already", hint=f"go on with the run: {resume}", run=run.id)
    if not waiting:
        raise ConfigError(_nothing(run), hint="`vega runs` shows how it stands", run=run.id)
    listed = ", ".join(one.id for one in waiting)
    said = f"run {run.id} asks no question {wanted!r}" if not found else f"run {run.id} asks {len(found)} questions"
    raise ConfigError(said, hint=f"say which one: --question ID, of {listed}", run=run.id)


def _nothing(run: DurableRun) -> str:
    kept = len(run.answered())
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
        return response | {"approved": _consent(text, approved)} | ({"text": text} if text else {})
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


def _consent(text: str | None, approved: bool | None) -> bool:
    """Yes or no, in either form; a text beside --yes or --no says why."""
    said = _CONSENT.get(text.lower()) if text is not None and approved is None else approved
    if said is None:
        raise ConfigError("this question is answered with yes or no", hint="--yes, or --no", key="TEXT")
    return said


def _decision(text: str | None, approved: bool | None, data: str | None) -> str:
    if text not in _DOUBT or approved is not None:
        given = repr(text) if text is not None else "--yes" if approved else "--no" if approved is False else "--data"
        raise ConfigError(f"{given} is no answer to that", hint=f"one of {', '.join(_DOUBT)}", key="TEXT")
    if data is not None and text != "skip":
        raise ConfigError(f"{text} takes no --data", hint="only what is skipped has a result to be given", key="--data")
    return text


_CONSENT = {"yes": True, "y": True, "no": False, "n": False}
_DOUBT = ("retry", "skip", "fail")
