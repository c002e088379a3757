"""What evidence belongs to: the content of a node, of the nodes that it calls, and of what runs them.

Two executions tell something about each other only where all of that is equal. `evidence_key` is a hash over the
digest of a program, the digests of all programs that it calls at any depth, the tier of the direct path (closures, or
native code) and `paths_version`, a hash over the source files of both paths, of what they share and of how inputs are
counted: a new Lyra whose paths are the same keeps the evidence, and one whose paths changed starts again. It stands
alone, since the runtime and the pipelines of Vega know nodes by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lyra.vesper import ir
from lyra.vesper.evidence.inputs import parts_of

FindProgram = Callable[[str], ir.NodeProgram | None]
TIER: Final = "closures"  # of the direct path, where it names no other
_FOLDERS: Final = ("python", "direct", "values", "check", "expressions")
_FILES: Final = ("charges.py", "ir.py", "effects/compiled_path.py", "effects/request.py", "evidence/seen.py")
_PARTS: Final = (*_FOLDERS, *_FILES)


@cache
def paths_version() -> str:
    """Return a hash over the sources of both paths; without sources, the version of Lyra."""
    home = Path(__file__).parents[1]
    digest = blake2b(digest_size=16)
    files = [file for part in _PARTS for file in (home.joinpath(part), *sorted(home.joinpath(part).rglob("*.py")))]
    for file in files:
        if file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    if not any(file.is_file() for file in files):
        digest.update(version("lyra-agents").encode())
    return digest.hexdigest()


def list_called_nodes(program: ir.NodeProgram) -> list[str]:
    """Return the ids of the nodes that a program calls, as it names them."""
    names: dict[str, None] = {}
    for part in parts_of((program.steps, program.rules)):
        if isinstance(part, ir.EffectStep) and part.kind == "node.call" and isinstance(part.request, ir.MapOf):
            for name, value in part.request.entries:
                if name == "node_id" and isinstance(value, ir.Constant):
                    names[str(value.value)] = None
    return sorted(names)


def evidence_key(program: ir.NodeProgram, find: FindProgram, tier: str = TIER) -> str:
    """Return the key of the evidence for a program."""
    parts = [program.digest, paths_version(), tier, *_callees(program, find, {program.digest})]
    return blake2b("\n".join(parts).encode(), digest_size=32).hexdigest()


def _callees(program: ir.NodeProgram, find: FindProgram, known: set[str]) -> Iterator[str]:
    for name in list_called_nodes(program):
        callee = find(name)
        yield f"{name}={'' if callee is None else callee.digest}"
        if callee is not None and callee.digest not in known:
            known.add(callee.digest)
            yield from _callees(callee, find, known)
