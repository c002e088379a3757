"""`vega lsp` from the command line; what it says to editors is tested in tests/vega/lsp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lyra


def run(code: str) -> subprocess.CompletedProcess[str]:
    assert lyra.__file__ is not None
    env = {**os.environ, "PYTHONPATH": str(Path(lyra.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60, input=""
    )


def test_without_the_extra_it_says_how_to_get_it():
    """Exit 2, a hint on stderr, nothing on stdout."""
    done = run(
        "import sys; sys.modules['pygls'] = None; sys.argv = ['vega', 'lsp']\n"
        "from lyra.cli.main import vega; sys.exit(vega())"
    )
    assert done.returncode == 2
    assert "pip install 'lyra-agents[lsp]'" in done.stderr
    assert done.stdout == ""


def test_it_is_listed_and_does_not_import_pygls_for_that():
    done = run(
        "import sys; sys.argv = ['vega', '--help']\n"
        "from lyra.cli.main import vega; code = vega(); assert 'pygls' not in sys.modules; sys.exit(code)"
    )
    assert done.returncode == 0
    assert "lsp" in done.stdout


def test_the_core_needs_no_pygls():
    done = run(
        "import sys; sys.modules['pygls'] = sys.modules['lsprotocol'] = None\n"
        "from lyra.vega.lsp import analysis, completion, diagnostics, hover, index, navigation, tokens"
    )
    assert done.returncode == 0, done.stderr
