"""Instructions that the VM's loop executes rarely: calls with names, methods, waiting, finding handlers, effects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from lyra import errors
from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_DEPTH_MAX, VEGA_STRING_CHARS_MAX
from lyra.vega.bytecode.opcodes import (
    OP_AWAIT,
    OP_BUDGET_CHECK,
    OP_BUDGET_ENTER,
    OP_BUDGET_EXIT,
    OP_BUDGET_RESERVE,
    OP_EFFECT,
    OP_EXIT,
    OP_FIELD,
    OP_LINK,
    OP_LIST_ADD,
    OP_MAP,
    OP_MAP_ADD,
    OP_MONITOR,
    OP_NO_MATCH,
    OP_PAR_BEGIN,
    OP_PAR_JOIN,
    OP_PAR_SPAWN,
    OP_SEND_STREAM,
    OP_SEND_WITH,
    OP_SET_FIELD,
    OP_SPAWN_SUPERVISED,
    OP_STREAM_CLOSE,
)
from lyra.vega.machine.fiber import REFUSED, Done, EarlyCall, EarlyCallGroup, Fiber, NotEarly, VmEffect, wrong_count
from lyra.vega.machine.link import Code
from lyra.vega.stdlib.natives import native
from lyra.vega.stdlib.table import METHODS, entry
from lyra.vega.values.operators import field, set_field
from lyra.vega.values.operators import key as map_key
from lyra.vega.values.values import (
    CHARS,
    SHARED,
    UNSET,
    WORK,
    Closure,
    Duration,
    ErrorValue,
    Fault,
    Future,
    Process,
    Stream,
    copy_value,
    kind_of,
    render,
)

__all__ = ["kind_of", "unwind"]

# Methods that only the host can do, by the kind of value they belong to.
_EFFECT_METHODS: Final = frozenset({"span::end", "stream::close"})

_EXTRA_METHODS: Final = {"builder::add": (2, 2)}

_SEND_TIMEOUT, _SEND_BUDGET = 1, 2


# Kinds of effects that ask an agent, or prepare it.
ASKING: Final = frozenset({"ahead_begin", "send", "send_stream"})


def too_deep() -> Fault:
    return Fault("StackOverflow", f"stack overflow: calls are nested more than {VEGA_DEPTH_MAX} deep")


def look_on(fiber: Fiber) -> None:
    """Count one slice of a look ahead; after the last one the look ahead ends and the program continues."""
    fiber.looking -= 1
    if not fiber.looking:
        raise NotEarly("it takes too long")


# ---------------------------------------------------------------- calls


def fill_registers(code: Code, registers: list[Any], first: int, count: int, captured: tuple[Any, ...]) -> list[Any]:
    """Return the registers a function value starts with."""
    fresh = code.template[:]
    wanted = code.parameters
    fresh[:count] = registers[first : first + count]
    for missing in range(count, wanted):
        fresh[missing] = UNSET
    if captured:
        fresh[wanted : wanted + len(captured)] = captured
    return fresh


def fill_named_registers(
    code: Code, registers: list[Any], first: int, names: list[str], captured: tuple[Any, ...]
) -> list[Any]:
    """Return the registers a function value starts with when some arguments are named."""
    parameters = [parameter.name for parameter in code.function.parameters]
    fresh = fill_registers(code, registers, first, 0, captured)
    for position, name in enumerate(names):
        if name and name not in parameters:
            raise Fault("TypeError", f"`{code.name}` has no parameter `{name}`")
        place = parameters.index(name) if name else position
        if place >= len(parameters):
            raise wrong_count(code, len(names))
        if fresh[place] is not UNSET:
            raise Fault("TypeError", f"`{parameters[place]}` of `{code.name}` is given twice")
        fresh[place] = registers[first + position]
    for parameter, value in zip(code.function.parameters, fresh, strict=False):
        if value is UNSET and not parameter.has_default:
            raise Fault("TypeError", f"`{code.name}` needs `{parameter.name}`")
    return fresh


@functools.cache
def _method(kind: str, name: str) -> tuple[Callable[..., Any] | str | None, int, int]:
    """Return what a method does and how many values, its own among them, it takes."""
    full = METHODS.get(kind, {}).get(name, f"{kind}::{name}")
    module, _, function = full.partition("::")
    row = entry(module, function)
    least, most = (row.required, row.most) if row is not None else _EXTRA_METHODS.get(full, (1, 1))
    if full in _EFFECT_METHODS:
        return full.replace("::", "_"), least, most
    return native(full), least, most


def method(value: Any, name: str, count: int) -> Callable[..., Any] | str | None:
    """Return what `value.name(…)` does: a library function, the name of an effect, or None for a map's own function."""
    method, least, most = _method(kind_of(value), name)
    if method is None and not (
        type(value) is list and entry("list", name)
    ):  # a method written in Vega, called with a wrong count
        if type(value) is dict and name in value:
            return None
        raise Fault("TypeError", f"{kind_of(value)} has no method `{name}`")
    if not least <= count <= most:
        raise Fault("TypeError", f"`.{name}` of {kind_of(value)} takes {most - 1} arguments, got {count - 1}")
    return method


