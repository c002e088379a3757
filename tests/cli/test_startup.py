"""Start-up is a feature: CPU time in a fresh interpreter, and what is not imported.

`LYRA_STARTUP_SLACK=4` multiplies the limits on a slow machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from tests.limits import best_within

SLACK = float(os.environ.get("LYRA_STARTUP_SLACK", "2"))
HEAVY = {
    "asyncio",
    "decimal",
    "difflib",
    "msgspec",
    "psycopg",
    "rich",
    "sqlite3",
    "tomllib",
    "uvloop",
    "lyra.config",
    "lyra.kernel",
    "lyra.store",
}


def _cpu_ms(lyra, code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=lyra.env, stdout=subprocess.DEVNULL, check=True, cwd=lyra.folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _modules(lyra, code: str) -> set[str]:
    """The heavy modules that are there after running the code."""
    probe = f"{code}\nimport sys, json; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=lyra.env,
        capture_output=True,
        text=True,
        check=True,
        cwd=lyra.folder,
    )
    return HEAVY & set(json.loads(done.stderr))


CALL = "from lyra.cli.main import main; main([{}])"


@pytest.mark.timed
@pytest.mark.parametrize(
    ("code", "limit_ms"),
    [("import lyra", 60), (CALL.format("'--help'"), 150), (CALL.format("'--version'"), 60)],
)
def test_cpu_time(lyra, code, limit_ms):
    """`import lyra` 60 ms, `lyra --help` 150 ms, `lyra --version` 60 ms, interpreter included."""
    best_within(lambda: _cpu_ms(lyra, code), limit_ms * SLACK, tries=5, told=f"ms: {code}")


@pytest.mark.parametrize("code", ["import lyra", CALL.format("'--version'"), CALL.format("'--help'")])
def test_nothing_heavy_is_imported(lyra, code):
    """Neither the kernel nor a database nor a table renderer is there before a command asks for it."""
    assert _modules(lyra, code) == set()


def test_an_agent_is_declared_without_an_event_loop(lyra):
    """asyncio takes half of the time in which an agent and its tools are declared; it comes with the first run."""
    declared = """
import lyra
@lyra.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
lyra.Agent("a", model="sim/echo", tools=[add], budget="$1", retry=3)
"""
    assert _modules(lyra, declared) <= {"decimal", "msgspec"}


def test_version_needs_no_click(lyra):
    """The quickest answer costs an interpreter."""
    code = CALL.format("'--version'") + "\nimport sys; assert 'click' not in sys.modules"
    _modules(lyra, code)


def test_config_reads_no_toml_without_a_file(lyra):
    """tomllib is imported when there is a file to read; rich only for a terminal; no store is opened."""
    modules = _modules(lyra, CALL.format("'config', 'show'"))
    assert not modules & {"tomllib", "difflib", "rich", "sqlite3", "psycopg", "asyncio", "lyra.kernel"}
