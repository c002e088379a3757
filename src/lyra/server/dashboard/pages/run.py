"""One run: a timeline to scrub, everything as it was at a step, and forks from there, watched side by side.

The place is in the address (`?at=7`); without it the page shows the last step and follows the run. `static/run.js`
moves the handle without loading the page again. The form "Fork from here" works without a script, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.forks.change import StepChange
from lyra.core.checking.check import one_of
from lyra.core.imported_node import NODE_FILES
from lyra.errors import ConfigError, LyraError
from lyra.observe.timeline.timeline import COMPACTED
from lyra.observe.timeline.travel import RunDifference, compare_runs
from lyra.server.dashboard.html import Child, Html, facts_row, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.pages.runs import vega_state
from lyra.server.dashboard.run_view import (
    VEGA_REFRESH_MS,
    RunLook,
    VegaRunFacts,
    difference_view,
    frames_view,
    lanes,
    moment_view,
    output_view,
    step_list,
    vega_notes,
)
from lyra.server.dashboard.words import end_state, moment, money, render_copyable_id, state
from lyra.server.http.api.timelines import fork_of, frames_of, run_pid, step_number
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.past.timelines import Timelines, VegaForks
from lyra.server.http.problems import HttpRefusal
from lyra.vega.compiler.compiler import plan_of
from lyra.vega.replay.replayed_run import CHANGEABLE

if TYPE_CHECKING:
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.plan.plan import OverlapPlan


_EVENTS: Final = (
    *("process.created", "process.terminated", "effect.started", "effect.finished", "message.received"),
    *("interrupt.created", "interrupt.resolved", "timer.set"),
)
_NO_PYTHON: Final = ("agent:", "lyra:")  # programs that have no variables of a person's own


class RunQuery(RequestQuery):
    """`at` is a step, "" the last; `process` is one of the run's, `other` a run to compare with. `frames` asks for the
    variables of the program."""

    at: str = ""
    process: str = ""
    other: str = ""
    frames: str = ""


async def _run(call: HttpCall) -> RawAnswer:
    query: RunQuery = call.query
    word = call.path["pid"]
    pid = run_pid(call, word)
    place = None if query.at == "" else step_number(query.at)
    timelines = call.parts.get_shared(Timelines)
    look = await timelines.read(pid, lambda run: RunLook.read(run, place, query.process))
    if look.summary["run_id"] is not None:
        look = look._replace(vega=await timelines.look_at_vega(pid, VegaRunFacts.read))
    name = look.names.get(look.summary["pid"]) if look.vega is None else ""
    return page(
        call,
        f"Run of {name or pid}",
        _steps(call, word, look),
        await _comparison(call, pid) if query.other and _is_wanted(call, "compared") else None,
        await _then(call, word, pid, look) if _is_wanted(call, "moment") else None,
        fork_form(call, word, look),
        await _plan(call, pid) if look.vega is not None and _is_wanted(call) else None,
        scripts=("run.js",),
        wide=True,
    )


def _is_wanted(call: HttpCall, name: str = "") -> bool:
    """Return whether the request asks for the whole page, or for the part of this name."""
    return call.headers.get("x-region", "") in ("", name)


def _address(call: HttpCall, word: str, number: int, **changed: str) -> str:
    query: RunQuery = call.query
    asked = {"at": number, "process": query.process, "other": query.other, "frames": query.frames, **changed}
    return link(call, "runs", word, query=asked)


def _steps(call: HttpCall, word: str, look: RunLook) -> Html:
    """Return the facts of the run, its lanes and the handle."""
    return region(
        call,
        "steps",
        _EVENTS,
        _facts(call, look),
        lanes(look.steps, look.here, partial(_address, call, word), names=look.names),
        _handle(call, word, look, call.query),
        every_ms=500,
        data_refresh=look.refresh_ms,
        data_count=len(look.steps),
    )


async def _then(call: HttpCall, word: str, pid: str, look: RunLook) -> Html:
    """Everything as it was at the place, and the steps as a list."""
    follows = call.query.at == ""
    listed = step_list(look.steps, look.here, partial(_address, call, word), names=look.names)
    return region(
        call,
        "moment",
        _EVENTS if follows else (),
        tag("h2", f"After step {look.here}" if look.here else "Before the first step"),
        tag("div", moment_view(look.moment, *await _program(call, word, pid, look)), listed, class_="then"),
        every_ms=500,
        data_refresh=look.refresh_ms if follows else None,
        data_at=look.here,
    )


async def _program(call: HttpCall, word: str, pid: str, look: RunLook) -> tuple[Html | None, Html | None]:
    """Return the variables of a program where they were asked for, and what a Vega program printed; else the link that
    asks for them."""
    process = next((row for row in look.moment["tree"] if row["pid"] == look.moment["pid"]), None)
    if process is None or not (call.caller.is_operator and call.caller.may_change):
        return None, None
    if look.vega is None and (process["state"] == "ended" or process["program"].startswith(_NO_PYTHON)):
        return None, None
    if not call.query.frames:
        words = "Run the program up to here to see its variables"
        return tag("p", tag("a", words, href=_address(call, word, look.here, frames="1"))), None
    try:
        program = await frames_of(call, pid, look.here, look.moment["pid"])
    except (LyraError, HttpRefusal) as error:
        return tag("p", f"The program cannot be run again: {error.message}", class_="note"), None
    return frames_view(program.frames), None if program.output is None else output_view(program.output)


def _facts(call: HttpCall, look: RunLook) -> Html:
    summary, vega = look.summary, look.vega
    usage, recorded = summary["usage"], summary["recorded"]
    cost = money(usage.get("usd", 0)) + (f" (+ {money(recorded.get('usd', 0))} recorded)" if recorded else "")
    word = summary["state"]
    mark = state("running") if word == "running" else end_state(word, stopped=not summary["failed"])
    pid = summary["pid"] if vega is None else vega.run_id
    facts: list[tuple[str, Child]] = [
        ("State", mark if vega is None else vega_state(vega.state)),
        ("Program", summary["program"] if vega is None else vega.file),
        ("Began", moment(summary["began_at"], call.now)),
        ("Steps", f"{summary['steps']:,}" + ("+" if summary["is_cut"] else "")),
        ("Processes", f"{summary['processes']:,}"),
        ("Tokens", f"{usage.get('input_tokens', 0) + usage.get('output_tokens', 0):,}"),
        ("Cost", cost),
        ("Pid" if vega is None else "Run", render_copyable_id(pid)),
        *_origin(call, pid, look),
    ]
    dropped = tag("p", f"Note: {COMPACTED}.", class_="note") if summary["is_compacted"] else None
    forks = call.parts.get_shared(VegaForks)
    notes = None
    if vega is not None:
        notes = vega_notes(vega, forks.failures.get(pid, ""), is_executed=forks.is_under_way(pid))
    return join(facts_row(facts), dropped, notes)


def _origin(call: HttpCall, pid: str, look: RunLook) -> list[tuple[str, Child]]:
    """Return the run that this one was forked from, with the way to see both."""
    fork = look.summary["fork"] or {}
    if look.vega is not None and look.vega.fork_of:
        of, words, place = look.vega.fork_of, look.vega.fork_of, ""
    elif "of" in fork:
        of, words, place = fork["of"], f"{fork['of']} at step {fork['at']}", fork["at"]
    else:
        return []
    return [("Fork of", tag("a", words, href=link(call, "runs", of, query={"at": place, "other": pid})))]


def _handle(call: HttpCall, word: str, look: RunLook, query: RunQuery) -> Html:
    """Return the handle to scrub with: a range in a form, which works by itself."""
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
    buttons = [
        _to_step(call, word, look, look.here - 1, "‹", "A step back"),
        _to_step(call, word, look, look.here + 1, "›", "A step on"),
        tag("button", "Go", class_="unscripted"),
    ]
    return tag("form", label, scrub, buttons, *hidden, method="get", action=link(call, "runs", word), class_="scrubber")


def _to_step(call: HttpCall, word: str, look: RunLook, number: int, sign: str, words: str) -> Html:
    """Return a button to the step beside this one; at the ends it stays where it is."""
    place = min(max(0, number), len(look.steps))
    return tag(
        "a",
        sign,
        href=_address(call, word, place),
        class_="button to-step",
        aria_label=words,
        title=words,
        data_by=number - look.here,
    )


async def _plan(call: HttpCall, pid: str) -> Html | None:
    """Return the picture of a Vega program's plan, where its source is in the store."""
    plan = await call.parts.get_shared(Timelines).look_at_vega(pid, plan_of_run)
    return None if plan is None else tag("section", tag("h2", "Plan"), plan_picture(plan))