def member(value: dict[Any, Any], name: str) -> Any:
    return value[name]


def join_parts(parts: list[Any]) -> str:
    text = "".join([part if type(part) is str else render(part) for part in parts])
    if len(text) > VEGA_STRING_CHARS_MAX:
        raise Fault("LimitExceeded", f"a string may have at most {VEGA_STRING_CHARS_MAX} characters")
    WORK.units += len(text) >> CHARS
    return text


def unset_global(fiber: Fiber, slot: int, name: str) -> Any:
    """Return a global that has no value yet; the flag of a file that has not run is simply false."""
    if fiber.linked.program.globals[slot].endswith(" has run"):
        return False
    raise Fault("NameError", f"`{name}` is used before it is set")


# ---------------------------------------------------------------- processes


def timeout(value: Any) -> Duration | None:
    if value is None or type(value) is Duration:
        return value
    raise Fault("TypeError", f"a time-out is a duration, not {kind_of(value)}")


def take(fiber: Fiber, looked: int) -> None:
    mailbox = fiber.mailbox
    if mailbox is None or not 0 < looked <= len(mailbox):
        raise Fault("BytecodeError", "no message was looked at")
    if looked == 1:
        mailbox.popleft()
    else:
        del mailbox[looked - 1]


def make_simple_send(target: Any, message: Any) -> VmEffect:
    """Target, a copy of the message, no time-out and no budget of its own."""
    if type(target) is not Process:
        raise Fault("TypeError", f"cannot send to {kind_of(target)}: it is not a process")
    return VmEffect("send", (target, copy_value(message), None, None))


def send(kind: str, registers: list[Any], first: int, flags: int) -> VmEffect:
    """Return the effect of a send: target, a copy of the message, time-out, budget."""
    target, message = registers[first], registers[first + 1]
    if type(target) is not Process:
        raise Fault("TypeError", f"cannot send to {kind_of(target)}: it is not a process")
    limit = timeout(registers[first + 2]) if flags & _SEND_TIMEOUT else None
    budget = amount(registers[first + 3]) if flags & _SEND_BUDGET else None
    return VmEffect(kind, (target, copy_value(message), limit, budget))


def amount(value: Any) -> Money:
    if type(value) is Money:
        return value
    raise Fault("TypeError", f"a budget is money, not {kind_of(value)}")


def spawn(fiber: Fiber, registers: list[Any], first: int, details: list[str], *, is_supervised: bool) -> VmEffect:
    """kind (`agent`, `supervisor`, `function`), name, settings or function, arguments, supervision, whether async."""
    _, kind, name, asynchronous = details
    what, arguments = registers[first], registers[first + 1]
    if kind == "function":
        check_call(fiber, what, arguments)
    supervision = registers[first + 2] if is_supervised else None
    return VmEffect("spawn", (kind, name, what, arguments, supervision, asynchronous == "async"))


def check_call(fiber: Fiber, what: Any, arguments: Any) -> None:
    if type(what) is not Closure:
        raise Fault("TypeError", f"{kind_of(what)} is not a function and cannot be spawned")
    code = fiber.linked.functions[what.function]
    if not code.required <= len(arguments) <= code.parameters:
        raise wrong_count(code, len(arguments))


# ---------------------------------------------------------------- rare instructions


def rare(fiber: Fiber, code: Code, op: int, a: int, b: int, c: int, r: list[Any]) -> VmEffect | None:
    """Run an instruction of the table of rare ones; gives the effect it hands out, if any."""
    action = _RARE.get(op)
    if action is None:
        raise unknown(op)
    effect: VmEffect | None = action(fiber, code, a, b, c, r)
    return effect


def unknown(op: int) -> Fault:
    return Fault("BytecodeError", f"there is no instruction {op:#04x}")


