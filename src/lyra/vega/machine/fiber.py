"""A fiber: one Vega process as plain data.

It holds the calls in progress (function, place, registers, where the result goes), globals, the mailbox (made with the
first message), the budget scopes that are open, and nothing that cannot be written down. `vm.run` steps it; when it
comes to an effect, the host answers with `resume`, `throw`, `wake` or `expire` and runs it again. Between two effects
it can be turned into data and back, in another process or on another machine (see `snapshot`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Self

import msgspec

from lyra.vega.machine.link import Code, LinkedProgram
from lyra.vega.values.values import (
    UNSET,
    Builder,
    Cell,
    Closure,
    Err,
    ErrorValue,
    Fault,
    Ok,
    Process,
    copy_value,
    equal,
)

SLICE: Final = 256  # calls and loop turns between two looks at the fuel and at the depth

# A call in progress: the one below it (or None), its function, where it continues, its registers, and which of them
# waits for the result of the call above. A chain of tuples is quicker than a list of them.
Frame = tuple[Any, Code, int, list[Any], int]


class VmEffect(msgspec.Struct, gc=False):
    """Something only the host can do: its kind and what it needs."""

    kind: str
    arguments: tuple[Any, ...] = ()


WAIT: Final = VmEffect("receive", (None, 0))  # for a message, however long it takes: the commonest of all, made once


class Done:
    """The end of a fiber: its value, or the error that the program did not catch."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: ErrorValue | None = None) -> None:
        self.value = value
        self.error = error

    def __repr__(self) -> str:
        return f"Done({self.value!r})" if self.error is None else f"Done(error={self.error})"


class OutOfFuel:
    """The fiber could continue, but its turn is over."""

    __slots__ = ()


OUT_OF_FUEL: Final = OutOfFuel()


