"""Frames of the direct path: where values stand while a program runs, and which names, loops and effects a part has.

A frame is a list. Slot 0 holds the Execution, slot 1 the Meter, slot 2 the state of the effects; every input, variable,
element of a transform and field of the answer has a numbered slot that is settled when the program is compiled. A Scope
maps names to slots for one part of the program; a name that it does not know makes a contract unverifiable and is a
type error elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.charges import is_charged
from lyra.vesper.values.limits import TEXT_MAX
from lyra.vesper.values.outcome import Execution, NodeError

Frame = list[Any]
Evaluate = Callable[[Frame], Any]
StepWatch = Callable[[ir.Step, dict[str, Any]], Mapping[str, Any]]  # a step and the values; gives values to change

EXECUTION: Final = 0
METER: Final = 1
EFFECTS: Final = 2
ROUNDS_BETWEEN_CLOCKS: Final = 1000


class _Missing:
    """The value of a slot that was never written."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class NotSupplied(NodeError):
    """A contract cannot be judged: a predicate or an object of the host is not there. A type error elsewhere."""

    def __init__(self, message: str) -> None:
        super().__init__("type_error", message)


class Meter:
    """What an execution may still use; `charges.CHARGES` says what spends it."""

    __slots__ = ("_deadline", "_left", "_monotonic", "_until_clock")

    def __init__(self, limits: ir.NodeLimits, execution: Execution) -> None:
        self._left = limits.steps
        self._monotonic = execution.monotonic
        self._deadline = self._monotonic() + limits.time_s
        self._until_clock = ROUNDS_BETWEEN_CLOCKS

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise NodeError("resource_limit", "the node made too many steps")
        self._until_clock -= count + 1
        if self._until_clock < 0:
            self._until_clock = ROUNDS_BETWEEN_CLOCKS
            self.check_time()

    def check_time(self) -> None:
        if self._monotonic() > self._deadline:
            raise NodeError("timeout", "the node ran too long")


class Slots:
    """Hands out the numbers of slots, and holds the limits of the program that they belong to."""

    __slots__ = ("count", "is_metered", "memory_max", "text_max", "watch")

    def __init__(self, limits: ir.NodeLimits, watch: StepWatch | None = None) -> None:
        self.count = 3
        self.is_metered = False  # whether a part is charged
        self.watch = watch
        self.memory_max = limits.memory_mb * 1024 * 1024  # bytes of one value
        self.text_max = min(TEXT_MAX, self.memory_max)

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def for_names(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.new() for name in names}


class Scope:
    """Names that an expression may use, with their slots."""

    __slots__ = ("_slots", "guarded", "in_compensation", "in_loop", "names")

    def __init__(
        self,
        slots: Slots,
        names: Mapping[str, int],
        guarded: frozenset[int] = frozenset(),
        *,
        in_compensation: bool = False,
        in_loop: bool = False,
    ) -> None:
        self._slots = slots
        self.names = dict(names)
        self.guarded = guarded  # slots that may hold MISSING
        self.in_compensation = in_compensation  # whether the steps compiled here take something back
        self.in_loop = in_loop  # whether what is compiled here belongs to the rounds of a loop

    @property
    def watch(self) -> StepWatch | None:
        """Return the function that is called before each step; None: steps are compiled without such a call."""
        return self._slots.watch

    def tell(self, watch: StepWatch, step: ir.Step, frame: Frame) -> None:
        """Call the watch with the values of this scope, and write the values that it gives back."""
        known = ((name, frame[slot]) for name, slot in self.names.items())
        values = {name: value for name, value in known if not isinstance(value, _Missing | NotSupplied)}
        for name, value in watch(step, values).items():
            slot = self.names.get(name)
            if slot is not None:
                frame[slot] = value

    @property
    def text_max(self) -> int:
        """Return how many characters a text may have."""
        return self._slots.text_max

    @property
    def memory_max(self) -> int:
        """Return how many bytes an array that a step builds may take, roughly."""
        return self._slots.memory_max

    def slot(self, name: str) -> int | None:
        return self.names.get(name)

    def is_charged(self, kind: type[ir.Step | ir.TypedExpression]) -> bool:
        """Return whether a part of this kind is charged here; an execution then has a meter."""
        charged = is_charged(kind, in_loop=self.in_loop)
        self._slots.is_metered |= charged
        return charged

    def bind(self, *names: str) -> tuple[Scope, tuple[int, ...]]:
        """Return a scope in which these names have new slots, which always hold a value when they are read."""
        slots = tuple(self._slots.new() for _ in names)
        return self._with(names=self.names | dict(zip(names, slots, strict=True))), slots

    def with_slot(self, name: str, slot: int) -> Scope:
        """Return a scope in which the name means an existing slot."""
        return self._with(names={**self.names, name: slot})

    def for_compensation(self) -> Scope:
        """Return this scope, for steps that take something back."""
        return self._with(in_compensation=True)

    def for_rounds(self) -> Scope:
        """Return this scope, for the rounds of a loop."""
        return self._with(in_loop=True)

    def _with(self, **changes: Any) -> Scope:
        now = {"names": self.names, "in_compensation": self.in_compensation, "in_loop": self.in_loop}
        return Scope(self._slots, guarded=self.guarded, **{**now, **changes})


def parts_of(node: Any) -> Iterator[Any]:
    """Yield the node and everything inside it."""
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            todo.extend(reversed(part))
        elif isinstance(part, msgspec.Struct):
            yield part
            todo.extend(getattr(part, name) for name in reversed(part.__struct_fields__))


def names_in(expression: ir.TypedExpression | None) -> frozenset[str]:
    """Return all names in an expression; an empty set for None."""
    return frozenset(part.name for part in parts_of(expression) if isinstance(part, ir.NodeVariable))


def acts_outside(step: ir.Step) -> bool:
    return any(isinstance(part, ir.EffectStep | ir.TransitionStep) for part in parts_of(step))


def list_assigned_names(steps: tuple[ir.Step, ...]) -> list[str]:
    """Return the variables that steps write, each once, in written order."""
    names: dict[str, None] = {}
    for part in parts_of(steps):
        match part:
            case ir.AssignStep():
                names[part.target] = None
            case ir.EffectStep():
                names.update(dict.fromkeys([part.output, *(name for name, _ in part.extract)]))
            case ir.TransitionStep():
                names[part.output] = None
    names.pop("", None)
    return list(names)
