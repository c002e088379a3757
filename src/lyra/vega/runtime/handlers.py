"""The table of effects, each with the function that answers it; those for files, `parallel` and budgets are here."""

from __future__ import annotations

import asyncio
import math
import os
import stat
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core.budgets.money import Money
from lyra.core.effect import Effect
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import BudgetExceeded, CapabilityDenied, ConfigError, EffectFailed, LimitExceeded
from lyra.kernel.process.replay import name_branch, upcoming
from lyra.vega.runtime.agents.streams import STREAMS
from lyra.vega.runtime.early_calls import AHEAD
from lyra.vega.runtime.job import VegaJob, beside
from lyra.vega.runtime.library import LIBRARY, current_place, host_function, need_text
from lyra.vega.runtime.processes import PROCESSES, start_fiber
from lyra.vega.values.values import Duration, Fault, Process, fault_of

if TYPE_CHECKING:
    from lyra.sandbox.paths import Beneath


# ---------------------------------------------------------------- files
# `file::`: plain files below the folders that a run was given.

FILE_BYTES_MAX: Final = 64 << 20
_READ: Final = "fs.read"
_WRITE: Final = "fs.write"
_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_QUIET: Final = os.O_NONBLOCK | os.O_NOCTTY  # nothing that is no plain file may keep us


