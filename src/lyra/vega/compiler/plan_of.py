"""The plan of a source: it is compiled, and the compiler notes which calls overlap."""

from __future__ import annotations

from collections.abc import Collection

from lyra.vega.checker.checker import Load, checked
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.plan.notes import Notes
from lyra.vega.plan.plan import OverlapPlan
from lyra.vega.syntax.source import Source


def plan_of(
    text: str, name: str = "<vega>", *, load: Load | None = None, host_names: Collection[str] = ()
) -> OverlapPlan:
    """The plan of a source; ParseError or CheckError with all mistakes in `fields["problems"]`."""
    notes = Notes()
    module = checked(text, name, load=load, host_names=host_names)
    compile_module(module, Source(name, text), load=load, host_names=host_names, notes=notes)
    return OverlapPlan(name, tuple(notes.groups), tuple(notes.alone))
