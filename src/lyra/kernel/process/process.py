"""A process: a running program with a pid, a parent, a mailbox, a state, a Budget and a Grant.

A process is not an asyncio task. The kernel steps the program's coroutine itself (`Scheduler`), which makes a
process smaller and cheaper than a task and puts the order of steps in the kernel's hands: priorities, fairness, and
a seed under simulation. It keeps to the contract that asyncio publishes for other task types, so `asyncio.timeout`,
`TaskGroup`, `gather` and libraries built on them work inside a program and inside an effect.

States and their legal transitions are one table. What a process is waiting for is never stored here as logic: the part
that makes it wait (journal, mailbox, timer, interrupt) parks it and wakes it (`base.waiting`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as ContextVars
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec

from lyra.core.budgets.budget import NOTHING, Budget, Usage
from lyra.core.budgets.early_calls import JoinableBudget
from lyra.core.event import ENDS_IN_ORDER
from lyra.core.faultpoint import SimulatedCrash
from lyra.core.hints import Result_co
from lyra.core.naming import program_names
from lyra.core.rights.capability import Grant
from lyra.errors import InvalidTransition, LyraError
from lyra.kernel.base.acting import name_in
from lyra.kernel.base.waiting import PARKED, consume_error
from lyra.kernel.process.cut_short import GIVEN_UP, OUT_OF_TIME, cut_short

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core

__all__ = [
    "GIVEN_UP",
    "NORMAL",
    "OUT_OF_TIME",
    "PLAIN_ENDS",
    "PRIORITIES",
    "TIME_IS_UP",
    "TRANSITIONS",
    "Exit",
    "Process",
]

# Legal moves; every other one raises InvalidTransition.
TRANSITIONS: Final[dict[str, frozenset[str]]] = {
    "new": frozenset({"ready", "terminated"}),
    "ready": frozenset({"running", "terminated"}),
    "running": frozenset({"ready", "waiting", "blocked", "terminated"}),
    "waiting": frozenset({"ready", "terminated"}),
    "blocked": frozenset({"ready", "terminated"}),
    "terminated": frozenset({"zombie"}),
    "zombie": frozenset(),
}

PRIORITIES: Final[tuple[str, ...]] = ("realtime", "high", "normal", "low", "idle")
NORMAL: Final = PRIORITIES.index("normal")

# Private in name, published in substance: asyncio's "Extending" page gives these two to authors of task types.
enter_task = asyncio.tasks._enter_task
leave_task = asyncio.tasks._leave_task


PLAIN_ENDS: Final = frozenset(
    {"normal", "error", "killed", "shutdown", "linked"}
)  # words of the kernel, not of a process
TIME_IS_UP: Final = "deadline_exceeded"  # the reason in `process.stopping` when a budget's seconds have passed


class Exit(msgspec.Struct, Generic[Result_co], frozen=True):
    """How a process ended: a reason word, the result of a normal end, the error of a failed one."""

    reason: str
    result: Result_co = None  # type: ignore[assignment]  # without a normal end there is none
    error: BaseException | None = None

    @property
    def ok(self) -> bool:
        return self.reason == "normal"


def _make_cancellation(msg: Any) -> asyncio.CancelledError:
    """As asyncio makes it: with the message, where there is one."""
    return asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)


class Process:
    """The kernel's record of one process, and the task its program believes to be running in."""

    __slots__ = (
        "__weakref__",
        "_fut_waiter",
        "_must_cancel",
        "attempts",
        "branches",
        "budget",
        "cancelling_count",
        "children",
        "context",
        "core",
        "coroutine",
        "created_at",
        "depth",
        "ended_at",
        "error",
        "exit",
        "exit_seq",
        "grant",
        "inbox",
        "keys",
        "kill_reason",
        "known_as",
        "life",
        "line",
        "name",
        "parent",
        "pid",
        "priority",
        "program",
        "receive_key",
        "receiver",
        "recovery_attempts",
        "replay",
        "restored",
        "result_status",
        "rng",
        "senders",
        "spent",
        "state",
        "stepping",
        "traps",
        "watchers",
    )

    def __init__(
        self,
        core: Core[Process],
        pid: str,
        program: str,
        parent: Process | None,
        budget: Budget,
        grant: Grant,
        priority: int,
        context: ContextVars,
    ) -> None:
        self.core = core
        self.pid = pid
        self.known_as = pid  # to the others: its guard's pid, if it has a guard
        self.life = 0  # of a pid that a caller chose: which process of that pid this is, by the row that made it
        self.line = pid  # path of creating calls from the root; stable across restarts, unlike the pid
        self.program = program
        self.parent = parent
        self.budget = budget
        self.spent = NOTHING  # by itself and those below it; a budget may be shared with others
        self.grant = grant
        self.priority = priority
        self.context = context
        name_in(context, self)
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.state = "new"
        self.created_at = 0.0  # on the wall clock: the time of its first row, and of its last
        self.ended_at: float | None = None
        self.name: str | None = None
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.keys = 0
        self.branches = 0
        self.stepping = False
        self.traps = False
        self.error: BaseException | None = None
        self.kill_reason: str | None = None
        self.cancelling_count = 0
        self.exit: Exit | None = None
        self.exit_seq = 0
        self.result_status = ""  # why its result is less than was asked for; "" where it is whole
        # Made on first use: most processes never need them, and a deque alone is larger than the rest.
        self.children: dict[str, Process] | None = None
        self.inbox: deque[tuple[int, Any]] | None = None
        self.receive_key: Any = None
        self.receiver: Process | asyncio.Future[Any] | None = None
        self.senders: deque[Any] | None = None
        self.watchers: list[Any] | None = None
        self.replay: dict[int | str, Any] | None = None
        # Its calls that crashes cut off and that are not over, by key: how often each was. None: there was none.
        self.attempts: dict[int | str, int] | None = None
        self.recovery_attempts: int | None = None  # its own setting; None: that of its parent
        self.restored: Any = None
        self.rng: Any = None
        self._fut_waiter: asyncio.Future[Any] | None = None
        self._must_cancel: asyncio.CancelledError | None = None  # what its next step meets

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return f"<Process {self.pid}{label} {self.program} {self.state}>"

    @property
    def kernel(self) -> Any:
        """The Kernel that runs it, for the layers above the kernel (agents, Vega); inside the kernel use `core`."""
        return self.core.face

    # ------------------------------------------------------------------ state

    @property
    def alive(self) -> bool:
        return self.exit is None

    @property
    def is_dormant(self) -> bool:
        """It came back from the store, and its kernel does not know its program."""
        return self.state == "new" and self.coroutine is None and self.exit is None

    @property
    def is_early(self) -> bool:
        """Whether it works on a call that was made before its program came to it."""
        return type(self.budget) is JoinableBudget and self.has_own_budget

    @property
    def waits_outside(self) -> bool:
        """Return what it waits for is a future of the loop: an effect at work, a task of its own."""
        return self._fut_waiter is not None

    @property
    def out_of_time(self) -> bool:
        """The seconds of its budget have passed: it may tidy up, and tries nothing again."""
        return self.kill_reason == TIME_IS_UP

    def is_stopped_for(self, reason: str) -> bool:
        """Return whether it ends because it was told to, for a reason that says nothing to the kernel."""
        return reason == self.kill_reason and reason not in PLAIN_ENDS

    @property
    def has_failed(self) -> bool:
        """It ended with an error, or by itself for a reason of its own."""
        ended = self.exit
        return ended is not None and ended.reason not in ENDS_IN_ORDER and not self.is_stopped_for(ended.reason)

    @property
    def has_own_budget(self) -> bool:
        """Whether its budget counts what it and those below it spend, and nothing else."""
        return self.budget is not (self.core.budget if self.parent is None else self.parent.budget)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a right may call it: its name, the program it runs, its pid, and the same of its guard."""
        guard = self.parent if self.known_as != self.pid else None
        own = (*((self.name,) if self.name else ()), *program_names((self.stands_for or self).program), self.pid)
        return own if guard is None else (*((guard.name,) if guard.name else ()), *own, guard.pid)

    @property
    def stands_for(self) -> Process | None:
        """Of a guard: the run it guards at the moment, its only child."""
        child = next(iter(self.children.values()), None) if self.children else None
        return child if child is not None and child.known_as == self.pid else None

    def recovery_attempts_most(self) -> int:
        """Return how often a call of it that crashes cut off is made again: as it, one above it or the kernel says."""
        process: Process | None = self
        while process is not None and process.recovery_attempts is None:
            process = process.parent
        most = None if process is None else process.recovery_attempts
        return self.core.recovery_attempts if most is None else most

    def charge(self, usage: Usage) -> None:
        """Record what was used without a reservation: in its budget, and as its own."""
        self.budget.charge(usage)
        self.count_spent(usage)

    def count_spent(self, usage: Usage) -> None:
        """Add to what this process and each above it have spent; their budgets may be shared. A call made ahead of its
        turn counts above when the program takes it."""
        process: Process | None = self
        while process is not None:
            process.spent += usage
            process = None if type(process.budget) is JoinableBudget and process.is_early else process.parent

    def move(self, state: str) -> None:
        """Change state, if the table allows it."""
        old = self.state
        if state not in TRANSITIONS[old]:
            raise InvalidTransition(
                f"process {self.pid} cannot go from {old} to {state}", pid=self.pid, old_state=old, new_state=state
            )
        self.state = state
        if self.core.listeners_want_states:
            self.core.publish(self.pid, "process.state_changed", {"old_state": old, "new_state": state})

    def wake(self) -> None:
        """Put a parked process back on the run queue; waking one that is already there changes nothing."""
        if self.state == "waiting" or self.state == "blocked":
            if self.core.listeners_want_states:
                self.move("ready")
            else:  # the same move, on the hot path
                self.state = "ready"
            self.core.scheduler.push(self)

    def wake_with(self, error: BaseException) -> None:
        """Wake it with an error at the place where it waits."""
        self.error = error
        self.wake()

    def throw_deadline(self, error: LyraError) -> None:
        """Its time is up: the error appears at its current await, through whatever it waits for there."""
        waiter, self._fut_waiter = self._fut_waiter, None
        if waiter is not None:
            waiter.remove_done_callback(self._future_done)
            waiter.add_done_callback(consume_error)
            waiter.cancel()
        self.error = error
        if self.state == "waiting" or self.state == "blocked":
            self.wake()

    # ------------------------------------------------------------------ what asyncio expects of a task

    def cancel(self, msg: Any = None) -> bool:
        """Ask the program to stop: CancelledError at its current await."""
        if self.exit is not None:
            return False
        self.cancelling_count += 1
        waiter = self._fut_waiter
        if waiter is not None and waiter.cancel(msg=msg):
            return True
        if waiter is not None:  # a gather whose parts are cancelled already: how it ends is told here, not by it
            waiter.add_done_callback(consume_error)
        if self.stepping or self.state in ("new", "ready"):
            self._must_cancel = _make_cancellation(msg)
        else:
            self.wake_with(_make_cancellation(msg))
        return True

    def uncancel(self) -> int:
        if self.cancelling_count > 0:
            self.cancelling_count -= 1
            if self.cancelling_count == 0:
                self._must_cancel = None
        return self.cancelling_count

    def cancelling(self) -> int:
        return self.cancelling_count

    def cancelled(self) -> bool:
        return self.exit is not None and self.exit.reason in ("killed", "shutdown")

    def done(self) -> bool:
        return self.exit is not None

    def get_coro(self) -> Any:
        return self.coroutine

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.core.loop

    def get_context(self) -> ContextVars:
        return self.context

    def get_name(self) -> str:
        return self.name or self.pid

    def set_name(self, value: object) -> None:
        """asyncio's label for debugging; a process keeps its registered name."""

    def add_done_callback(self, fn: Callable[[Any], object], *, context: ContextVars | None = None) -> None:
        if self.exit is not None:
            self.core.loop.call_soon(fn, self, context=context)
        else:
            self.watch((fn, context))

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        before = len(self.watchers or ())
        self.watchers = [item for item in self.watchers or () if not (isinstance(item, tuple) and item[0] == fn)]
        return before - len(self.watchers)

    def watch(self, watcher: Any) -> None:
        """Be told of the end: a waker (process or future) or a (callback, context) pair."""
        if self.watchers is None:
            self.watchers = [watcher]
        else:
            self.watchers.append(watcher)

    # ------------------------------------------------------------------ `await ctx.receive()`
    # The process is its own awaitable: an object for each idle receiver would be a tenth of its size.

    def __await__(self) -> Generator[Any, None, Any]:
        if self.stepping:
            return self  # type: ignore[return-value]  # the part of a generator that await uses
        # Awaited by another task (gather, wait_for): there it is an ordinary wait of a branch.
        key, self.receive_key = self.receive_key, None
        waiting: Generator[Any, None, Any] = self.core.mailboxes.receive(self, key).__await__()
        return waiting

    def __iter__(self) -> Process:
        return self

    def __next__(self) -> Any:
        if not self.inbox:
            self.receiver = self
            return PARKED
        key, self.receive_key = self.receive_key, None
        raise StopIteration(self.core.mailboxes.take(self, key))

    def throw(self, error: Any, value: Any = None, _trace: Any = None) -> Any:
        """Called by the interpreter when an error arrives while it waits for a message."""
        thrown = error if value is None else value
        if self.receive_key is not None and isinstance(thrown, BaseException):
            cut_short(self, self.receive_key, thrown, form="receive")
        self.close()
        raise thrown

    def close(self) -> None:
        self.receiver = self.receive_key = None

    # ------------------------------------------------------------------ stepping

    def step(self) -> None:
        """Run the program until it parks, waits for a future, yields or ends."""
        core = self.core
        if core.listeners_want_states or self.state != "ready":
            self.move("running")
        else:  # the same move, on the hot path
            self.state = "running"
        error, self.error = self.error, None
        if self._must_cancel is not None:
            if not isinstance(error, asyncio.CancelledError):
                error = self._must_cancel
            self._must_cancel = None
        program = self.coroutine
        assert program is not None
        self._fut_waiter = None
        self.stepping = True
        loop = core.loop
        enter_task(loop, self)  # type: ignore[arg-type]  # a task type of our own
        try:
            if error is None:
                yielded = self.context.run(program.send, None)
            else:
                yielded = self.context.run(program.throw, error)
        except StopIteration as stop:
            core.finish(self, "normal", result=stop.value)
        except asyncio.CancelledError:
            core.finish(self, self.kill_reason or "killed")
        except (KeyboardInterrupt, SystemExit):
            core.finish(self, "killed")
            raise
        except SimulatedCrash:
            raise
        except BaseException as failure:  # noqa: BLE001 - a program may raise anything; it must not take the kernel along
            core.fail(self, failure)
        else:
            self._rest(yielded)
        finally:
            self.stepping = False
            leave_task(loop, self)  # type: ignore[arg-type]  # a task type of our own

    def _rest(self, yielded: Any) -> None:
        """Handle what the coroutine yielded."""
        if yielded is PARKED:
            if self.core.listeners_want_states:
                self.move("waiting")
            else:  # the same move, on the hot path
                self.state = "waiting"
            if self._must_cancel is not None or self.error is not None:
                self.wake()
        elif yielded is None:
            if self.core.listeners_want_states:
                self.move("ready")
            else:  # the same move, on the hot path
                self.state = "ready"
            self.core.scheduler.give_way(self)
        elif getattr(yielded, "_asyncio_future_blocking", None):
            yielded._asyncio_future_blocking = False
            self.move("waiting")
            self._fut_waiter = yielded
            yielded.add_done_callback(self._future_done, context=self.context)
            if self._must_cancel is not None and yielded.cancel(*self._must_cancel.args):
                self._must_cancel = None
        else:
            self.move("waiting")
            self.wake_with(
                RuntimeError(f"a program awaited {yielded!r}, which is neither asyncio's nor Lyra's to wait for")
            )

    def _future_done(self, future: asyncio.Future[Any]) -> None:
        # The future's own __await__ raises its error or gives its result when the coroutine continues. Until then it
        # stays: cancel scopes look there to see that a cancellation is already on its way.
        if self._fut_waiter is future:
            self.wake()
