"""Names in a journal are the same however a file was started."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from lyra.core.naming import get_qualified_name


async def function():
    pass


class Callable:
    async def __call__(self):
        pass


def test_names():
    """Functions, partials, methods and callable objects each have one."""
    here = __name__
    assert get_qualified_name(function) == f"{here}:function"
    assert get_qualified_name(functools.partial(function)) == f"{here}:function"
    assert get_qualified_name(Callable) == f"{here}:Callable"
    assert get_qualified_name(Callable()) == f"{here}:Callable"
    assert get_qualified_name(Callable().__call__) == f"{here}:Callable.__call__"


def test_a_script_has_the_name_it_would_be_imported_by(tmp_path: Path):
    """`python shop.py`, `python -m shop` and `import shop` agree."""
    (tmp_path / "shop.py").write_text(
        "from lyra.core.naming import get_qualified_name\nasync def main(ctx): pass\nprint(get_qualified_name(main))\n"
    )
    names = {
        subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in (["shop.py"], ["-m", "shop"], ["-c", "import shop"])
    }
    assert names == {"shop:main\n"}