async def _comparison(call: HttpCall, pid: str) -> Html:
    def address(name: str, number: int) -> str:
        return link(call, "runs", name, query={"at": number})

    other = run_pid(call, call.query.other)
    compared: RunDifference = await call.parts.get_shared(Timelines).read_two(pid, other, compare_runs)
    is_vega = bool(compared.left.run_id or compared.right.run_id)
    return region(
        call,
        "compared",
        _EVENTS,
        tag("h2", "Side by side"),
        difference_view(compared, address),
        every_ms=500,
        data_refresh=VEGA_REFRESH_MS if is_vega and "" in (compared.left.ended_as, compared.right.ended_as) else None,
        data_first=compared.first or "",
    )


# ---------------------------------------------------------------- fork
# The form "Fork from here" of the page of a run, and the act behind it.

_TEXT_CHARS_MAX: Final = 100_000

# The changes that the form offers: the field of the change, and its label.
CHANGES: Final[dict[str, str]] = {
    "reply": "another reply of the model",
    "prompt": "another message to the agent",
    "model": "another model from here on",
    "system": "another system prompt from here on",
    "result": "another result of the tool (JSON or text)",
    "none": "no change: run on from here",
}


def fork_form(call: HttpCall, word: str, look: RunLook) -> Html:
    offered = CHANGES if call.caller.is_operator else {name: CHANGES[name] for name in ("prompt", "none")}
    if look.vega is not None:
        offered = {name: CHANGES[name] for name in ("reply", "result")}
    options = [tag("option", label, value=name) for name, label in offered.items()]
    form = act_form(
        call,
        link(call, "acts/runs", word, "fork"),
        tag("input", type="hidden", name="at", value=look.here, id="fork-at"),
        tag("label", "With ", tag("select", options, name="what", id="fork-what")),
        tag("label", "Text", for_="fork-text"),
        tag("textarea", name="text", id="fork-text", rows=3, maxlength=_TEXT_CHARS_MAX),
        tag("button", "Fork from here", class_="primary"),
        why_not=_why_no_fork(call, look),
        class_="fork",
        id="fork-form",
    )
    return region(
        call,
        "fork",
        (),
        tag("h2", f"Fork from step {look.here}"),
        tag("p", _REAL if look.vega is None else _VEGA_REAL, class_="note"),
        _vega_refusal(look),
        form,
        data_at=look.here,
    )


