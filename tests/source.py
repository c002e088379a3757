"""Where programs that tests start find Lyra: in the source that the tests themselves run, which may be a copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import lyra

SOURCE: Final = Path(lyra.__file__).parents[1]
PYTHONPATH: Final = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SOURCE))))
# Variables that a program of a test keeps, where they are set: `verify.surface` switches something off in it.
KEPT: Final = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "LYRA_SURFACE_OFF")
