"""`lyra agent` and its audit log: where the configuration says, as much as it says, and with an end that is seen."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.observe import verify
from lyra.observe.chain import read_links
from tests.cli.agent_runner import DONE, Runner, call

READS = [call("Glob", pattern=f"*{number}") for number in range(40)]
# Everything in a file system of one page, of which a copy is taken out.
IN_A_PAGE = """
mount -t tmpfs -o size=4k none "$1" || exit 99
log=$2; shift 2
"$@"; code=$?
cp disk/audit.jsonl "$log"
exit $code
"""


def kinds(path: Path) -> set[str]:
    return {link.kind for link in read_links(path)}


def mine(run: Runner, text: str) -> None:
    path = Path(run.env["HOME"], ".config", "lyra", "lyra.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_configuration_names_the_log_and_its_level(run):
    """A user's file, then one on the command line in its place; a project can raise the level and not lower it."""
    log, other = run.folder.parent / "log.jsonl", run.folder.parent / "other.jsonl"
    mine(run, f'[audit]\nfile = "{log}"\n')
    model = run.script(READS[0], DONE)
    assert run("--model", model).returncode == 0
    assert kinds(log) == {"audit.opened", "tool.decided", "audit.closed"}
    run.write("lyra.toml", '[audit]\nlevel = "none"\nfile = "here.jsonl"\n')
    done = run("--model", model)
    assert "a project can only tighten audit.level; your basic holds, not none" in done.stderr
    assert len([link for link in read_links(log) if link.kind == "audit.closed"]) == 2
    assert not (run.folder / "here.jsonl").exists()
    run.write("lyra.toml", '[audit]\nlevel = "detailed"\n')
    run("--model", model, "--audit", str(other), "--audit-level", "basic")
    assert "tool.called" in kinds(other)
    assert "tool.called" not in kinds(log)


def test_variables_name_the_log_and_its_level(run):
    log = run.folder.parent / "log.jsonl"
    model = run.script(READS[0], DONE)
    run.env["LYRA_AUDIT_FILE"] = str(log)
    assert run("--model", model).returncode == 0
    assert "tool.decided" in kinds(log)
    assert "tool.called" not in kinds(log)
    run.env["LYRA_AUDIT_LEVEL"] = "detailed"
    assert run("--model", model).returncode == 0
    assert "tool.called" in kinds(log)


def test_the_command_line_says_how_much(run):
    log = run.folder.parent / "log.jsonl"
    mine(run, f'[audit]\nfile = "{log}"\nlevel = "detailed"\n')
    model = run.script(READS[0], DONE)
    run("--model", model, "--audit-level", "none")
    assert not log.exists()
    run("--model", model, "--audit-level", "basic")
    assert "tool.called" not in kinds(log)
    run("--model", model)
    assert "tool.called" in kinds(log)


def test_how_much_of_no_log_is_a_mistake(run):
    """`none` is not: there is no log, as was asked for."""
    model = run.script(DONE)
    done = run("--model", model, "--audit-level", "detailed")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--audit-level detailed" in done.stderr
    assert "hint: name one with --audit FILE" in done.stderr
    assert run("--model", model, "--audit-level", "none").returncode == 0


def test_the_machines_log_is_written_beside_ones_own(lyra, monkeypatch):
    """And no flag turns it off, or down."""
    managed, demanded = lyra.folder.parent / "managed.toml", lyra.folder.parent / "demanded.jsonl"
    managed.write_text(f'[audit]\nfile = "{demanded}"\nlevel = "detailed"\n')
    monkeypatch.setattr("lyra.config.sources.MANAGED_FILE", str(managed))
    model = Runner(lyra).script(READS[0], DONE)
    config = Config.load(lyra.folder, {"HOME": str(lyra.folder)})
    options = HeadlessOptions(model=model, folder=str(lyra.folder), audit=str(lyra.folder / "mine"), audit_level="none")

    async def work() -> None:
        async with Headless(options, config) as run:
            await run.ask("go")

    asyncio.run(work())
    assert kinds(demanded) == kinds(lyra.folder / "mine") >= {"tool.called", "audit.closed"}


def test_a_project_may_keep_a_log_in_its_own_folder(run):
    run.write("lyra.toml", '[audit]\nfile = ".lyra/audit/"\n')
    for _ in range(2):
        assert run("--model", "sim/echo", "--trust-folder", task="hi").returncode == 0
    files = list((run.folder / ".lyra/audit").iterdir())
    assert [verify(file).ok for file in files] == [True, True]


def test_a_run_that_met_a_full_disk_has_no_end_in_the_log(run):
    """Under a limit on file sizes: the run stops, the log is whole, and its check says that the end is missing."""
    done = _run_with(run, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000)))
    assert done.returncode == 1
    _assert_cut_short(run.lyra, run.folder / "audit.jsonl")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare here")
def test_a_real_full_disk_is_met_alike(run):
    disk = run.folder / "disk"
    disk.mkdir()
    command = run.command("--model", run.script(*READS, DONE), "--audit", "disk/audit.jsonl")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", IN_A_PAGE, "sh", str(disk), str(run.folder / "audit.jsonl"), *command],
        cwd=run.folder,
        env={**run.env, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("no file system may be mounted here")
    assert done.returncode == 1
    assert "error[store_full]: there is no room for the audit log disk/audit.jsonl" in done.stderr
    _assert_cut_short(run.lyra, run.folder / "audit.jsonl")


def _run_with(run: Runner, limit: Callable[[], object]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        run.command("--model", run.script(*READS, DONE), "--audit", "audit.jsonl"),
        cwd=run.folder,
        env={**run.env, "PYTHONDONTWRITEBYTECODE": "1"},  # half of it would be kept
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )


def _assert_cut_short(lyra, log: Path) -> None:
    """Either there was no room for the last record, or it says how many before it are missing."""
    checked = lyra("audit", "verify", str(log))
    assert checked.returncode == 0
    assert "all as they were written" in checked.stdout
    assert "warning: " in checked.stdout
    verified = json.loads(lyra("audit", "verify", str(log), "--json").stdout)
    assert verified["ok"]
    assert bool(verified["unended"]) != bool(verified["missed"])


@pytest.mark.parametrize("place", ["audit.jsonl", "logs/audit.jsonl", "audit/"])
def test_no_tool_and_no_command_touches_the_log(run, place):
    """Also where it lies in the workspace."""
    (run.folder / "logs").mkdir()
    inner = "audit" if place.endswith("/") else place
    does = [
        call("Bash", command=f"mv {inner} gone; rm -rf {inner}; echo forged > {inner}; mv logs gone; echo x > audit/x"),
        call("Write", path=inner if inner != "audit" else "audit/x", content="forged"),
        call("Bash", command="echo fine > made"),
    ]
    done = run(
        "--model", run.script(*does, DONE), "--allowed-tools", "Bash", "--allowed-tools", "Write", "--audit", place
    )
    assert done.returncode == 0, done.stderr
    (log,) = (run.folder / "audit").iterdir() if place.endswith("/") else [run.folder / place]
    assert verify(log).ok
    assert [link.kind for link in read_links(log)][-1] == "audit.closed"
    assert "forged" in log.read_text()  # as what was asked for


@pytest.mark.parametrize("place", [".git/hooks/pre-commit", "sub/.env", ".envrc", "lyra.toml", ".vscode/tasks.json"])
def test_a_log_is_no_protected_file(run, place):
    path = run.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    run.write(".lyra/x", "")
    done = run("--model", run.script(DONE), "--audit", place)
    assert (done.returncode, "protected" in done.stderr) == (2, True)
    assert not path.exists()
