"""Which variables a place of a program sees, and what they hold.

Compiled code knows registers, not names. A run keeps its sources, so the names are found by compiling them once more:
the compiler says which register it gave each variable, the tree says from where to where the variable is seen. Where
the sources are not there, or do not give the same code, only parameters and globals have names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError, LyraError, SourceError
from lyra.vega.bytecode.file import content_hash
from lyra.vega.bytecode.opcodes import OP_PAR_BEGIN, OPCODES
from lyra.vega.bytecode.program import Function, Program
from lyra.vega.bytecode.renumber import numbers, renumber
from lyra.vega.compiler.compiler import Linker
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import Code, LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.plan.names import ModuleScope, Variable
from lyra.vega.replay.frozen_kernel import answer_quietly
from lyra.vega.syntax import ast
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import UNSET, Cell, Closure, copy_value

_HAS_RUN = " has run"  # the end of the name of a file's own flag
_CALLS_MAX = 64  # of a deep recursion the innermost are told
Place = tuple[int, int]


class _VariableRange(NamedTuple):
    """A variable, its register, and from where to where it is seen."""

    name: str
    register: int
    first: Place
    last: Place


class CallInProgress(NamedTuple):
    """A function that a process is in: where it stands there, and what its variables hold."""

    function: str
    file: str
    line: int
    values: dict[str, Any]


class Variables:
    def __init__(self, program: Program, sources: Mapping[str, str]) -> None:
        self._program = program
        self.has_names = False
        self._functions: dict[int, list[_VariableRange]] = {}
        self.functions = {
            function.name: index
            for index, function in enumerate(program.functions)
            if function.name.isidentifier() and not function.is_hidden
        }
        if sources:
            self._find(dict(sources))

    def _find(self, sources: dict[str, str]) -> None:
        name = self._program.name
        if name not in sources:
            return

        def load(target: str, importing: str) -> tuple[str, str] | None:
            import os

            path = os.path.normpath(os.path.join(os.path.dirname(importing), target))
            return (path, sources[path]) if path in sources else None

        try:
            linker = Linker(Source(name, sources[name]), load, frozenset())
            compiled = linker.program_of(parse(sources[name], name))
        except (LyraError, RecursionError):
            return
        if content_hash(renumber(self._program, compiled)) != content_hash(self._program):
            return
        self.has_names = True
        for module in linker.modules.values():
            self._learn(linker, module)
        if content_hash(compiled) != content_hash(self._program):  # fitted to another one: its functions have moved
            places = numbers(self._program, compiled)
            self._functions = {places[index]: seen for index, seen in self._functions.items()}

    def _learn(self, linker: Linker, module: ModuleScope) -> None:
        place = module.source.place
        functions = {id(module.units[node]): index for node, index in linker.lambdas.items() if node in module.units}
        functions[id(module.unit)] = module.init_function
        for node, (first, last) in _scopes(module.module):
            variable = module.declared.get(id(node))
            if variable is not None and variable.register >= 0 and not variable.is_global:
                self._add(functions, variable, place(first), place(last))
        for variables in self._functions.values():
            variables.sort(key=lambda seen: (seen.first, seen.register))
        for key, index in linker.lambdas.items():
            unit = module.units.get(key)
            if unit is not None and index < len(linker.program.functions):
                count = len(linker.program.functions[index].parameters)
                for offset, variable in enumerate(unit.captures):
                    seen = _VariableRange(variable.name, count + offset, (0, 0), (1 << 40, 0))
                    self._functions.setdefault(index, []).insert(0, seen)

    def _add(self, functions: dict[int, int], variable: Variable, first: Place, last: Place) -> None:
        index = functions.get(id(variable.unit))
        if index is not None:
            if variable.is_parameter:
                first, last = (0, 0), (1 << 40, 0)
            self._functions.setdefault(index, []).append(_VariableRange(variable.name, variable.register, first, last))

    # ------------------------------------------------------------ looking

    @property
    def names(self) -> set[str]:
        """The variables and functions of all places."""
        local = {seen.name for variables in self._functions.values() for seen in variables}
        return {*local, *global_names(self._program), *self.functions}

    def local(self, fiber: Fiber, level: int = 0, *, before: bool = False) -> dict[str, Any]:
        """Return the variables that a call in progress sees, innermost call first; the last of one name hides the
        others. With `before` the fiber has stopped before an instruction, and not at an effect."""
        frame = _frame(fiber, level)
        if frame is None:
            return {}
        code, pc, registers = frame
        function = code.function
        place = function.place(pc if before and level == 0 else max(pc - 1, 0))
        seen = self._functions.get(code.index)
        if seen is None:
            seen = [
                _VariableRange(parameter.name, register, (0, 0), (1 << 40, 0))
                for register, parameter in enumerate(function.parameters)
            ]
        values = {}
        for name, register, first, last in seen:
            if first <= place < last and register < len(registers):
                value = registers[register]
                value = value.value if type(value) is Cell else value
                if value is not UNSET:
                    values[name] = value
        return values

    def calls(self, fiber: Fiber) -> list[CallInProgress]:
        """Return the calls that a fiber is in at an effect, the innermost first."""
        calls: list[CallInProgress] = []
        while (frame := _frame(fiber, len(calls))) is not None and len(calls) < _CALLS_MAX:
            code, pc, _ = frame
            function = code.function
            name = "main" if code.index == self._program.entry else code.name
            file, line = self._program.files[function.file], function.place(max(pc - 1, 0))[0]
            calls.append(CallInProgress(name, file, line, self.local(fiber, len(calls))))
        return calls

    def globals(self, fiber: Fiber) -> dict[str, Any]:
        pairs = zip(global_names(self._program), fiber.globals, strict=False)
        return {name: value for name, value in pairs if name and value is not UNSET}

    def view(self, fiber: Fiber, *, before: bool = False) -> dict[str, Any]:
        """All that an expression at this place may name."""
        return {**self.globals(fiber), **self.local(fiber, before=before)}


def global_names(program: Program) -> list[str]:
    """Return the names of the globals; "" for those that are not the program's own."""
    return ["" if name.endswith(_HAS_RUN) else name for name in program.globals]


