"""One table of exit codes and one spelling of errors, `error[code]`, under `lyra`, `lyra run` and `vega`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from lyra.errors import CODES
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore
from tests import warm

TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lyra": ("lyra.cli.main:main", ()),
    "lyra run": ("lyra.cli.main:main", ("run",)),
    "vega": ("lyra.cli.main:vega", ("run",)),
}
NO_STORE = "this is no store, and long enough to look like one " * 50
SLOW = "price: {input_usd_per_mtok: 1000, output_usd_per_mtok: 1000}\nreplies:\n  - text: done\n    first_s: 30\n"
AGENT = 'agent Bot {{ model "sim/script:slow.yaml" {} }}\nlet b = spawn Bot;\nprint(b <- "x");\n'


class Case(NamedTuple):
    """What goes wrong, how it is met by `lyra` and by a Vega program, and the code of it."""

    code: str
    lyra: tuple[str, ...] | None
    program: str
    flags: tuple[str, ...] = ()
    file: str = "program.vega"


CASES = {
    "a command line": Case("usage", ("store", "info", "--nonsense"), "print(1);", ("--nonsense",)),
    "a setting": Case("config", ("config", "show", "--set", "nonsense=1"), AGENT.format(""), ("--set", "nonsense=1")),
    "a file that is not there": Case("config", ("pipeline", "run", "none.toml"), "", (), "none.vega"),
    "a compiled file": Case("bytecode", None, "no bytecode", (), "program.vgb"),
    "a right that is missing": Case("capability_denied", None, 'print(file::read("/etc/hostname"));'),
    "a model that is denied": Case(
        "capability_denied",
        ("agent", "-p", "hi", "--model", "sim/echo", "--set", "grant.deny=model.use"),
        'agent Bot { model "sim/echo" }\nlet b = spawn Bot;\nprint(b <- "x");\n',
        ("--set", "grant.deny=model.use"),
    ),
    "a permission that is missing": Case(
        "approval_refused", ("tools", "call", "Bash", "--arg", "command=ls", "--mode", "deny-unasked"), ""
    ),
    "a budget": Case(
        "budget_exceeded",
        ("agent", "-p", "hi", "--model", "sim/script:slow.yaml", "--max-budget-usd", "0.000001"),
        AGENT.format(""),
        ("--budget", "$0.000001"),
    ),
    "a deadline": Case(
        "deadline_exceeded",
        ("agent", "-p", "hi", "--model", "sim/script:slow.yaml", "--set", "budget.seconds=0.2"),
        AGENT.format("timeout 200ms"),
    ),
    "a store in a folder's place": Case("store", ("store", "info", "."), "print(1);", ("--db", ".")),
    "a store that is none": Case("corrupt", ("store", "info", "no.db"), "print(1);", ("--db", "no.db")),
    "a store that is owned": Case(
        "conflict", ("store", "compact", "owned.db"), "print(1);", ("--db", "owned.db", "--run-id", "r")
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "no.db").write_text(NO_STORE)
    (folder / "slow.yaml").write_text(SLOW)
    main = SqliteStore(folder / "owned.db")
    run = Space(folder / "owned.db", "r")
    for store in (main, run):
        store.acquire("far-host/boot/ns|4711|2|x", now=time.time(), ttl_s=600.0)
        store.close()
    return folder


def _call(command: str, folder: Path, *words: str):
    target, first = TARGETS.get(command, ("lyra.cli.main:vega", (command,)))
    env = {"HOME": str(folder), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "LYRA_KERNEL_LEASE_WAIT_S": "0.2"}
    return warm.run(target, (*first, *words), cwd=folder, env=env)


@pytest.mark.parametrize("what", CASES)
@pytest.mark.parametrize("command", TARGETS)
def test_an_error_has_one_code_and_one_exit_code(folder: Path, command: str, what: str):
    """The exit code is the table's, and the error begins with its code in brackets, whichever command met it."""
    case = CASES[what]
    words: tuple[str, ...]
    if command == "lyra":
        if case.lyra is None:
            pytest.skip("no command of its own meets it")
        words = case.lyra
    else:
        if not case.program and case.file == "program.vega":
            pytest.skip("no program meets it")
        if case.program:
            (folder / case.file).write_text(case.program)
        words = (case.file, *case.flags)
    done = _call(command, folder, *words)
    code = 2 if case.code == "usage" else CODES[case.code].exit
    heads = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert (done.returncode, [head.partition(":")[0] for head in heads]) == (code, [f"error[{case.code}]"]), done


@pytest.mark.parametrize("durable", [(), ("--db", "run.db")], ids=["plain", "durable"])
@pytest.mark.parametrize("command", ["lyra run", "vega"])
@pytest.mark.parametrize(
    ("source", "code", "head"),
    [
        ('throw Broken("x");', 1, "error[Broken]: x"),
        ('throw "x";', 1, "error[Error]: x"),
        ("print([1][5]);", 1, "error[IndexError]"),
        ('throw CapabilityDenied("mine");', 3, "error[capability_denied]: mine"),
    ],
)
def test_what_a_program_throws_is_the_programs(folder: Path, command, durable, source: str, code: int, head: str):
    """A program's own error has its name as code and exit code 1; one of Lyra's is that error, also thrown on."""
    (folder / "program.vega").write_text(source)
    done = _call(command, folder, "program.vega", *durable)
    assert done.returncode == code, done
    assert head in done.stderr


@pytest.mark.parametrize("durable", [(), ("--db", "run.db", "--run-id", "busy")], ids=["plain", "durable"])
@pytest.mark.parametrize("command", ["lyra run", "vega"])
@pytest.mark.parametrize("source", ["while true { }", "process::sleep(30s);"])
def test_a_program_that_runs_out_of_time_is_a_deadline(folder: Path, command: str, durable, source: str):
    """The seconds of the budget are a deadline whether or not the program waits, also when its run is shown again."""
    (folder / "program.vega").write_text(source)
    done = [_call(command, folder, "program.vega", *durable, "--set", "budget.seconds=0.3")]
    if durable:
        done.append(_call("resume", folder, "busy", "--db", "run.db"))
    for call in done:
        assert call.returncode == 4, call
        assert "error[deadline_exceeded]: the process ran longer than 0.3 s" in call.stderr


@pytest.mark.parametrize("command", ["lyra run", "vega"])
def test_mistakes_in_a_source_are_exit_2_with_their_places(folder: Path, command: str):
    (folder / "program.vega").write_text("let x = ;\n")
    done = _call(command, folder, "program.vega")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("program.vega:1:9: error: ")
