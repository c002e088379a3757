"""Which variables a place of a program sees, and what they hold.

Compiled code knows registers, not names. A run keeps its sources, so the names are found by compiling them once more:
the compiler says which register it gave each variable, the tree says from where to where the variable is seen. Where
the sources are not there, or do not give the same code, only parameters and globals have names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lyra.errors import LyraError
from lyra.vega.bytecode.file import content_hash
from lyra.vega.bytecode.program import Program
from lyra.vega.bytecode.renumber import fitted, numbers
from lyra.vega.compiler.compiler import Linker
from lyra.vega.machine.fiber import Fiber
from lyra.vega.plan.names import ModuleScope, Variable
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import UNSET, Cell

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
        self.functions = _functions_by_name(program)
        if sources:
            self._find(dict(sources))

    def _find(self, sources: dict[str, str]) -> None:
        from lyra.vega.syntax.parser import parse

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
        if content_hash(fitted(self._program, compiled)) != content_hash(self._program):
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
        """The variables that a call in progress sees, innermost call first; the last of one name hides the others. With
        `before` the fiber has stopped before an instruction, and not at an effect."""
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
        """The calls that a fiber is in at an effect, the innermost first."""
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
    """The names of the globals; "" for those that are not the program's own."""
    return ["" if name.endswith(_HAS_RUN) else name for name in program.globals]


def _functions_by_name(program: Program) -> dict[str, int]:
    return {
        function.name: index
        for index, function in enumerate(program.functions)
        if function.name.isidentifier() and not function.is_hidden
    }


def _frame(fiber: Fiber, level: int) -> tuple[Any, int, list[Any]] | None:
    """A call in progress, those of the library left out."""
    frames = [(fiber.code, fiber.pc, fiber.registers)]
    below = fiber.stack
    while below is not None and len(frames) < 64 + level:
        below, code, pc, registers, _ = below
        frames.append((code, pc, registers))
    own = [frame for frame in frames if not frame[0].function.is_hidden]
    return own[level] if level < len(own) else None


# ---------------------------------------------------------------- from where to where
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
