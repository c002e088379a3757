"""StepChange: what is different in a fork, and `fork_point`: which rows of the journal that comes to.

    reply        another answer of the model at that step
    result       another result of the tool or effect at that step
    prompt       another message, in place of the one that was being answered at that step
    model        another model, from that step on
    system       another system prompt, from that step on

Without a change the fork runs on from that step by itself, such as with an edited program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.turn.turn import MODEL, SINCE, SYSTEM
from lyra.core import codec
from lyra.errors import ConfigError
from lyra.kernel.journal import rows
from lyra.kernel.journal.fork_rows import ForkPoint

if TYPE_CHECKING:
    from lyra.observe.timeline.step import RunStep
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Record, Store

_RESULTS: Final = ("tool", "effect")
_OF_AGENTS: Final = "agent:"
_TEXT_MAX: Final = 1 << 20


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. At most one of reply, result and prompt; model and system may come together."""

    reply: str | None = None
    prompt: str | None = None
    model: str | None = None
    system: str | None = None
    result: Any = msgspec.UNSET

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.reply, self.prompt)) + (self.result is not msgspec.UNSET) > 1:
            raise ConfigError("a fork changes one thing at its step", hint="choose a reply, a result or a prompt")
        for name in ("reply", "prompt", "model", "system"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or len(value) > _TEXT_MAX):
                raise ConfigError(f"{name} is a text of at most {_TEXT_MAX} characters", key=name)
        if self.model is not None and not self.model:
            raise ConfigError("a model has a name", key="model")

    def to_data(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in ("reply", "prompt", "model", "system")}
        data = {name: value for name, value in shown.items() if value is not None}
        return data if self.result is msgspec.UNSET else {**data, "result": self.result}


def fork_point(timeline: RunTimeline, store: Store, number: int, change: StepChange) -> ForkPoint:
    """Return the place and the rows of a fork at a step."""
    step = timeline.step(number)
    different = _different(timeline, step, change)
    if change.prompt is not None:
        point = _with_prompt(timeline, store, step, change.prompt)
    elif change.reply is not None:
        _require(step.kind == "model", timeline, step, "a reply", ("model",))
        point = _answer_step(timeline, store, step, lambda old: _with_text(old, str(change.reply)))
    elif change.result is not msgspec.UNSET:
        _require(step.kind in _RESULTS, timeline, step, "a result", _RESULTS)
        if step.is_inside and change.result is None:
            raise ConfigError(f"{step.what} takes ctx, and cannot be given null", hint="give a text, such as nothing")
        point = _answer_step(timeline, store, step, lambda _: change.result)
    else:
        point = ForkPoint(timeline.pid, number, step.seq, step.pid)
    first = timeline.steps[0]
    cut = max(point.cut, first.seq + 1)
    return point._replace(number=number, cut=cut, different=different, pid=point.pid)


def _different(timeline: RunTimeline, step: RunStep, change: StepChange) -> dict[str, Any]:
    settings = {MODEL: change.model, SYSTEM: change.system}
    different: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if not different:
        return {}
    _require(_is_agent(timeline, step), timeline, step, "another model or system prompt", ("model",))
    before = [int(other.key) for other in timeline.steps[: step.number - 1] if _is_line(other, step.pid)]
    own = int(step.key) if _is_line(step, step.pid) and step.kind == "model" else None
    return {**different, SINCE: max(before, default=-1) + 1 if own is None else own}


def _is_line(step: RunStep, pid: str) -> bool:
    return step.pid == pid and step.key.isdecimal()


def _is_agent(timeline: RunTimeline, step: RunStep) -> bool:
    return any(other.name.startswith(_OF_AGENTS) and _makes(other, step.pid) for other in timeline.steps)


def _makes(step: RunStep, pid: str) -> bool:
    """Return whether a process began with a step."""
    return step.child == pid if step.kind in ("spawn", "restart") else step.kind == "began" and step.pid == pid


