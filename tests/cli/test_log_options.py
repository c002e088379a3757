"""`--log-level`, `--log-format` and the table `[log]`: what they make the commands that run things write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import warm

PROGRAM = 'agent Bot { model "sim/echo" }\nlet bot = spawn Bot;\nprint(bot <- "hello");\n'
PIPELINE = 'name = "p"\n[[agents]]\nname = "first"\n'
AGENTS = "async def first(envelope):\n    return {}\n"
NODE = """\
node_id: add_v1
type: function
intent: add one

inputs:
  a: {type: integer}

outputs:
  success:
    total: {type: integer}

flow:
  - step: find_total
    operation: arithmetic
    expression: "a + 1"
    output: total
"""
COMMANDS = {
    "vega run": ("vega", ("run", "program.vega"), "agent.answered"),
    "lyra run": ("main", ("run", "program.vega"), "agent.answered"),
    "lyra agent": ("main", ("agent", "-p", "hi", "--model", "sim/echo"), "agent.answered"),
    "lyra pipeline": ("main", ("pipeline", "run", "pipeline.toml", "--agents", "agents.py"), "pipeline.ended"),
}


def ended(folder: Path, target: str, *words: str, **env: str) -> tuple[int, str, str]:
    (folder / "program.vega").write_text(PROGRAM)
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "agents.py").write_text(AGENTS)
    (folder / "home").mkdir(exist_ok=True)
    basic = {"HOME": str(folder / "home"), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = warm.run(f"lyra.cli.main:{target}", words, cwd=folder, env={**basic, **env})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_that_runs_things_logs(tmp_path: Path, command: str) -> None:
    """JSON lines on stderr, stdout as without the options; without them nothing is logged."""
    target, words, kind = COMMANDS[command]
    code, plain, quiet = ended(tmp_path, target, *words)
    assert code == 0, quiet
    assert kind not in quiet
    code, out, err = ended(tmp_path, target, *words, "--log-format", "json", "--log-level", "info")
    rows = [json.loads(line) for line in err.splitlines() if line.startswith('{"time"')]
    assert code == 0, err
    assert kind in [row["message"] for row in rows]
    assert all(row["level"] in ("error", "warn", "info") for row in rows)
    assert (len(out) > 0) == (len(plain) > 0)


def test_options_stand_before_the_command_too(tmp_path: Path) -> None:
    """`lyra --log-level debug run …` is the same as `lyra run … --log-level debug`; as text, model calls are told."""
    code, _, err = ended(tmp_path, "main", "--log-level", "debug", "run", "program.vega")
    assert code == 0
    assert " DEBUG lyra.events: model.called " in err


# Each group of commands with the options before its command, and what is then logged.
OPTIONS = ["--log-level", "info", "--log-format", "json"]
GROUPS = {
    "lyra": (["--log-level", "info", "--log-format", "json", "run", "program.vega"], "agent.answered"),
    "vega": (["vega", *OPTIONS, "run", "program.vega"], "agent.answered"),
    "sage": (["sage", *OPTIONS, "start", "-p", "hi", "--model", "sim/echo"], "agent.answered"),
    "vesper": (
        ["vesper", "--log-level", "trace", "--log-format", "json", "run", "add.vsp", "-i", "a=1"],
        "vesper.traced",
    ),
}


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_of_commands_takes_them(tmp_path: Path, group: str) -> None:
    """`lyra vega --log-level …` and its like: the level and the form of what is logged."""
    (tmp_path / "add.vsp").write_text(NODE)
    words, kind = GROUPS[group]
    code, _, err = ended(tmp_path, "main", *words)
    rows = [json.loads(line) for line in err.splitlines() if line.startswith('{"time"')]
    assert code == 0, err
    assert kind in {row["message"] for row in rows}, err
    assert ("trace" in {row["level"] for row in rows}) == ("trace" in words)


@pytest.mark.parametrize("source", ["file", "variable"])
def test_the_table_says_the_same(tmp_path: Path, source: str) -> None:
    """`[log]` in the user's lyra.toml, or its variables: level, format and file."""
    log = tmp_path / "log.jsonl"
    env = {}
    if source == "file":
        (tmp_path / "home" / ".config" / "lyra").mkdir(parents=True)
        table = f'[log]\nlevel = "info"\nformat = "json"\nfile = "{log}"\n'
        (tmp_path / "home" / ".config" / "lyra" / "lyra.toml").write_text(table)
    else:
        env = {"LYRA_LOG_LEVEL": "info", "LYRA_LOG_FORMAT": "json", "LYRA_LOG_FILE": str(log)}
    code, _, err = ended(tmp_path, "main", "run", "program.vega", **env)
    assert (code, err) == (0, "")
    assert "agent.answered" in [json.loads(line)["message"] for line in log.read_text().splitlines()]


def test_a_level_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    """Exit code 2, with the levels that there are."""
    code, _, err = ended(tmp_path, "main", "run", "program.vega", "--log-level", "loud")
    assert code == 2
    assert "trace" in err


def test_the_file_of_the_configuration_is_written(tmp_path: Path) -> None:
    """`log.file` as a setting of one run, with its level and its form."""
    code, _, err = ended(
        tmp_path, "main", "--set", "log.file=own.log", "--set", "log.level=info", "run", "program.vega"
    )
    assert (code, err) == (0, "")
    assert " INFO  lyra.events: agent.answered " in (tmp_path / "own.log").read_text()
