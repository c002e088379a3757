"""Runs to step through: the steps of a process, how it stood after each, forks of it, and two runs side by side.

A run is named by the pid of its process, or by the id of a session. Another user's is answered as one that does not
exist.

`HISTORY_ENDPOINTS` is what happened before and what happens now on all processes of the caller: the rows of the
journal, in order, a page at a time, and the events as they come.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Annotated, Any, Final

import msgspec

from lyra.agents.forks.change import StepChange
from lyra.agents.forks.fork import start_prepared
from lyra.core.checking.check import one_of
from lyra.core.codec import to_plain
from lyra.core.event import KINDS, Event
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError, Denied, InvalidTransition, NoSuchProcess
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import compare_runs
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery, Streamed
from lyra.server.http.past.timelines import ProgramMoment, Timelines, VegaForks
from lyra.server.owners import SINGLE_KINDS, OwnedPid, owner_if_known

_PAGE_MAX: Final = 5_000
_CHAT: Final = "chat"
_STEM_CHARS_MAX: Final = NAME_LENGTH_MAX - 16  # of a pid that a number is added to
_ROWS_MAX: Final = 10_000


class StepsQuery(RequestQuery):
    """`after` is the number of a step."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=_PAGE_MAX)] = 500


class MomentQuery(RequestQuery):
    """`process` is one of the run's processes: of which to tell. With `frames` a Python program is run again over its
    journal up to there, and the answer has the functions that it stood in with their variables: for operators."""

    process: str = ""
    frames: bool = False


class TimelineAnswer(msgspec.Struct):
    """Steps in order, and the run in a few figures; `more` says that others follow."""

    run: dict[str, Any]
    steps: list[dict[str, Any]]
    more: bool


class ForkBody(RequestBody):
    """`at` is the step; at most one of `reply`, `result` and `prompt` changes it, `model` and `system` hold from there
    on."""

    at: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    reply: str | None = None
    prompt: str | None = None
    model: str | None = None
    system: str | None = None
    result: Any = msgspec.UNSET


class ForkStarted(msgspec.Struct, kw_only=True):
    """`session_id` is there where the fork is a conversation that can be talked to."""

    pid: str
    of: str
    at: int
    session_id: str = ""


def run_pid(call: HttpCall, word: str) -> str:
    """Return the pid of a run of the caller's, by pid or session; NoSuchProcess also where it is another user's."""
    pid = word
    if word not in call.kernel.processes:
        session = call.parts.chats.sessions.find(word)
        pid = word if session is None else session.pid
    call.caller.require_owner(owner_if_known(call.kernel, pid), _unknown_run, word)
    return pid


def _unknown_run(word: str) -> NoSuchProcess:
    return NoSuchProcess(f"there is no run {word[:80]!r}")


async def timeline(call: HttpCall) -> TimelineAnswer:
    pid, query = run_pid(call, call.path["pid"]), call.query

    def look(run: RunTimeline) -> TimelineAnswer:
        steps = run.page(query.after, query.limit)
        more = query.after + len(steps) < len(run.steps)
        return TimelineAnswer(run.summary(), [step.to_data() for step in steps], more)

    return await call.parts.get_shared(Timelines).read(pid, look)


async def moment(call: HttpCall) -> dict[str, Any]:
    pid = run_pid(call, call.path["pid"])
    number = step_number(call.path["number"])
    process = call.query.process or None
    told = await call.parts.get_shared(Timelines).read(pid, lambda run: run.moment(number, process))
    if call.query.frames:
        place = await frames_of(call, pid, number, told["pid"])
        told["frames"] = [frame.to_data() for frame in place.frames]
        if place.output is not None:
            told["output"] = place.output
    return told


async def frames_of(call: HttpCall, pid: str, number: int, process: str) -> ProgramMoment:
    """Return the functions that the program of a process stood in after a step; for those who may run programs."""
    if not (call.caller.is_operator and call.caller.may_change):
        raise Denied("the variables of a program need an operator", hint="the program is run again to see them")
    timelines = call.parts.get_shared(Timelines)
    if await _is_vega(call, pid):
        return await timelines.vega_place(pid, number, process)
    return ProgramMoment(await timelines.frames(pid, number, process))


