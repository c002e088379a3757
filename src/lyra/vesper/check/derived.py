"""Which names of a node hold sensitive values: those that are declared, and those that steps compute from them.

A value flows by expressions, requests of acts and the elements of loops; which steps run is no flow. What is written
for people hides these names whatever their value, since a computed value is not recognised by comparing. An output that
is declared `sensitive: false` is shown, and ends the flow. How values themselves are hidden: `values.redaction`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from lyra.vesper.check.steps import names_in, parts_of
from lyra.vesper.ir import (
    AssignStep,
    Constant,
    EffectStep,
    ErrorAnswer,
    FieldOf,
    ForEachStep,
    ListOf,
    MapOf,
    NodeProgram,
    NodeVariable,
    ReturnStep,
    TemplateText,
    TransitionStep,
)

if TYPE_CHECKING:
    from lyra.vesper.values.outcome import NodeFailure


def sensitive_inputs(program: NodeProgram, hidden: Collection[str] = ()) -> frozenset[str]:
    """Return the names of sensitive inputs; `hidden` are those that a caller declares."""
    return frozenset(entry.name for entry in program.inputs if entry.sensitive) | frozenset(hidden)


def find_hidden_names(program: NodeProgram, hidden: Collection[str] = ()) -> frozenset[str]:
    """Return the variables and fields that are hidden whatever their value: what is declared sensitive, and what steps
    compute from a sensitive input, what acts answer to a request with one included."""
    outputs = (*program.success, *program.error)
    names = {*sensitive_inputs(program, hidden), *(entry.name for entry in outputs if entry.sensitive)}
    public = {entry.name for entry in outputs if entry.public} - names
    writes = list(_writes((program.steps, program.rules))) if names else []
    count = -1
    while count != len(names):
        count = len(names)
        names |= {target for target, sources in writes if sources & names} - public
    return frozenset(names - {""})


def _writes(steps: tuple[Any, ...]) -> Iterator[tuple[str, set[str]]]:
    """Yield each name that steps write, with the names that its value is computed from."""
    for part in parts_of(steps):
        match part:
            case AssignStep():
                yield part.target, names_in(part.value)
            case ForEachStep():
                yield part.variable, names_in(part.collection)
            case TransitionStep():
                yield part.output, names_in(part.target)
            case ReturnStep(success=fields) if fields is not None:
                yield from ((name, names_in(value)) for name, value in fields)
            case EffectStep():
                asked = names_in(part.request)
                yield part.output, asked
                yield from ((name, asked | names_in(value)) for name, value in part.extract)


def list_hidden_parameters(program: NodeProgram, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the parts of requests that are computed from hidden values, by name, of each step that has some."""
    acts = [part for part in parts_of(program.steps) if isinstance(part, EffectStep)] if names else []
    parameters_by_step = {
        act.name: frozenset(
            name
            for part in parts_of(act.request)
            if isinstance(part, MapOf)
            for name, value in part.entries
            if _is_derived(program, value, names)
        )
        for act in acts
    }
    return {step: parameters for step, parameters in parameters_by_step.items() if parameters}


def _is_derived(program: NodeProgram, value: Any, names: Collection[str]) -> bool:
    """Return whether a value is computed from a hidden one. An input that is taken as it is, or a field of one, also
    into a text, is not: it is recognised by its value. Of maps, each entry is asked about."""
    while isinstance(value, FieldOf):
        value = value.target
    match value:
        case str() | MapOf():
            return False
        case TemplateText(parts=several) | ListOf(items=several):
            return any(_is_derived(program, part, names) for part in several)
        case NodeVariable(name=name) if any(entry.name == name for entry in program.inputs):
            return any(target == name for target, _ in _writes((program.steps, program.rules)))
    return bool(names_in(value) & set(names))


def find_derived_fields(program: NodeProgram, names: Collection[str], failure: NodeFailure) -> set[str]:
    """Return the fields of an error that are computed from a hidden value."""
    answers = (part for part in parts_of((program.steps, program.rules)) if isinstance(part, ErrorAnswer))
    fields = {
        name
        for answer in answers
        if not isinstance(answer.code, Constant) or answer.code.value == failure.code
        for name, value in answer.fields
        if _is_derived(program, value, names)
    }
    return fields - {entry.name for entry in program.error if entry.public}
