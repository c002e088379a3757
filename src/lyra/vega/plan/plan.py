"""The plan of a program: which calls overlap, and why the others do not. `compiler.compiler.plan_of` makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lyra.vega.plan.names import ModuleScope, Symbol
from lyra.vega.plan.straight_line import ALLOWED, Site, Stretch, says
from lyra.vega.plan.summaries import EFFECTS, Summaries
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children

# ---------------- What the compiler found out about every call: with which others it overlaps, or why it does not
# Kept while a program is compiled, so a plan shows the code that runs and not an opinion about it.

_Key = tuple[str, int, int]  # file, and where a call begins and ends


class PlannedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place in the source that makes a call."""

    file: str
    line: int
    column: int
    text: str
    agent: str = ""
    in_loop: bool = False
    after: tuple[int, ...] = ()  # the lines whose answers its question needs
    unless: str = ""  # when it is made in its turn all the same, where only the run can tell


class Overlapping(msgspec.Struct, frozen=True):
    """Calls that are under way at the same time. `step` is 1 where they need no answer of their stretch."""

    function: str
    step: int
    calls: tuple[PlannedCall, ...]
    is_declared: bool = False  # by `parallel`


class Alone(msgspec.Struct, frozen=True):
    """A call that is made in its turn, and why."""

    call: PlannedCall
    why: str


class Notes:
    def __init__(self) -> None:
        self.groups: list[Overlapping] = []
        self.alone: list[Alone] = []
        self._known: dict[_Key, Any] = {}  # what was noted of a call
        self._keep: list[Any] = []

    def stretch(self, stretch: Stretch, function: str) -> None:
        self._keep.append(stretch)
        together = stretch.overlaps
        for sites in together:
            calls = tuple(self._describe_site(site, stretch) for site in sites)
            self.groups.append(Overlapping(function, sites[0].level, calls))
        in_groups = {id(site) for sites in together for site in sites}
        for site in stretch.sites.values():
            key = _key(site.node, stretch.module)
            if id(site) in in_groups:
                self._known[key] = None
            elif key not in self._known:  # a loop that does not overlap is looked into once more, and knows less
                self._known[key] = (self._describe_site(site, stretch), self._why(site, stretch))

    def add_parallel_block(self, calls: list[Any], module: ModuleScope, summaries: Summaries, function: str) -> None:
        """Calls that a `parallel` block starts together."""
        if len(calls) > 1:
            planned = tuple(_describe_call(node, module, summaries) for node in calls)
            self.groups.append(Overlapping(function, 1, planned, is_declared=True))
            self._known.update((_key(node, module), None) for node in calls)

    def finish(self, modules: Iterable[ModuleScope], summaries: Summaries) -> None:
        """Calls that no stretch has: those to ordered agents, and those in statements that are barriers themselves."""
        for module in modules:
            for statement, node in _asking(module, summaries):
                if _key(node, module) not in self._known:
                    why = _why_left(statement, node, module, summaries)
                    self._known[_key(node, module)] = (_describe_call(node, module, summaries), why)
        self.alone = [Alone(*noted) for noted in self._known.values() if noted is not None]
        self.alone.sort(key=lambda note: (note.call.file, note.call.line, note.call.column))
        self.groups.sort(key=lambda group: (group.calls[0].file, group.calls[0].line, group.step))

    def _describe_site(self, site: Site, stretch: Stretch) -> PlannedCall:
        lines = {stretch.module.source.place(needed.node.at)[0] for needed in self._find_needed(site, stretch)}
        return _describe_call(
            site.node, stretch.module, stretch.summaries, in_loop=site.in_loop, after=tuple(sorted(lines))
        )

    def _find_needed(self, site: Site, stretch: Stretch) -> list[Site]:
        return [other for other in stretch.sites.values() if other.number in site.needs]

    def _why(self, site: Site, stretch: Stretch) -> str:
        if site.why:
            return site.why
        needed = self._find_needed(site, stretch)
        if site.in_loop and site in needed:
            return "each turn of the loop needs the answer of the one before"
        if needed:
            lines = sorted({stretch.module.source.place(other.node.at)[0] for other in needed})
            return f"it needs the answer of line {_lines(lines)}"
        if site.level > 1:
            return site.because or "what it asks is not known ahead"
        others = [other for other in stretch.sites.values() if other is not site]
        if any(site.number in other.needs for other in others):
            return "the calls after it need its answer"
        if others:
            line = stretch.module.source.place(others[0].node.at)[0]
            return f"the call beside it on line {line} is made in its turn"
        if stretch.barrier is not None:
            line = stretch.module.source.place(stretch.barrier.node.at)[0]
            why = f"nothing is asked early across {stretch.barrier.why} on line {line}"
            return f"{why}: {stretch.barrier.because}" if stretch.barrier.because else why
        return "no other call stands beside it"


