"""Calls made ahead of their turn: started early, taken in program order, given up when the program goes elsewhere.

Each early call is a branch of the process with its own key (`ahead2:1.0/`: the second group, its site 1, the first
time), so a replay finds its answer whichever call was faster. It spends from its own scope, and nothing that its
end means to others (an agent's crash, money spent, an error) happens before the program comes to it. What the program
never comes to is cancelled, waited for, and told as speculative.

An agent that the program has not come to spawn can be asked: a call without memory needs no process of the agent, only
its settings. Its AgentSlot is there already, and the process moves in when the program spawns it. If it never does,
there never was one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core.budgets.budget import NOTHING
from lyra.core.budgets.early_calls import is_limited
from lyra.core.limits import VEGA_AHEAD_CALLS_MAX, VEGA_AHEAD_DEPTH_MAX, VEGA_AHEAD_FUNCTIONS_MAX, VEGA_AHEAD_SLICES_MAX
from lyra.errors import AgentFailed, Divergence, LyraError, VegaError
from lyra.kernel.process.replay import name_branch
from lyra.vega.machine.fiber import REFUSED, EarlyCall, EarlyCallGroup, NotEarly
from lyra.vega.machine.rare_instructions import again
from lyra.vega.runtime.agents.calls import (
    ask_agent,
    crash,
    crash_again,
    handle_failure,
    is_crash,
    publish,
    wait_for_end,
)
from lyra.vega.runtime.agents.slot import AgentSlot, now_s
from lyra.vega.runtime.early_budget import EarlyCallBudget, SpeculativeCall, SpeculativeCalls, uncharge
from lyra.vega.runtime.processes import PROCESSES, spawn_agent, start_fiber
from lyra.vega.values.values import ErrorValue, Fault, Process, fault_of

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


AHEAD_PATH: Final = "ahead"  # how the keys begin of what is done in early calls


def _call_over(job: VegaJob, early: SpeculativeCall, kind: str) -> None:
    """Publish that the program came to an early call (`call.taken`) or never will (`call.speculative`)."""
    outer = job.world.early.get(job.ctx.pid)
    if outer is not None and kind == "call.taken":  # the function that made it runs early itself
        outer.pids.extend(early.pids)
        return
    for pid in early.pids:
        publish(job, kind, pid)


# ---------------------------------------------------------------- beginning


def _begin(job: VegaJob) -> EarlyCallGroup | None:
    """Return a group, or null where calls are made in their turn and no replay has to find them."""
    if not job.world.is_durable and not _looks_ahead(job):
        return None
    job.fiber.looking = VEGA_AHEAD_SLICES_MAX
    return EarlyCallGroup(job.state.number(), is_kept=job.world.is_durable)


def _looks_ahead(job: VegaJob) -> bool:
    # A process with a limit in the kernel may not spend outside that limit. An early function below a limit already
    # reserves its calls in program order.
    inside = scopes.get()[-1]
    if isinstance(inside, EarlyCallBudget) and is_limited(inside.around):
        return False
    return not job.world.options.sequential and not is_limited(job.ctx.own_process.budget)


async def _start(job: VegaJob, group: EarlyCallGroup, call: EarlyCall, asks_once: bool) -> None:
    """Start a call; NotEarly when no more of them are worth it, and the looking ends."""
    group.add(call)
    if call.state == REFUSED:
        job.state.ahead.setdefault(group.number, SpeculativeCalls()).has_gap = True
        return
    # Tell whether an earlier execution of the run made it early: the call and its cost are in the journal.
    recall = job.ctx.own_process.replay
    was_made = recall is not None and f"{_path(group, call.key)}0" in recall
    if not was_made and not _looks_ahead(job):
        call.state = REFUSED
        raise NotEarly("every call is made in its turn")
    group_calls = job.state.ahead.setdefault(group.number, SpeculativeCalls())
    if not was_made and not _has_room(job):
        call.state = REFUSED
        raise NotEarly("processes are scarce")
    if call.kind == "send" and call.arguments[0].pid in job.world.expected:
        await job.world.slot_of(call.arguments[0].pid)  # it comes back with the run
    if group_calls.failed and not was_made:
        call.state = REFUSED
        raise NotEarly("a call before it has failed")
    if not _may_start(job, call, group_calls, asks_once=asks_once):
        call.state = REFUSED
        group_calls.has_gap = True
        return
    while len(group_calls.under_way) >= VEGA_AHEAD_CALLS_MAX and not was_made:
        with _waiting(job):
            await asyncio.wait(group_calls.under_way, return_when=asyncio.FIRST_COMPLETED)
        if group_calls.failed:
            call.state = REFUSED
            raise NotEarly("a call before it has failed")
    _launch(job, group, call, group_calls, was_made=was_made)


def _has_room(job: VegaJob) -> bool:
    """Calls under way are processes; they must not be what keeps the program from starting one."""
    kernel = job.world.kernel
    return kernel.live + 4 * VEGA_AHEAD_CALLS_MAX < kernel.processes_max


def _slot(job: VegaJob, group_calls: SpeculativeCalls, pid: str) -> AgentSlot | None:
    return group_calls.promised.get(pid) or job.world.agent_slots.get(pid)


def _launch(
    job: VegaJob, group: EarlyCallGroup, call: EarlyCall, group_calls: SpeculativeCalls, *, was_made: bool
) -> None:
    limit = None
    if call.kind == "send":
        slot = _slot(job, group_calls, call.arguments[0].pid)
        assert slot is not None
        plan = slot.plan
        limit = plan.budget if call.arguments[3] is None else call.arguments[3]
    outer = job.world.early.get(job.ctx.pid)
    depth = 1 if outer is None else outer.depth + 1
    early: SpeculativeCall = SpeculativeCall(
        call, EarlyCallBudget(scopes.get()[-1], lambda: group_calls.scopes_before(early), limit), depth
    )
    group_calls.calls[call.key] = early
    work = _run_call(job, early, _path(group, call.key), group_calls, was_made=was_made)
    early.task = job.world.kernel.tasks.start(work, name=f"vega ahead {group.number}:{call.key}")
    group_calls.under_way.add(early.task)
    early.task.add_done_callback(group_calls.under_way.discard)


def _path(group: EarlyCallGroup, key: str) -> str:
    return f"{AHEAD_PATH}{group.number}:{key}/"


def _may_start(job: VegaJob, call: EarlyCall, group_calls: SpeculativeCalls, *, asks_once: bool) -> bool:
    """Decide what only the run knows: who is asked, and whether money allows to look ahead."""
    limited = is_limited(scopes.get()[-1])
    if limited and (group_calls.has_gap or not call.in_order):
        return False  # a call before it comes later, and its cost is not known
    if call.kind == "call" and not _has_depth(job):
        return False
    if call.kind == "call":  # one that asks more than once might find room for a part of it, which is then in vain
        fits = asks_once or not limited
        return fits and not any(map(job.world.is_in_turn, job.world.plans.values()))
    slot = _slot(job, group_calls, call.arguments[0].pid)
    if slot is None:
        return False
    if job.world.is_in_turn(slot.plan, timed=call.arguments[2] is not None or slot.plan.timeout_s is not None):
        return False
    return not slot.plan.keeps and job.world.linked.program.agents[slot.plan.name].is_early


def _has_depth(job: VegaJob) -> bool:
    """Return a function that runs early may call others early, but not without end: recursion continues in its own
    process, as deep as the line-by-line run would."""
    outer = job.world.early.get(job.ctx.pid)
    if outer is None:
        return True
    return outer.depth < VEGA_AHEAD_DEPTH_MAX and len(job.world.early) < VEGA_AHEAD_FUNCTIONS_MAX


# ---------------------------------------------------------------- under way


async def _run_call(
    job: VegaJob, early: SpeculativeCall, path: str, group_calls: SpeculativeCalls, *, was_made: bool
) -> None:
    name_branch(job.ctx.own_process, path)
    scopes.set((early.scope,))
    try:
        if (
            not was_made
        ):  # a call from before the restart already has its reservation, and the calls before it wait for that
            await early.scope.wait_for_those_before()
        early.began_s = now_s()
        early.value = await (_ask(job, early, group_calls) if early.call.kind == "send" else _wait_for_call(job, early))
    except asyncio.CancelledError as error:
        early.error = error
        raise
    except BaseException as error:  # noqa: BLE001 - raised where the program comes to the call
        early.error = error
        group_calls.failed.append(early)
    finally:
        early.ended_s = now_s()
        early.scope.end()


async def _ask(job: VegaJob, early: SpeculativeCall, group_calls: SpeculativeCalls) -> Any:
    """Return the answer, or the error as it is: what it means for the agent is decided when its turn comes."""
    target, message, timeout, budget = early.call.arguments
    slot = _slot(job, group_calls, target.pid)
    assert slot is not None
    return await ask_agent(job, slot, target.pid, message, timeout, budget, is_early=True, early=early)


async def _wait_for_call(job: VegaJob, early: SpeculativeCall) -> Any:
    world = job.world
    pid = start_fiber(job, *early.call.arguments, depth=_depth(job))
    early.before += world.recharge(pid, scopes.get())
    early.cut_off += world.cut_off_before.pop(pid, NOTHING)
    world.early[pid] = early
    child = job.ctx.process(pid)
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        process = child._look_up()
        if process is not None and process.exit is None:
            world.kernel.end(pid)
            await wait_for_end(job, pid)
        raise
    finally:
        world.early.pop(pid, None)
    if ended.error is not None:
        raise ended.error
    if ended.reason != "normal":
        raise Fault("ProcessExit", ended.reason)
    return world.read(ended.result)


def _depth(job: VegaJob) -> int:
    """Return how deep a function is that its caller waits for, whichever process it runs in."""
    return job.fiber.depth + 1


# ---------------------------------------------------------------- agents that are not spawned yet


def _promise(job: VegaJob, group: EarlyCallGroup, promised: Process, name: str, settings: dict[str, Any]) -> Process:
    """Return a slot to ask in place of an agent that the program will spawn; equal settings make the same agent of
    it."""
    if not _looks_ahead(job) and job.ctx.own_process.replay is None:
        raise NotEarly("every call is made in its turn")
    group_calls = job.state.ahead.setdefault(group.number, SpeculativeCalls())
    if promised.pid not in group_calls.promised:
        group_calls.promised[promised.pid] = slot = AgentSlot(job.world.plan(name, settings))
        slot.is_promised = True
    return promised


def _spawn(job: VegaJob, group: EarlyCallGroup, promised: Process, name: str, settings: dict[str, Any]) -> Process:
    """Start the process whose spawn the program comes to; it was asked already if it is what was promised."""
    group_calls = job.state.ahead.get(group.number)
    if group_calls is None:
        return spawn_agent(job, name, settings)
    slot = group_calls.promised.get(promised.pid)
    process = spawn_agent(job, name, settings, slot)
    now = job.world.agent_slots[process.pid]
    if now is slot:
        group.keep(promised, process)
    group_calls.spawned.append(now)
    return process


async def _settle(job: VegaJob, group: EarlyCallGroup) -> None:
    """Let the processes begin that were started before a call: in the line-by-line run it takes time."""
    group_calls = job.state.ahead.get(group.number)
    if group_calls is None or job.ctx.replaying:
        return
    spawned, group_calls.spawned = group_calls.spawned, []
    for slot in spawned:
        with suppress(AgentFailed):
            await slot.ready()


# ---------------------------------------------------------------- coming to a call


async def _peek(job: VegaJob, group: EarlyCallGroup, call: EarlyCall) -> Any:
    """Return the answer for code that looks ahead; any failure ends the looking."""
    early = _early_call(job, group, call)
    if early is None:
        raise NotEarly("it is not under way")
    with _waiting(job):
        await _wait_for_end(early)
    if early.error is not None:
        raise NotEarly("it failed")
    return early.value


async def _take(job: VegaJob, group: EarlyCallGroup, call: EarlyCall) -> Any:
    """Take the answer or the failure of a call that the program comes to, and what both mean from now on."""
    early = _early_call(job, group, call)
    if early is None:  # not made early; or it was under way when the process was saved: the same key finds it
        early = await _make_call_now(job, group, call, call.key)
    else:
        with _waiting(job):
            await _wait_for_end(early)
            await _settle(job, group)
        _add_time_won(job, early.took_s)
        if early.was_refused or not early.scope.is_allowed():
            # Charge the attempts of a call that a restart cut off, before it is made again: they are attempts of this
            # very call, and not speculative.
            early.scope.around.charge(early.cut_off)
            uncharge(early.scope, early.cut_off)
            early = await _make_call_now(job, group, call, f"{call.key}.again")
        else:
            _spend(job, early)
    if early.crashes or (early.call.kind == "send" and early.error is not None and is_crash(early.error)):
        await _give_back(job)
    for slot, error in early.crashes:
        crash(job, slot, error)
    if early.call.kind == "call" and not early.crashes and isinstance(early.error, LyraError):
        crash_again(job, str(early.error.fields.get("text", "")))
    if early.error is None:
        return early.value
    return _raise(job, early)


def _add_time_won(job: VegaJob, seconds: float) -> None:
    """Line by line the program would be here so much later."""
    outer = job.world.early.get(job.ctx.pid)
    if outer is None:
        job.state.lead.win(seconds)
    else:
        outer.won_s += seconds


@contextmanager
def _waiting(job: VegaJob) -> Iterator[None]:
    """Count the time that the block takes as the program's."""
    came_s = now_s()
    try:
        yield
    finally:
        _add_time_won(job, came_s - now_s())


