"""Random functions for `@lyra.parallel`: each is run as it is written and decorated, and must come to the same.

A function asks processes and agents, computes, prints, loops, branches and catches; models answer after different times
and sometimes fail. Compared are what it returns or raises, what it prints, and what every process remembers. Time is
virtual. `check(seed)` gives the differences of one function.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from random import Random
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
    written = _outcome(source, seed, lambda function: function)
    decorated = _outcome(source, seed, lyra.parallel)
    return [
        f"{what}: {one!r} is {other!r} when decorated\n{source}"
        for what, one, other in zip(("result", "prints", "conversations"), written, decorated, strict=True)
        if one != other
    ]


def took(seed: int, *, decorated: bool) -> float:
    """Seconds of virtual time that a function takes."""
    elapsed: list[float] = []
    _outcome(source_of(seed), seed, lyra.parallel if decorated else lambda function: function, elapsed)
    return elapsed[0]


# ---------------------------------------------------------------- running


def _outcome(
    source: str, seed: int, made: Callable[[Any], Any], elapsed: list[float] | None = None
) -> tuple[Any, list[str], Any]:
    printed: list[str] = []
    function = made(_function(source, seed, printed))

    async def main() -> tuple[Any, Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        async with Kernel(clock=loop.clock) as kernel:
            agents = [_agent(index, seed) for index in range(PROCESSES)]
            processes = [await kernel.spawn(agent) for agent in agents]
            began = loop.time()
            try:
                result: Any = await function(*processes, *agents)
            except LyraError as error:
                result = (type(error).__name__, error.message)
            except (ZeroDivisionError, KeyError) as error:
                result = (type(error).__name__, str(error))
            if elapsed is not None:
                elapsed.append(loop.time() - began)
            said = [[message.text for message in process.messages] for process in processes]
            return result, said

    result, said = run_in_virtual_time(main())
    return result, printed, said


def _agent(index: int, seed: int) -> Agent:
    def answer(request: Request) -> Reply:
        text = request.messages[-1].text
        luck = seeded(f"{seed} {index} {text} {len(request.messages)}")
        wait_s = luck.randint(1, 50) / 10
        if luck.randrange(_FAILS_OF) == 0:
            return Reply(error=ScriptedError(kind="invalid_request"), first_s=wait_s)
        return Reply(text=f"{index}<{text[-12:]}>", first_s=wait_s)

    return Agent(f"agent{index}", model=SimProvider(answer), retry={"max_attempts": 1})


def _function(source: str, seed: int, printed: list[str]) -> FunctionType:
    name = f"<random function {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"lyra": lyra, "say": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(compile(source, name, "exec"), names)  # noqa: S102 - written below
    function: FunctionType = names["work"]
    return function


# ---------------------------------------------------------------- writing


def source_of(seed: int) -> str:
    luck = seeded(f"function {seed}")
    writer = _Writer(luck)
    writer.block(1, luck.randint(3, 8))
    writer.line(1, f"return [{', '.join(sorted(writer.names))}]")
    parameters = [f"p{index}" for index in range(PROCESSES)] + [f"a{index}" for index in range(PROCESSES)]
    return "\n".join([f"async def work({', '.join(parameters)}):", *writer.lines]) + "\n"


class _Writer:
    def __init__(self, luck: Random) -> None:
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
        return self.luck.choice([f"v{index}" for index in range(5)])

    def _text(self) -> str:
        known = sorted(self.names - {"xs"})
        return self.luck.choice(
            [
                f'"{self.luck.randrange(99)}"',
                self.luck.choice(known),
                f'f"{{{self.luck.choice(known)}}}!"',
                "str(len(xs))",
            ]
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
