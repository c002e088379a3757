"""docs/reference/surface.md: every entry with its test, and how many have none.

`claims.toml` names tests that were read and show what the entry does. `calls.toml` names tests that use the entry and
assert something, found by `candidates`; moving a line from there to `claims.toml` says that its test was read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from verify.surface.entries import KINDS, Entry, entries
from verify.surface.evidence import ROOT, fault

__all__ = ["CALLS", "PAGE", "Surface", "read", "text", "write"]

PAGE: Final = ROOT / "docs" / "reference" / "surface.md"
_CLAIMS: Final = Path(__file__).parent / "claims.toml"
CALLS: Final = Path(__file__).parent / "calls.toml"
_TITLES: Final = {
    "config": "Configuration keys",
    "provider": "Columns of providers",
    "price": "Columns of prices",
    "limit": "Columns of limits",
    "mcp": "Columns of MCP servers",
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

Everything that Lyra offers by a name, from the tables in the code, with the test behind it. *Shown* is by a test that
fails when the entry does not do what it says; *used* is by one that uses it and asserts something; *none* has neither,
and their number may only go down.

{counts}

{sections}
"""


class Surface(NamedTuple):
    """The entries, and the tests that are claimed for them by id."""

    entries: list[Entry]
    shown: dict[str, str]
    used: dict[str, str]

    def without(self) -> list[Entry]:
        """The entries without a test."""
        return [entry for entry in self.entries if entry.id not in self.shown and entry.id not in self.used]

    def faults(self) -> list[str]:
        """Claims for what is no entry, and those whose test is not there or does not use the entry."""
        by_id = {entry.id: entry for entry in self.entries}
        claims = [*self.shown.items(), *self.used.items()]
        strangers = [f"{name}: no such entry" for name, _ in claims if name not in by_id]
        twice = [f"{name}: claimed twice" for name in self.shown if name in self.used]
        wrong = (fault(by_id[name], test) for name, test in claims if name in by_id)
        return [*strangers, *twice, *(sentence for sentence in wrong if sentence)]


def read() -> Surface:
    return Surface(entries(), _claims(_CLAIMS), _claims(CALLS))


def _claims(file: Path) -> dict[str, str]:
    """`kind:name` → test."""
    tables: Mapping[str, Mapping[str, str]] = tomllib.loads(file.read_text(encoding="utf-8"))
    return {f"{kind}:{name}": test for kind, rows in tables.items() for name, test in rows.items()}


def text(surface: Surface) -> str:
    by_kind = {kind: [entry for entry in surface.entries if entry.kind == kind] for kind in KINDS}
    counts = [_count(_TITLES[kind], rows, surface) for kind, rows in by_kind.items()]
    counts.append(_count("All", surface.entries, surface))
    sections = (_section(_TITLES[kind], rows, surface) for kind, rows in by_kind.items())
    return _PAGE.format(
        counts=_table(("kind", "entries", "shown", "used", "none"), counts), sections="\n\n".join(sections)
    )


def _count(title: str, rows: list[Entry], surface: Surface) -> tuple[str, ...]:
    shown = sum(entry.id in surface.shown for entry in rows)
    used = sum(entry.id in surface.used for entry in rows)
    return title, str(len(rows)), str(shown), str(used), str(len(rows) - shown - used)


def _section(title: str, rows: list[Entry], surface: Surface) -> str:
    lines = []
    for entry in rows:
        test = surface.shown.get(entry.id) or surface.used.get(entry.id, "")
        how = "shown" if entry.id in surface.shown else "used" if test else "none"
        lines.append((f"`{entry.name}`", how, f"`{test.removeprefix('tests/')}`" if test else ""))
    return f"## {title}\n\n{_table(('entry', 'is', 'by'), lines)}"


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(surface: Surface) -> Path:
    PAGE.write_text(text(surface), encoding="utf-8")
    return PAGE