async def _is_vega(call: HttpCall, pid: str) -> bool:
    """Return whether a run is the durable run of a Vega program."""
    if pid in call.kernel.processes:
        return False
    return await call.parts.get_shared(Timelines).read(pid, lambda run: bool(run.run_id))


def step_number(text: str) -> int:
    """Return the number of a step as a path has it."""
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"{text[:40]!r} is not the number of a step", key="number")
    return int(text)


async def diff(call: HttpCall) -> dict[str, Any]:
    left, right = run_pid(call, call.path["pid"]), run_pid(call, call.path["other"])
    return await call.parts.get_shared(Timelines).read_two(
        left, right, lambda old, new: compare_runs(old, new).to_data()
    )


async def fork(call: HttpCall) -> ForkStarted:
    body: ForkBody = call.body
    change = StepChange(reply=body.reply, prompt=body.prompt, model=body.model, system=body.system, result=body.result)
    return await fork_of(call, run_pid(call, call.path["pid"]), body.at, change)


async def fork_of(call: HttpCall, pid: str, number: int, change: StepChange) -> ForkStarted:
    """Start a fork of a run of the caller's; it belongs to the user of that run. A user may change what a chat lets
    them say; to put words into the mouth of a model or a tool, or to choose a model or a system prompt, needs an
    operator."""
    of = OwnedPid.read(pid)
    if of is not None and of.kind in SINGLE_KINDS:
        raise InvalidTransition(f"process {pid} stands for a {of.kind} of the server, and is not forked", pid=pid)
    for name in change.to_data():
        if name != "prompt" and not call.caller.is_operator:
            raise Denied(f"another {name} in a fork needs an operator", hint="fork with a prompt, or without a change")
    kernel = call.kernel
    if await _is_vega(call, pid):
        return await _fork_vega(call, pid, number, change)
    prepared = await call.parts.get_shared(Timelines).prepare_fork(pid, number, change)
    started = await start_prepared(kernel, prepared, new_pid=_session_pid(call, pid))
    owner = owner_if_known(kernel, pid)
    if owner:
        kernel.lifecycle.set_owner(started, owner)
        await kernel.durable()
    owned = OwnedPid.read(started)
    session_id = owned.rest if owned is not None and owned.kind == _CHAT else ""
    if session_id and call.parts.chats.sessions.find(session_id) is None:
        call.parts.chats.sessions.add(session_id, started)
    return ForkStarted(pid=started, of=pid, at=number, session_id=session_id)


async def _fork_vega(call: HttpCall, run_id: str, number: int, change: StepChange) -> ForkStarted:
    """Return a fork of a durable Vega run: another reply of a model, or another result of a tool or an effect."""
    if not call.caller.is_operator:
        raise Denied("a fork of a Vega run needs an operator", hint="its program runs with the rights of the server")
    if change.reply is None and change.result is msgspec.UNSET:
        raise ConfigError("a fork of a Vega run changes a reply or a result", hint="choose one of them", key="reply")
    text = change.reply if change.reply is not None else change.result
    written = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    started = await call.parts.get_shared(VegaForks).start(run_id, number, written)
    return ForkStarted(pid=started, of=run_id, at=number)


def _session_pid(call: HttpCall, pid: str) -> str | None:
    """Return the pid for a fork of a chat: one whose session no other user has. None for any other run."""
    stem = pid[:_STEM_CHARS_MAX]
    chat = OwnedPid.read(stem)
    if chat is None or chat.kind != _CHAT:
        return None
    session_of, processes = call.parts.chats.sessions.find, call.kernel.processes
    free = (
        number
        for number in count(1)
        if session_of(f"{chat.rest}-fork-{number}") is None and f"{stem}-fork-{number}" not in processes
    )
    return f"{stem}-fork-{next(free)}"


_PATH: Final = "/api/runs/{pid}"

