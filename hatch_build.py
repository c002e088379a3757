"""Writes the message classes of the gRPC server from their contract when the package is built or installed.

`proto/lyra/engine/v1/engine.proto` is the source; `src/lyra/server/generated/` is never edited and not in version
control. After a change of the contract in a checkout: `python hatch_build.py`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
CONTRACT = "lyra/engine/v1/engine.proto"
GENERATED = ROOT / "src" / "lyra" / "server" / "generated"
_DOCSTRING = '"""The classes in `engine_pb2`, which hatch_build.py writes from proto/lyra/engine/v1; never edited."""\n'


def generate() -> None:
    """Write `engine_pb2.py`, its types and the contract itself into the package."""
    from grpc_tools import protoc

    GENERATED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--pyi_out={folder}", CONTRACT]
        if protoc.main(arguments) != 0:
            sys.exit(f"protoc could not read proto/{CONTRACT}")
        for name in ("engine_pb2.py", "engine_pb2.pyi"):
            shutil.copyfile(Path(folder) / Path(CONTRACT).parent / name, GENERATED / name)
    shutil.copyfile(ROOT / "proto" / CONTRACT, GENERATED / "engine.proto")
    (GENERATED / "__init__.py").write_text(_DOCSTRING, encoding="utf-8")


if __name__ == "__main__":
    generate()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class GenerateMessages(BuildHookInterface):  # type: ignore[type-arg]
        """Runs before a wheel is built, also one of an editable installation."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
            generate()
