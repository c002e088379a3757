"""Asking agents: `p <- message`.

A call without memory is its own process that answers once; one with memory is a message to the agent's
conversation. Either way it draws on the sessions that are open around it, on its own budget, and is given up when its
time is over. A call that fails after its retries is AgentFailed at its caller, and the agent's process crashes with it;
limits that were reached (BudgetExceeded, CircuitOpen, a time-out) are no crash.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from lyra.agents.declaration.output import content_of
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.records import Held
from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.budgets.early_calls import NO_ROOM
from lyra.core.budgets.money import Money
from lyra.core.effect import Effect, canonical_hash
from lyra.errors import (
    AgentFailed,
    ConfigError,
    DeadlineExceeded,
    Denied,
    Divergence,
    LimitExceeded,
    LyraError,
    ModelError,
    NoSuchProcess,
    VegaError,
)
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.replay import next_key, take_entry, upcoming, upcoming_key
from lyra.kernel.programs.context import OwnContext
from lyra.vega.runtime.agents.plan import plan_of_call
from lyra.vega.runtime.agents.slot import CRASH, AgentSlot, AgentTurn, in_time, now_s
from lyra.vega.runtime.convert import convert_to_type, from_python
from lyra.vega.runtime.early_budget import RecordedBudget, SpeculativeCall
from lyra.vega.values.values import Duration, Fault, fault_of, render

if TYPE_CHECKING:
    from lyra.kernel.process.process import Exit
    from lyra.kernel.programs.handle import ChildHandle
    from lyra.vega.runtime.job import VegaJob
    from lyra.vega.runtime.world import World
    from lyra.vega.syntax.ast import Type


# ---------------------------------------------------------------- refused calls
# Calls that fail before their first effect: time ran out in the queue, the agent has ended, or a deadlock.
# Such a call leaves no effect in the journal, and a replay might decide otherwise. So the error itself is journaled,
# under the key that the first effect would have had. The refusal of an early call is not: it is made again in program
# order.

_P = ParamSpec("_P")
_T = TypeVar("_T")

_REFUSED: Final = "refused"  # the kind of the journal's entry


def journals_refusals(
    call: Callable[Concatenate[VegaJob, _P], Awaitable[_T]],
) -> Callable[Concatenate[VegaJob, _P], Coroutine[Any, Any, _T]]:
    """For functions that make a call: what they raise before the first effect of it is kept."""

    @wraps(call)
    async def call_and_journal(job: VegaJob, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not job.world.is_durable or kwargs.get("is_early") or job.ctx.pid in job.world.early:
            return await call(job, *args, **kwargs)
        _meet(job)
        process = job.process
        key = upcoming_key(process)
        try:
            return await call(job, *args, **kwargs)
        except Divergence:
            raise
        except (LyraError, Fault) as error:
            # A call that began before the restart has its effects in the journal; nothing is added to them here.
            if upcoming_key(process) == key and upcoming(process) is None:
                cut_short(process, next_key(process), _to_lyra_error(error), form=_REFUSED)
            raise

    return call_and_journal


def _meet(job: VegaJob) -> None:
    """Raise the journaled error of a call that failed before its first effect."""
    process = job.process
    entry = upcoming(process)
    if entry is None or entry.kind != _REFUSED:
        return
    take_entry(process, next_key(process), _REFUSED, "", b"")
    error = error_from_row(entry.error)
    raise fault_of(error) if isinstance(error, VegaError) else error


def _to_lyra_error(error: LyraError | Fault) -> LyraError:
    if isinstance(error, LyraError):
        return error
    return VegaError(f"{error.name}: {error.text}", name=error.name, text=error.text)


_NOT_IT: Final = ("gone", "mock")  # failures that no process of the agent had a part in
_NO_CRASH: Final = (LimitExceeded, ConfigError, Denied)
STOP_S: Final = 1.0  # grace for a cancelled call to hang up on its model; its caller does not wait


# ---------------------------------------------------------------- one call


async def ask(job: VegaJob, pid: str, message: Any, timeout: Duration | None, budget: Money | None) -> Any:
    """Return the answer to `p <- message`."""
    slot = job.world.agent_slots.get(pid) or await job.world.slot_of(pid)
    try:
        return await ask_agent(job, slot, pid, message, timeout, budget, is_early=job.ctx.pid in job.world.early)
    except (Divergence, Fault):
        raise  # the journal's business or the program's, not the agent's
    except Exception as error:
        early = job.world.early.get(job.ctx.pid)
        if early is not None and isinstance(error, LyraError) and NO_ROOM in error.fields:
            early.scope.was_refused = True  # also when it was refused before the restart
        elif early is None and is_crash(error):
            await job.give_back()
        raise handle_failure(job, slot, error) from error


@journals_refusals
async def ask_agent(
    job: VegaJob,
    slot: AgentSlot,
    pid: str,
    message: Any,
    timeout: Duration | None,
    budget: Money | None,
    *,
    is_early: bool,
    early: SpeculativeCall | None = None,
) -> Any:
    """Ask an agent; errors are raised as they are, and the caller decides whether the agent crashes.

    The time of a call that others of its own program may be in front of begins when it has the agent's turn: in the
    line-by-line run it would not have had to queue.
    """
    mocked = find_mock_reply(job, slot, message)
    if mocked is not None:
        return mocked[0]
    may_ask(job, pid)
    plan = plan_of_call(job.ctx.own_process, slot.plan)
    limit_s = plan.timeout_s if timeout is None else timeout.seconds
    limit = plan.budget if budget is None else budget
    if early is not None:
        limit = None  # the scope of the early call has the limit
    if limit_s is not None and limit_s <= 0:
        raise DeadlineExceeded(f"{slot.plan.name} has no time to answer", timeout_s=limit_s)
    if limit_s is not None:
        job.world.runtime.models.prepare(plan.agent)
    content = job.world.runtime.clean(content_text(message))

    outer, turn = job.outer(slot), AgentTurn(slot, job.process)

    async def answer() -> Any:
        if slot.plan.keeps:
            return await _ask_conversation(job, turn, content, limit)
        return await once(job, turn, content, limit, early)

    if job.ctx.replaying and was_asked(job, slot, "vega.ask", content):
        async with in_time(slot.plan.name, limit_s, turn=turn), slot.again(outer, is_open=_is_open(job, slot)):
            return read_answer(slot, await answer())
    ahead = early or job.world.early.get(job.ctx.pid)
    if job.world.barrier is not None:
        await job.world.all_replayed(job.process)
        if ahead is not None:  # the function was called early before the restart, and had made no call yet
            await ahead.scope.wait_for_those_before()
    if ahead is None:
        await job.give_back(partial(job.world.runtime.models.ready_in, plan.agent, timed=limit_s is not None))
    with job.waiting(pid):
        if is_early:
            window = slot.ahead if ahead is not None else nullcontext()
            came_s = now_s()
            async with window, slot.turn(outer), in_time(slot.plan.name, limit_s, turn=turn):
                if ahead is not None:
                    ahead.idle_s += now_s() - came_s
                return read_answer(slot, await answer())
        async with in_time(slot.plan.name, limit_s, turn=turn), slot.turn(outer):
            return read_answer(slot, await answer())


def publish(job: VegaJob, kind: str, pid: str) -> None:
    """Tell listeners about the process of an agent that works on an early call."""
    kernel = job.world.kernel
    if kernel.agents_heard:
        kernel.publish(job.ctx.pid, kind, {"pid": pid})


def read_answer(slot: AgentSlot, answer: Any) -> Any:
    """Return an answer as the program sees it."""
    return from_python(answer) if slot.plan.output is None else _convert_answer(answer, slot.plan.output)


def _convert_answer(answer: Any, written: Type) -> Any:
    try:
        return convert_to_type(answer, written)
    except ConfigError as misfit:  # an amount that is none: JSON could not tell
        raise AgentFailed(f"the answer does not fit: {misfit.message}", status="output_invalid") from None


def content_text(message: Any) -> str:
    return render(message)


def was_asked(job: VegaJob, slot: AgentSlot, effect: str, *content: str) -> bool:
    """Return whether this call was made before the restart: as an `effect`, where a conversation was asked."""
    entry = upcoming(job.ctx.own_process)
    if entry is None:
        return False
    if slot.plan.keeps:
        return entry.kind == "do" and entry.name == f"{effect}:{slot.plan.name}"
    word = job.world.kernel.programs.name(plan_of_call(job.ctx.own_process, slot.plan).program)
    return entry.kind == "spawn" and entry.hash == canonical_hash(word, content, {})


def _is_open(job: VegaJob, slot: AgentSlot) -> bool:
    """Return whether the call that comes next is still under way."""
    entry = upcoming(job.process)
    assert entry is not None
    if slot.plan.keeps:
        return not entry.done
    child = job.world.kernel.lookup(entry.link)
    return child is not None and child.exit is None


@contextmanager
def answering(world: World, pid: str, turn: AgentTurn) -> Iterator[None]:
    """While a process has a call to answer."""
    turns = world.turns.setdefault(pid, [])
    turns.append(turn)
    try:
        yield
    finally:
        turns.remove(turn)
        if not turns:
            world.turns.pop(pid, None)


async def once(
    job: VegaJob, turn: AgentTurn, content: str, limit: Money | None, early: SpeculativeCall | None = None
) -> Any:
    """Make a call without memory: a process that answers this and ends."""
    slot = turn.slot
    plan, ctx = plan_of_call(job.ctx.own_process, slot.plan), job.ctx
    within = scopes_with_limit(limit)
    with Held(scopes, within):
        child = ctx.spawn(plan.program, content, priority=plan.priority)
    early = early or job.world.early.get(ctx.pid)
    if early is not None:
        early.pids.append(child.pid)
        publish(job, "call.ahead", child.pid)
    if job.world.barrier is not None:
        # Let a call that continues after a restart spend from the scopes of this execution.
        process = child._look_up()
        if process is not None and process.exit is None:
            process.context.run(scopes.set, within)
    before = job.world.recharge(child.pid, within)
    if early is not None:
        early.before += before
        early.cut_off += job.world.cut_off_before.pop(child.pid, NOTHING)
    if job.world.picture is not None:
        job.world.picture.note_model_call(child.pid, slot)
    try:
        with answering(job.world, child.pid, turn):
            ended = await child.wait()
    except asyncio.CancelledError:
        stop(job, child)
        if early is not None:
            await wait_for_end(job, child.pid)
        raise
    return _result(plan.name, ended)


def _result(name: str, ended: Exit) -> Any:
    if ended.error is not None:
        raise ended.error
    if ended.reason != "normal":
        raise AgentFailed(f"agent {name} ended: {ended.reason}", status=ended.reason)
    return ended.result


def stop(job: VegaJob, child: ChildHandle) -> None:
    """End a process of ours. Whether it has ended already is not asked: a replay would find another answer."""
    if not job.world.kernel.stopping:
        with suppress(NoSuchProcess):
            OwnContext(job.process).stop(child, grace_s=STOP_S)


async def wait_for_end(job: VegaJob, pid: str) -> None:
    """Wait until a process that was given up is over, and what it cost is known."""
    kernel = job.world.kernel
    process = kernel.processes.get(pid)
    if process is None or process.exit is not None or kernel.stopping:
        return
    with suppress(TimeoutError, NoSuchProcess):
        async with asyncio.timeout(2 * STOP_S):
            await kernel.process(pid).wait()


async def _ask_conversation(job: VegaJob, turn: AgentTurn, content: str, limit: Money | None) -> Any:
    """Make a call with memory: the next message of the conversation, as an effect of the caller's."""

    slot = turn.slot

    async def vega_ask(content: str, *, idempotency_key: str) -> Any:
        session = await slot.conversation()
        # Asked again under its own name after a crash, it is the same question: the outcome of it is found.
        request_id = f"~{job.world.kernel.core.call_named(idempotency_key)[1]}"
        with Held(scopes, make_recorded_scopes(job.world, limit, request_id)):
            pending = job.world.runtime.ask(session, content_of(content), request_id=request_id)
        try:
            with answering(job.world, session.pid, turn):
                return await pending
        finally:
            if job.world.record is not None and not job.world.kernel.stopping:
                job.world.record.leave(request_id)

    effect = Effect(vega_ask, name=f"vega.ask:{slot.plan.name}", idempotent=True, rejoins=True)
    return await job.ctx.do(effect, content)


