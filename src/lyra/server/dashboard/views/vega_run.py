"""What the page of a run says of a durable Vega run alone: how it stands, what it asks, and the commands for it.

A Vega run has a journal and a kernel of its own: its questions are answered by `vega answer`, and it goes on by
`vega resume`, where this server does not execute it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lyra.errors import StoreError
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.vega.replay.fork import replay_command, started_outside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lyra.vega.durable.runs import DurableRun


class VegaRunFacts(NamedTuple):
    """`missing` is what the program imports that a server does not start, or why there is no program."""

    run_id: str
    file: str
    path: str
    state: str
    fork_of: str
    forked_at: int
    questions: list[str]
    missing: str

    @classmethod
    def read(cls, run: DurableRun) -> VegaRunFacts:
        began = run.began
        state = run.state
        questions = [question.question for question in run.questions()] if state == "waiting" else []
        return cls(
            run.id,
            run.file.rpartition("/")[2],
            run.space.location,
            state,
            str(began.get("fork_of") or ""),
            int(began.get("forked_at") or 0),
            questions,
            _missing(run),
        )

    @property
    def is_over(self) -> bool:
        return self.state not in ("running", "waiting", "stopped")

    def command(self, verb: str = "replay") -> str:
        return replay_command(self.run_id, self.path, verb)


def _missing(run: DurableRun) -> str:
    try:
        imports = started_outside(run.program())
    except StoreError as error:
        return f"Its program is not in the store: {error.message}."
    return f"Its program imports {imports}, which a server does not start for a fork." if imports else ""


def vega_notes(facts: VegaRunFacts, failure: str, *, is_executed: bool) -> Html:
    """What a person has to do for the run, if anything; `failure` says why this server could not execute it."""
    answer = facts.command("answer")
    notes: list[Child] = [_note(f"It asks a person: {question} Answer with ", answer) for question in facts.questions]
    if facts.state == "stopped" and not is_executed:
        why = f"This server cannot execute it: {failure}. " if failure else "No process is at work on it. "
        notes.append(_note(f"{why}It goes on with ", facts.command("resume")))
    notes.append(_note("Line by line, with breakpoints: ", facts.command()))
    return join(*notes)


def _note(words: str, command: str) -> Html:
    return tag("p", words, tag("code", command), class_="note")


def output_view(lines: Sequence[str]) -> Html:
    """The end of what the program had printed."""
    if not lines:
        return tag("p", "Nothing was printed yet.", class_="note")
    return tag("pre", "\n".join(lines), tabindex="0")
