"""What the compiler found out about every call: with which others it overlaps, or why it does not.

Kept while a program is compiled, so a plan shows the code that runs and not an opinion about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lyra.vega import ast
from lyra.vega.plan.stretch import Site, Stretch
from lyra.vega.plan.summaries import Summaries
from lyra.vega.scopes import ModuleScope, Symbol

__all__ = ["Alone", "Notes", "Overlapping", "PlannedCall"]


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
        self._known: dict[int, Any] = {}  # id(node) → what was noted of it; alive as long as the trees are
        self._keep: list[Any] = []

    def stretch(self, stretch: Stretch, function: str) -> None:
        self._keep.append(stretch)
        together = stretch.overlaps
        for sites in together:
            calls = tuple(self._planned(site, stretch) for site in sites)
            self.groups.append(Overlapping(function, sites[0].level, calls))
        in_groups = {id(site) for sites in together for site in sites}
        for site in stretch.sites.values():
            if id(site) in in_groups:
                self._known[id(site.node)] = None
            elif self._known.get(id(site.node), "") is not None:
                self._known[id(site.node)] = (self._planned(site, stretch), self._why(site, stretch))

    def declared(self, calls: list[Any], module: ModuleScope, summaries: Summaries, function: str) -> None:
        """Calls that a `parallel` block starts together."""
        if len(calls) > 1:
            planned = tuple(_call(node, module, summaries) for node in calls)
            self.groups.append(Overlapping(function, 1, planned, is_declared=True))
            self._known.update((id(node), None) for node in calls)

    def finish(self, modules: Iterable[ModuleScope], summaries: Summaries) -> None:
        """Calls that no stretch has: those to ordered agents, and those in statements that are barriers themselves."""
        from lyra.vega.facts import every_node

        for module in modules:
            sends = (node for node in every_node([module.module]) if isinstance(node, ast.Send))
            for node in sends:
                if id(node) not in self._known:
                    why = "its answer comes in pieces" if node.is_stream else summaries.why_ordered(node, module)
                    why = why or "the statement it stands in is carried out in its turn"
                    self._known[id(node)] = (_call(node, module, summaries), why)
        self.alone = [Alone(*noted) for noted in self._known.values() if noted is not None]
        self.alone.sort(key=lambda each: (each.call.file, each.call.line, each.call.column))
        self.groups.sort(key=lambda each: (each.calls[0].file, each.calls[0].line, each.step))

    def _planned(self, site: Site, stretch: Stretch) -> PlannedCall:
        lines = {stretch.module.source.place(each.node.at)[0] for each in self._needed(site, stretch)}
        return _call(site.node, stretch.module, stretch.summaries, in_loop=site.in_loop, after=tuple(sorted(lines)))

    def _needed(self, site: Site, stretch: Stretch) -> list[Site]:
        return [each for each in stretch.sites.values() if each.number in site.needs]

    def _why(self, site: Site, stretch: Stretch) -> str:
        if site.why:
            return site.why
        needed = sorted({stretch.module.source.place(each.node.at)[0] for each in self._needed(site, stretch)})
        if needed:
            return f"it needs the answer of line {_lines(needed)}"
        if site.level > 1:
            return "it is computed from something that is not known ahead, or its receiver is still being asked"
        if len(stretch.sites) > 1:
            return "the calls after it need its answer"
        if stretch.barrier is not None:
            line = stretch.module.source.place(stretch.barrier.node.at)[0]
            return f"nothing is asked early across {stretch.barrier.why} on line {line}"
        return "no other call stands beside it"


def _call(node: ast.Send | ast.Call, module: ModuleScope, summaries: Summaries, **facts: Any) -> PlannedCall:
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