def _require(fits: bool, timeline: RunTimeline, step: RunStep, what: str, kinds: tuple[str, ...]) -> None:
    if fits:
        return
    places = [str(other.number) for other in timeline.steps if other.kind in kinds]
    near = sorted(places, key=lambda place: abs(int(place) - step.number))[:6]
    hint = f"steps that can: {', '.join(sorted(near, key=int))}" if near else "this run has no such step"
    raise ConfigError(f"step {step.number} ({step.kind}: {step.what}) cannot have {what}", hint=hint)


def _answer_step(timeline: RunTimeline, store: Store, step: RunStep, make: Any) -> ForkPoint:
    """Return the step with another answer: behind its beginning comes an end of the fork's own."""
    record = _row(store, step.seq)
    started = rows.DECODERS[record.kind].decode(record.data)
    old = None
    if step.end_seq and step.status == "ok":
        end = _row(store, step.end_seq)
        finished = rows.DECODERS[end.kind].decode(end.data)
        old = codec.decode(store.get_blob(finished.blob) if finished.blob else bytes(finished.value))
    key = started.key
    if record.kind != "effect.started":  # refused before it began: the fork has an answer in that place
        last = rows.Finished(key, rows.Raw(codec.encode(make(old))), name=started.name)
        return ForkPoint(timeline.pid, step.number, step.seq, step.pid, last=last)
    last = rows.Finished(key, rows.Raw(codec.encode(make(old))))
    return ForkPoint(timeline.pid, step.number, step.seq + 1, step.pid, last=last)


def _with_text(old: Any, text: str) -> Any:
    """Return a model's answer with another text: it said that, and called no tool."""
    if not isinstance(old, dict) or not isinstance(old.get("message"), dict):
        old = {"message": {"role": "assistant"}}
    message = {**old["message"], "content": text, "tool_calls": []}
    return {**old, "message": message, "stop_reason": "end", "pieces": []}


def _with_prompt(timeline: RunTimeline, store: Store, step: RunStep, prompt: str) -> ForkPoint:
    """Return the message that was being answered at a step, with another content; the rest of its turn is not
    repeated."""
    asked = next(
        (
            other
            for other in reversed(timeline.steps[: step.number])
            if other.kind == "message" and other.pid == step.pid
        ),
        None,
    )
    if asked is None:
        first = next((other for other in timeline.steps if _makes(other, step.pid)), None)
        record = None if first is None else _row(store, first.seq)
        created = None if record is None else rows.DECODERS[record.kind].decode(record.data)
        arguments = None if created is None or created.blob else codec.decode(bytes(created.args))
        if first is None or created is None or not isinstance(arguments, list) or not arguments:
            raise ConfigError(
                f"process {step.pid} had taken no message before step {step.number}",
                hint="a prompt replaces the message that was being answered",
            )
        created.args = rows.Raw(codec.encode([_like(arguments[0], prompt), *arguments[1:]]))
        return ForkPoint(timeline.pid, step.number, first.seq + 1, step.pid, changed={first.seq: created})
    received = _row(store, asked.seq)
    seq = rows.DECODERS[received.kind].decode(received.data).message
    mail = _row(store, seq)
    sent = rows.DECODERS[mail.kind].decode(mail.data)
    message = codec.decode(store.get_blob(sent.blob) if sent.blob else bytes(sent.message))
    if isinstance(message, dict) and "lyra.ask" in message:
        message = {**message, "content": prompt}
    else:
        message = _like(message, prompt)
    sent.message, sent.blob = rows.Raw(codec.encode(message)), ""
    return ForkPoint(timeline.pid, step.number, asked.seq + 1, step.pid, changed={seq: sent})


def _like(old: Any, text: str) -> Any:
    """Text in place of a text; in place of other values, JSON where it is some."""
    if isinstance(old, str):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _row(store: Store, seq: int) -> Record:
    return next(store.read(after=seq - 1, upto=seq))
