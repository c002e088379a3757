"""One run: a timeline to scrub, everything as it was at a step, and forks from there, watched side by side.

The place is in the address (`?at=7`); without it the page shows the last step and follows the run. `static/run.js`
moves the handle without loading the page again. The form "Fork from here" works without a script, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lyra.agents.forks.change import StepChange
from lyra.core.checking.check import one_of
from lyra.errors import ConfigError, LyraError
from lyra.observe.timeline.difference import RunDifference, compare_runs
from lyra.observe.timeline.step import RunStep
from lyra.observe.timeline.timeline import COMPACTED, RunTimeline
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.views.facts import facts_row
from lyra.server.dashboard.views.plan_picture import plan_of_run, plan_picture
from lyra.server.dashboard.views.run import difference_view, frames_view, lanes, moment_view, step_list
from lyra.server.dashboard.words import copied_id, end_state, moment, money, state
from lyra.server.http.api.timelines import fork_of, frames_of, run_pid, step_number
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.timelines import VEGA_MAIN, Timelines

__all__ = ["ENDPOINTS"]

_EVENTS: Final = (
    *("process.created", "process.terminated", "effect.started", "effect.finished", "message.received"),
    *("interrupt.created", "interrupt.resolved", "timer.set"),
)
_TEXT_CHARS_MAX: Final = 100_000
_NO_PYTHON: Final = ("agent:", "lyra:")  # programs that have no variables of a person's own
# The changes that the form offers: the field of the change, and its label.
CHANGES: Final[dict[str, str]] = {
    "reply": "another reply of the model",
    "prompt": "another message to the agent",
    "model": "another model from here on",
    "system": "another system prompt from here on",
    "result": "another result of the tool (JSON or text)",
    "none": "no change: run on from here",
}


class RunQuery(RequestQuery):
    """`at` is a step, "" the last; `process` is one of the run's, `other` a run to compare with. `frames` asks for the
    variables of the program."""

    at: str = ""
    process: str = ""
    other: str = ""
    frames: str = ""


class RunLook(NamedTuple):
    """What the page shows, read in one go."""

    summary: dict[str, Any]
    steps: list[RunStep]
    here: int
    moment: dict[str, Any]
    names: Mapping[str, str]


def _look(run: RunTimeline, place: str, process: str) -> RunLook:
    here = len(run.steps) if place == "" else min(step_number(place), len(run.steps))
    return RunLook(run.summary(), list(run.steps), here, run.moment(here, process or None), run.names)


async def _run(call: HttpCall) -> RawAnswer:
    query: RunQuery = call.query
    word = call.path["pid"]
    pid = run_pid(call, word)
    timelines = call.parts.shared(Timelines)
    look = await timelines.read(pid, lambda run: _look(run, query.at, query.process))
    compared: RunDifference | None = None
    if query.other:
        compared = await timelines.read_two(pid, run_pid(call, query.other), compare_runs)

    def address(number: int) -> str:
        asked = {"at": number, "process": query.process, "other": query.other, "frames": query.frames}
        return link(call, "runs", word, query=asked)

    steps = region(
        call,
        "steps",
        _EVENTS,
        _facts(call, pid, look.summary),
        lanes(look.steps, look.here, address, names=look.names),
        _handle(call, word, look, query),
        every_ms=500,
        data_count=len(look.steps),
    )
    listed = step_list(look.steps, look.here, address, names=look.names)
    then = region(
        call,
        "moment",
        _EVENTS if query.at == "" else (),
        tag("h2", f"After step {look.here}" if look.here else "Before the first step"),
        tag("div", moment_view(look.moment, await _frames(call, word, pid, look)), listed, class_="then"),
        every_ms=500,
        data_at=look.here,
    )
    name = look.names.get(look.summary["pid"]) or pid
    return page(
        call,
        f"Run of {name}",
        await _plan(call, pid, look.summary),
        steps,
        None if compared is None else _comparison(call, compared),
        then,
        _fork_form(call, word, look),
        scripts=("run.js",),
        wide=True,
    )


async def _frames(call: HttpCall, word: str, pid: str, look: RunLook) -> Html | None:
    """The variables of a Python program, where they were asked for; else the link that asks for them."""
    process = next((row for row in look.moment["tree"] if row["pid"] == look.moment["pid"]), None)
    may_look = call.caller.is_operator and call.caller.may_change and look.summary["pid"] != VEGA_MAIN
    if process is None or not may_look or process["state"] == "ended" or process["program"].startswith(_NO_PYTHON):
        return None
    query: RunQuery = call.query
    if not query.frames:
        asked = {"at": look.here, "process": query.process, "other": query.other, "frames": "1"}
        words = "Run the program up to here to see its variables"
        return tag("p", tag("a", words, href=link(call, "runs", word, query=asked)))
    try:
        return frames_view(await frames_of(call, pid, look.here, look.moment["pid"]))
    except (LyraError, HttpRefusal) as error:
        return tag("p", f"The program cannot be run again: {error.message}", class_="note")


def _facts(call: HttpCall, pid: str, summary: Mapping[str, Any]) -> Html:
    fork = summary["fork"] or {}
    usage, recorded = summary["usage"], summary["recorded"]
    cost = money(usage.get("usd", 0)) + (f" (+ {money(recorded.get('usd', 0))} recorded)" if recorded else "")
    word = summary["state"]
    mark = state("running") if word == "running" else end_state(word)
    facts: list[tuple[str, Child]] = [
        ("State", mark),
        ("Program", summary["program"]),
        ("Began", moment(summary["began_at"], call.kernel.clock.now())),
        ("Steps", f"{summary['steps']:,}" + ("+" if summary["is_cut"] else "")),
        ("Processes", f"{summary['processes']:,}"),
        ("Tokens", f"{usage.get('input_tokens', 0) + usage.get('output_tokens', 0):,}"),
        ("Cost", cost),
        ("Pid", copied_id(pid)),
    ]
    if "of" in fork:
        place = {"at": fork["at"], "other": pid}
        words = f"{fork['of']} at step {fork['at']}"
        facts.append(("Fork of", tag("a", words, href=link(call, "runs", fork["of"], query=place))))
    dropped = tag("p", f"Note: {COMPACTED}.", class_="note") if summary["is_compacted"] else None
    return join(facts_row(facts), dropped)


def _handle(call: HttpCall, word: str, look: RunLook, query: RunQuery) -> Html:
    """The handle to scrub with: a range in a form, which works by itself."""
    hidden = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in (("process", query.process), ("other", query.other), ("frames", query.frames))
        if value
    ]
    scrub = tag(
        "input",
        type="range",
        id="scrub",
        name="at",
        min=0,
        max=len(look.steps),
        value=look.here,
        step=1,
        data_keep=True,
        aria_valuetext=f"step {look.here} of {len(look.steps)}",
    )
    label = tag("label", "Step ", tag("output", f"{look.here} of {len(look.steps)}", for_="scrub"), for_="scrub")
    buttons = tag("button", "Go", class_="unscripted")
    return tag("form", label, scrub, buttons, *hidden, method="get", action=link(call, "runs", word), class_="scrubber")


async def _plan(call: HttpCall, pid: str, summary: Mapping[str, Any]) -> Html | None:
    """Of a Vega run: the picture of its plan, and where else it can be stepped through."""
    if summary["pid"] != VEGA_MAIN or pid == VEGA_MAIN:
        return None
    plan = await call.parts.shared(Timelines).of_vega(pid, plan_of_run)
    picture = None if plan is None else plan_picture(plan)
    hint = tag("p", "Its variables and source lines: ", tag("code", f"vega replay {pid}"), class_="note")
    return tag("section", tag("h2", "Plan"), picture, hint)


def _comparison(call: HttpCall, compared: RunDifference) -> Html:
    def address(pid: str, number: int) -> str:
        return link(call, "runs", pid, query={"at": number})

    return region(
        call,
        "compared",
        _EVENTS,
        tag("h2", "Side by side"),
        difference_view(compared, address),
        every_ms=500,
        data_first=compared.first or "",
    )


def _fork_form(call: HttpCall, word: str, look: RunLook) -> Html | None:
    if look.summary["pid"] == VEGA_MAIN:
        return None
    why_not = "" if look.here else "There is no step here: move the handle to one"
    offered = CHANGES if call.caller.is_operator else {name: CHANGES[name] for name in ("prompt", "none")}
    options = [tag("option", label, value=name) for name, label in offered.items()]
    form = act_form(
        call,
        link(call, "acts/runs", word, "fork"),
        tag("input", type="hidden", name="at", value=look.here, id="fork-at"),
        tag("label", "With ", tag("select", options, name="what", id="fork-what")),
        tag("label", "Text", for_="fork-text"),
        tag("textarea", name="text", id="fork-text", rows=3, maxlength=_TEXT_CHARS_MAX),
        tag("button", "Fork from here", class_="primary"),
        why_not=why_not,
        class_="fork",
        id="fork-form",
    )
    note = "What came before is answered from the journal and not done again. What the fork does from there on is real."
    return region(
        call,
        "fork",
        (),
        tag("h2", f"Fork from step {look.here}"),
        tag("p", note, class_="note"),
        form,
        data_at=look.here,
    )


async def _fork(call: HttpCall) -> RawAnswer:
    word = call.path["pid"]
    form = call.form
    what = one_of(form.get("what", ""), CHANGES, "a change")
    text = form.get("text", "")[:_TEXT_CHARS_MAX]
    if what != "none" and not text:
        raise ConfigError("say what is different in the fork", hint="write a text, or choose no change", key="text")
    number = step_number(form.get("at", ""))
    started = await fork_of(call, run_pid(call, word), number, _change(what, text))
    return see_other(call, "runs", word, query={"at": number, "other": started.pid})


def _change(what: str, text: str) -> StepChange:
    if what == "none":
        return StepChange()
    return StepChange(**{what: _json(text) if what == "result" else text})


def _json(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


ENDPOINTS: Final = (
    Endpoint(
        name="pages.run",
        method="GET",
        path="/runs/{pid}",
        summary="A run to step through",
        handler=_run,
        query=RunQuery,
        is_documented=False,
    ),
    Endpoint(
        name="acts.fork",
        method="POST",
        path="/acts/runs/{pid}/fork",
        summary="Fork a run from a step",
        handler=_fork,
        is_work=True,
        is_documented=False,
    ),
)