def _frame(fiber: Fiber, level: int) -> tuple[Any, int, list[Any]] | None:
    """Return a call in progress, those of the library left out."""
    frames = [(fiber.code, fiber.pc, fiber.registers)]
    below = fiber.stack
    while below is not None and len(frames) < 64 + level:
        below, code, pc, registers, _ = below
        frames.append((code, pc, registers))
    own = [frame for frame in frames if not frame[0].function.is_hidden]
    return own[level] if level < len(own) else None


_SEEN_AFTER = (ast.Let, ast.Const, ast.NamePattern)
_HOLDERS = (ast.Block, ast.ForIn, ast.For, ast.Arm, ast.Catch, ast.Function, ast.Tool, ast.Lambda, ast.Module, ast.Test)


def _scopes(module: ast.Module) -> Iterator[tuple[ast.SyntaxNode, tuple[int, int]]]:
    """Every node that may declare a variable, with the offsets between which it is seen."""
    todo: list[tuple[Any, ast.SyntaxNode]] = [(module, module)]
    while todo:
        node, holder = todo.pop()
        if isinstance(node, ast.SyntaxNode):
            end = 1 << 60 if isinstance(holder, ast.Module) else holder.end
            if isinstance(node, (ast.ForIn, ast.Catch)):
                yield node, (node.body.at, node.end)
            else:
                yield node, (node.end if isinstance(node, _SEEN_AFTER) else node.at, end)
            inside = node if isinstance(node, _HOLDERS) else holder
            if isinstance(node, ast.Parallel):  # what it binds is seen after it
                for inner in node.body.statements:
                    yield inner, (node.end, end)
                    todo += [(getattr(inner, field), holder) for field in inner.__struct_fields__]
                continue
            todo += [(getattr(node, field), inside) for field in node.__struct_fields__]
        elif isinstance(node, (list, tuple)):
            todo += [(inner, holder) for inner in node]
        elif isinstance(node, dict):
            todo += [(inner, holder) for inner in node.values()]


