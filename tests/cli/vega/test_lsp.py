"""`vega lsp` and `vesper lsp` from the command line; what they say to editors is tested in tests/vega/lsp and
tests/vesper/lsp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lyra


def run(code: str) -> subprocess.CompletedProcess[str]:
    assert lyra.__file__ is not None
    env = {**os.environ, "PYTHONPATH": str(Path(lyra.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60, input=""
    )


@pytest.mark.parametrize("language", ["vega", "vesper"])
def test_without_the_extra_it_says_how_to_get_it(language):
    """Exit 2, a hint on stderr, nothing on stdout."""
    done = run(
        f"import sys; sys.modules['pygls'] = None; sys.argv = ['{language}', 'lsp']\n"
        f"from lyra.cli.main import {language}; sys.exit({language}())"
    )
    assert done.returncode == 2
    assert "pip install 'lyra-agents[lsp]'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("language", ["vega", "vesper"])
def test_it_is_listed_and_does_not_import_pygls_for_that(language):
    done = run(
        f"import sys; sys.argv = ['{language}', '--help']\n"
        f"from lyra.cli.main import {language}; code = {language}(); assert 'pygls' not in sys.modules; sys.exit(code)"
    )
    assert done.returncode == 0
    assert "lsp" in done.stdout


def test_the_core_needs_no_pygls():
    done = run(
        "import sys; sys.modules['pygls'] = sys.modules['lsprotocol'] = None\n"
        "from lyra.vega.lsp import analysis, completion, hover, index\n"
        "from lyra.vega.lsp.language import VegaLanguage\n"
        "from lyra.vesper.lsp.language import VesperLanguage"
    )
    assert done.returncode == 0, done.stderr
