"""build/surface.md: every entry with its test, and how many have none.

`shown.toml` names tests that were seen to fail with the entry switched off (`trials`). `claims.toml` names tests of
entries without a switch; they were read. A class is shown by what shows one of its members or parameters, and the class
of an error by what shows its code.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from verify.surface.entries import KINDS, Entry, entries, tapped_callables
from verify.surface.evidence import ROOT, exists, fault
from verify.surface.taps import PIPELINE_STRUCTS
from verify.surface.trials import shown

__all__ = ["PAGE", "Surface", "read", "text", "write"]

PAGE: Final = ROOT / "build" / "surface.md"  # too long for the users' reference; not kept
_CLAIMS: Final = Path(__file__).parent / "claims.toml"
_TITLES: Final = {
    "config": "Configuration keys",
    "provider": "Columns of providers",
    "price": "Columns of prices",
    "limit": "Columns of limits",
    "mcp": "Columns of MCP servers",
    "diagnostic": "Columns of diagnostics",
    "variable": "Environment variables",
    "command": "Commands",
    "flag": "Flags",
    "name": "Public classes, functions and methods",
    "parameter": "Their parameters",
    "agent": "Settings of an Agent",
    "vega": "Settings of agents, tools and supervisors in Vega",
    "opcode": "Opcodes",
    "verb": "Capability verbs",
    "event": "Event kinds",
    "error": "Error codes",
    "pipeline": "Keys of pipelines",
}
_PAGE: Final = """\
# The surface

<!-- Written by `python -m verify surface`; change the code, or verify/surface/claims.toml, not this page. -->

Everything that Lyra offers by a name, from the tables in the code, with a test that shows it at work: one that fails
when the entry is switched off, so that it does nothing. `make surface` switches each of them off and looks.

{counts}

{sections}
"""


class Surface(NamedTuple):
    """The entries, and the test that shows each, by id: claimed by a reader, seen in a trial, or that of a member."""

    entries: list[Entry]
    claimed: dict[str, str]
    seen: dict[str, str]
    derived: dict[str, str]

    def test_of(self, entry: Entry) -> str:
        return self.seen.get(entry.id) or self.claimed.get(entry.id) or self.derived.get(entry.id, "")

    def without(self) -> list[Entry]:
        """The entries without a test."""
        return [entry for entry in self.entries if not self.test_of(entry)]

    def faults(self) -> list[str]:
        """Claims for what is no entry, and those whose test is not there or does not use the entry."""
        by_id = {entry.id: entry for entry in self.entries}
        strangers = [f"{name}: no such entry" for name in (*self.claimed, *self.seen) if name not in by_id]
        twice = [f"{name}: claimed, and seen in a trial" for name in self.claimed if name in self.seen]
        wrong = (fault(by_id[name], test) for name, test in self.claimed.items() if name in by_id)
        gone = [f"{name}: there is no test {test}" for name, test in self.seen.items() if not exists(test)]
        return [*strangers, *twice, *gone, *(sentence for sentence in wrong if sentence)]


def read() -> Surface:
    seen = shown()
    claimed = _claims(_CLAIMS)
    return Surface(entries(), claimed, seen, dict(_derived({**claimed, **seen})))


def _derived(tests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Classes and groups of commands, each with a test of one of their members; a field of a pipeline, by its key."""
    for command in KINDS["command"]():
        test = next((test for name, test in tests.items() if name.startswith(f"{command.id} ")), "")
        if test and command.id not in tests:
            yield command.id, test
    groups = {struct: group for group, struct in PIPELINE_STRUCTS.items()}
    for full, value in tapped_callables():
        for key in value.__struct_fields__ if value in groups else ():
            field, test = f"parameter:{full}({key})", tests.get(f"pipeline:{groups[value]}.{key}", "")
            if test and field not in tests:
                yield field, test
        if inspect.isclass(value):
            test = next((test for name, test in tests.items() if _is_member(name, full, value)), "")
            if test:
                yield f"name:{full}", test


def _is_member(name: str, full: str, value: Any) -> bool:
    prefixes = (f"parameter:{full}(", f"name:{full}.", f"parameter:{full}.")
    return name.startswith(prefixes) or (hasattr(value, "code") and name == f"error:{value.code}")


def _claims(file: Path) -> dict[str, str]:
    """`kind:name` → test."""
    tables: Mapping[str, Mapping[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    return {f"{kind}:{name}": test for kind, rows in tables.items() for name, test in rows.items()}


def text(surface: Surface) -> str:
    by_kind = {kind: [entry for entry in surface.entries if entry.kind == kind] for kind in KINDS}
    counts = [_count(_TITLES[kind], rows, surface) for kind, rows in by_kind.items()]
    counts.append(_count("All", surface.entries, surface))
    sections = (_section(_TITLES[kind], rows, surface) for kind, rows in by_kind.items())
    return _PAGE.format(counts=_table(("kind", "entries", "shown", "not"), counts), sections="\n\n".join(sections))


def _count(title: str, rows: list[Entry], surface: Surface) -> tuple[str, ...]:
    count = sum(bool(surface.test_of(entry)) for entry in rows)
    return title, str(len(rows)), str(count), str(len(rows) - count)


def _section(title: str, rows: list[Entry], surface: Surface) -> str:
    tests = ((entry.name, surface.test_of(entry).removeprefix("tests/")) for entry in rows)
    lines = [(f"`{name}`", f"`{test}`" if test else "none") for name, test in tests]
    return f"## {title}\n\n{_table(('entry', 'shown by'), lines)}"


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(surface: Surface) -> Path:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text(surface), encoding="utf-8")
    return PAGE
