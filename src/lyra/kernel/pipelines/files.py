"""Pipelines declared in files: TOML, YAML or JSON, with the line and column of every mistake.

`check_file` gives all mistakes of a file, `load_file` the PipelineConfig or a SourceError. `declaration` interprets the
keys, `core.checking.document` reads a file as plain data with places. Runs nothing.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from lyra.core.checking.document import form_of, parse, place_of, text_of
from lyra.core.limits import PIPELINE_FILE_BYTES_MAX
from lyra.errors import CheckError, ConfigError, ParseError
from lyra.kernel.pipelines.check import problems
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.routing import NodeKind, RunMode
from lyra.kernel.pipelines.schema import edges


class Mistake(NamedTuple):
    """Something wrong in a file, and where."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None
    code: str  # parse: not the file's format; check: no valid pipeline; advice: valid, and probably not intended

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to_data(self) -> dict[str, Any]:
        return self._asdict()


def check_file(path: str | FilePath) -> list[Mistake]:
    """Every mistake of a file, in the order of its lines."""
    return check_text(read_text(path), file=str(path))


def advice_for(path: str | FilePath) -> list[Mistake]:
    """Advice for a file without mistakes, in the order of its lines: loops that only a bound of the pipeline stops."""
    file = str(path)
    data, places = parse(read_text(path), form_of(file, what="pipeline"), file)
    config = PipelineConfig.from_checked(data)
    key = "stages" if "stages" in data else "agents"
    index = {stage["name"]: number for number, stage in enumerate(data[key])}
    advice = [
        Mistake(
            file,
            *place_of((key, index[loop.stages[-1]]), places),
            f"the loop {loop} has no limit of its own; {loop.bound} = {loop.limit} stops the pipeline after about "
            f"{loop.rounds} rounds",
            f"give a stage of it max_visits, or say edge_limits from {loop.stages[-1]} to {loop.stages[0]}",
            "advice",
        )
        for loop in find_unlimited_loops(config)
    ]
    return sorted(advice, key=lambda mistake: (mistake.line, mistake.column))


def load_file(path: str | FilePath) -> PipelineConfig:
    """Return the pipeline of a file; its first mistake is raised, the others are the error's `also`."""
    text = read_text(path)
    mistakes = check_text(text, file=str(path))
    if not mistakes:
        return PipelineConfig.from_checked(parse(text, form_of(str(path), what="pipeline"), str(path))[0])
    first, *others = mistakes
    kind = ParseError if first.code == "parse" else CheckError
    raise kind(
        first.message,
        file=first.file,
        line=first.line,
        column=first.column,
        hint=first.hint,
        also=[f"{mistake.place}: {mistake.message}" for mistake in others],
    )


def read_text(path: str | FilePath) -> str:
    form_of(str(path), what="pipeline")
    file = FilePath(path)
    try:
        if file.exists() and not file.is_file():  # reading a pipe could block for ever
            raise ConfigError(f"{path} is not a file", key=str(path))
        with file.open("rb") as opened:
            data = opened.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key=str(path)) from None
    return text_of(data, str(path))


def check_text(text: str, *, file: str) -> list[Mistake]:
    try:
        data, places = parse(text, form_of(file, what="pipeline"), file)
    except ParseError as error:
        return [Mistake(file, error.line, error.column, error.message, error.hint, "parse")]
    mistakes = [
        Mistake(file, *place_of(problem.path, places), problem.message, problem.hint, "check")
        for problem in problems(data)
    ]
    return sorted(mistakes, key=lambda mistake: (mistake.line, mistake.column))


# ---------------------------------------------------------------- loops
# Loops of a pipeline that have no limit of their own, and the bound of the whole pipeline that would stop each.


class Loop(NamedTuple):
    """The stages of a loop in their order, and the bound of the pipeline that stops it, after so many rounds."""

    stages: tuple[str, ...]
    bound: str
    limit: int
    rounds: int

    def __str__(self) -> str:
        return " → ".join((*self.stages, self.stages[0]))


def find_unlimited_loops(config: PipelineConfig) -> list[Loop]:
    """One loop for each group of stages that lead to one another, in the order of its first stage."""
    if config.default_run_mode is RunMode.PARALLEL:
        return []  # parallel mode has requirements, not routes: each stage runs once
    ways = _find_unlimited_ways(config)
    loops, covered = [], set[str]()
    for name in config.places:
        if name not in covered:
            stages = _shortest_way_back(name, ways)
            if stages:
                covered |= _both_ways(name, ways)
                loops.append(_find_bound(config, stages))
    return loops


def _find_unlimited_ways(config: PipelineConfig) -> dict[str, list[str]]:
    """Return the targets that each stage leads to by edges without a limit."""
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
    """Return the stages that it leads to and that lead to it."""
    back: dict[str, list[str]] = {stage: [] for stage in ways}
    for source, targets in ways.items():
        for target in targets:
            back[target].append(source)
    return _find_reached(name, ways) & _find_reached(name, back)


def _find_reached(name: str, ways: dict[str, list[str]]) -> set[str]:
    seen, left = {name}, [name]
    while left:
        new = [target for target in ways[left.pop()] if target not in seen]
        seen.update(new)
        left += new
    return seen


def _find_bound(config: PipelineConfig, stages: tuple[str, ...]) -> Loop:
    """Return the loop with the bound that stops it first: hops or iterations; steps where it has only gates."""
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