# It runs on copies, as a function of the variables that it names; what needs an effect is refused.

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
            self._compile(tuple(sorted(self._words & names)))
        except ConfigError as error:
            others = (did_you_mean(word, sorted(names)) for word in sorted(self._words - names))
            near = next((name for name in others if name), None)
            hint = f"did you mean {near}?" if near else error.hint or "`vars` lists the variables in view"
            raise ConfigError(error.message, hint=hint) from None

    def value(self, fiber: Fiber, *, before: bool = False) -> Any:
        """Return the value of the expression where a fiber stands; ConfigError where it has none."""
        variables = self._variables_of(fiber.linked)
        view = variables.view(fiber, before=before)
        known = {name: view[name] for name in sorted(self._words & view.keys())}
        for name in sorted(self._words & variables.functions.keys() - known.keys()):
            known[name] = Closure(variables.functions[name])
        key = (fiber.linked.hash, *known)
        linked = self._linked.get(key)
        if linked is None:
            linked = self._linked[key] = self._link_with(fiber.linked, tuple(known))
        values, globals_ = copy_value([list(known.values()), fiber.globals])
        outcome = run(Fiber.call(linked, len(linked.functions) - 1, values, globals_), _FUEL)
        if type(outcome) is not Done:
            problem = "takes too long" if not hasattr(outcome, "kind") else f"needs an effect: {outcome.kind}"
            raise ConfigError(f"`{self.text}` {problem}", hint="only expressions that compute can be looked at")
        if outcome.error is not None:
            raise ConfigError(f"`{self.text}`: {outcome.error.name}: {outcome.error.text}")
        return outcome.value

    def _function(self, names: tuple[str, ...]) -> str:
        return f"fn {_LOOK}({', '.join(names)}) {{ return {self.text}\n; }}"

    def _compile(self, names: tuple[str, ...]) -> Program:
        from lyra.vega import compile as compile_source

        try:
            return compile_source(self._function(names), "<expression>")
        except SourceError as error:
            raise ConfigError(f"`{self.text}`: {error.message}", hint=error.hint) from None

    def _link_with(self, program: LinkedProgram, names: tuple[str, ...]) -> LinkedProgram:
        """Return the program's functions with those of the expression behind them; its own is the last."""
        piece = self._compile(names)
        linked = LinkedProgram(program.program, program.hash)
        offset = len(linked.functions)
        for index, function in enumerate(piece.functions):
            linked.functions.append(Code(offset + index, _move_code(function, offset)))
        mine = next(index for index, function in enumerate(piece.functions) if function.name == _LOOK)
        linked.functions.append(linked.functions[offset + mine])
        return linked


def _is_one(text: str) -> bool:
    """One function with one statement: nothing was smuggled in behind the expression."""
    statements = parse(text, "<expression>").statements
    return len(statements) == 1 and len(getattr(statements[0], "body").statements) == 1  # noqa: B009 - a Function


def _move_code(function: Function, offset: int) -> Function:
    code = []
    for op, *operands in function.code:
        row = OPCODES[op]
        kinds = (row.a, row.b, row.c)
        a, b, c = (value + offset if kind == "function" else value for kind, value in zip(kinds, operands, strict=True))
        code.append((op, a, b, c))
    function.code = code
    return function


# Stopping the machine at the next line: instructions that begin a line are replaced by one that hands out an effect.
# The first instruction of every line is `PAR_BEGIN` into no register, which changes nothing; the caller sees the
# effect, puts the fiber back by one instruction, and runs it on with that one trap lifted.

_TRAP: Final = (OP_PAR_BEGIN, -1, 0, 0)
_TRAP_FUEL: Final = 65_536


class Traps:
    """`with Traps(linked) as traps: traps.run(fiber)` until it gives None for a line, or what the fiber came to."""

    def __init__(self, *programs: LinkedProgram) -> None:
        self._places: dict[int, tuple[list[Any], dict[int, Any]]] = {}
        for code in (code for linked in programs for code in linked.functions):
            if code.function.is_hidden:
                continue
            starts: dict[int, Any] = {}
            last = 0
            for pc, instruction in enumerate(code.code):
                line, _ = code.function.place(pc)
                if line and line != last:
                    starts[pc] = instruction
                last = line or last
            self._places[id(code.code)] = (code.code, starts)

    def __enter__(self) -> Self:
        for code, starts in self._places.values():
            for pc in starts:
                code[pc] = _TRAP
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for code, starts in self._places.values():
            for pc, instruction in starts.items():
                code[pc] = instruction

    def run(self, fiber: Fiber, fuel: int, give_up: Callable[[], object] | None = None) -> VmEffect | Done | None:
        """On to the next line: None. An effect, or the end: that. One that needs more than `fuel` is given up."""
        code, pc = fiber.code.code, fiber.pc
        lifted = self._places[id(code)][1][pc] if code[pc] is _TRAP else None
        if lifted is not None:
            code[pc] = lifted
        try:
            while True:
                outcome = run(fiber, _TRAP_FUEL)
                if type(outcome) is VmEffect:
                    if outcome.kind == "parallel_begin" and fiber.code.code[fiber.pc - 1] is _TRAP:
                        fiber.pc -= 1
                        return None
                    if answer_quietly(fiber, outcome):
                        continue
                    return outcome
                if type(outcome) is Done:
                    return outcome
                fuel -= _TRAP_FUEL
                if fuel <= 0:
                    if give_up is not None:
                        give_up()
                    return None
        finally:
            if lifted is not None:
                code[pc] = _TRAP
