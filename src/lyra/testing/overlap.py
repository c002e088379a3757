"""Random functions for `@lyra.parallel`: each is run as it is written and decorated, and must come to the same.

A function asks processes and agents, computes, prints, loops, branches and catches; models answer after different times
and sometimes fail. Compared are what it returns or raises, what it prints, what every process remembers, and what the
last agent, which may only be asked in its turn, was ever asked; and it may not take longer. Time is virtual.
`check(seed)` gives the differences of one function.
"""

from __future__ import annotations

import asyncio
import linecache
from collections.abc import Callable
from hashlib import blake2b
from types import FunctionType
from typing import Any, Final

import lyra
from lyra.agents.agent import Agent
from lyra.core.ids import seeded
from lyra.errors import LyraError
from lyra.kernel.kernel import Kernel
from lyra.models.request import Request
from lyra.models.script import Reply, ScriptedError
from lyra.models.sim import SimProvider
from lyra.testing.loop import SimLoop
from lyra.testing.loop import run as run_in_virtual_time

__all__ = ["check", "source_of"]

PROCESSES: Final = 3
_FAILS_OF: Final = 9  # one call in so many fails


def check(seed: int) -> list[str]:
    """What differs between the function of a seed and the same one decorated."""
    source = source_of(seed)
    written = _Run(source, seed, lambda function: function)
    decorated = _Run(source, seed, lyra.parallel)
    differences = [
        f"{what}: {getattr(written, what)!r} is {getattr(decorated, what)!r} when decorated\n{source}"
        for what in ("result", "printed", "said", "asked")
        if getattr(written, what) != getattr(decorated, what)
    ]
    if decorated.took_s > written.took_s + 0.001:
        differences.append(f"{written.took_s:g} s are {decorated.took_s:g} s when decorated\n{source}")
    return differences


def took(seed: int, *, decorated: bool) -> float:
    """Seconds of virtual time that a function takes."""
    return _Run(source_of(seed), seed, lyra.parallel if decorated else lambda function: function).took_s


# ---------------------------------------------------------------- running


class _Run:
    """One run of a function, and what came of it."""

    def __init__(self, source: str, seed: int, made: Callable[[Any], Any]) -> None:
        self.printed: list[str] = []
        self.asked: list[str] = []  # of the agent that is asked in its turn
        self.result: Any = None
        self.said: list[list[str]] = []
        self.took_s = 0.0
        self._seed = seed
        function = made(_function(source, seed, self.printed))
        run_in_virtual_time(self._run(function))

    async def _run(self, function: Any) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        async with Kernel(clock=loop.clock) as kernel:
            agents = [self._agent(index) for index in range(PROCESSES)]
            processes = [await kernel.spawn(agent) for agent in agents]
            began = loop.time()
            try:
                self.result = await function(*processes, *agents)
            except LyraError as error:
                self.result = (type(error).__name__, error.message)
            except ZeroDivisionError as error:
                self.result = str(error)
            self.took_s = loop.time() - began
            self.said = [[message.text for message in process.messages] for process in processes]

    def _agent(self, index: int) -> Agent:
        is_ordered = index == PROCESSES - 1

        def answer(request: Request) -> Reply:
            text = request.messages[-1].text
            if is_ordered:
                self.asked.append(text)
            luck = _luck(f"{self._seed} {index} {text} {len(request.messages)}")
            wait_s = luck.randint(1, 50) / 10
            if luck.randrange(_FAILS_OF) == 0:
                return Reply(error=ScriptedError(kind="bad_request"), first_s=wait_s)
            return Reply(text=f"{index}<{text[-12:]}>", first_s=wait_s)

        memory = True if is_ordered else None
        return Agent(f"agent{index}", model=SimProvider(answer), retry={"max_attempts": 1}, memory=memory)


def _function(source: str, seed: int, printed: list[str]) -> FunctionType:
    name = f"<random function {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"lyra": lyra, "say": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(compile(source, name, "exec"), names)  # noqa: S102 - written below
    function: FunctionType = names["work"]
    return function


def _luck(text: str) -> Any:
    return seeded(int.from_bytes(blake2b(text.encode(), digest_size=8).digest()))


# ---------------------------------------------------------------- writing


