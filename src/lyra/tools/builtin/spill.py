"""The folder for long output of commands: outside every project, and removed when this program ends.

Each process of the kernel has a folder of its own in it (`lyra.core.tool.caller`) and cannot read those of others. The
output was shown to that process already, so reading it needs no further right. Only the sandbox's capture writes there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from hashlib import blake2b

from lyra.core.tool import caller


class Spill:
    """The folder is made when it is first needed, and removed when this object is collected."""

    __slots__ = ("__weakref__", "_root")

    def __init__(self) -> None:
        self._root: str | None = None

    def folder(self) -> str:
        """The folder of the calling process."""
        if self._root is None:
            self._root = os.path.realpath(tempfile.mkdtemp(prefix="lyra-spill-"))
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        mine = os.path.join(self._root, _name())
        os.makedirs(mine, mode=0o700, exist_ok=True)
        return mine

    def holding(self, path: str) -> str | None:
        """The folder of the calling process, if the path (absolute, without `..`) lies in it; else None."""
        if self._root is None:
            return None
        mine = os.path.join(self._root, _name())
        return mine if path.startswith(mine + "/") else None


def _name() -> str:
    """The name of the caller's folder: a digest, because a pid may be any text."""
    return blake2b(caller.get().encode(), digest_size=8).hexdigest()
