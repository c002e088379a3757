"""What changed between two programs, by the names of their parts, and which part a line belongs to.

Whether a run may continue with the newer one is another question: `migration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec

from lyra.errors import SourceError
from lyra.vega.bytecode.program import Program
from lyra.vega.syntax.ast import Declaration


class SourceChange(NamedTuple):
    """`what` is added, removed or changed; `line` is in the newer program, of what was removed in the older one."""

    what: str
    kind: str
    name: str
    file: str
    line: int

    @property
    def part(self) -> tuple[str, str]:
        return self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name} was {self.what} ({self.file}:{self.line})"


def is_same_code(old: Program, new: Program) -> bool:
    """Return whether nothing that happens can differ: all but places and names of files is equal."""
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
def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[SourceChange]:
    """Return the declarations that differ, in the order of the newer sources; of texts by the names of their files."""
    listed: list[SourceChange] = []
    before, after = _parts(_under_new_names(old, new)), _parts(new)
    for key, (text, file, line) in after.items():
        if key not in before:
            listed.append(SourceChange("added", *key, file, line))
        elif before[key][0] != text:
            listed.append(SourceChange("changed", *key, file, line))
    listed += [SourceChange("removed", *key, file, line) for key, (_, file, line) in before.items() if key not in after]
    return listed


def lines_changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the lines that differ, as `diff` shows them, file by file."""
    lines: list[str] = []
    before = _under_new_names(old, new)
    for file in dict.fromkeys((*new, *before)):
        was, is_now = before.get(file, "").splitlines(), new.get(file, "").splitlines()
        lines += unified_diff(was, is_now, f"{file} of the run", file, n=1, lineterm="")
    return lines


def _under_new_names(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Give a file its new name where one file is gone and one has come."""
    gone, come = [file for file in old if file not in new], [file for file in new if file not in old]
    name = {gone[0]: come[0]} if len(gone) == len(come) == 1 else {}
    return {name.get(file, file): text for file, text in old.items()}


def _parts(sources: Mapping[str, str]) -> dict[tuple[str, str], tuple[Any, str, int]]:
    """Return the meaning of each declaration and of what stands between them, by kind and name, with its place."""
    from lyra.vega.syntax.parser import parse
    from lyra.vega.syntax.source import Source

    parts: dict[tuple[str, str], tuple[Any, str, int]] = {}
    for file, text in sources.items():
        try:
            statements = parse(text, file).statements
        except SourceError:
            parts["file", file] = (text, file, 1)
            continue
        source = Source(file, text)
        loose: list[Any] = []
        first = 0
        for statement in statements:
            line, _ = source.place(statement.at)
            if isinstance(statement, Declaration):
                parts[_part(statement)] = (_shape(statement), file, line)
            else:
                loose.append(_shape(statement))
                first = first or line
        if loose:
            parts["top level", f"of {file}"] = (loose, file, first)
    return parts


_KINDS = {"Function": "fn"}


class Owners:
    """Which declaration each line of the sources belongs to; between them it is the top level."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        from lyra.vega.syntax.parser import parse
        from lyra.vega.syntax.source import Source

        self._spans: dict[str, list[tuple[int, int, tuple[str, str]]]] = {}
        for file, text in sources.items():
            try:
                statements = parse(text, file).statements
            except SourceError:
                continue
            source = Source(file, text)
            self._spans[file] = [
                (source.place(statement.at)[0], source.place(max(statement.end - 1, statement.at))[0], _part(statement))
                for statement in statements
                if isinstance(statement, Declaration)
            ]

    def declaration_of(self, program: Program, index: int) -> tuple[str, str]:
        """Return the declaration that a function was made of, by kind and name."""
        function = program.functions[index]
        file = program.files[function.file] if function.file < len(program.files) else ""
        lines = {line for pc in range(len(function.places)) if (line := function.place(pc)[0])}
        spans, outside = self._spans.get(file, []), ("top level", f"of {file}")
        owners = {next((part for first, last, part in spans if first <= line <= last), outside) for line in lines}
        return owners.pop() if len(owners) == 1 else ("top level", f"of {file}")


def _part(statement: Any) -> tuple[str, str]:
    kind = _KINDS.get(type(statement).__name__, type(statement).__name__.lower())
    return kind, str(getattr(statement, "name", ""))


def _shape(node: Any) -> Any:
    """Return a part of the tree without its places."""
    if isinstance(node, msgspec.Struct):
        fields = [_shape(getattr(node, name)) for name in node.__struct_fields__ if name not in ("at", "end")]
        return (type(node).__name__, *fields)
    if isinstance(node, (list, tuple)):
        return [_shape(part) for part in node]
    if isinstance(node, dict):
        return {key: _shape(part) for key, part in node.items()}
    return node
