"""`vega replay` as people and scripts use it: a prompt, a pipe, JSON lines, and a screen in a real terminal."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import suppress
from typing import Any

import pytest

from tests import warm
from tests.cli.vega_runner import TARGET, Vega, vega

__all__ = ["vega"]

PROGRAM = """\
agent A { model "sim/echo" }
fn double(n) {
    let twice = n * 2;
    return twice;
}
let a = spawn A;
let first = a <- "one";
print(first);
let total = 0;
for i in [1, 2, 3] {
    total = total + double(i);
}
print(total);
if first == "new" { print(a <- "something else"); }
print(a <- "last");
"""


@pytest.fixture
def run(vega: Vega) -> Vega:
    vega.write("prog.vega", PROGRAM)
    done = vega("run", "prog.vega", "--db", "runs.db", "--run-id", "r1")
    assert done.returncode == 0, done.stderr
    return vega


def output_of(vega: Vega, *lines: str, code: int = 0, options: tuple[str, ...] = ()) -> str:
    done = vega("replay", "r1", "--db", "runs.db", *options, given="\n".join(lines) + "\n")
    assert done.returncode == code, done.stderr
    return done.stdout


# ---------------------------------------------------------------- the prompt
def test_a_script_steps_looks_and_breaks(run: Vega):
    text = output_of(
        run,
        "step",
        "break agent A",
        "continue",
        "where",
        "break line prog.vega:3",
        "continue",
        "vars",
        "print n + 40",
        "delete 2",
        "break if total > 5",
        "continue",
        "print total",
        "breaks",
        "reverse-continue",
        "goto end",
        "output",
        "effects 0 3",
        "processes",
        "mailbox",
        "cost",
        "back",
        "back line",
        "line",
        "next effect",
        "quit",
        "step",
    )
    assert "[0/" in text
    assert "breakpoint 1: agent A" in text
    assert ">    7  let first" in text
    assert "n = 1" in text
    assert "\n41\n" in text
    assert "deleted 2: line prog.vega:3" in text
    assert "\n6\n" in text
    assert "1: agent A\n3: if total > 5" in text
    assert "\none\n12\nlast\n" in text
    assert "   1 main   spawn A" in text
    assert "* main     main                 ended" in text
    assert "empty" in text
    assert "in all $0.0000" in text
    assert text.count("the end: the run finished") == 1


def test_mistakes_are_told_and_the_rest_is_done(run: Vega):
    done = run(
        "replay",
        "r1",
        "--db",
        "runs.db",
        given="print 1\nstepp\nstep\nprint nope\ngoto 999\nprint 1 + 1\nbreak agent B\n",
    )
    assert done.returncode == 1
    assert "did you mean step?" in done.stderr
    assert "unknown name `nope`" in done.stderr
    assert "no effect 999" in done.stderr
    assert "no agent 'B'" in done.stderr
    assert "nothing has begun" in done.stderr
    assert done.stdout.endswith("\n2\n")


def test_tools_get_one_json_object_a_line(run: Vega):
    text = output_of(run, "step 3", "vars", "nonsense", "effects 0 2", "output", code=1, options=("--json",))
    answers = [json.loads(line) for line in text.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, True, False, True, True]
    assert answers[0]["data"]["position"] == 3
    assert answers[0]["data"]["next"]["what"] == 'print "one"'
    assert answers[1]["data"]["first"] == '"one"'
    assert "nonsense" in answers[2]["error"]
    assert [effect["number"] for effect in answers[3]["data"]] == [0, 1]


def test_commands_come_from_a_file(run: Vega):
    run.write("look.txt", "# to the end\ngoto end\noutput\n")
    done = run("replay", "r1", "--db", "runs.db", "--commands", "look.txt")
    assert done.returncode == 0
    assert done.stdout.endswith("one\n12\nlast\n")
    missing = run("replay", "r1", "--db", "runs.db", "--commands", "none.txt")
    assert missing.returncode == 2
    assert "none.txt cannot be read" in missing.stderr


def test_a_fork_tells_what_came_of_it(run: Vega):
    """New effects are refused, and done with --live; the fork is a run of its own."""
    number = next(
        effect["number"]
        for effect in json.loads(output_of(run, "effects 0 99", options=("--json",)))["data"]
        if effect["agent"] == "A"
    )
    text = output_of(run, f'fork reply {number} "other"', f'fork mine error {number} "it broke"')
    assert "fork r1-fork-1: effect" in text
    assert "  | other\n  | 12\n  | last\nit finished\n" in text
    assert "it first differs at effect" in text
    assert "fork mine:" in text
    assert "it failed: AgentFailed: it broke" in text
    refused = output_of(run, f'fork reply {number} "new"')
    assert "did not ask" in refused
    assert "new effects, refused: model:A:sim/echo (`vega replay --live`" in refused
    assert "  | something else" in output_of(run, f'fork reply {number} "new"', options=("--live",))
    assert [known_run["run"] for known_run in run.json("runs", "--db", "runs.db")][:3] == ["r1", "r1-fork-1", "mine"]
    assert run("resume", "r1-fork-1", "--db", "runs.db").stdout == "other\n12\nlast\n"
    done = run("replay", "r1", "--db", "runs.db", given=f'fork mine reply {number} "x"\nfork reply "x"\nfork what\n')
    assert done.returncode == 1
    assert "there is a run 'mine' already" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("replay", "r2", "--db", "runs.db"), 2, "did you mean 'r1'?"),
        (("replay", "r1", "--db", "none.db"), 1, "no store at none.db"),
        (("replay", "r1", "--db", "prog.vega"), 1, "not a Lyra store"),
    ],
)
def test_what_is_not_there_is_said(run: Vega, args: tuple[str, ...], code: int, text: str):
    done = run(*args)
    assert done.returncode == code
    assert text in done.stderr


def test_a_run_that_is_at_work_may_be_looked_at(vega: Vega):
    """It goes on undisturbed."""
    vega.write("slow.vega", 'print("one");\nlet n = 7;\nprocess::sleep(60s);\nprint("never");\n')
    words = [*warm.command(TARGET), "run", "slow.vega", "--db", "runs.db", "--run-id", "r1"]
    with subprocess.Popen(words, cwd=vega.folder, env=vega.env, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "one\n"
        text = output_of(vega, "goto end", "print n")
        assert "the run is at work" in text
        assert "main waits: process::sleep 1m" in text
        assert text.endswith("\n7\n")
        assert child.poll() is None
        child.kill()


# ---------------------------------------------------------------- the screen
class Terminal:
    """`vega replay` in a terminal of a given size, and what its screen shows."""

    def __init__(self, vega: Vega, *options: str, rows: int = 24, columns: int = 80, **env: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(vega.folder)
            words = [*warm.command(TARGET), "replay", "r1", "--db", "runs.db", *options]
            os.execvpe(words[0], words, {**vega.env, "TERM": "xterm", **env})
        self.resize(rows, columns)
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    @property
    def screen(self) -> str:
        """The last whole picture."""
        return re.sub(r"\x1b(\[[0-9;?]*([a-zA-Z]|$)|$)", "", self.text.rpartition("\x1b[H")[2]).replace("\r", "")

    def until(self, wanted: str, *, anywhere: bool = False) -> str:
        due = time.monotonic() + 20
        while time.monotonic() < due:
            if wanted in (self.text if anywhere else self.screen):
                return self.screen
            if not self._read():
                break
        raise AssertionError(f"{wanted!r} is not in\n{self.screen}")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:
            return False
        self.text += self._decoder.decode(data)
        return bool(data)

    def end(self) -> int:
        due = time.monotonic() + 20
        while time.monotonic() < due and self._read():
            pass
        if time.monotonic() >= due:
            raise AssertionError(f"it did not end:\n{self.screen}")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminal(run: Vega, request: pytest.FixtureRequest) -> Any:
    def opened(*options: str, **settings: Any) -> Terminal:
        opened_terminal = Terminal(run, *options, **settings)
        request.addfinalizer(opened_terminal.close)
        return opened_terminal

    return opened


def test_a_person_steps_through_a_run(terminal: Any):
    """Panes for source, variables, processes, effects and output; keys that are shown; the terminal as it was."""
    shown = terminal()
    first = shown.until("q quit")
    for pane in ("source", "variables", "processes", "effects", "output"):
        assert f"── {pane} " in first
    lines = first.split("\n")
    assert len(lines) == 24
    assert {len(line) for line in lines} == {80}
    shown.type("nnnn")
    shown.until('first = "one"')
    shown.until(">   4 main")
    shown.type("b")
    shown.until(">   3 main")
    shown.type("g0\n")
    shown.until("r1  0/")
    shown.type(":break line prog.vega:4\n")
    shown.until("breakpoint 1: line prog.vega:4")
    shown.type("c")
    shown.until("twice = 2")
    assert ">   4     return twice;" in shown.screen
    shown.type("c")
    shown.until("twice = 4")
    shown.type("r")
    shown.until("twice = 2")
    shown.type(":print n * 100\n")
    shown.until("\n100 ")
    shown.type("?")
    shown.until("more: any key")
    shown.type("q")
    shown.until("── source")
    shown.type("z")
    shown.until("no key z")
    shown.type(":nonsense\n")
    shown.until("there is no command")
    shown.type("q")
    assert shown.end() == 0
    assert "\x1b[?1049h" in shown.text
    assert shown.text.rstrip().endswith("\x1b[?25h\x1b[?1049l")


def test_a_narrow_terminal_without_colours(terminal: Any):
    shown = terminal(columns=40, NO_COLOR="1")
    shown.until("── source")
    shown.type("nn")
    text = shown.until(">   2 main")
    assert {len(line) for line in text.split("\n")} == {40}
    assert not re.search(r"\x1b\[[0-9;]*m", shown.text)
    shown.type("q")
    assert shown.end() == 0


def test_a_window_that_changes_is_drawn_anew(terminal: Any):
    shown = terminal()
    shown.until("q quit")
    shown.resize(30, 110)
    text = shown.until("L back line  c continue")
    assert len(text.split("\n")) == 30
    shown.resize(12, 50)
    shown.until("n/b step")
    shown.type("q")
    assert shown.end() == 0


def test_ctrl_c_leaves_the_terminal_as_it_was(terminal: Any):
    shown = terminal()
    shown.until("q quit")
    shown.type("\x03")
    assert shown.end() == 130
    assert "\x1b[?1049l" in shown.text


def test_a_plain_prompt_in_a_terminal(terminal: Any):
    """With the tabulator, and Ctrl-D as the end."""
    shown = terminal("--plain")
    shown.until("replay> ", anywhere=True)
    assert "\x1b[?1049h" not in shown.text
    shown.type("effe\t")
    shown.until("effects ", anywhere=True)
    shown.type("\x15step 3\r")
    shown.until('print "one"', anywhere=True)
    while "replay> " not in shown.text.rpartition('print "one"')[2]:  # what is typed before may be thrown away
        shown.until("replay> ", anywhere=True)
        shown._read()
    shown.type("\x04")
    assert shown.end() == 0


AGENTS = """\
agent A { model "sim/echo" }
agent M { model "sim/echo" memory conversation system "be brief" }
let a = spawn A;
let m = spawn M;
print(a <- "one");
print(m <- "two");
print(m <- "three");
"""


def test_agents_are_processes_that_one_can_look_at(vega: Vega):
    """What they are, what they do, and what they have in mind: at every place of the run."""
    vega.write("agents.vega", AGENTS)
    vega("run", "agents.vega", "--db", "run.db", "--run-id", "r")

    def answers_to(*lines: str) -> list[Any]:
        done = vega("replay", "r", "--db", "run.db", "--json", given="\n".join(lines) + "\n")
        return [json.loads(line)["data"] for line in done.stdout.splitlines() if '"command"' in line]

    (listed,) = answers_to("goto end", "processes")[-1:]
    agents = {row["function"]: row for row in listed["processes"] if row["function"].startswith("agent ")}
    assert agents.keys() == {"agent A", "agent M"}
    m, a = agents["agent M"]["pid"], agents["agent A"]["pid"]
    told = answers_to("goto end", f"process {m}", f"process {a}", f"mailbox {m}")
    assert told[1]["conversation"] == [
        {"who": "user", "text": "two"},
        {"who": "assistant", "text": "two"},
        {"who": "user", "text": "three"},
        {"who": "assistant", "text": "three"},
    ]
    assert told[1]["settings"]["system"] == '"be brief"'
    assert [message["text"] for message in told[2]["conversation"]] == ["one", "one"]
    assert told[3]["messages"] == []
    steps = answers_to("effects 0 99")[0]
    number = next(step["number"] for step in steps if "three" in step["what"])
    before = answers_to(f"goto {number}", f"process {m}")[1]
    assert [message["text"] for message in before["conversation"]] == ["two", "two"]
    assert answers_to("goto 1", "processes")[1]["of"] == 1
    text = vega("replay", "r", "--db", "run.db", "--plain", given=f"goto end\nprocess {m}\n").stdout
    assert f"agent M ({m}): waits" in text
    assert '  user: "two"' in text
    assert "no process 'p99' here" in vega("replay", "r", "--db", "run.db", given="process p99\n").stderr


def test_messages_that_wait_are_in_the_mailbox(vega: Vega):
    """From the moment they were sent, also while their process does something else; a supervised one by its handle."""
    vega.write(
        "mail.vega",
        'fn w(parent) { parent <- "up"; process::sleep(3s); receive { "go" => print("went") } }\n'
        "let p = spawn fn w(process::self()) supervised by { strategy restart };\n"
        'receive { "up" => {} }\n'
        'p <- "a"; p <- "b"; process::sleep(1s); print("sent"); p <- "go"; process::sleep(3s);\n',
    )
    vega("run", "mail.vega", "--db", "run.db", "--run-id", "r")
    done = vega("replay", "r", "--db", "run.db", "--json", given="effects 0 99\n")
    steps = json.loads(done.stdout.splitlines()[-1])["data"]
    number = next(step["number"] for step in steps if step["what"].startswith("print"))
    handle = next(step["result"] for step in steps if step["kind"] == "spawn").strip("<>").split()[-1]
    done = vega("replay", "r", "--db", "run.db", "--json", given=f"goto {number}\nmailbox {handle}\nprocess {handle}\n")
    told = [json.loads(line)["data"] for line in done.stdout.splitlines() if '"command"' in line]
    assert told[1]["messages"] == ['"a"', '"b"']
    assert told[2]["process"] != "main"
