"""A run as the list of its steps: every effect of every process, in the order in which the program came to it.

A Step is one effect with what came of it, or the start or the end of a process. Its `number` is its place in the list.
The answer is kept as the machine gets it, so that `player` can give it again; `what` and `result` are texts for people,
cut where they are long.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.vega.replay.agents import AgentHistory
from lyra.vega.replay.replies import Replies
from lyra.vega.values.values import Closure, ErrorValue, Fault, shown_with_id

if TYPE_CHECKING:
    from lyra.vega.bytecode.program import Program


START: Final = "start"
END: Final = "end"
_CUT: Final = 200
_LOOKED: Final = 4_000  # of a long text, before it is cut to what is shown


class JournaledAnswer(msgspec.Struct):
    """What an effect gave: messages first, then a value or an error, or that its time was over."""

    value: Any = None
    error: tuple[str, str] | None = None  # name and text
    thrown: ErrorValue | None = None  # an error that keeps the place it was thrown at
    heard: list[Any] = []
    expired: bool = False
    is_receive: bool = False  # it gave messages and nothing else
    is_last: bool = False  # the process ended with it


class Spent(msgspec.Struct, frozen=True):
    micro_usd: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    def __add__(self, other: object) -> Spent:
        if not isinstance(other, Spent):
            return NotImplemented
        return Spent(
            self.micro_usd + other.micro_usd,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.calls + other.calls,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __str__(self) -> str:
        return f"${self.micro_usd / 1_000_000:.4f}, {self.tokens} tokens, {self.calls} calls"


class TimelineStep(msgspec.Struct):
    pid: str
    kind: str  # of the effect as the machine names it, or START, or END
    what: str = ""
    agent: str = ""  # whom it asks
    message: str = ""  # what it asks, whole
    target: str = ""  # the process that it asks
    file: str = ""
    line: int = 0
    result: str = ""
    error: str = ""
    seq: int = 0  # of the row that answered it, or of a later one where the program came to it later
    at: float = 0.0  # when
    began: float = 0.0
    keys: list[Any] = []  # of the answers in the journal that it took
    children: list[str] = []  # processes that answered it
    stream: str = ""  # the name of the stream that it opens, or is the first to read
    answer: JournaledAnswer | None = None
    spent: Spent = Spent()
    number: int = 0
    version: int = 0  # which of the run's programs goes on after it

    @property
    def is_effect(self) -> bool:
        return self.kind not in (START, END)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""

    def to_data(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "pid": self.pid,
            "kind": self.kind,
            "what": self.what,
            "agent": self.agent or None,
            "file": self.file,
            "line": self.line,
            "result": self.result,
            "error": self.error or None,
            "at": self.at,
            "cost_usd": self.spent.micro_usd / 1_000_000,
            "input_tokens": self.spent.input_tokens,
            "output_tokens": self.spent.output_tokens,
        }


class ProcessFacts(msgspec.Struct):
    """One process of the program: what it runs, who started it, and what it began with."""

    pid: str
    function: str
    parent: str = ""
    seed: Any = None  # as the journal has it; None for the main one
    ended: str = ""  # why, if it has
    known_as: str = ""


class Timeline:
    """`steps` in order; `processes` by pid; `waits` says what each process that has not ended waits for."""

    def __init__(
        self,
        run_id: str,
        program: Program,
        sources: dict[str, str],
        steps: list[TimelineStep],
        processes: dict[str, ProcessFacts],
    ) -> None:
        self.run_id = run_id
        self.program = program
        self.sources = sources
        self.versions = [(program, sources)]  # oldest first, where another one was put in force
        self.steps = steps
        self.processes = processes
        self.agents: dict[str, str] = {}  # names by pid
        self.agent_history = AgentHistory(_nothing)  # what agents were told and said
        self.replies = Replies(_nothing)  # and where that is written
        self.waits: dict[str, str] = {}
        self.notes: list[str] = []
        self.state = ""
        self._total: list[Spent] = [Spent()]
        self._printed: list[int] = []
        for number, step in enumerate(steps):
            step.number = number
            self._total.append(self._total[-1] + step.spent)
            if step.kind == "print":
                self._printed.append(number)

    def __len__(self) -> int:
        return len(self.steps)

    def spent(self, position: int) -> Spent:
        """What all steps before a position cost."""
        return self._total[min(position, len(self.steps))]

    def output(self, position: int, limit: int | None = None) -> list[str]:
        """What was printed before a position; the last `limit` lines of it."""
        upto = bisect_right(self._printed, position - 1)
        first = 0 if limit is None else max(0, upto - limit)
        return [self.steps[number].message for number in self._printed[first:upto]]

    def step(self, number: int) -> TimelineStep | None:
        return self.steps[number] if 0 <= number < len(self.steps) else None

    def line(self, file: str, number: int, version: int = -1) -> str:
        """A line of the sources that the run keeps; "" for one that is not there."""
        lines = self.versions[version][1].get(file, "").split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


def _nothing(digest: str) -> bytes:
    raise KeyError(digest)


def brief(value: Any, limit: int = _CUT, program: Program | None = None) -> str:
    """A value for a person, on one line, never longer than `limit`."""
    if type(value) is str:
        text = _quoted(value)
    elif type(value) is Closure and program is not None and value.function < len(program.functions):
        text = f"<function {program.functions[value.function].name}>"
    elif type(value) is ErrorValue:
        text = f"{value.name}: {value.text[:_LOOKED]}"
    elif type(value) is list:
        text = _listed([(None, item) for item in value[:64]], "[]", limit, program, is_more=len(value) > _SHOWN_ITEMS)
    elif type(value) is dict:
        first = [pair for pair, _ in zip(value.items(), range(64), strict=False)]
        text = _listed(first, "{}", limit, program, is_more=len(value) > _SHOWN_ITEMS)
    else:
        try:
            text = shown_with_id(value)[:_LOOKED]
        except Fault:
            text = "<a value too large to show>"
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


_SHOWN_ITEMS: Final = 64


def _quoted(text: str) -> str:
    kept = text[:_LOOKED].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{kept}"' if len(text) <= _LOOKED else f'"{kept}…'


def _listed(
    items: list[tuple[Any, Any]], ends: str, limit: int, program: Program | None, *, is_more: bool, depth: int = 0
) -> str:
    """The first items of a list or a map. Nested ones only so deep, and no further than fits."""
    parts: list[str] = []
    length = 0
    for key, item in items:
        if type(item) in (list, dict) and (depth >= 3 or not item):
            text = "[…]" if type(item) is list and item else "{…}" if item else "[]" if type(item) is list else "{}"
        elif type(item) is list:
            pairs = [(None, value) for value in item[:_SHOWN_ITEMS]]
            text = _listed(pairs, "[]", limit, program, is_more=len(item) > _SHOWN_ITEMS, depth=depth + 1)
        elif type(item) is dict:
            some = [pair for pair, _ in zip(item.items(), range(_SHOWN_ITEMS), strict=False)]
            text = _listed(some, "{}", limit, program, is_more=len(item) > _SHOWN_ITEMS, depth=depth + 1)
        else:
            text = brief(item, limit, program)
        parts.append(text if key is None else f"{brief(key, 40) if type(key) is not str else key}: {text}")
        length += len(parts[-1]) + 2
        if length > limit:
            is_more = True
            break
    return f"{ends[0]}{', '.join(parts)}{', …' if is_more else ''}{ends[1]}"
