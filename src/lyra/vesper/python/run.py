"""Runs programs on the Python path: generated code, compiled once for each program.

`compile_program` gives the compiled function; `run` and `start` call it and give an Outcome. Only syntax trees that the
generator built are compiled, never a text from outside. Neither `run` nor `start` raises for bad inputs. The generator
writes a comment before each step; in a tree that is watched by a debugger, a call takes its place and hands over the
name of the step and the local variables. Watching costs nothing where it is off.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from itertools import count, takewhile
from types import ModuleType
from typing import Any, Final

from lyra.vesper.effects.compiled_path import CompiledPath
from lyra.vesper.effects.request import Effects
from lyra.vesper.ir import NodeProgram, Step
from lyra.vesper.python.generate import Generated, generate
from lyra.vesper.python.kinds import parts
from lyra.vesper.python.layout import SourceComment
from lyra.vesper.python.running import NodeRun
from lyra.vesper.python.syntax import call
from lyra.vesper.python.syntax import name as name_of
from lyra.vesper.values.outcome import Execution, NodeError, NodeFailure, Outcome

PATH: Final = "python"
_module_numbers: Final = count()


class PythonProgram:
    """The compiled function of a node, and what its call needs."""

    __slots__ = ("_known", "_names", "_needs_run", "_required", "function", "generated", "program")

    def __init__(self, program: NodeProgram, watch: PythonWatch | None = None) -> None:
        self.program = program
        self.generated: Generated = generate(program, is_watched=watch is not None)
        if watch is not None:
            # Insert a call of the watch before each step of generated code.
            tree = self.generated.tree
            names = {" ".join(part.name.split()): part.name for part in parts(program) if isinstance(part, Step)}
            _Watcher(names).visit(tree)
            ast.fix_missing_locations(tree)
        self.function: Callable[..., Any] = _load(program, self.generated, watch)
        self._known = self.generated.parameters
        self._required = tuple(item.name for item in program.inputs if item.required)
        keeps_names = all(name == word for name, word in self._known.items())
        self._names = frozenset(self._known) if keeps_names else None  # None: they need other names in Python
        self._needs_run = self.generated.needs_run

    def execute(self, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        """Return the outcome of a pure program."""
        state = NodeRun(execution) if self._needs_run else None
        try:
            words = self._arguments(inputs)
            if state is not None:
                return Outcome("success", self.function(**words, run=state), None, PATH, tuple(state.unverifiable))
            return Outcome("success", self.function(**words), None, PATH)
        except NodeError as error:
            return _build_failure(error, state)
        except (RecursionError, MemoryError):
            return _too_large(state)

    async def execute_async(self, inputs: Mapping[str, Any], execution: Execution, effects: Effects | None) -> Outcome:
        """Return the outcome of a program with effects."""
        state = NodeRun(execution, effects)
        try:
            outputs = await self.function(effects, **self._arguments(inputs), run=state)
        except NodeError as error:
            return _build_failure(error, state)
        except (RecursionError, MemoryError):
            return _too_large(state)
        return Outcome("success", outputs, None, PATH, tuple(state.unverifiable))

    def _arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs under their Python names."""
        if type(inputs) is dict and inputs.keys() == self._names:
            return inputs
        if not isinstance(inputs, Mapping):
            raise _invalid("inputs are a map of names")
        known = self._known
        words = {}
        for name, value in inputs.items():
            if name not in known:
                raise _invalid(f"there is no input {name!r}")
            words[known[name]] = value
        for name in self._required:
            if name not in inputs:
                raise _invalid(f"the input {name!r} is missing")
        return words


def _load(program: NodeProgram, generated: Generated, watch: PythonWatch | None) -> Callable[..., Any]:
    """Return the function of a generated tree."""
    code = compile(generated.tree, f"<vesper {program.node_id}>", "exec")
    module = ModuleType(f"vesper_{generated.function}_{next(_module_numbers)}")
    space = vars(module)
    if watch is not None:
        space[WATCH_NAME] = watch
    sys.modules[module.__name__] = module  # dataclasses look for the module of their annotations
    try:
        exec(code, space)  # noqa: S102 - a tree that the generator built, not a text
    finally:
        del sys.modules[module.__name__]
    function: Callable[..., Any] = space[generated.function]
    return function


def _invalid(message: str) -> NodeError:
    return NodeError("invalid_input", message, phase="input")


def _build_failure(error: NodeError, state: NodeRun | None) -> Outcome:
    failure = NodeFailure(error.code, error.message, error.phase, error.fields)
    return Outcome("error", {}, failure, PATH, tuple(state.unverifiable) if state is not None else ())


def _too_large(state: NodeRun | None) -> Outcome:
    return _build_failure(NodeError("resource_limit", "a value is nested too deeply or too large"), state)


WATCH_NAME: Final = "_watch_step"
PythonWatch = Callable[[str, dict[str, Any]], None]  # the name of a step, and the local variables


def find_step_lines(tree: ast.Module) -> dict[str, str]:
    """Return the line of code of each step: the line that requests its effect, else the first line after the call of
    the watch. A step without a line of its own, such as `parallel`, is left out."""
    lines: dict[str, str] = {}
    for block in (getattr(node, part, None) for node in ast.walk(tree) for part in ("body", "orelse", "finalbody")):
        statements = block if isinstance(block, list) else []
        for index, before in enumerate(statements):
            step = _step_of_watch(before)
            if step is None:
                continue
            own = list(takewhile(lambda statement: _step_of_watch(statement) is None, statements[index + 1 :]))
            own = [
                part
                for statement in own
                for part in (statement.body if isinstance(statement, ast.Try) else [statement])
            ]
            acts = (part for part in own if any(isinstance(inner, ast.Await) for inner in ast.walk(part)))
            code = next(acts, own[0] if own else None)
            if code is not None:
                lines[step] = ast.unparse(code).partition("\n")[0]
    return lines


def _step_of_watch(statement: ast.stmt) -> str | None:
    """Return the step before which this statement calls the watch; None for any other statement."""
    match statement:
        case ast.Expr(ast.Call(ast.Name(id=word), [ast.Constant(str(step)), *_])) if word == WATCH_NAME:
            return step
    return None


class _Watcher(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_SourceComment(self, node: SourceComment) -> ast.stmt:
        step = self._names.get(node.text)
        if step is None:
            return node
        return ast.Expr(call(name_of(WATCH_NAME), ast.Constant(step), call(name_of("locals"))))


_path: Final = CompiledPath(PythonProgram)
compile_program, run, start = _path.compile, _path.run, _path.start
