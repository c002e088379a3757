"""How processes are started, told things and tied to each other: `spawn`, `<-`, `receive` and `process::`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core.policies.policy import Supervision
from lyra.errors import NameTaken, NoSuchProcess
from lyra.kernel.process.links import Ready
from lyra.kernel.process.replay import upcoming
from lyra.kernel.programs.context import OwnContext
from lyra.kernel.supervision.child import Child
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.runtime.agents.calls import ask
from lyra.vega.runtime.convert import backoff, seconds
from lyra.vega.runtime.job import SupervisedChild, VegaJob, describe_end
from lyra.vega.values.values import Duration, Fault, Future, Process, kind_of

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.agents.slot import AgentSlot
    from lyra.vega.runtime.world import World


# ---------------- Handles on the children of a `supervisor`, which continue working after a restart
# A handle on a child that has crashed reaches the process that was started in its place; while the supervisor waits
# before it starts that, so does the program. A durable run journals which process that was.

_HEIR: Final = "heir"  # the name of the reading in the journal
_PAUSE_S: Final = 0.005  # between two looks for a process that is being restarted


def note_child(world: World, pid: str, name: str) -> None:
    """Keep the process under a name on which the program has a handle, if a supervisor started it."""
    if pid in world.children:
        return
    process = world.kernel.lookup(pid)
    parent = None if process is None else process.parent
    if process is None or (parent is not None and parent.program == world.kernel.programs.name(supervise)):
        world.children[pid] = SupervisedChild(name, process)


def reaches_heir(act: Callable[..., Any]) -> Callable[..., Any]:
    """For effects on a process: a child that was restarted is reached under the handle that the program has."""

    @wraps(act)
    def act_or_forward(job: VegaJob, target: Any, *rest: Any) -> Any:
        children = job.world.children
        if not children or type(target) is not Process or target.pid not in children:
            return act(job, target, *rest)
        return _act_on_heir(act, job, target, rest)

    return act_or_forward


async def _act_on_heir(act: Callable[..., Any], job: VegaJob, target: Process, rest: tuple[Any, ...]) -> Any:
    outcome = act(job, await _heir(job, target), *rest)
    return await outcome if isawaitable(outcome) else outcome


async def _heir(job: VegaJob, target: Process) -> Process:
    """Return the process that a handle means now."""
    child, entry = job.world.children[target.pid], upcoming(job.process)
    pid: str | None = None
    if entry is None:
        if child.process is not None and child.process.exit is None and not _is_crashing(job.world, target.pid):
            return target
        pid = await _find_successor(job.world, child)
    elif entry.kind != "read" or entry.name != _HEIR:
        return target
    heir = job.ctx.journaled_read(_HEIR, lambda: pid)
    if heir is None:
        return target
    job.world.children[heir] = SupervisedChild(child.name, job.world.kernel.lookup(heir))
    return Process(heir)


def _is_crashing(world: World, pid: str) -> bool:
    """Return whether a call of an agent has failed, and its process is about to end with that."""
    slot = world.agent_slots.get(pid)
    return slot is not None and slot.front is None


async def _find_successor(world: World, child: SupervisedChild) -> str | None:
    """Return the pid of the process in a child's place; None where none will be started."""
    kernel, process = world.kernel, child.process
    while True:
        named = kernel.names.get(child.name)
        if named is not None and named is not process and named.exit is None:
            return str(named.pid)
        if process is None or (process.exit is not None and process.exit.reason == "normal"):
            return None
        supervisor = process.parent
        if supervisor is None or supervisor.exit is not None:
            return None
        await asyncio.sleep(_PAUSE_S)


# ---------------------------------------------------------------- starting


def start_fiber(
    job: VegaJob, function: Any, arguments: list[Any], slots: list[int] | None = None, *, depth: int = 0
) -> str:
    """Return a process of its own for one function; gives its pid. `slots` are the globals it needs, where that is
    known; `depth` is how deep it is in the calls of the process that waits for it.

    Without a journal it has no parent: a chain of spawns may be longer than a tree of processes may be deep, and a
    process that ended leaves nothing behind. What it may do and spend is its maker's all the same.
    """
    world, maker = job.world, job.ctx.own_process
    if world.is_durable:
        seed = world.seed(job.fiber, function, arguments, slots, maker)
        if depth:
            seed["depth"] = depth
        pid = job.ctx.spawn(world.programs.process, world.run_id, seed).pid
        if world.barrier is not None:
            world.barrier.call(pid)
        return _track(job, pid)
    fiber = job.fiber.child(function, arguments)
    fiber.depth = depth
    process = world.kernel.lifetimes.start(world.programs.process, (world.run_id, fiber), parent=None)
    process.grant, process.budget = maker.grant, maker.budget
    return _track(job, process.pid)


