"""Loops of a pipeline that have no limit of their own, and the bound of the whole pipeline that would stop each.

A loop is limited where one of its stages has `max_visits` or one of its edges an `edge_limit`. Any other runs until a
bound of the pipeline is reached, which ends everything: allowed, and probably not intended. Reads only a checked
declaration.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.graph import edges
from lyra.kernel.pipelines.keys import NodeKind, RunMode


class Loop(NamedTuple):
    """The stages of a loop in their order, and the bound of the pipeline that stops it, after so many rounds."""

    stages: tuple[str, ...]
    bound: str
    limit: int
    rounds: int

    def __str__(self) -> str:
        return " → ".join((*self.stages, self.stages[0]))


def unlimited_loops(config: PipelineConfig) -> list[Loop]:
    """One loop for each group of stages that lead to one another, in the order of its first stage."""
    if config.default_run_mode is RunMode.PARALLEL:
        return []  # parallel mode has requirements, not routes: each stage runs once
    ways = _unlimited_ways(config)
    loops, covered = [], set[str]()
    for name in config.places:
        if name not in covered:
            stages = _shortest_way_back(name, ways)
            if stages:
                covered |= _both_ways(name, ways)
                loops.append(_bounded(config, stages))
    return loops


def _unlimited_ways(config: PipelineConfig) -> dict[str, list[str]]:
    """The targets that each stage leads to by edges without a limit."""
    ways: dict[str, list[str]] = {stage.name: [] for stage in config.agents if stage.max_visits is None}
    for edge in edges(config):
        limited = (edge.source, edge.target) in config.most_taken
        if edge.source in ways and edge.target in ways and not limited:
            ways[edge.source].append(edge.target)
    return ways


def _shortest_way_back(name: str, ways: dict[str, list[str]]) -> tuple[str, ...]:
    came_from: dict[str, str] = {}
    queue = deque([name] if name in ways else [])
    while queue:
        here = queue.popleft()
        for target in ways[here]:
            if target == name:
                way = [here]
                while way[-1] != name:
                    way.append(came_from[way[-1]])
                return tuple(reversed(way))
            if target not in came_from:
                came_from[target] = here
                queue.append(target)
    return ()


def _both_ways(name: str, ways: dict[str, list[str]]) -> set[str]:
    """The stages that it leads to and that lead to it."""
    back: dict[str, list[str]] = {stage: [] for stage in ways}
    for source, targets in ways.items():
        for target in targets:
            back[target].append(source)
    return _reached(name, ways) & _reached(name, back)


def _reached(name: str, ways: dict[str, list[str]]) -> set[str]:
    seen, left = {name}, [name]
    while left:
        new = [target for target in ways[left.pop()] if target not in seen]
        seen.update(new)
        left += new
    return seen


def _bounded(config: PipelineConfig, stages: tuple[str, ...]) -> Loop:
    """The loop with the bound that stops it first: hops or iterations; steps where it has only gates."""
    places = config.places
    hops = sum(config.by_name[name].node_kind is NodeKind.AGENT for name in stages)
    if not hops:
        return Loop(stages, "step_limit", config.step_limit, config.step_limit // len(stages))
    following = (*stages[1:], stages[0])
    turns = sum(places[target] < places[name] for name, target in zip(stages, following, strict=True))
    stops = [("max_agent_hops", config.max_agent_hops, config.max_agent_hops // hops)]
    if turns:
        stops.append(("max_iterations", config.max_iterations, config.max_iterations // turns))
    return Loop(stages, *min(stops, key=lambda stop: stop[2]))