async def _give_back(job: VegaJob) -> None:
    """Give back time before an agent crashes: its supervisor counts how often within a while."""
    if job.ctx.pid not in job.world.early:
        await job.give_back()


def _spend(job: VegaJob, early: SpeculativeCall) -> None:
    """Charge the program with the cost of an early call that it has come to."""
    early.is_taken = early.scope.is_over = True
    early.scope.around.charge(early.scope.usage)
    uncharge(job.world.budget, early.before)
    _call_over(job, early, "call.taken")


async def _make_call_now(job: VegaJob, group: EarlyCallGroup, call: EarlyCall, key: str) -> SpeculativeCall:
    """Return the call as the line-by-line run makes it; with a journal, under the key that it has there."""
    late = SpeculativeCall(call, EarlyCallBudget(scopes.get()[-1], list, None))

    async def make() -> None:
        if group.is_kept:
            name_branch(job.ctx.own_process, _path(group, key))
        try:
            late.value = await _in_turn(job, call)
        except Divergence:
            raise
        except Exception as error:  # noqa: BLE001 - as of an early one
            late.error = error

    if not group.is_kept:
        await make()
        return late
    task = job.world.kernel.tasks.start(make(), name=f"vega {_path(group, key)}")
    try:
        await task
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return late


async def _in_turn(job: VegaJob, call: EarlyCall) -> Any:
    world = job.world
    if call.kind == "send":
        target, message, timeout, budget = call.arguments
        if not world.is_agent(target.pid):
            return await send_message(job, target, message)
        slot = world.agent_slots.get(target.pid) or await world.slot_of(target.pid)
        return await ask_agent(job, slot, target.pid, message, timeout, budget, is_early=True)
    pid = start_fiber(job, *call.arguments, depth=_depth(job))
    world.recharge(pid, scopes.get())
    world.awaited.add(pid)
    try:
        ended = await job.ctx.process(pid).wait()
    finally:
        world.awaited.discard(pid)
    if ended.error is not None:
        raise ended.error
    return world.read(ended.result)


