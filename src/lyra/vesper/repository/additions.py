"""What changed between two versions of a node, and whether a node may be added to a repository.

`difference` names the part of the version that the changes need raised (major, minor or patch) by the rules of
`lyra.vesper.check.versions`. `add` copies the file of a valid node into a folder as `ID.vsp`. `is_new`, which also
guards what is kept in a store, refuses a node that breaks what callers of another version with the same major
number rely on, and one whose id is taken by another node.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lyra.errors import CheckError, ConfigError
from lyra.vesper.check.judge import lowered, program_of
from lyra.vesper.check.versions import BREAKING, changes, compatible
from lyra.vesper.loading import ERROR, Issue
from lyra.vesper.nodes import Node
from lyra.vesper.repository.folders import Repository
from lyra.vesper.values.names import version_of


class Difference(msgspec.Struct, frozen=True):
    """What a new version changes for callers of the old one."""

    old: str
    new: str
    needed: str  # the part of the version that must be raised: major, minor, patch or none
    raised: str  # the part that is raised; none where the new version is not higher
    issues: tuple[Issue, ...]

    @property
    def is_allowed(self) -> bool:
        return not any(issue.severity == ERROR for issue in self.issues)


def difference(old: Node, new: Node) -> Difference:
    """The changes from one node to another."""
    kinds = {change.kind for change in changes(old, new)}
    if BREAKING in kinds:
        needed = "major"
    elif kinds:
        needed = "minor"
    else:
        needed = "none" if _is_same(old, new) else "patch"
    return Difference(old.node_id, new.node_id, needed, _raised(old, new), tuple(compatible(old, new)))


def _is_same(old: Node, new: Node) -> bool:
    """Whether two nodes do the same: their programs, but for the id."""
    before, after = (msgspec.structs.replace(lowered(node), node_id="", digest="") for node in (old, new))
    return before == after


def _raised(old: Node, new: Node) -> str:
    before, after = version_of(old.node_id), version_of(new.node_id)
    if after <= before:
        return "none"
    return "major" if after[0] > before[0] else "minor" if after[1] > before[1] else "patch"


# ------------------------------------------------------------------ adding
def is_new(node: Node, repository: Repository) -> bool:
    """Whether a node may be added: false where it is there already, unchanged. CheckError where it is not valid or
    breaks a version that is there, ConfigError where its id has another text."""
    program_of(node)
    taken = repository.nodes.get(node.node_id)
    if taken is None:
        _refuse_breaks(node, repository)
        return True
    if taken.document.text != node.document.text:
        raise ConfigError(f"{node.node_id} is there already, with another text", hint="raise its version", key="NODE")
    return False


def add(node: Node, folder: str | Path) -> Path:
    """Copy the file of a node into a folder, if it may be added; gives its path there."""
    folder = Path(folder)
    repository = Repository([folder])
    if not is_new(node, repository):
        return Path(repository.nodes[node.node_id].file)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{node.node_id}.vsp"
    if target.exists():
        raise ConfigError(f"{target} is there already and holds another node", key="NODE")
    passing = target.with_suffix(".vsp.new")
    passing.write_text(node.document.text, encoding="utf-8", newline="")
    os.replace(passing, target)
    return target


def _refuse_breaks(node: Node, repository: Repository) -> None:
    """The neighbours of the same major version are compared: the next lower and the next higher one."""
    version = version_of(node.node_id)
    same_major = [name for name in repository.versions(node.node_id) if version_of(name)[0] == version[0]]
    equal = [name for name in same_major if version_of(name) == version]
    if equal:
        raise ConfigError(f"{equal[0]} is the same version as {node.node_id}", key="NODE")
    lower = [name for name in same_major if version_of(name) < version]
    higher = [name for name in same_major if version_of(name) > version]
    pairs = [(repository.nodes[lower[-1]], node)] if lower else []
    pairs += [(node, repository.nodes[higher[0]])] if higher else []
    for old, new in pairs:
        issues = [issue for issue in compatible(old, new) if issue.severity == ERROR]
        if issues:
            raise _broken(node, old, new, issues)


def _broken(node: Node, old: Node, new: Node, issues: list[Issue]) -> CheckError:
    first = issues[0]
    more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
    return CheckError(
        f"{new.node_id} breaks {old.node_id}: {first.message}{more}",
        file=node.file,
        line=first.line if new is node else 1,
        column=first.column if new is node else 1,
        hint="a change that callers notice needs a new major version",
        breaks=[issue.message for issue in issues],
    )
