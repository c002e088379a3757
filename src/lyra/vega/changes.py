"""What changed between two programs, by the names of their parts, and whether a run may go on with the newer one.

A run replays: every answer that it has is the answer to a request of its very program. Another program may ask for
something else, or make something else of the same answer, and nobody could say what its output means. So a run goes on
only with code that is the same, instruction by instruction; comments, layout and the names of files may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lyra.errors import ConfigError, SourceError
from lyra.vega.ast import Declaration
from lyra.vega.program import Program

if TYPE_CHECKING:
    from lyra.vega.runs import Run

__all__ = ["Change", "changes", "is_same_code", "refuse_changed"]

_SHOWN_MAX = 12


class Change(NamedTuple):
    """`what` is added, removed or changed; `line` is in the newer program, of what was removed in the older one."""

    what: str
    kind: str
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name} was {self.what} ({self.file}:{self.line})"


def is_same_code(old: Program, new: Program) -> bool:
    """Whether nothing that happens can differ: all but places and names of files is equal."""
    return _bare(old) == _bare(new)


def _bare(program: Program) -> bytes:
    plain = msgspec.to_builtins(program, builtin_types=(bytes,), enc_hook=repr)
    plain.update(name="", files=[])
    for function in plain["functions"]:
        function["places"] = []
    for agent in plain["agents"].values():
        agent.update(line=0, column=0)
    return msgspec.msgpack.encode(plain)


# ---------------------------------------------------------------- by name
def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """The declarations that differ, in the order of the newer sources; of texts by the names of their files."""
    found: list[Change] = []
    before, after = _parts(old), _parts(new)
    for key, (text, file, line) in after.items():
        if key not in before:
            found.append(Change("added", *key, file, line))
        elif before[key][0] != text:
            found.append(Change("changed", *key, file, line))
    found += [Change("removed", *key, file, line) for key, (_, file, line) in before.items() if key not in after]
    return found


def _parts(sources: Mapping[str, str]) -> dict[tuple[str, str], tuple[Any, str, int]]:
    """The meaning of each declaration and of what stands between them, by kind and name, with its place."""
    from lyra.vega.parser import parse
    from lyra.vega.source import Source

    found: dict[tuple[str, str], tuple[Any, str, int]] = {}
    for file, text in sources.items():
        try:
            statements = parse(text, file).statements
        except SourceError:
            found["file", file] = (text, file, 1)
            continue
        source = Source(file, text)
        loose: list[Any] = []
        first = 0
        for statement in statements:
            line, _ = source.place(statement.at)
            if isinstance(statement, Declaration):
                kind = _KINDS.get(type(statement).__name__, type(statement).__name__.lower())
                found[kind, str(getattr(statement, "name", ""))] = (_shape(statement), file, line)
            else:
                loose.append(_shape(statement))
                first = first or line
        if loose:
            found["top level", f"of {file}"] = (loose, file, first)
    return found


_KINDS = {"Function": "fn"}


def _shape(node: Any) -> Any:
    """A part of the tree without its places."""
    if isinstance(node, msgspec.Struct):
        fields = [_shape(getattr(node, name)) for name in node.__struct_fields__ if name not in ("at", "end")]
        return (type(node).__name__, *fields)
    if isinstance(node, (list, tuple)):
        return [_shape(part) for part in node]
    if isinstance(node, dict):
        return {key: _shape(part) for key, part in node.items()}
    return node


def refuse_changed(run: Run, program: Program, sources: Mapping[str, str]) -> None:
    """ConfigError with what changed, unless the run may go on with that program."""
    from lyra.vega.bytecode import content_hash

    if content_hash(program) == run.hash or is_same_code(run.program(), program):
        return
    listed = changes(run.sources(), sources) if sources and run.sources() else []
    shown = "\n".join(f"  {change}" for change in listed[:_SHOWN_MAX]) or "  its instructions differ"
    if len(listed) > _SHOWN_MAX:
        shown += f"\n  … and {len(listed) - _SHOWN_MAX} more"
    raise ConfigError(
        f"the program changed since run {run.id} began, and what it did may not fit any more:\n{shown}",
        hint=f"go on with the program it was begun with: vega resume {run.id}; or begin a new run",
        run=run.id,
    )
