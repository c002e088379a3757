"""A Vega expression over the variables in view: for `print`, and for breakpoints with a condition.

It is compiled as a function of the variables that it names and runs on copies of their values. It may call functions of
the program and of the library, and nothing else: what needs an effect is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError, SourceError
from lyra.vega.bytecode.opcodes import OPCODES
from lyra.vega.bytecode.program import Function, Program
from lyra.vega.machine.fiber import Done, Fiber
from lyra.vega.machine.link import Code, LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.replay.variables import Variables
from lyra.vega.syntax.parser import parse
from lyra.vega.values.values import Closure, copied

_FUEL: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOK: Final = "it_is"


class WatchExpression:
    """Compiled once for each set of names that a place knows."""

    def __init__(self, text: str, variables_of: Callable[[LinkedProgram], Variables]) -> None:
        self.text = text.strip()
        if not self.text:
            raise ConfigError("an expression is missing", hint="such as: print x + 1")
        try:
            if not _is_one(self._function(())):
                raise ConfigError(f"`{self.text}` is no expression")
        except SourceError as error:
            raise ConfigError(f"`{self.text}`: {error.message}", hint=error.hint) from None
        self._variables_of = variables_of
        self._words = set(_NAME.findall(self.text))
        self._linked: dict[tuple[str, ...], LinkedProgram] = {}  # by the program's hash and the names

    def need(self, names: Set[str]) -> None:
        """ConfigError where it names something else: then it comes to nothing at any place."""
        try:
            self._compiled(tuple(sorted(self._words & names)))
        except ConfigError as error:
            others = (did_you_mean(word, sorted(names)) for word in sorted(self._words - names))
            near = next((name for name in others if name), None)
            hint = f"did you mean {near}?" if near else error.hint or "`vars` lists the variables in view"
            raise ConfigError(error.message, hint=hint) from None

    def value(self, fiber: Fiber, *, before: bool = False) -> Any:
        """The value of the expression where a fiber stands; ConfigError where it has none."""
        variables = self._variables_of(fiber.linked)
        view = variables.view(fiber, before=before)
        known = {name: view[name] for name in sorted(self._words & view.keys())}
        for name in sorted(self._words & variables.functions.keys() - known.keys()):
            known[name] = Closure(variables.functions[name])
        key = (fiber.linked.hash, *known)
        linked = self._linked.get(key)
        if linked is None:
            linked = self._linked[key] = self._linked_with(fiber.linked, tuple(known))
        values, globals_ = copied([list(known.values()), fiber.globals])
        outcome = run(Fiber.call(linked, len(linked.functions) - 1, values, globals_), _FUEL)
        if type(outcome) is not Done:
            problem = "takes too long" if not hasattr(outcome, "kind") else f"needs an effect: {outcome.kind}"
            raise ConfigError(f"`{self.text}` {problem}", hint="only expressions that compute can be looked at")
        if outcome.error is not None:
            raise ConfigError(f"`{self.text}`: {outcome.error.name}: {outcome.error.text}")
        return outcome.value

    def _function(self, names: tuple[str, ...]) -> str:
        return f"fn {_LOOK}({', '.join(names)}) {{ return {self.text}\n; }}"

    def _compiled(self, names: tuple[str, ...]) -> Program:
        from lyra.vega import compile as compile_source

        try:
            return compile_source(self._function(names), "<expression>")
        except SourceError as error:
            raise ConfigError(f"`{self.text}`: {error.message}", hint=error.hint) from None

    def _linked_with(self, program: LinkedProgram, names: tuple[str, ...]) -> LinkedProgram:
        """The program's functions with those of the expression behind them; its own is the last."""
        piece = self._compiled(names)
        linked = LinkedProgram(program.program, program.hash)
        offset = len(linked.functions)
        for index, function in enumerate(piece.functions):
            linked.functions.append(Code(offset + index, _moved(function, offset)))
        mine = next(index for index, function in enumerate(piece.functions) if function.name == _LOOK)
        linked.functions.append(linked.functions[offset + mine])
        return linked


def _is_one(text: str) -> bool:
    """One function with one statement: nothing was smuggled in behind the expression."""
    statements = parse(text, "<expression>").statements
    return len(statements) == 1 and len(getattr(statements[0], "body").statements) == 1  # noqa: B009 - a Function


def _moved(function: Function, offset: int) -> Function:
    code = []
    for op, *operands in function.code:
        row = OPCODES[op]
        kinds = (row.a, row.b, row.c)
        a, b, c = (value + offset if kind == "function" else value for kind, value in zip(kinds, operands, strict=True))
        code.append((op, a, b, c))
    function.code = code
    return function