ENDPOINTS: Final = (
    Endpoint(
        "runs.timeline",
        "GET",
        f"{_PATH}/timeline",
        "The steps of a run, a page at a time",
        timeline,
        query=StepsQuery,
        answer=TimelineAnswer,
        statuses=(404, 409),
        about="Messages, model and tool calls, effects, children, questions and ends, of a process and all it started.",
    ),
    Endpoint(
        "runs.at",
        "GET",
        f"{_PATH}/at/{{number}}",
        "How a run stood after one of its steps",
        moment,
        query=MomentQuery,
        statuses=(404, 409),
        about="Conversation, known variables, budget, mailbox and process tree. Step 0 is before the first. With "
        "`frames` the local variables of a Python or Vega program, which is run again up to there and performs "
        "nothing; of a Vega program also the last lines of its `output`.",
    ),
    Endpoint(
        "runs.fork",
        "POST",
        f"{_PATH}/fork",
        "Run on from a step as a process of its own, with something changed",
        fork,
        body=ForkBody,
        answer=ForkStarted,
        status=202,
        is_work=True,
        statuses=(404, 409),
        about="What came before the step is answered from the journal, not performed again; what comes then is real. "
        "A user may change the `prompt`; the other changes need an operator. The run of a Vega program is forked "
        "by an operator with another `reply` or `result`; `pid` is then the id of the new run.",
    ),
    Endpoint(
        "runs.diff",
        "GET",
        f"{_PATH}/diff/{{other}}",
        "Two runs side by side, with the first difference",
        diff,
        statuses=(404, 409),
    ),
)


class HistoryQuery(RequestQuery):
    """`after` is the number of a row; `kind` is a word of the table of events, `pid` one process."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=_ROWS_MAX)] = 1_000
    kind: str = ""
    pid: str = ""


class HistoryEvent(msgspec.Struct):
    """One row: `seq` orders them, `time` is wall-clock seconds, `pid` is "" for the kernel's own."""

    seq: int
    time: float
    pid: str
    kind: str
    data: Any


class HistoryAnswer(msgspec.Struct):
    """`last_seq` is where the next page begins; `more` says that there is one."""

    events: list[HistoryEvent]
    last_seq: int
    more: bool


async def read_history(call: HttpCall) -> HistoryAnswer:
    query: HistoryQuery = call.query
    kind = one_of(query.kind, KINDS, "an event's kind") if query.kind else None
    pid = call.require_process(query.pid) if query.pid else None
    page = await call.parts.history.page(query.after, query.limit, pid=pid, kind=kind)
    shown = [_to_history_event(event) for event in page.events if _is_owned(call, event)]
    return HistoryAnswer(shown, page.last_seq, page.more)


def _is_owned(call: HttpCall, event: Event) -> bool:
    if call.caller.is_operator:
        return True
    return bool(event.pid) and call.caller.owns(owner_if_known(call.kernel, event.pid))


def _to_history_event(event: Event) -> HistoryEvent:
    data = msgspec.to_builtins(event.data, enc_hook=to_plain, str_keys=True)
    return HistoryEvent(event.seq, event.time, event.pid, event.kind, data)


# The events of the kernel as they happen.


class EventQuery(RequestQuery):
    """`kinds` are words of the table of events, with commas between them; `pid` is one process."""

    kinds: str = ""
    pid: str = ""


async def follow_events(call: HttpCall) -> Streamed:
    query: EventQuery = call.query
    kinds = frozenset(one_of(kind.strip(), KINDS, "an event's kind") for kind in query.kinds.split(",") if kind.strip())
    pid = call.require_process(query.pid) if query.pid else ""
    event_id = call.headers.get("last-event-id", "")
    return Streamed(call.parts.feed.read(call.caller, event_id, kinds, pid))


HISTORY_ENDPOINTS: Final = (
    Endpoint(
        "history.read",
        "GET",
        "/api/history",
        "The rows of the journal, a page at a time",
        read_history,
        answer=HistoryAnswer,
        query=HistoryQuery,
        statuses=(404,),
        about="`lyra ps`, `trace`, `cost`, `events` and `top` read this. A kernel without a store keeps the last rows.",
    ),
    Endpoint(
        "events.follow",
        "GET",
        "/api/events",
        "The events of the caller's processes as they happen",
        follow_events,
        query=EventQuery,
        streams=True,
        statuses=(404,),
        about="The header `Last-Event-ID` reads on after an event; `missed` says how many are not kept any more.",
    ),
)
