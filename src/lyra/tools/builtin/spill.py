"""Where long output of commands goes: a folder of its own, outside every project, that ends with this program.

Each process of the kernel has its part of it (`lyra.core.tool.caller`) and reads no other's: what is there has been
printed for that process already, so reading it needs no further right. Nobody writes there but the sandbox's capture.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from hashlib import blake2b

from lyra.core.tool import caller

__all__ = ["Spill"]


class Spill:
    """The folder is made when it is first needed, and removed with the last one who holds this."""

    __slots__ = ("__weakref__", "_root")

    def __init__(self) -> None:
        self._root: str | None = None

    def folder(self) -> str:
        """The calling process's own."""
        if self._root is None:
            self._root = os.path.realpath(tempfile.mkdtemp(prefix="lyra-spill-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        mine = os.path.join(self._root, _name())
        os.makedirs(mine, mode=0o700, exist_ok=True)
        return mine

    def holding(self, path: str) -> str | None:
        """The calling process's folder, where the path (absolute, without `..`) lies in it."""
        if self._root is None:
            return None
        mine = os.path.join(self._root, _name())
        return mine if path.startswith(mine + "/") else None


def _name() -> str:
    """A pid may be any text; a folder's name may not."""
    return blake2b(caller.get().encode(), digest_size=8).hexdigest()