class Fiber:
    __slots__ = (
        "budgets",
        "code",
        "depth",
        "destination",
        "fault",
        "globals",
        "linked",
        "looking",
        "mailbox",
        "paused",
        "pc",
        "receives",
        "registers",
        "stack",
        "ticks",
    )

    def __init__(self, linked: LinkedProgram, code: Code, registers: list[Any], globals_: list[Any]) -> None:
        self.linked = linked
        self.code = code
        self.pc = 0
        self.registers = registers
        self.stack: Frame | None = None
        self.depth = 0
        self.looking = 0  # slices that are left to look ahead; 0: it does not
        self.globals = globals_
        self.mailbox: deque[Any] | None = None
        self.budgets = 0  # scopes open
        self.receives = 0  # receives begun, so that a host knows one from the next
        self.destination = -1  # the register that waits for the answer of an effect
        self.fault: Fault | None = None
        self.paused: Any = None  # a call of generated code that continues in the next turn; never saved, but made again
        self.ticks = SLICE

    @classmethod
    def start(cls, linked: LinkedProgram) -> Self:
        """Return the main process: the top level of the file, then `main`."""
        code = linked.functions[linked.program.entry]
        return cls(linked, code, code.template[:], [UNSET] * len(linked.program.globals))

    @classmethod
    def call(cls, linked: LinkedProgram, function: Closure | int, arguments: list[Any], globals_: list[Any]) -> Self:
        """Return a fiber that calls one function with values that no other fiber holds."""
        closure = function if type(function) is Closure else Closure(function)  # type: ignore[arg-type]
        code = linked.functions[closure.function]
        given = len(arguments)
        registers = code.template.copy()
        if given != code.parameters:
            if not code.required <= given <= code.parameters:
                raise wrong_count(code, given)
            for missing in range(given, code.parameters):
                registers[missing] = UNSET
        if given:
            registers[:given] = arguments
        if code.captures:
            registers[code.parameters : code.parameters + code.captures] = closure.captured
        return cls(linked, code, registers, globals_)

    def child(self, function: Closure | int, arguments: list[Any]) -> Self:
        """Return a new process for a function of this program. Nothing is shared: function, arguments and globals are
        copied, together, so that what they share among themselves they continue sharing."""
        closure = function if type(function) is Closure else Closure(function)  # type: ignore[arg-type]
        globals_ = self.globals
        if not (
            closure.captured
            or (arguments and not _DEEP.isdisjoint(map(type, arguments)))
            or (globals_ and not _DEEP.isdisjoint(map(type, globals_)))
        ):
            return self.call(self.linked, closure, arguments, globals_[:] if globals_ else globals_)
        closure, arguments, globals_ = copy_value([closure, arguments, globals_])
        return self.call(self.linked, closure, arguments, globals_)

    @property
    def begun_as(self) -> str:
        """The name of the function that it began with; `main` for the program itself."""
        frame, code = self.stack, self.code
        while frame is not None:
            frame, code = frame[0], frame[1]
        return "main" if code.index == self.linked.program.entry else code.name

    def move_to(self, linked: LinkedProgram) -> None:
        """Continue with a program that was fitted to this one, and in which the calls in progress are the same."""
        frames = []
        frame = self.stack
        while frame is not None:
            below, code, pc, registers, destination = frame
            frames.append((_move_code(linked, code, registers), pc, registers, destination))
            frame = below
        self.stack = None
        for moved_frame in reversed(frames):
            self.stack = (self.stack, *moved_frame)
        self.code = _move_code(linked, self.code, self.registers)
        self.globals += [UNSET] * (len(linked.program.globals) - len(self.globals))
        self.linked = linked

    def resume(self, value: Any = None) -> None:
        """Continue with the answer of the effect just handed out."""
        if self.destination >= 0:
            self.registers[self.destination] = value
        self.destination = -1

    def throw(self, name: str, text: str) -> None:
        """Raise the error of an effect that failed, at its place, for a `catch` to see."""
        self.fault = Fault(name, text)
        self.destination = -1

    def deliver(self, message: Any) -> None:
        """Put a message (already copied) into the mailbox."""
        if self.mailbox is None:
            self.mailbox = deque()
        self.mailbox.append(message)

    def expire(self) -> None:
        """End the receive that waits: its time is over."""
        _, state, _, _ = self.code.code[self.pc]
        self.registers[state + 2] = -1

    def frames(self, limit: int = 1 << 60) -> list[tuple[Code, int]]:
        """Return the calls in progress, innermost first: function and place."""
        frames = [(self.code, self.pc)]
        frame = self.stack
        while frame is not None and len(frames) < limit:
            frame, code, pc, _, _ = frame
            frames.append((code, pc))
        return frames

    def place(self) -> tuple[str, int, int]:
        """File, line and column of what is being done; of library code, those of its caller."""
        frames = self.frames(64)
        code, pc = next(((code, pc) for code, pc in frames if not code.function.is_hidden), frames[0])
        line, column = code.function.place(max(pc - 1, 0))
        return self.linked.program.files[code.function.file], line, column

    def trace(self, limit: int = 20) -> list[str]:
        """Return the calls in progress as lines of text, innermost first."""
        lines = []
        for code, pc in self.frames(limit):
            if not code.function.is_hidden:
                line, column = code.function.place(max(pc - 1, 0))
                lines.append(f"{code.name} ({self.linked.program.files[code.function.file]}:{line}:{column})")
        return lines


def _move_code(linked: LinkedProgram, code: Code, registers: list[Any]) -> Code:
    """Return the function of another program in place of `code`, with its constants put behind the registers."""
    moved = linked.functions[code.index]
    own = moved.function.registers
    registers[own:] = moved.template[own:]
    return moved


def wrong_count(code: Code, given: int) -> Fault:
    if code.required == code.parameters:
        wanted = str(code.parameters)
    else:
        wanted = f"{code.required} to {code.parameters}"
    return Fault("TypeError", f"`{code.name}` takes {wanted} arguments, got {given}")


_DEEP: Final = frozenset({list, dict, Closure, Ok, Err, Builder, Cell})


# What the machine and the generated code of pure functions share: the answer that gives a call back to the machine.

MISS: Final = object()  # the generated code gave up: the machine makes the same call instruction by instruction


# An EarlyCallGroup belongs to a stretch without barriers. The n-th time the program comes to a `site` it takes the n-th
# call of the site, if that is the very call it makes now; else it makes it then and there. So an early call can save
# time and never changes what the program sees. The host finds its own part by the number of the group and the key of
# the call. A Process with its own pid represents an agent that is asked before its `spawn` (`promise_process`); the
# spawn puts the real one in its place.

OPEN: Final = "open"  # started, and the program has not come to it
REFUSED: Final = "refused"  # the host would not start it: it is made when its turn comes
TAKEN: Final = "taken"  # the program has come to it
IN_TURN: Final = "in turn"  # never made early: the program makes it now
AGAIN: Final = "again"  # the early one was another call than the program makes now


class NotEarly(Fault):
    """No further call is made ahead here; only the code that looks ahead ever sees it."""

    def __init__(self, why: str) -> None:
        super().__init__("NotEarly", why)


