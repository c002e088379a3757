"""The form "Fork from here" of the page of a run, and the act behind it."""

from __future__ import annotations

from typing import Any, Final

from lyra.agents.forks.change import StepChange
from lyra.core.checking.check import one_of
from lyra.errors import ConfigError
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import act_form, link, region, see_other
from lyra.server.dashboard.views.run_look import RunLook
from lyra.server.http.api.timelines import fork_of, run_pid, step_number
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.vega.replay.replayed_run import CHANGEABLE

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
    """Why the form is disabled; "" where it is not."""
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
    """Why a Vega run cannot be forked from here, and what to do instead."""
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
