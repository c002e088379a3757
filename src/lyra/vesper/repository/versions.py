"""What changed between two versions of a node, and whether a node may be added to a repository.

A change is breaking (removed or retyped inputs and outputs, removed error codes, stricter preconditions, weaker
postconditions), an addition (optional inputs, new outputs, new error codes, stronger postconditions) or neither. A
breaking change needs a new major version, an addition a new minor one; an id with a whole number stands for a major
version. `difference` names the part of the version that the changes need raised. `add` copies the file of a valid node
into a folder as `ID.vsp`. `is_new`, which also guards what is kept in a store, refuses a node that breaks what callers
of another version with the same major number rely on, and one whose id is taken by another node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from lyra.core.checking.document import Path as PartPath
from lyra.errors import CheckError, ConfigError
from lyra.vesper.check.judge import lower_unchecked, program_of
from lyra.vesper.check.satisfiable import fold_constant
from lyra.vesper.ir import Contract, NodeInput, NodeOutput, NodeProgram, TypedExpression
from lyra.vesper.loading import ERROR, INFO, WARNING, Issue, path_text, sort_issues
from lyra.vesper.nodes import Node
from lyra.vesper.repository.folders import Repository
from lyra.vesper.values.names import bare_id, version_of
from lyra.vesper.values.types import EnumType, ValueType, describe, without_null


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
    """Return the changes from one node to another."""
    kinds = {change.kind for change in changes(old, new)}
    if BREAKING in kinds:
        needed = "major"
    elif kinds:
        needed = "minor"
    else:
        before, after = (msgspec.structs.replace(lower_unchecked(node), node_id="", digest="") for node in (old, new))
        needed = "none" if before == after else "patch"
    return Difference(old.node_id, new.node_id, needed, _find_version_step(old, new), tuple(compatible(old, new)))


def _find_version_step(old: Node, new: Node) -> str:
    before, after = version_of(old.node_id), version_of(new.node_id)
    if after <= before:
        return "none"
    return "major" if after[0] > before[0] else "minor" if after[1] > before[1] else "patch"


def is_new(node: Node, repository: Repository) -> bool:
    """Return whether a node may be added: false where it is there already, unchanged. CheckError where it is not valid
    or breaks a version that is there, ConfigError where its id has another text."""
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
    """Compare the node with its neighbours of the same major version: the next lower and the next higher one."""
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
            raise _build_error(node, old, new, issues)


def _build_error(node: Node, old: Node, new: Node, issues: list[Issue]) -> CheckError:
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


BREAKING: Final = "breaking"
ADDITION: Final = "addition"


class VersionChange(msgspec.Struct, frozen=True):
    """A difference between two versions; `path` is in the new file where the part is still there."""

    kind: str  # breaking or addition
    code: str
    message: str
    path: PartPath


def compatible(old: Node, new: Node) -> list[Issue]:
    """Return the remarks on a new version: an error for each change that its version number does not allow."""
    issues: list[Issue] = []
    before, after = version_of(old.node_id), version_of(new.node_id)
    if bare_id(old.node_id) != bare_id(new.node_id):
        issues.append(_issue(new, ERROR, "other_node", f"{new.node_id} is no version of {old.node_id}", ("node_id",)))
    elif after <= before:
        message = f"{new.node_id} does not come after {old.node_id}"
        issues.append(_issue(new, ERROR, "version_order", message, ("node_id",)))
    for change in changes(old, new):
        severity = INFO
        if after[0] == before[0]:
            if change.kind == BREAKING:
                severity = ERROR
            elif after[1] == before[1]:
                severity = WARNING
        issues.append(_issue(new, severity, change.code, change.message, change.path))
    return sort_issues(issues)


def _issue(node: Node, severity: str, code: str, message: str, path: PartPath) -> Issue:
    line, column = node.document.place(path)
    return Issue(severity=severity, code=code, message=message, path=path_text(path), line=line, column=column)


def changes(old: Node, new: Node) -> list[VersionChange]:
    """Return all differences that callers can notice."""
    before, after = lower_unchecked(old), lower_unchecked(new)
    return [
        *_inputs(before, after),
        *_outputs(before.success, after.success, "success", new),
        *_outputs(before.error, after.error, "error", new),
        *_contracts(before.preconditions, after.preconditions, "preconditions", new),
        *_contracts(before.postconditions, after.postconditions, "postconditions", new),
        *_capabilities(before, after),
    ]


def _inputs(before: NodeProgram, after: NodeProgram) -> Iterator[VersionChange]:
    known = {item.name: item for item in before.inputs}
    present = {item.name: item for item in after.inputs}
    for name in known.keys() - present.keys():
        yield VersionChange(BREAKING, "removed_input", f"input `{name}` is gone", ("inputs",))
    for name, item in present.items():
        path: PartPath = ("inputs", name)
        if name not in known:
            kind = BREAKING if item.required else ADDITION
            word = "required" if item.required else "optional"
            yield VersionChange(kind, "added_input", f"there is a new {word} input `{name}`", path)
            continue
        yield from _input(known[name], item, path)


def _input(before: NodeInput, after: NodeInput, path: PartPath) -> Iterator[VersionChange]:
    yield from _type(before.type, after.type, f"input `{after.name}`", path, is_input=True)
    if after.required and not before.required:
        yield VersionChange(BREAKING, "required_input", f"input `{after.name}` is required now", path)
    if before.required and not after.required:
        yield VersionChange(ADDITION, "optional_input", f"input `{after.name}` is optional now", path)
    old_texts = {check.text for check in before.constraints}
    for check in after.constraints:
        if check.text not in old_texts:
            message = f"input `{after.name}` has a new constraint: {check.text}"
            yield VersionChange(BREAKING, "stricter_input", message, path)


def _type(before: ValueType, after: ValueType, what: str, path: PartPath, *, is_input: bool) -> Iterator[VersionChange]:
    before, after = without_null(before), without_null(after)
    if before == after:
        return
    if isinstance(before, EnumType) and isinstance(after, EnumType):
        gone = set(before.values) - set(after.values)
        added = set(after.values) - set(before.values)
        if gone:
            kind = BREAKING if is_input else ADDITION
            yield VersionChange(kind, "removed_value", f"{what} has no longer {', '.join(sorted(gone))}", path)
        if added:
            yield VersionChange(ADDITION, "added_value", f"{what} can be {', '.join(sorted(added))}, too", path)
        return
    message = f"{what} was {describe(before)} and is {describe(after)}"
    yield VersionChange(BREAKING, "retyped_input" if is_input else "retyped_output", message, path)


def _outputs(
    before: tuple[NodeOutput, ...], after: tuple[NodeOutput, ...], group: str, new: Node
) -> Iterator[VersionChange]:
    known = {item.name: item for item in before}
    present = {item.name: item for item in after}
    for name in known.keys() - present.keys():
        yield VersionChange(BREAKING, "removed_output", f"{group} field `{name}` is gone", ("outputs",))
    for name, item in present.items():
        path = _output_path(new, group, name)
        if name not in known:
            yield VersionChange(ADDITION, "added_output", f"there is a new {group} field `{name}`", path)
            continue
        old_kind, kind = without_null(known[name].type), without_null(item.type)
        if group == "error" and isinstance(old_kind, EnumType) and isinstance(kind, EnumType):
            for code in old_kind.values:
                if code not in kind.values:
                    yield VersionChange(BREAKING, "removed_error", f"error code `{code}` is gone", path)
            for code in kind.values:
                if code not in old_kind.values:
                    yield VersionChange(ADDITION, "added_error", f"there is a new error code `{code}`", path)
        else:
            yield from _type(known[name].type, item.type, f"{group} field `{name}`", path, is_input=False)
        if known[name].required and not item.required:
            yield VersionChange(BREAKING, "optional_output", f"{group} field `{name}` can be missing now", path)


def _output_path(node: Node, group: str, name: str) -> PartPath:
    path: PartPath = ("outputs", group, name)
    return path if path in node.document.places else ("outputs", name)


def _contracts(
    before: tuple[Contract, ...], after: tuple[Contract, ...], group: str, new: Node
) -> Iterator[VersionChange]:
    """Compare contracts by text, without blanks: one that is written differently counts as another one."""
    known = {_key(contract): contract for contract in before if not _says_nothing(contract.expression)}
    present = {_key(contract): contract for contract in after if not _says_nothing(contract.expression)}
    is_entry = group == "preconditions"
    for index, contract in enumerate(after):
        if _key(contract) in present and _key(contract) not in known:
            path: PartPath = ("contracts", group, index)
            path = path if path in new.document.places else ("outputs",)
            kind, code = (BREAKING, "stricter_precondition") if is_entry else (ADDITION, "stronger_postcondition")
            yield VersionChange(kind, code, f"there is a new contract: {contract.text}", path)
    for key, contract in known.items():
        if key not in present:
            kind, code = (ADDITION, "weaker_precondition") if is_entry else (BREAKING, "weaker_postcondition")
            yield VersionChange(kind, code, f"a contract is gone: {contract.text}", ("contracts", group))


def _key(contract: Contract) -> str:
    return "".join(contract.text.split())


def _says_nothing(expression: TypedExpression | None) -> bool:
    return expression is not None and fold_constant(expression) is True


def _capabilities(before: NodeProgram, after: NodeProgram) -> Iterator[VersionChange]:
    for index, capability in enumerate(after.capabilities):
        if capability not in before.capabilities:
            path: PartPath = ("security", "capabilities_required", index)
            yield VersionChange(ADDITION, "added_capability", f"the node needs `{capability}` now", path)