def may_ask(job: VegaJob, pid: str) -> None:
    """Check the right to ask an agent; a call that the journal has was allowed when it was made."""
    if not job.process.grant.is_all and upcoming(job.process) is None:
        job.ctx.may_send(pid, job.world.kernel.lookup(pid))


def scopes_with_limit(limit: Money | None) -> tuple[Budget, ...]:
    """Return the scopes around a call, with its own inside them."""
    outer = scopes.get()
    return outer if limit is None else (*outer[:-1], outer[-1].child({"usd": limit}))


def make_recorded_scopes(world: World, limit: Money | None, request_id: str) -> tuple[Budget, ...]:
    """Return the scopes around a question to a conversation: what it spends in a session of a durable run, or of a
    limit of its own, is recorded."""
    outer = scopes.get()
    names = [scope.name for scope in outer[-1].chain() if scope.name]
    if limit is not None:
        names = [request_id, *names]
    if world.record is None or not names:
        return scopes_with_limit(limit)
    scope = RecordedBudget(outer[-1], limit, partial(world.record.pay, names))
    if limit is not None:
        scope.charge_alone(Usage.from_data(world.record.get_session_costs(request_id)))
    return (*outer[:-1], scope)


def handle_failure(job: VegaJob, slot: AgentSlot, error: Exception) -> LyraError:
    """Return the error as the caller sees it; one that is no limit crashes the agent's process."""
    if not isinstance(error, LyraError):
        error = AgentFailed(f"{type(error).__name__}: {error}", status="failed")
    limit_s = slot.plan.try_timeout_s
    if limit_s is not None and isinstance(error, ModelError) and error.kind == "timeout":  # and so was each try before
        return DeadlineExceeded(f"{slot.plan.name} did not answer within {limit_s:g} s", timeout_s=limit_s)
    if not is_crash(error):
        return error
    crash(job, slot, error)
    if isinstance(error, AgentFailed):
        return error
    return AgentFailed(_reason(error), hint=error.hint, status="failed", **_kind(error))


