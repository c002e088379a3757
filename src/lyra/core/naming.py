"""What a function is called in a journal: `module:function`, the same however its file was started.

A module run as a script is `__main__` to Python; in a journal it has the name it would be imported by, so that a
process begun by `python shop.py` goes on under `import shop` or `python -m shop`. Looks names up, never imports
anything.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["main_name", "qualified_name"]


def qualified_name(function: Any) -> str:
    """`module:qualname` of a function, a class or (by its class) an object that can be called."""
    inner = getattr(function, "func", function)  # functools.partial
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    module = inner.__module__
    return f"{main_name() if module == '__main__' else module}:{inner.__qualname__}"


def main_name() -> str:
    """The main module's own name: of `python -m`, else of its file, else what Python calls it."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name.removesuffix(".__main__"))
    file = getattr(main, "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"