async def send_message(job: VegaJob, target: Any, message: Any) -> None:
    """Send a message to a process that turned out to be no agent."""
    waiting = PROCESSES["send"](job, target, message, None, None)
    if waiting is not None:
        await waiting


def _raise(job: VegaJob, early: SpeculativeCall) -> None:
    error = early.error
    assert error is not None
    if early.call.kind == "send":
        if isinstance(error, LyraError):
            slot = job.world.agent_slots[early.call.arguments[0].pid]
            raise handle_failure(job, slot, error) from error
        raise error
    if isinstance(error, VegaError):  # it keeps the place it was thrown at, and who called whom
        facts = error.fields
        place = (facts.get("file", ""), facts.get("line", 0), facts.get("column", 0))
        trace = [*facts.get("trace", ()), *job.fiber.trace()]
        job.fiber.fault = again(ErrorValue(str(facts["name"]), str(facts["text"]), *place, trace))
        return
    raise fault_of(error)


# ---------------------------------------------------------------- the end


async def give_up(job: VegaJob) -> None:
    """Cancel the open early calls of a process that was ended; they are published and charged like any others."""
    for group_calls in [job.state.ahead.pop(number) for number in list(job.state.ahead)]:
        await _cancel_open_calls(job, group_calls)


async def _end(job: VegaJob, group: EarlyCallGroup) -> None:
    """End the stretch: what was not taken is cancelled and waited for."""
    group_calls = job.state.ahead.pop(group.number, None)
    if group_calls is not None:
        with _waiting(job):
            await _cancel_open_calls(job, group_calls)


async def _cancel_open_calls(job: VegaJob, group_calls: SpeculativeCalls) -> None:
    left = [early for early in group_calls.calls.values() if not early.is_taken]
    tasks = [early.task for early in left if early.task is not None and not early.task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
    for early in left:
        early.scope.is_over = True
        uncharge(job.world.budget, early.before)
        job.world.speculative = job.world.speculative + early.scope.usage + early.scope.guessed
        _call_over(job, early, "call.speculative")


def _early_call(job: VegaJob, group: EarlyCallGroup, call: EarlyCall) -> SpeculativeCall | None:
    group_calls = job.state.ahead.get(group.number)
    return None if group_calls is None else group_calls.calls.get(call.key)


async def _wait_for_end(early: SpeculativeCall) -> None:
    assert early.task is not None
    if not early.task.done():
        await asyncio.wait([early.task])
    if early.task.cancelled():
        raise asyncio.CancelledError


AHEAD: Final[dict[str, Callable[..., Any]]] = {
    "ahead_begin": _begin,
    "ahead_start": _start,
    "ahead_look": _peek,
    "ahead_take": _take,
    "ahead_promise": _promise,
    "ahead_spawn": _spawn,
    "ahead_end": _end,
}