def _reason(error: LyraError) -> str:
    """Its text; of a mistake in a file, such as the script of a simulated model, its place and what was meant too: a
    Vega program shows no hints of errors."""
    if not error.fields.get("file"):
        return error.message
    hint = f" ({error.hint})" if error.hint else ""
    return f"{error.fields['file']}:{error.fields['line']}: {error.message}{hint}"


def is_crash(error: BaseException) -> bool:
    """Return whether an agent's process ends with an error of a call."""
    if isinstance(error, AgentFailed):
        return error.fields.get("status") not in _NOT_IT
    return not isinstance(error, _NO_CRASH)


def crash(job: VegaJob, slot: AgentSlot, error: LyraError) -> None:
    """End the agent's process with an error: now, or when the program comes to the call."""
    early = job.world.early.get(job.ctx.pid)
    if early is not None:
        early.crashes.append((slot, error))
        return
    pid = job.ctx.journaled_read(
        "front", lambda: None if (front := slot.front) is None or front.exit is not None else front.pid
    )
    if pid is not None:
        job.world.has_crashed = True
        if slot.front is not None and slot.front.pid == pid:
            slot.down()
        with suppress(NoSuchProcess):
            OwnContext(job.process).send(pid, {CRASH: error.message})


def crash_again(job: VegaJob, message: str) -> None:
    """Crash the agent again that the program crashed when it reached a failed early function. After a restart the
    agent of that function is not known, but the journal says whether one was crashed."""
    entry = upcoming(job.ctx.own_process)
    if entry is None or entry.kind != "read" or entry.name != "front":
        return
    pid = job.ctx.journaled_read("front", lambda: None)
    if pid is not None:
        with suppress(NoSuchProcess):
            OwnContext(job.process).send(pid, {CRASH: message})


def _kind(error: LyraError) -> dict[str, Any]:
    return {"kind": error.fields["kind"]} if "kind" in error.fields else {}


def find_mock_reply(job: VegaJob, slot: AgentSlot, message: Any) -> tuple[Any] | None:
    """Return the answer of a `mock`, in a test."""
    replies = job.world.mocks.get(slot.plan.name)
    if replies is None:
        return None
    text = render(message)
    for pattern, reply in replies:
        if re.search(pattern, text):
            return (reply,)
    raise AgentFailed(f"the mock of {slot.plan.name} has no reply to {text[:80]!r}", status="mock")
