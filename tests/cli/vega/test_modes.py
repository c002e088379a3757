"""A program prints and fails alike, whether it runs plain, line by line, durably or with several worker threads."""

from __future__ import annotations

import re

import pytest

from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

MODES = {"plain": (), "--sequential": ("--sequential",), "--db": ("--db", "r.db"), "--workers 2": ("--workers", "2")}
FALL = 'fn fall() { process::sleep(20ms); throw Broken("as told"); }\n'
TIRED = 'fn tired() { process::sleep(20ms); process::exit("tired"); }\n'
BOT = 'agent Bot { model "sim/script:slow.yaml" memory conversation }\nlet b = spawn Bot;\n'
TIMED = ("--set", "budget.seconds=0.3")
# name: the program, flags, exit code, what it prints, how its error begins
PROGRAMS: dict[str, tuple[str, tuple[str, ...], int, list[str], str]] = {
    "printed processes": (
        """
        fn w() { receive { x => x } }
        let p = spawn fn w();
        print(p); print("${p}"); print([p, {"a": p}]); print(str::from(process::self())); print({p: 1});
        throw Broken("${p}");
        """,
        (),
        1,
        ["<process>", "<process>", "[<process>, {a: <process>}]", "<process>", "{<process>: 1}"],
        "error[Broken]: <process>",
    ),
    "a link that ends main": (
        FALL + "process::link(spawn fn fall());\nreceive { never => never }\n",
        (),
        1,
        [],
        "error[process_exit]: a linked process ended: error: Broken: as told",
    ),
    "a chain of links": (
        TIRED + "fn mid() { process::link(spawn fn tired()); receive { x => x } }\n"
        "process::link(spawn fn mid());\nreceive { never => never }\n",
        (),
        1,
        [],
        "error[process_exit]: a linked process ended: tired",
    ),
    "a link to a dead process": (
        TIRED + "let p = spawn fn tired();\nprocess::monitor(p);\nreceive { down => {} }\n"
        "process::link(p);\nprocess::sleep(9s);\n",
        (),
        1,
        [],
        "error[process_exit]: a linked process ended: noproc",
    ),
    "a message about a linked end": (
        FALL + "fn tied() { process::link(spawn fn fall()); receive { never => never } }\n"
        "let p = spawn fn tied() supervised by { strategy stop };\nprocess::monitor(p);\n"
        "receive { down => { print(down); print(down[1] == p); } }\n",
        (),
        0,
        ["[DOWN, <process>, a linked process ended: error: Broken: as told]", "true"],
        "",
    ),
    "supervisors that give up": (
        FALL + "supervisor S { strategy restart max_restarts 1 window 60s child a = fn fall() }\n"
        "spawn S;\nreceive { down => { print(down); } }\n",
        (),
        0,
        [
            "[DOWN, <process>, the supervisor gave up after 1 restarts in 60 s: child 'a' ended: Broken: as told]",
        ],
        "",
    ),
    "time that runs out in a wait": (
        "try { process::sleep(30s); } catch DeadlineExceeded(why) { print(why); throw DeadlineExceeded(why); }\n",
        TIMED,
        4,
        ["the process ran longer than 0.3 s"],
        "error[deadline_exceeded]: the process ran longer than 0.3 s",
    ),
    "time that runs out in a loop": (
        "while true { }\n",
        TIMED,
        4,
        [],
        "error[deadline_exceeded]: the process ran longer than 0.3 s",
    ),
    "time that runs out in a call": (
        BOT + 'print(b <- "x");\n',
        TIMED,
        4,
        [],
        "error[deadline_exceeded]: the process ran longer than 0.3 s",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_output_and_errors_are_the_same_in_every_mode(vega: Vega, name: str):
    """Texts that a program sees or that end it name no pid, since pids differ between the modes."""
    source, flags, code, printed, error = PROGRAMS[name]
    vega.write("slow.yaml", "replies:\n  - text: done\n    first_s: 30\n")
    vega.write("a.vega", source)
    outcomes = {}
    for mode, words in MODES.items():
        done = vega("run", "a.vega", *words, *flags)
        told = [line for line in done.stderr.splitlines() if not line.startswith("run ")]
        outcomes[mode] = (done.returncode, done.stdout.splitlines(), sorted(told))  # threads may tell in any order
        assert [line for line in told if line.startswith("error")] == ([error] if error else []), mode
        assert not re.search(r"\bp\d+\b|\bprocess main\b", done.stdout + "\n".join(told)), mode
    assert outcomes["plain"][:2] == (code, printed)
    assert outcomes == dict.fromkeys(MODES, outcomes["plain"])
