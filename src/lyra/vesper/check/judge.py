"""The judgement on a node: all remarks at once, in order of place.

`check` takes a node, `check_text` the text of a file. With `strict`, warnings are errors. `program_of` gives the
program of a node that has no errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lyra.errors import ParseError
from lyra.vesper.check.lower import lower_node
from lyra.vesper.check.semantics import judge_program
from lyra.vesper.ir import NodeProgram
from lyra.vesper.loading import ERROR, INFO, WARNING, Issue, error_of, sorted_issues
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.sections import read_node


def check(node: Node, *, strict: bool = False) -> list[Issue]:
    """All remarks on a node, in order of place."""
    return _checked(node, strict=strict)[1]


def check_text(text: str, file: str = "<text>", *, strict: bool = False) -> list[Issue]:
    """All remarks on the text of a file; a text that is no YAML has one."""
    try:
        node, issues = read_node(text, file)
    except ParseError as error:
        return [msgspec.convert(problem, Issue) for problem in error.fields["problems"]]
    return check(node, strict=strict) if node is not None else issues


def program_of(node: Node, *, strict: bool = False) -> NodeProgram:
    """The program of a node; CheckError with all remarks in `fields["problems"]` where it has errors."""
    program, issues = _checked(node, strict=strict)
    if has_errors(issues):
        raise error_of(issues, node.file)
    return program


def lowered(node: Node) -> NodeProgram:
    """The program of a node that may have errors: to look at, not to run."""
    return lower_node(node)[0]


def has_errors(issues: Sequence[Issue]) -> bool:
    return any(issue.severity == ERROR for issue in issues)


def _checked(node: Node, *, strict: bool) -> tuple[NodeProgram, list[Issue]]:
    program, state = lower_node(node)
    judge_program(program, state)
    issues = list(dict.fromkeys((*node.issues, *state.issues.items)))
    if state.issues.left_out:
        message = f"{state.issues.left_out} more remarks are not listed"
        issues.append(
            Issue(severity=INFO, code="limit", message=message, line=len(node.document.text.splitlines()) or 1)
        )
    if strict:
        issues = [
            msgspec.structs.replace(issue, severity=ERROR) if issue.severity == WARNING else issue for issue in issues
        ]
    return program, sorted_issues(issues)