_REAL: Final = (
    "What came before is answered from the journal and not done again. What the fork does from there on is real."
)
_VEGA_REAL: Final = (
    "The fork is a run of its own. What its program asks as in this run is answered as it was; what is new is real, "
    "within the budget of the run."
)


def _why_no_fork(call: HttpCall, look: RunLook) -> str:
    """Return why the form is disabled; "" where it is not."""
    if not look.here:
        return "There is no step here: move the handle to one"
    if look.vega is None:
        return ""
    if not call.caller.is_operator:
        return "A fork of a Vega run needs an operator"
    return "" if _is_changeable(look) and not look.vega.missing else "This step has no reply that could be changed"


def _is_changeable(look: RunLook) -> bool:
    step = look.steps[look.here - 1]
    return step.kind in CHANGEABLE and bool(step.end_seq)


def _vega_refusal(look: RunLook) -> Html | None:
    """Return why a Vega run cannot be forked from here, and what to do instead."""
    if look.vega is None or not look.here:
        return None
    if look.vega.missing:
        return tag(
            "p", look.vega.missing, " Fork it with ", tag("code", f"{look.vega.command()} --live"), class_="note"
        )
    if _is_changeable(look):
        return None
    return tag("p", "This step has no reply: choose one of the kind model, tool or effect that is over.", class_="note")


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
    Endpoint("pages.run", "GET", "/runs/{pid}", "A run to step through", _run, query=RunQuery),
    Endpoint("acts.fork", "POST", "/acts/runs/{pid}/fork", "Fork a run from a step", _fork, is_work=True),
)


# ---------------------------------------------------------------- plan picture
# The picture of a Vega program's plan: which calls to agents overlap, and why the others do not.


def plan_picture(plan: OverlapPlan) -> Html:
    """Return the picture, and the same in words."""
    from lyra.vega.plan.render import svg_of, text_of

    return tag(
        "div",
        tag(
            "div", Html(svg_of(plan, embedded=True)), class_="graph-box", tabindex="0", role="region", aria_label="Plan"
        ),
        tag("details", tag("summary", "The plan in words"), tag("pre", text_of(plan), tabindex="0")),
        class_="plan",
    )


def plan_of_run(run: DurableRun) -> OverlapPlan | None:
    """Return the plan of the program that is in force in a run; None for one that was run compiled, without its
    source."""
    sources = run.sources()
    text = sources.get(run.file)
    if text is None:
        text = next(iter(sources.values()), None)
    if text is None:
        return None
    try:
        return plan_of(text, run.file, load=partial(_load, sources))
    except LyraError:  # a source of an older version of the language
        return None


def _load(sources: Mapping[str, str], target: str, importer: str) -> Any:
    """Return an imported source among those that the run has kept."""
    beside = posixpath.join(posixpath.dirname(importer), target)
    for name in (target, f"{target}.vega", beside, f"{beside}.vega"):
        plain = posixpath.normpath(name)
        if plain in sources:
            return _node(plain, sources[plain]) if plain.endswith(NODE_FILES) else (plain, sources[plain])
    return None


def _node(name: str, text: str) -> Any:
    """Return a node that a program imports."""
    from lyra.vesper.runtime.faces import read_file

    return read_file(name, text)