def _spawn(job: VegaJob, kind: str, name: str, what: Any, arguments: Any, settings: Any, is_async: bool) -> Any:
    if kind == "function":
        world = job.world
        if settings is None:
            pid = start_fiber(job, what, arguments)
            world.recharge(pid, scopes.get())
            return _process_or_future(pid, is_async)
        seed = world.seed(job.fiber, what, arguments)
        handle = job.ctx.spawn(world.programs.process, world.run_id, seed, supervision=supervision(settings))
        world.recharge(handle.pid, scopes.get())
        if escalates(job, settings):
            OwnContext(job.process).link(handle)
        return _process_or_future(_track(job, handle.pid), is_async)
    if kind == "supervisor":
        return _spawn_supervisor(job, name, what, settings, is_async)
    process = spawn_agent(job, name, what, supervised=settings)
    return Future(process.pid) if is_async else process


def spawn_agent(
    job: VegaJob, name: str, what: Any, promised: AgentSlot | None = None, *, supervised: Any = None
) -> Process:
    """Return the process of an agent; `promised` is where callers find it already, if they do."""
    world = job.world
    plan = world.plan(name, what)
    handle = job.ctx.spawn(
        world.programs.agent,
        world.run_id,
        name,
        world.find_spawn_settings(job.ctx.own_process, name, what),
        supervision=supervision(supervised),
        priority=plan.priority,
    )
    world.recharge(handle.pid, scopes.get())
    slot = world.slot(handle.pid, plan, promised)
    if world.picture is not None:
        world.picture.agent(world.kernel.processes[handle.pid], slot)
    if escalates(job, supervised):
        OwnContext(job.process).link(handle)
    return Process(_track(job, handle.pid))


async def _spawn_supervisor(job: VegaJob, name: str, what: Any, settings: Any, is_async: bool) -> Any:
    """Started once all its children are; messages that come meanwhile are kept."""
    kernel, ctx = job.world.kernel, job.ctx
    program, args = kernel.supervisors.program(children(job, what), **flags({**what, **(settings or {})}))
    args[0].nested = True  # it says when it is ready
    args[0].tells = True
    handle = ctx.spawn(program, *args)
    job.world.recharge(handle.pid, scopes.get())
    _track(job, handle.pid)
    if job.world.picture is not None:
        job.world.picture.supervisor(kernel.processes[handle.pid], name)
    watch = OwnContext(job.process).monitor(handle)
    while True:
        message = await ctx.receive()
        if type(message) is Ready and message.pid == handle.pid:
            ctx.demonitor(watch)
            break
        if getattr(message, "pid", None) == handle.pid:
            raise Fault("ProcessError", f"supervisor {name} did not start: {message.message or message.reason}")
        job.take(message)
    return _process_or_future(handle.pid, is_async)


def _process_or_future(pid: str, is_async: bool) -> Process | Future:
    return Future(pid) if is_async else Process(pid)


def _track(job: VegaJob, pid: str) -> str:
    if job.world.tracks_processes:
        job.world.started.append(pid)
    return pid


# ---------------------------------------------------------------- messages


def _send(job: VegaJob, target: Process, message: Any, timeout: Duration | None, budget: Any) -> Any:
    world = job.world
    pid = target.pid
    if world.is_agent(pid):
        return ask(job, pid, message, timeout, budget)
    kernel = world.kernel
    if kernel.journal is None:
        receiver = kernel.processes.get(pid)
        if receiver is None:
            return None
        if not job.process.grant.is_all:
            job.ctx.may_send(pid, receiver)
        mailboxes = kernel.mailboxes
        if receiver.inbox is None or not mailboxes.must_wait(receiver):
            mailboxes.deliver(receiver, (message,), sender=job.ctx.own_process)
            return None
    try:
        waiting = job.ctx.send(pid, world.box(message))
    except NoSuchProcess:
        return None  # the receiver has ended: the message is dropped
    return _wait_until_sent(waiting)


async def _wait_until_sent(waiting: Any) -> None:
    await waiting


async def _receive(job: VegaJob, timeout: Duration, number: int) -> None:
    """Receive with a time-out; the time runs on while messages come that it does not want."""
    state, clock = job.state, job.world.kernel.clock
    now_s = clock.monotonic()
    if state.receiving != number:
        state.receiving, state.due = number, now_s + timeout.seconds
    left_s = state.due - now_s
    process = job.ctx.own_process
    if left_s <= 0 and not process.inbox and process.replay is None and not job.world.is_durable:
        job.fiber.expire()
        return
    message = await job.ctx.receive(timeout=max(left_s, 0.0))
    if message is None:
        job.fiber.expire()
    else:
        job.take(message)


# ---------------------------------------------------------------- ties


def _kernel_process(job: VegaJob, process: Any, what: str) -> KernelProcess | None:
    if type(process) is not Process:
        raise Fault("TypeError", f"process::{what} needs a process, got {kind_of(process)}")
    return job.world.kernel.lookup(process.pid)


def _link(job: VegaJob, other: Process) -> None:
    _kernel_process(job, other, "link")
    with suppress(NoSuchProcess):  # the other process has ended: there is no link
        job.ctx.link(other.pid)


def _unlink(job: VegaJob, other: Process) -> None:
    _kernel_process(job, other, "unlink")
    with suppress(NoSuchProcess):
        job.ctx.unlink(other.pid)


