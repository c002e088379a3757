"""An effect in words: what a timeline says of it."""

from __future__ import annotations

from typing import Any, Final

from lyra.vega.machine.fiber import Fiber, VmEffect
from lyra.vega.replay.journal import RunJournal
from lyra.vega.replay.timeline import TimelineStep, brief
from lyra.vega.values.values import Process, shown, shown_with_id


def described(journal: RunJournal, pid: str, fiber: Fiber, effect: VmEffect) -> TimelineStep:
    """The step that an effect will be: what is asked of whom, and where in the source."""
    file, line, _ = fiber.place()
    step = TimelineStep(pid=pid, kind=effect.kind, file=file, line=line)
    program = fiber.linked.program
    arguments = effect.arguments
    if effect.kind in _SENDS:
        target, message = arguments[-4], arguments[-3]
        step.agent, step.target = _whom(journal, target)
        step.message = _whole(message)
        step.what = f"{step.agent or shown_with_id(target)} {_SENDS[effect.kind]} {brief(message, 120, program)}"
    elif effect.kind == "ahead_take":
        call = arguments[1]
        if call.kind == "send":
            step.agent, step.target = _whom(journal, call.arguments[0])
            step.message = _whole(call.arguments[1])
            step.what = f"{step.agent or shown_with_id(call.arguments[0])} <- {brief(call.arguments[1], 120, program)}"
        else:
            given = ", ".join(brief(value, 40, program) for value in call.arguments[1])
            step.what = f"{brief(call.arguments[0], 60, program)[10:-1]}({given})"
    elif effect.kind == "print":
        step.message = str(arguments[0])
        step.what = f"print {brief(step.message, 120)}"
    elif effect.kind == "spawn":
        kind, name, what, given, *_ = arguments
        called = f"fn {brief(what, 60, program)[10:-1]}" if kind == "function" else name
        step.what = f"spawn {called}" + (
            f"({', '.join(brief(value, 40, program) for value in given)})" if given else ""
        )
    elif effect.kind == "receive":
        step.what = "receive" if arguments[0] is None else f"receive, at most {shown(arguments[0])}"
    else:
        step.what = f"{effect.kind} {', '.join(brief(value, 80, program) for value in arguments)}".strip()
    return step


_SENDS: Final = {"send": "<-", "send_stream": "<~", "parallel_send": "<- (beside others)"}


def _whom(journal: RunJournal, target: Any) -> tuple[str, str]:
    return (journal.agent_of(target), target.pid) if type(target) is Process else ("", "")


def _whole(message: Any) -> str:
    try:
        return shown(message)
    except Exception:  # noqa: BLE001 - a value too large to show is no message that a breakpoint can match
        return ""
