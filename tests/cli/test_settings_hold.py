"""The user's rights and limits hold for every command that runs programs, from whichever source they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import warm

PROGRAM = 'agent Bot { model "sim/echo" }\nlet bot = spawn Bot;\nprint(bot <- "hello");\n'
TEST = (
    'agent Bot { model "sim/echo" }\ntest "it answers" { let bot = spawn Bot; assert((bot <- "hello") == "hello"); }\n'
)
RULES = '[grant]\ndeny = ["model.use"]\n'
COMMANDS = {
    "vega run": ("vega", ("run", "program.vega")),
    "vega run --json": ("vega", ("run", "program.vega", "--json")),
    "vega run --trace": ("vega", ("run", "program.vega", "--trace")),
    "vega run --db": ("vega", ("run", "program.vega", "--db", "runs.db")),
    "vega test": ("vega", ("test", "test.vega")),
    "lyra run": ("main", ("run", "program.vega")),
    "lyra agent": ("main", ("agent", "-p", "hi", "--model", "sim/echo")),
}


def _denied_by(source: str | None, folder: Path) -> dict[str, str]:
    """Have models denied by one source; gives the environment."""
    home = folder / "home"
    (home / ".config" / "lyra").mkdir(parents=True)
    if source == "user":
        (home / ".config" / "lyra" / "lyra.toml").write_text(RULES)
    elif source == "project":
        (folder / "lyra.toml").write_text(RULES)
    variables = {"LYRA_GRANT_DENY": "model.use"} if source == "variable" else {}
    return {"HOME": str(home), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", **variables}


@pytest.mark.parametrize("source", [None, "variable", "user", "project"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_denied_right_is_denied_by_every_command(tmp_path: Path, command: str, source: str | None) -> None:
    (tmp_path / "program.vega").write_text(PROGRAM)
    (tmp_path / "test.vega").write_text(TEST)
    env = _denied_by(source, tmp_path)
    name, words = COMMANDS[command]
    done = warm.run(f"lyra.cli.main:{name}", words, cwd=tmp_path, env=env)
    said = done.stdout + done.stderr
    if source is None:
        assert done.returncode == 0, said
    else:
        assert done.returncode == (1 if command == "vega test" else 3), said
        assert "model.use:sim/echo is denied" in said


SLOW = '[[agents]]\nname = "slow"\n'
SLOW_WITH_WAY_OUT = '[[agents]]\nname = "slow"\nerror_next = "other"\n[[agents]]\nname = "other"\n'
AGENTS = """
import asyncio

async def slow(envelope):
    await asyncio.sleep(30)

async def other(envelope):
    return {}
"""


@pytest.mark.parametrize("stages", [SLOW, SLOW_WITH_WAY_OUT], ids=["one stage", "a stage with an error route"])
def test_a_limit_of_time_holds_for_a_pipeline(tmp_path: Path, stages: str) -> None:
    """Its error is the deadline's, with exit code 4; no stage runs afterwards."""
    (tmp_path / "line.toml").write_text(f'name = "line"\n{stages}')
    (tmp_path / "agents.py").write_text(AGENTS)
    env = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "LYRA_BUDGET_SECONDS": "0.2"}
    words = ("pipeline", "run", "line.toml", "--agents", "agents.py")
    done = warm.run("lyra.cli.main:main", words, cwd=tmp_path, env=env, timeout_s=20)
    assert done.returncode == 4, done
    assert "error[deadline_exceeded]: the process ran longer than 0.2 s" in done.stderr
    assert "run      other" not in done.stderr