def _monitor(job: VegaJob, other: Process) -> None:
    process = _kernel_process(job, other, "monitor")

    def reason() -> str | None:
        """Return why it ended, of one that has."""
        if process is None:
            return "noproc"
        return None if process.exit is None else describe_end(process.exit.reason, process.exit.error)

    why = job.ctx.journaled_read("ended", reason)
    if why is not None:
        job.fiber.deliver(["DOWN", other, why])
    else:
        job.ctx.monitor(other.pid)


def _exit(job: VegaJob, reason: str) -> None:
    job.ctx.exit(reason)


def _self(job: VegaJob) -> Process:
    own_name = job.ctx.own_process.name
    if own_name is not None:
        note_child(job.world, job.ctx.pid, own_name)
    return Process(job.ctx.pid)


def _sleep(job: VegaJob, duration: Duration) -> Any:
    if type(duration) is not Duration:
        raise Fault("TypeError", f"process::sleep needs a duration, got {kind_of(duration)}")
    return job.ctx.sleep(max(0.0, duration.seconds))


def _register(job: VegaJob, name: str, other: Process | None = None) -> None:
    world = job.world
    pid = job.ctx.pid if other is None else other.pid
    is_new = upcoming(job.process) is None
    holder = job.ctx.journaled_read("holder", lambda: _holder(job, name))
    if holder is not None and holder != pid:
        raise NameTaken(f"the name {name} is taken", name=name)
    if is_new:
        world.names[name] = pid
        if world.record is not None:
            world.record.name(name, pid)
    else:  # a replay: the record knows who has the name now
        world.names.setdefault(name, pid)


def _whereis(job: VegaJob, name: str) -> Process | None:
    pid = job.ctx.journaled_read("whereis", lambda: _holder(job, name))
    if pid is None:
        return None
    note_child(job.world, pid, job.world.name_child(name))
    return Process(pid)


def _holder(job: VegaJob, name: str) -> str | None:
    """Return the pid of the live process that has a name now."""
    world = job.world
    pid = world.names.get(name)
    if pid is not None:
        process = world.kernel.lookup(pid)
        if process is not None and process.exit is None:
            return pid
        del world.names[name]
    named = world.kernel.names.get(world.name_child(name))
    return None if named is None else named.pid


def _alive(job: VegaJob, other: Process) -> bool:
    process = _kernel_process(job, other, "alive")
    return bool(job.ctx.journaled_read("alive", lambda: process is not None and process.exit is None))


PROCESSES: Final[dict[str, Callable[..., Any]]] = {
    "spawn": _spawn,
    "send": reaches_heir(_send),
    "receive": _receive,
    "link": reaches_heir(_link),
    "monitor": reaches_heir(_monitor),
    "exit": _exit,
    "process::self": _self,
    "process::sleep": _sleep,
    "process::unlink": reaches_heir(_unlink),
    "process::register": _register,
    "process::whereis": _whereis,
    "process::alive": reaches_heir(_alive),
}


# `supervised by { … }` and `supervisor` declarations as the kernel's supervision.
_WINDOW: Final = Duration(60_000_000_000)


def flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a supervisor as the kernel's flags."""
    kernel_flags: dict[str, Any] = {
        "strategy": str(settings.get("strategy", "restart")),
        "max_restarts": int(settings.get("max_restarts", 3)),
        "window_s": seconds(settings.get("window", _WINDOW), "window"),
    }
    if "backoff" in settings:
        kernel_flags["backoff"] = backoff(settings["backoff"])
    return kernel_flags


def supervision(settings: Mapping[str, Any] | None) -> Supervision:
    """Return what happens to one process when it crashes; unsaid, three restarts within a minute."""
    kernel_flags = flags(settings or {})
    if kernel_flags["strategy"] in ("restart_all", "rest_for_one", "one_for_all"):  # of one child that is the same
        kernel_flags["strategy"] = "restart"
    return Supervision(**kernel_flags)


def escalates(job: VegaJob, settings: Mapping[str, Any] | None) -> bool:
    """Return whether a crash of the child also crashes the process that spawns it: only where that process is
    supervised itself, so that a supervisor handles the crash. Elsewhere `escalate` means `stop`."""
    if settings is None or settings.get("strategy") != "escalate":
        return False
    kernel, parent = job.world.kernel, job.ctx.own_process.parent
    return parent is not None and parent.program == kernel.programs.name(supervise)


def children(job: VegaJob, settings: Mapping[str, Any]) -> list[Child]:
    """Return the children of a supervisor, in order; nested ones are supervisors themselves."""
    world = job.world
    listed: list[Child] = []
    for name, kind, target, what, arguments in settings.get("children", ()):
        if kind == "function":
            seed = world.seed(job.fiber, what, arguments)
            listed.append(
                Child(name, world.programs.process, (world.run_id, seed), "transient", name=world.name_child(name))
            )
        elif kind == "agent":
            start = (world.run_id, target, world.to_row(what))
            listed.append(Child(name, world.programs.agent, start, "transient", name=world.name_child(name)))
        else:
            inner = children(job, what)
            # One that has used up its restarts ends in order, and has failed all the same: the one above it decides.
            listed.append(
                Child.supervisor(name, inner, **flags(what), restart="permanent", name=world.name_child(name))
            )
    return listed