def source_of(seed: int) -> str:
    luck = _luck(f"function {seed}")
    writer = _Writer(luck)
    writer.block(1, luck.randint(3, 8))
    writer.line(1, f"return [{', '.join(sorted(writer.names))}]")
    parameters = [f"p{index}" for index in range(PROCESSES)] + [f"a{index}" for index in range(PROCESSES)]
    return "\n".join([f"async def work({', '.join(parameters)}):", *writer.lines]) + "\n"


class _Writer:
    def __init__(self, luck: Any) -> None:
        self.luck = luck
        self.lines: list[str] = ['    v0 = "start"', "    xs = []"]
        self.names = {"v0", "xs"}
        self.depth = 0

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def block(self, level: int, count: int) -> None:
        for _ in range(count):
            self.statement(level)

    def statement(self, level: int) -> None:
        kinds = ["call"] * 9 + ["compute"] * 3 + ["say", "note", "mixed", "fail"]
        if self.depth < 2:
            kinds += ["if", "for", "for", "try", "while"]
        getattr(self, f"_{self.luck.choice(kinds)}")(level)

    def _name(self) -> str:
        return f"v{self.luck.randrange(5)}"

    def _text(self) -> str:
        known = sorted(self.names - {"xs"})
        return str(
            self.luck.choice(
                [
                    f'"{self.luck.randrange(99)}"',
                    self.luck.choice(known),
                    f'f"{{{self.luck.choice(known)}}}!"',
                    "str(len(xs))",
                ]
            )
        )

    def _asked(self) -> str:
        number = self.luck.randrange(PROCESSES)
        if self.luck.random() < 0.6:
            return f"await p{number}.send({self._text()})"
        return f"await lyra.run(a{number}, {self._text()}, clock=p0._kernel.clock)"

    def _bind(self, level: int, value: str) -> None:
        name = self._name()
        if self.depth:
            name = self.luck.choice(sorted(self.names - {"xs"}))  # what a branch binds has to be there without it
        self.line(level, f"{name} = {value}")
        self.names.add(name)

    def _call(self, level: int) -> None:
        if self.luck.random() < 0.2:
            self.line(level, self._asked())
        else:
            self._bind(level, self._asked())

    def _mixed(self, level: int) -> None:
        self._bind(level, f'({self._asked()}) + "/" + ({self._asked()})')

    def _compute(self, level: int) -> None:
        self._bind(level, f'{self._text()} + "{self.luck.randrange(9)}"')

    def _fail(self, level: int) -> None:
        self._bind(level, f"str(1 // (len({self._text()}) % {self.luck.randint(2, 5)}))")

    def _say(self, level: int) -> None:
        self.line(level, f"say({self._text()})")

    def _note(self, level: int) -> None:
        self.line(level, f"xs.append({self._text()})")

    def _inside(self, level: int, head: str) -> None:
        self.line(level, head)
        self.depth += 1
        self.block(level + 1, self.luck.randint(1, 3))
        self.depth -= 1

    def _if(self, level: int) -> None:
        self._inside(level, f"if len({self._text()}) % 2:")
        if self.luck.random() < 0.5:
            self._inside(level, "else:")

    def _for(self, level: int) -> None:
        name = f"i{self.depth}"
        self.line(level, f"for {name} in range({self.luck.randint(1, 4)}):")
        self.depth += 1
        if self.luck.random() < 0.6:
            number = self.luck.randrange(PROCESSES)
            self._bind(level + 1, f'await lyra.run(a{number}, f"turn {{{name}}}", clock=p0._kernel.clock)')
            self.line(level + 1, f"xs.append({self._text()})")
        else:
            self.block(level + 1, self.luck.randint(1, 3))
        self.depth -= 1

    def _while(self, level: int) -> None:
        self.line(level, f"for _ in range({self.luck.randint(1, 3)}):")
        self.depth += 1
        self.block(level + 1, self.luck.randint(1, 2))
        self.line(level + 1, f"if len({self._text()}) % 3 == 0:")
        self.line(level + 2, self.luck.choice(["break", "continue"]))
        self.depth -= 1

    def _try(self, level: int) -> None:
        self._inside(level, "try:")
        self.line(level, "except Exception as error:")
        self.line(level + 1, 'v0 = "caught " + type(error).__name__')