class EarlyCall:
    """One call: `arguments` are target, message, time-out and budget of a send; function, arguments and (as a list of
    their slots) the globals that it reads of a call."""

    __slots__ = ("arguments", "in_order", "kind", "number", "site", "state")

    def __init__(self, site: int, kind: str, arguments: list[Any], *, in_order: bool) -> None:
        self.site = site
        self.kind = kind
        self.arguments = arguments
        self.in_order = in_order  # no call that stands before it is still to be made
        self.number = 0  # among the calls of its site
        self.state = OPEN

    @property
    def key(self) -> str:
        """Its name within the group: the place in the source and its number there. It never depends on timing."""
        return f"{self.site}.{self.number}{'.again' if self.state == AGAIN else ''}"

    def is_same(self, arguments: list[Any]) -> bool:
        """Return whether this is the call that the program makes now."""
        for mine, now in zip(self.arguments, arguments, strict=True):
            if type(mine) is Closure and type(now) is Closure:
                if mine.function != now.function or mine.captured or now.captured:
                    return False
            elif not equal(mine, now):
                return False
        return True


class EarlyCallGroup:
    """`is_kept`: the run has a journal, so a call has its key even where it is made in its turn; a replay that is
    quicker or slower then finds it all the same."""

    __slots__ = ("calls", "is_kept", "number", "turns")

    def __init__(self, number: int, *, is_kept: bool = False) -> None:
        self.number = number
        self.is_kept = is_kept
        self.calls: dict[int, list[EarlyCall]] = {}  # by site
        self.turns: dict[str, int] = {}  # "pass.site" → how many of the site's calls that pass has come to

    def add(self, call: EarlyCall) -> None:
        calls = self.calls.setdefault(call.site, [])
        call.number = len(calls)
        calls.append(call)

    def next(self, turn: int, site: int) -> EarlyCall | None:
        """Return the call of a site that a pass (0: the program itself) comes to now."""
        name = f"{turn}.{site}"
        number = self.turns.get(name, 0)
        self.turns[name] = number + 1
        calls = self.calls.get(site, ())
        return calls[number] if number < len(calls) else None

    def promise_process(self, turn: int, spawn: int) -> Process:
        """Return the Process that represents the agent of a spawn to which a pass (0: the program itself) comes now."""
        name = f"{turn}.spawn{spawn}"
        number = self.turns.get(name, 0)
        self.turns[name] = number + 1
        return Process(f"~{self.number}:{spawn}.{number}")

    def keep(self, promised: Process, process: Process) -> None:
        """Note that the program has spawned the promised agent: the early calls to it were calls to this process."""
        for call in (call for calls in self.calls.values() for call in calls):
            if call.kind == "send" and call.arguments[0] == promised:
                call.arguments[0] = process

    def take(self, site: int, kind: str, arguments: list[Any]) -> EarlyCall | None:
        """Return the call that the program comes to, if the host has to know of it; None: it is simply made."""
        call = self.next(0, site)
        if call is not None and call.state != REFUSED and call.is_same(arguments):
            call.state = TAKEN
            return call
        if kind == "call" and not self.is_kept:
            return None
        now = EarlyCall(site, kind, arguments, in_order=True)
        now.number = self.turns[f"0.{site}"] - 1
        now.state = IN_TURN if call is None or call.state == REFUSED else AGAIN
        return now

    def parts(self) -> list[Any]:
        """Everything in it that a snapshot has to reach, in a fixed order."""
        return [call.arguments for calls in self.calls.values() for call in calls]

    def to_data(self) -> list[Any]:
        rows = [
            [call.site, call.kind, call.in_order, call.number, call.state]
            for calls in self.calls.values()
            for call in calls
        ]
        return [self.number, self.is_kept, rows, list(self.turns), list(self.turns.values())]

    @classmethod
    def from_data(cls, data: list[Any]) -> EarlyCallGroup:
        number, is_kept, rows, names, counts = data
        group = cls(int(number), is_kept=bool(is_kept))
        for site, kind, in_order, call_number, state in rows:
            call = EarlyCall(int(site), str(kind), [], in_order=bool(in_order))
            call.number, call.state = int(call_number), str(state)
            group.calls.setdefault(call.site, []).append(call)
        group.turns = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
        return group

    def fill(self, parts: list[Any]) -> None:
        """Put what `parts` gave back where it was."""
        for call, arguments in zip([call for calls in self.calls.values() for call in calls], parts, strict=True):
            call.arguments = arguments