def _map(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    r[a] = {map_key(r[b + index]): r[b + index + 1] for index in range(0, c - 1, 2)}


def _map_add(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    r[a].update({map_key(r[b + index]): r[b + index + 1] for index in range(0, c - 1, 2)})


def _list_add(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    r[a].extend(r[b : b + c])


def _field(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    r[a] = field(r[b], code.constants[c])


def _set_field(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    set_field(r[a], code.constants[b], r[c])


def _no_match(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> None:
    text = render(r[a])
    raise Fault("MatchError", f"no arm of the match fits {text if len(text) <= 80 else text[:79] + '…'}")


def _spawn_supervised(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.destination = a
    return spawn(fiber, r, b, code.constants[c], is_supervised=True)


def _send_with(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.destination = a
    return send("send", r, b, c)


def _send_stream(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.destination = a
    return send("send_stream", r, b, c)


def _stream_close(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect | None:
    return VmEffect("stream_close", (r[a],)) if type(r[a]) is Stream else None


def _await(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect | None:
    if type(r[b]) not in (Future, Stream):
        r[a] = r[b]  # not a future: the value is known already
        return None
    fiber.destination = a
    return VmEffect("await", (r[b],))


def _effect(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    name, count = code.constants[c]
    fiber.destination = a
    return VmEffect(name, tuple(r[b : b + count]))


def _process(kind: str) -> Callable[..., VmEffect]:
    def apply(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
        if type(r[b]) is not Process:
            raise Fault("TypeError", f"process::{kind} needs a process, got {kind_of(r[b])}")
        fiber.destination = a
        return VmEffect(kind, (r[b],))

    return apply


def _exit(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    return VmEffect("exit", (render(r[a]),))


def _budget_enter(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    limit = amount(r[a])
    fiber.budgets += 1
    return VmEffect("budget_enter", (limit,))


def _budget_exit(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.budgets -= 1
    return VmEffect("budget_exit")


def _budget_check(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.destination = a
    return VmEffect("budget", (("remaining", "used", "limit")[b],))


def _budget_reserve(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    return VmEffect("budget_reserve", (amount(r[a]),))


def _par_begin(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    fiber.destination = a
    return VmEffect("ahead_begin" if b else "parallel_begin")


def _par_spawn(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect:
    _, kind, flags, site, in_order = code.constants[b]
    if kind == "send":
        return VmEffect("parallel_send", (r[a], *send("send", r, a + 1, flags).arguments))
    if kind == "call":
        check_call(fiber, r[a + 1], r[a + 2])
        return VmEffect("parallel_call", (r[a], r[a + 1], r[a + 2]))
    what = "send" if kind == "ahead" else "call"
    call = EarlyCall(site, what, _read_call(r, a, what, flags), in_order=bool(in_order))
    if kind == "ahead call" and flags & 2 and not _is_fixed(fiber, call.arguments):
        call.state = (
            REFUSED  # the process of the early call would return a copy of a value that belongs to this process
        )
    return VmEffect("ahead_start", (_group(r[a]), call, what == "send" or bool(flags & 1)))


def _group(value: Any) -> EarlyCallGroup:
    if type(value) is not EarlyCallGroup:
        raise Fault("BytecodeError", "there is no group of calls")
    return value


def _read_call(r: list[Any], first: int, kind: str, flags: int) -> list[Any]:
    """Return what a call in a run of registers, behind its group, asks."""
    if kind == "send":
        return list(send("send", r, first + 1, flags).arguments)
    return [r[first + 1], copy_value(r[first + 2]), list(r[first + 3])]


def _is_fixed(fiber: Fiber, arguments: list[Any]) -> bool:
    """Return whether no argument and no global that a function reads can change; then its result belongs to it
    alone."""
    _, given, slots = arguments
    return all(type(value) in SHARED for value in (*given, *(fiber.globals[slot] for slot in slots)))


def _par_join(fiber: Fiber, code: Code, a: int, b: int, c: int, r: list[Any]) -> VmEffect | None:
    _, kind, flags, site, turn = code.constants[c]
    return _JOINS[kind](fiber, r, a, b, flags, site, turn)


def _join_all(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect:
    fiber.destination = a
    return VmEffect("parallel_join", (r[b],))


def _join_look(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect:
    """Return the answer of an early call, for code that looks ahead: the program has not reached the call yet."""
    call = _group(r[b]).next(turn, site)
    if call is None or call.state == REFUSED:
        raise NotEarly("it was not asked early")
    fiber.destination = a
    return VmEffect("ahead_look", (r[b], call))


def _join_turn(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> None:
    """End the look ahead: what follows is the program itself."""
    fiber.looking = 0


def _join_take(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect:
    """Take the answer of the early call where the program reaches a send; without one, send."""
    effect = send("send", r, b + 1, flags)
    call = _come_to(r[b], site, "send", list(effect.arguments))
    fiber.destination = a
    return effect if call is None else VmEffect("ahead_take", (r[b], call))


def _join_has(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect | None:
    """Take the result of the early call where the program reaches a call; without one (a is false) the call follows."""
    call = _come_to(r[b], site, "call", [r[b + 1], copy_value(r[b + 2]), list(r[b + 3])])
    r[a] = call is not None
    if call is None:
        return None
    fiber.destination = b + 3
    return VmEffect("ahead_take", (r[b], call))


def _come_to(group: Any, site: int, kind: str, arguments: list[Any]) -> EarlyCall | None:
    if type(group) is not EarlyCallGroup:
        return None
    return group.take(site, kind, arguments)


def _join_promise(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect:
    """Return an agent that the program has not spawned yet, promised to code that looks ahead."""
    group = _group(r[b])
    fiber.destination = a
    return VmEffect("ahead_promise", (group, group.promise_process(turn, site), r[b + 2], r[b + 1]))


def _join_spawn(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect:
    """Spawn an agent where the program reaches that: one that an early call may have asked already."""
    group = r[b]
    fiber.destination = a
    if type(group) is not EarlyCallGroup or not group.calls:
        return VmEffect("spawn", ("agent", r[b + 2], r[b + 1], None, None, False))
    return VmEffect("ahead_spawn", (group, group.promise_process(0, site), r[b + 2], r[b + 1]))


def _join_end(fiber: Fiber, r: list[Any], a: int, b: int, flags: int, site: int, turn: int) -> VmEffect | None:
    """End a stretch, also after an error: early calls whose answers were not taken are given up."""
    group, r[b] = r[b], None
    return VmEffect("ahead_end", (group,)) if type(group) is EarlyCallGroup else None


_JOINS: Final[dict[str, Callable[..., VmEffect | None]]] = {
    "all": _join_all,
    "look": _join_look,
    "turn": _join_turn,
    "take": _join_take,
    "has": _join_has,
    "promise": _join_promise,
    "spawn": _join_spawn,
    "end": _join_end,
}


_RARE: Final[dict[int, Callable[..., Any]]] = {
    OP_LIST_ADD: _list_add,
    OP_MAP: _map,
    OP_MAP_ADD: _map_add,
    OP_FIELD: _field,
    OP_SET_FIELD: _set_field,
    OP_STREAM_CLOSE: _stream_close,
    OP_NO_MATCH: _no_match,
    OP_AWAIT: _await,
    OP_EFFECT: _effect,
    OP_SEND_WITH: _send_with,
    OP_SPAWN_SUPERVISED: _spawn_supervised,
    OP_LINK: _process("link"),
    OP_MONITOR: _process("monitor"),
    OP_EXIT: _exit,
    OP_SEND_STREAM: _send_stream,
    OP_BUDGET_ENTER: _budget_enter,
    OP_BUDGET_EXIT: _budget_exit,
    OP_BUDGET_CHECK: _budget_check,
    OP_BUDGET_RESERVE: _budget_reserve,
    OP_PAR_BEGIN: _par_begin,
    OP_PAR_SPAWN: _par_spawn,
    OP_PAR_JOIN: _par_join,
}


# ---------------------------------------------------------------- errors


class Again(Fault):
    """A caught error that is thrown again: it keeps the place where it was first thrown."""

    def __init__(self, error: ErrorValue) -> None:
        super().__init__(error.name, error.text)
        self.error = error


def again(error: ErrorValue) -> Again:
    return Again(error)


def unwind(fiber: Fiber, fault: Fault) -> Done | None:
    """Continue at the nearest handler; without one the fiber has ended."""
    error = fault.error if isinstance(fault, Again) else make_error_value(fiber, fault)
    fiber.destination = -1
    while True:
        pc = max(fiber.pc - 1, 0)
        for handler in fiber.code.handlers:
            if handler.start <= pc < handler.end:
                fiber.registers[handler.register] = error
                fiber.pc = handler.target
                return None
        if fiber.stack is None:
            return Done(error=error)
        fiber.stack, fiber.code, fiber.pc, fiber.registers, _ = fiber.stack
        fiber.depth -= 1


def make_error_value(fiber: Fiber, fault: Fault) -> ErrorValue:
    file, line, column = fiber.place()
    return ErrorValue(fault.name, fault.text, file, line, column, fiber.trace())


def _ancestors() -> dict[str, frozenset[str]]:
    """For each name that the rest of Lyra raises, the names of the errors it is a kind of."""
    ancestors: dict[str, frozenset[str]] = {}
    todo: list[tuple[type[errors.LyraError], frozenset[str]]] = [(errors.LyraError, frozenset())]
    while todo:
        kind, above = todo.pop()
        name = errors.CODES[kind.code].catch
        ancestors[name] = ancestors.get(name, frozenset()) | above | {name}
        todo.extend((sub, ancestors[name]) for sub in kind.__subclasses__() if sub.code in errors.CODES)
    return ancestors


_ANCESTORS: Final = _ancestors()


def is_named(error: ErrorValue, name: str) -> bool:
    """Return whether `catch name` takes the error: by its own name, a more general one, or `Error`."""
    return name == "Error" or error.name == name or name in _ANCESTORS.get(error.name, ())