class _FilePlace:
    """One path below an open folder, and the Grant that has to cover wherever it leads."""

    __slots__ = ("_folder", "_grant", "_need", "path")

    def __init__(self, folder: Beneath, grant: Grant, need: str, path: str) -> None:
        self._folder = folder
        self._grant = grant
        self._need = need
        self.path = path

    def look(self) -> str:
        """Find where it really lies; OSError where nothing does."""
        fd = self._folder.open(self.path, _PATH)
        try:
            path = _true(fd)
        finally:
            os.close(fd)
        self._check(path)
        return path

    def open(self, flags: int) -> int:
        """Return a descriptor of what is there."""
        fd = self._folder.open(self.look(), flags | _QUIET)
        try:
            self._check(_true(fd))  # it may have been swapped between the two
            is_folder = bool(flags & os.O_DIRECTORY)
            if not is_folder and not stat.S_ISREG(os.fstat(fd).st_mode):
                raise EffectFailed(f"{self.path} is not a plain file", path=self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_or_create(self, flags: int) -> int:
        """Open a file that may not exist yet."""
        try:
            return self.open(flags)
        except FileNotFoundError:
            folder, name = self.parent()
        try:
            return os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        finally:
            os.close(folder)

    def parent(self) -> tuple[int, str]:
        """Return a descriptor of the folder it lies in, and its name there."""
        above, name = os.path.split(self.path)
        fd = self._folder.open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._check(os.path.join(_true(fd), name))
        except BaseException:
            os.close(fd)
            raise
        return fd, name

    def _check(self, place: str) -> None:
        self._grant.check(Capability(self._need, place))
        if self._need != _WRITE:
            return
        from lyra.sandbox.protection.obeyed import find_asked_part, find_obeyed_part
        from lyra.sandbox.protection.protected_places import is_lyras

        if is_lyras(place):
            raise CapabilityDenied(f"{self.path} belongs to Lyra itself, and no program writes it", place=self.path)
        roots, paths = (self._folder.root,), (place, self.path)
        parts = (find(path, roots) for find in (find_obeyed_part, find_asked_part) for path in paths)
        part = next((part for part in parts if part is not None), None)
        if part is not None:
            raise CapabilityDenied(f"{part} is protected from being written", place=self.path)


def _true(fd: int) -> str:
    from lyra.sandbox.paths import true_path

    return true_path(fd)


# ---------------------------------------------------------------- what is done with one


def _read(place: _FilePlace) -> str:
    with os.fdopen(place.open(os.O_RDONLY), "rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise LimitExceeded(f"{place.path} has more than {FILE_BYTES_MAX} bytes", path=place.path)
    return data.decode()


def _write(place: _FilePlace, content: str) -> None:
    with os.fdopen(place.open_or_create(os.O_WRONLY), "wb") as file:
        file.truncate(0)
        file.write(content.encode())


def _append(place: _FilePlace, content: str) -> None:
    with os.fdopen(place.open_or_create(os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(content.encode())


def _exists(place: _FilePlace) -> bool:
    try:
        place.look()
    except OSError:
        return False
    return True


def _list(place: _FilePlace) -> list[str]:
    fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def _remove(place: _FilePlace) -> None:
    """Remove the name itself: of a symlink the link, not what it points to."""
    folder, name = place.parent()
    try:
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


# ---------------------------------------------------------------- through the door


def _act(act: Callable[..., Any], need: str, *, idempotent: bool = True) -> Callable[..., Any]:
    """`idempotent`: twice is as good as once, so a run that was killed in the middle just does it again."""
    word = act.__name__.strip("_")

    async def perform(job: VegaJob, path: Any, *rest: Any) -> Any:
        rights, grant, runtime = job.world.rights, job.ctx.grant, job.world.runtime
        absolute = rights.absolute(need_text(path, "a path"))
        root = rights.root_of(absolute)
        given = [need_text(argument, "a file's content") for argument in rest]
        await _need_folder(job, root)

        async def vega_file(place: str, *given: str) -> Any:
            if root is None:
                raise CapabilityDenied(f"{place[:200]} is outside {rights.folder}", place=place[:200])
            content = await asyncio.to_thread(_act_guarded, act, root, grant, need, place, *given)
            return runtime.keys.without_key(content, place[:200])

        def about(place: str, *_: str) -> str:
            return f"{word} {place} ({current_place(job)})"

        def needs(place: str, *given: str) -> list[Capability]:
            runtime.keys.check_no_key([place, *given], f"what {word} is given")
            return [Capability(need, absolute)]

        effect = Effect(vega_file, name=f"vega.file.{word}", needs=needs, idempotent=idempotent, about=about)
        return await job.ctx.do(effect, absolute, *given)

    return perform


async def _need_folder(job: VegaJob, root: str | None) -> None:
    """Require a folder. One that is not there ends this execution and not the durable run: it may be back for the next.
    Asked before the door, since nothing is begun by that."""
    runtime = job.world.runtime
    if root is not None and runtime.unfit is not None and not job.ctx.replaying and not _is_folder(root):
        lack = ConfigError(f"the folder {root} is not there", hint="put it back, then resume the run", place=root)
        await runtime.lacks(job.process, lack)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _act_guarded(act: Callable[..., Any], root: str, grant: Grant, need: str, path: str, *rest: Any) -> Any:
    from lyra.sandbox.paths import Beneath

    try:
        with Beneath(root) as folder:
            return act(_FilePlace(folder, grant, need, path), *rest)
    except UnicodeDecodeError:
        raise EffectFailed(f"{path} is not text", path=path) from None
    except OSError as error:
        raise EffectFailed(f"{path}: {error.strerror or error}", path=path) from None


FILES: Final[dict[str, Callable[..., Any]]] = {
    "file::read": _act(_read, _READ),
    "file::write": _act(_write, _WRITE),
    "file::append": _act(_append, _WRITE, idempotent=False),
    "file::exists": _act(_exists, _READ),
    "file::list": _act(_list, _READ),
    "file::remove": _act(_remove, _WRITE, idempotent=False),
}


# ---------------------------------------------------------------- parallel
# `parallel { }`: calls and functions beside each other, with results and failures in the order of the source.


async def _parallel_begin(job: VegaJob) -> int:
    number = job.state.number()
    job.state.groups[number] = []
    await job.give_back(job.world.compute_time_owed_s)  # now: inside one of them would wait while the others continue
    return number


def _parallel_send(
    job: VegaJob, number: int, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> None:
    """Start a call of the group; a message to a process written in Vega is just sent."""
    if job.world.is_agent(target.pid):
        _begin(job, number, lambda: PROCESSES["send"](job, target, message, timeout, budget))
        return
    waiting = PROCESSES["send"](job, target, message, timeout, budget)
    _begin(job, number, lambda: _wait_until_sent(waiting))


async def _wait_until_sent(waiting: Any) -> None:
    if waiting is not None:
        await waiting


def _parallel_call(job: VegaJob, number: int, function: Any, arguments: list[Any]) -> None:
    pid = start_fiber(job, function, arguments)
    job.world.recharge(pid, scopes.get())
    _begin(job, number, lambda: _wait_for_call(job, pid))


async def _wait_for_call(job: VegaJob, pid: str) -> Any:
    child = job.ctx.process(pid)
    try:
        with job.waiting(pid):
            ended = await child.wait()
    except asyncio.CancelledError:
        process = child._look_up()
        if process is not None and process.exit is None:
            job.world.kernel.end(pid)
        raise
    if ended.error is not None:
        fault = fault_of(ended.error)
        raise Fault(fault.name, fault.text)
    if ended.reason != "normal":
        raise Fault("ProcessExit", ended.reason)
    return job.world.read(ended.result)


def _begin(job: VegaJob, number: int, work: Callable[[], Any]) -> None:
    """Each is a branch of the process with a key that says where it stands: who has to wait for an agent's turn, and
    how long, may be otherwise in a replay."""
    group = job.state.groups[number]
    path = f"parallel{number}:{len(group)}/"

    async def branch() -> Any:
        name_branch(job.ctx.own_process, path)
        beside.set(True)
        return await work()

    group.append(job.world.kernel.tasks.start(branch(), name=f"vega {path}"))


async def _parallel_join(job: VegaJob, number: int) -> list[Any]:
    """All results, or the first failure in the order of the source; the rest is cancelled then."""
    tasks = job.state.groups.pop(number, [])
    try:
        return [await task for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


PARALLEL: Final[dict[str, Callable[..., Any]]] = {
    "parallel_begin": _parallel_begin,
    "parallel_send": _parallel_send,
    "parallel_call": _parallel_call,
    "parallel_join": _parallel_join,
}


# ---------------------------------------------------------------- budgets
# `session budget` and `budget::`: scopes that every call inside draws on, in this process and in those it starts.

_RESERVE: Final = "session.reserve"


def _budget_enter(job: VegaJob, limit: Money) -> None:
    """Enter a session: a scope inside the one around it, for this process and all it starts."""
    outer = scopes.get()
    job.state.sessions.append(outer)
    world = job.world
    if world.is_durable:
        name = f"{job.ctx.own_process.pid}/{job.state.number()}"
        inner = world.session(name, limit, outer[-1])
    else:
        inner = outer[-1].child({"usd": limit})
    scopes.set((*outer[:-1], inner))
    if job.world.picture is not None:
        job.world.picture.session(inner)


def _budget_exit(job: VegaJob) -> None:
    record = job.world.record
    if record is not None:
        record.leave(scopes.get()[-1].name)
    scopes.set(job.state.sessions.pop())


def _budget(job: VegaJob, what: str) -> float:
    scope = scopes.get()[-1]
    reading: Callable[[], Any] = {
        "used": lambda: scope.used("usd"),
        "limit": lambda: scope.limit("usd"),
        "remaining": lambda: scope.remaining("usd"),
    }[what]
    micro_usd = job.ctx.journaled_read(
        f"session.{what}", lambda: None if (amount := reading()) is None else int(amount)
    )
    return math.inf if micro_usd is None else micro_usd / 1_000_000


def _budget_reserve(job: VegaJob, amount: Money) -> None:
    """Check that there is room for an amount; BudgetExceeded before anything is spent."""
    scope = scopes.get()[-1]

    def missing() -> int | None:
        """Return what is left, where that is not enough."""
        return None if scope.covers("usd", int(amount)) else int(scope.remaining("usd") or 0)

    entry = upcoming(job.process)
    is_kept = entry is None or entry.name == _RESERVE  # runs of old did not write it down
    rest = job.ctx.journaled_read(_RESERVE, missing) if is_kept else missing()
    if rest is not None:
        left = Money(rest)
        raise BudgetExceeded(f"{left} is left, and {amount} was asked for", remaining=left, asked=amount)


BUDGETS: Final[dict[str, Callable[..., Any]]] = {
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget": _budget,
    "budget_reserve": _budget_reserve,
}


HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    **PROCESSES,
    **STREAMS,
    **PARALLEL,
    **AHEAD,
    **BUDGETS,
    **FILES,
    **LIBRARY,
}


def handler(kind: str) -> Callable[..., Any]:
    """Return the answer to an effect that is not in the table: a host's function, or a refusal."""
    if kind.startswith("host::"):
        name = kind[6:]

        def call(job: VegaJob, *arguments: Any) -> Any:
            return host_function(job, name, *arguments)

        return call
    return partial(_refuse, kind)


def _refuse(kind: str, _job: VegaJob, *_: Any) -> None:
    raise CapabilityDenied(f"this host does not know {kind}")
