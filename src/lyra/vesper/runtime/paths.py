"""The two paths behind one small interface, and a node executed once on one of them, without effects and evidence."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.errors import ConfigError, ContractViolation
from lyra.vesper.check.judge import program_of
from lyra.vesper.evidence.keys import TIER
from lyra.vesper.runtime.privacy import redact_outcome
from lyra.vesper.values.outcome import Execution, Outcome, build_refusal, new_execution
from lyra.vesper.values.plain import UnreadableInputs, to_plain_inputs

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node


class ExecutionPath(Protocol):
    """Runs programs. `run` is for pure ones; `start` gives an awaitable for those with effects."""

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome: ...

    def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Awaitable[Outcome]: ...


class PythonPath:
    def __init__(self) -> None:
        from lyra.vesper.python.run import run, start

        self.run = run
        self.start = start


class DirectPath:
    tier = TIER  # evidence for one tier says nothing about another

    def __init__(self) -> None:
        from lyra.vesper.direct.run import run, start

        self.run = run
        self.start = start


_MODULES: Final = {
    "python": "lyra.vesper.python.run",
    "direct": "lyra.vesper.direct.run",
    "reference": "lyra.vesper.reference.run",
}
_KEPT_MAX: Final = 256
_programs: Final[dict[str, NodeProgram]] = {}  # by the text of the node


def execute_once(node: Node, inputs: Mapping[str, Any], path: str) -> Outcome:
    program = _program(node)
    try:
        inputs = to_plain_inputs(inputs)
    except UnreadableInputs as error:
        return build_refusal("invalid_input", str(error), phase="input")
    outcome: Outcome = importlib.import_module(_MODULES[path]).run(program, inputs, new_execution())
    return outcome if outcome.error is None else redact_outcome(program, inputs, outcome)


def function_of(node: Node, path: str) -> Callable[..., dict[str, Any]]:
    if path not in ("python", "direct"):
        raise ConfigError(f"no path {path!r}", hint="python or direct", key="path")
    program = _program(node)
    names = [entry.name for entry in program.inputs]
    run = importlib.import_module(_MODULES[path]).run

    def call(*args: Any, **inputs: Any) -> dict[str, Any]:
        try:
            given = to_plain_inputs({**dict(zip(names, args, strict=False)), **inputs})
        except UnreadableInputs as error:
            raise ContractViolation(str(error), kind="invalid_input", expression="input", values={}) from None
        outcome: Outcome = run(program, given, new_execution())
        failure = outcome.error
        if failure is not None:
            failure = redact_outcome(program, given, outcome).error or failure
            raise ContractViolation(
                failure.message or failure.code, kind=failure.code, expression=failure.phase, values=failure.fields
            )
        return outcome.outputs

    call.__name__ = call.__qualname__ = program.node_id
    call.__doc__ = program.intent
    return call


def _program(node: Node) -> NodeProgram:
    text = node.document.text
    program = _programs.get(text)
    if program is None:
        if len(_programs) >= _KEPT_MAX:
            _programs.clear()
        program = _programs[text] = program_of(node)
    return program
