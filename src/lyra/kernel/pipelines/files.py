"""Pipelines declared in files: TOML, YAML or JSON, with the line and column of every mistake.

`check_file` gives all mistakes of a file, `load_file` the PipelineConfig or a SourceError. `declaration` interprets the
keys, `core.checking.document` reads a file as plain data with places. Runs nothing.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any, NamedTuple

from lyra.core.checking.document import form_of, parse, place_of, text_of
from lyra.core.limits import PIPELINE_FILE_BYTES_MAX
from lyra.errors import CheckError, ConfigError, ParseError
from lyra.kernel.pipelines.check import problems
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.loops import unlimited_loops

__all__ = ["Mistake", "advice_for", "check_file", "check_text", "load_file"]


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
        for loop in unlimited_loops(config)
    ]
    return sorted(advice, key=lambda mistake: (mistake.line, mistake.column))


def load_file(path: str | FilePath) -> PipelineConfig:
    """The pipeline of a file; its first mistake is raised, the others are the error's `also`."""
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