def _key(node: ast.SyntaxNode, module: ModuleScope) -> _Key:
    """Return a call by its place: some are made anew while a program is compiled."""
    return module.source.name, node.at, node.end


# ---------------------------------------------------------------- calls that no stretch has


def _asking(module: ModuleScope, summaries: Summaries) -> Iterator[tuple[Any, Any]]:
    """Every call in a file, with the innermost statement or function value around it."""
    todo: list[tuple[Any, Any]] = [(module.module, module.module)]
    while todo:
        around, node = todo.pop()
        if isinstance(node, (ast.Statement, ast.Lambda)):
            around = node
        if isinstance(node, ast.Send) or _find_asking_function(node, module, summaries):
            yield around, node
        todo.extend((around, part) for part in children(node))


def _find_asking_function(node: Any, module: ModuleScope, summaries: Summaries) -> Symbol | None:
    """Return the function that asks and that a call calls, itself or by way of a library function."""
    if not isinstance(node, (ast.Call, ast.MethodCall)):
        return None
    values = [argument.value for argument in node.arguments]
    if isinstance(node, ast.Call):
        values.insert(0, node.callee)
    for value in values:
        meaning = module.meanings.get(id(value)) if isinstance(value, (ast.Name, ast.Path)) else None
        if not isinstance(meaning, Symbol) or meaning.kind not in ("function", "tool"):
            continue
        if "asks" in summaries.function(meaning).effects:
            return meaning
    return None


def _why_left(around: Any, node: Any, module: ModuleScope, summaries: Summaries) -> str:
    if isinstance(node, ast.Send):
        why = "its answer comes in pieces" if node.is_stream else summaries.why_ordered(node, module)
        if why:
            return why
    function = _find_asking_function(node, module, summaries)
    if function is not None:
        if module.meanings.get(id(getattr(node, "callee", None))) is not function:
            return f"it calls `{function.name}` for one item after the other"
        more = sorted(summaries.function(function).effects - {"asks"})
        if more:
            return f"`{function.name}` does more than ask: {EFFECTS[more[0]]}"
    if isinstance(around, ast.Lambda):
        return "it stands in a function that is only known when it runs"
    for effect_site in summaries.effects(around, module):
        if effect_site.effect not in ALLOWED and effect_site.node is not around:
            line = module.source.place(effect_site.node.at)[0]
            return f"nothing is asked early across {says(effect_site)} on line {line}, which is in the same statement"
    return "the statement it stands in is carried out in its turn"


def _describe_call(node: ast.Send | ast.Call, module: ModuleScope, summaries: Summaries, **facts: Any) -> PlannedCall:
    line, column = module.source.place(node.at)
    text = " ".join(module.source.text[node.at : node.end].split())
    if isinstance(node, ast.Send):
        agents = summaries.targets.agents(node.target, module) or ()
        agent = ", ".join(sorted(symbol.name for symbol in agents))
    else:
        meaning = module.meanings.get(id(node.callee))
        agent = f"fn {meaning.name}" if isinstance(meaning, Symbol) else ""
    return PlannedCall(module.source.name, line, column, text if len(text) <= 60 else text[:59] + "…", agent, **facts)


def _lines(lines: list[int]) -> str:
    if len(lines) == 1:
        return str(lines[0])
    return f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}"


class OverlapPlan(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[Overlapping, ...]
    alone: tuple[Alone, ...]

    @property
    def calls(self) -> list[PlannedCall]:
        """Every call, in the order of the source."""
        calls = [call for group in self.groups for call in group.calls] + [row.call for row in self.alone]
        return sorted(calls, key=lambda call: (call.file, call.line, call.column))

    def to_data(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "groups": [
                {
                    "function": group.function,
                    "step": group.step,
                    "declared": group.is_declared,
                    "calls": [_call(call) for call in group.calls],
                }
                for group in self.groups
            ],
            "alone": [{**_call(row.call), "why": row.why} for row in self.alone],
        }


def _call(call: PlannedCall) -> dict[str, Any]:
    return {
        "line": call.line,
        "column": call.column,
        "file": call.file,
        "text": call.text,
        "agent": call.agent,
        "in_loop": call.in_loop,
        "after": list(call.after),
        **({"unless": call.unless} if call.unless else {}),
    }
