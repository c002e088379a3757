"""A linter or type checker that is run to its end in the sandbox, with the rights of the agent in its workspace.

The program has no network, and nothing outside the workspace but the folders that its settings name. How it ended
becomes a report, never an error: an edit that was made stays made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lyra.core.rights.capability import Grant
from lyra.core.tool import rights
from lyra.errors import LyraError
from lyra.sage.project.diagnostics.checks import CheckCommand
from lyra.sage.project.diagnostics.code_problem import CheckReport, read_problems

if TYPE_CHECKING:
    from lyra.sandbox import Limits, Profile, Sandbox


_OUTPUT_BYTES_MAX: Final = 1 << 20
_NOT_FOUND: Final = (126, 127)


def check_profile(root: str, readable: Sequence[str], limits: Limits) -> Profile:
    """What a program may touch: as a command of the calling process, without a network."""
    from lyra.sandbox import Profile

    grant = rights.get()
    if grant is None:
        grant = Grant(allow=[f"fs.read:{root}/**", f"fs.write:{root}/**"])
    return replace(Profile.of(grant, root, readable=readable, limits=limits), egress=None)


async def run_check(command: CheckCommand, path: str, *, root: str, sandbox: Sandbox) -> CheckReport:
    """What the program says of a file, whose path starts at the root."""
    from lyra.sandbox import Limits

    program = command.program
    limits = Limits(wall_s=command.timeout_s, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX)
    try:
        result = await sandbox.run(command.argv(path), check_profile(root, command.readable, limits))
    except LyraError as error:
        return CheckReport(program, failure=f"it could not be run: {error.message}")
    text = result.output.text
    if "wall" in result.limits_hit:
        return CheckReport(program, failure=f"it took longer than {command.timeout_s:g} s")
    if result.exit_code in _NOT_FOUND:
        return CheckReport(program, failure="it is not there inside the sandbox; `readable` can name its folder")
    failure = f"it was stopped: {', '.join(result.limits_hit)}" if result.limits_hit else ""
    problems = read_problems(program, text, root=root, failed=not result.ok and not failure)
    return CheckReport(program, problems, failure)
