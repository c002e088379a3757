"""`vega run --live`, as a person sees it in a terminal, and as a pipe gets it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests import warm
from tests.cli.vega_runner import COMMAND, TARGET, Vega, vega

__all__ = ["vega"]

ROOT = Path(__file__).parents[3]

TEAM = """\
agent Quick { model "sim/script:script.toml" system "quick" max_tokens 100 }
agent Flaky { model "sim/script:script.toml" system "flaky" max_tokens 100 retry { max_attempts 1 } }

fn patiently(agent_, text) {
    try { return agent_ <- text; } catch AgentFailed { return agent_ <- text; }
}

session budget $0.10 {
    let quick = spawn Quick;
    let flaky = spawn Flaky supervised by { strategy restart max_restarts 3 window 60s backoff constant(PAUSE) };
    parallel {
        let a = quick <- "one";
        let b = patiently(flaky, "two");
    }
    print("quick: ${a}");
    print("flaky: ${b}");
}
"""
SCRIPT = """\
first_s = PAUSE

[price]
input_usd_per_mtok = 3
output_usd_per_mtok = 15

[[replies]]
system = "quick"
text = "one thing"

[[replies]]
system = "flaky"
text = "another thing"
error = { kind = "overloaded", attempts = 1 }
"""
PRINTED = "quick: one thing\nflaky: another thing\n"


def write_team(vega: Vega, pause_ms: int) -> Vega:
    vega.write("team.vega", TEAM.replace("PAUSE", f"{pause_ms}ms"))
    vega.write("script.toml", SCRIPT.replace("PAUSE", str(pause_ms / 1000)))
    return vega


@pytest.fixture
def team(vega: Vega) -> Vega:
    """One that is done at once."""
    return write_team(vega, 10)


@pytest.fixture
def slow_team(vega: Vega) -> Vega:
    """One that can be watched."""
    return write_team(vega, 350)


class Screen:
    """What a terminal shows after these bytes: enough of one for lines that are moved up to and written over."""

    def __init__(self, text: str, columns: int) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part == "\r":
                self.column = 0
            elif part.startswith("\x1b"):
                self._control(part)
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
                assert self.column <= columns, part

    def _control(self, part: str) -> None:
        if part.endswith("A"):
            self.row -= int(part[2:-1])
            assert self.row >= 0
        elif part.endswith("K"):
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif part.endswith("J"):
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
        else:
            assert part.endswith("m"), part  # a colour

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """A run in a terminal of its own; what does not go there goes to `stdout`."""

    def __init__(
        self,
        vega: Vega,
        *args: str,
        size: tuple[int, int] = (80, 24),
        stdout: int | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        ours, theirs = pty.openpty()
        self.columns = size[0]
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.running = subprocess.Popen(
            [*warm.command(TARGET), "run", *args],
            cwd=vega.folder,
            env={**vega.env, "TERM": "xterm-256color", **(env or {})},
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 (so that Ctrl-C reaches it)
        )
        self._theirs, self._ours = theirs, ours
        self.seen = ""

    def until(self, words: str) -> None:
        while words not in self.plain:
            self.seen += os.read(self._ours, 65536).decode()

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        """Its exit code, with everything read and the terminal as it was."""
        os.set_blocking(self._ours, False)
        code = None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self.running.wait(0.02)
            with suppress(BlockingIOError):
                while chunk := os.read(self._ours, 65536):
                    self.seen += chunk.decode(errors="replace")
        assert termios.tcgetattr(self._theirs) == self.before
        os.close(self._theirs)
        os.close(self._ours)
        return code

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)

    @property
    def screen(self) -> str:
        return Screen(self.seen.replace("\r\n", "\n"), self.columns).text


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("size", [(80, 24), pytest.param((200, 50), marks=pytest.mark.long)])
def test_a_terminal_gets_a_table_that_moves(slow_team: Vega, size: tuple[int, int]):
    """Processes at work, a crash and its restart while it happens; at the end one table, below what was printed."""
    shown = Terminal(slow_team, "team.vega", "--live", size=size)
    assert shown.end() == 0
    for moment in (r"Quick +working", r"patiently +waiting +Flaky", r"Flaky +restarting", r"main +waiting +\S*Quick"):
        assert re.search(moment, shown.plain), moment
    lines = shown.screen.splitlines()
    assert lines[:2] == PRINTED.splitlines()
    assert lines[2].split() == ["pid", "process", "state", "calls", "tokens", "cost", "restarts", "waits", "for"]
    assert [line.split()[1:3] for line in lines[3:6]] == [["main", "ended"], ["Quick", "idle"], ["Flaky", "idle"]]
    calls, _, cost, restarts = lines[5].split()[3:]
    assert (calls, restarts) == ("2", "1")
    assert cost.startswith("$0.000")
    assert re.fullmatch(
        r"\d\.\d s · \$0\.000\d+ of \$0\.10 \(\d %\) · 3 calls · \d+ tokens · 1 restart · 1 ended", lines[6]
    )
    assert len(lines) == 7


def test_a_narrow_terminal_gets_fewer_columns(team: Vega):
    """Nothing is broken into two lines."""
    shown = Terminal(team, "team.vega", "--live", size=(40, 10))
    assert shown.end() == 0
    lines = shown.screen.splitlines()
    assert lines[2].split() == ["process", "state", "cost"]
    assert len(lines) == 7


@pytest.mark.parametrize(("env", "colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_means_none(vega: Vega, env: dict[str, str], colours: bool):
    vega.write("broken.vega", 'throw "wrong";')
    shown = Terminal(vega, "broken.vega", "--live", env=env)
    assert shown.end() == 1
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", shown.seen)) is colours


def test_a_dumb_terminal_gets_lines(team: Vega):
    shown = Terminal(team, "team.vega", "--live", env={"TERM": "dumb"})
    assert shown.end() == 0
    assert "\x1b" not in shown.seen
    assert "crashed; restart 1" in shown.seen


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(slow_team: Vega):
    """Exit 130; the last picture stays, and shows what was going on."""
    shown = Terminal(slow_team, "team.vega", "--live")
    shown.until("working")
    shown.type(b"\x03")
    assert shown.end() == 130
    lines = shown.screen.replace("^C", "").strip().splitlines()
    assert lines[-1] == "interrupted"
    assert lines[0].startswith("pid")
    assert sum("process" in line for line in lines) == 1


def test_an_error_stands_below_the_table(vega: Vega):
    vega.write("broken.vega", 'print("before");\nthrow "wrong";\n')
    shown = Terminal(vega, "broken.vega", "--live")
    assert shown.end() == 1
    lines = shown.screen.splitlines()
    assert lines[0] == "before"
    assert lines[2].split() == ["p1", "main", "failed"]
    assert lines[4:6] == ["error[Error]: wrong", "  at broken.vega:2:1"]


def test_everything_printed_is_there_in_order(vega: Vega):
    """However much it is, the table hides none of it."""
    vega.write("lots.vega", "for i in list::range(0, 20000) { print(i); }\nprocess::sleep(1ms);")
    shown = Terminal(vega, "lots.vega", "--live")
    assert shown.end() == 0
    assert [line for line in shown.screen.splitlines() if line.isdigit()] == [str(number) for number in range(20000)]


def test_of_many_processes_the_busiest_are_shown(vega: Vega):
    """The table fits the screen; the rest is a number."""
    many = "fn idle() { receive { never => null, } }\nfor i in list::range(0, 1000) { spawn fn idle(); }\n"
    vega.write("many.vega", many + 'agent A { model "sim/echo" }\nlet a = spawn A;\na <- "hi";\nprocess::sleep(400ms);')
    shown = Terminal(vega, "many.vega", "--live")
    assert shown.end() == 0
    lines = shown.screen.splitlines()
    assert len(lines) <= 23
    assert lines[1].split()[1] == "main"
    assert any(line.split()[1:4] == ["A", "idle", "1"] for line in lines[1:-2])
    assert any(line.split()[1:] == ["idle", "waiting", "a", "message"] for line in lines)
    assert lines[-2] == f"… and {1002 - (len(lines) - 3)} more"


def test_stdout_into_a_file_is_only_what_is_printed(team: Vega, tmp_path: Path):
    """The table is on stderr, so it may stay."""
    with (tmp_path / "out.txt").open("wb") as file:
        shown = Terminal(team, "team.vega", "--live", stdout=file.fileno())
        assert shown.end() == 0
    assert (tmp_path / "out.txt").read_text() == PRINTED
    assert shown.screen.startswith("pid")


def test_beside_a_pipe_there_are_lines(team: Vega):
    """Whatever reads the pipe may write to the same terminal: nothing there is written over."""
    reading, writing = os.pipe()
    shown = Terminal(team, "team.vega", "--live", stdout=writing)
    os.close(writing)
    assert shown.end() == 0
    with os.fdopen(reading) as pipe:
        assert pipe.read() == PRINTED
    assert "\x1b" not in shown.seen
    assert "crashed; restart 1" in shown.seen


def test_without_a_terminal_there_is_a_line_for_each_thing(team: Vega):
    done = team("run", "team.vega", "--live")
    assert (done.returncode, done.stdout) == (0, PRINTED)
    lines = [re.sub(r" *[\d.]+ s  (\S+) +", r"\1: ", line, count=1) for line in done.stderr.splitlines()]
    assert lines[:2] == ["Quick: started", "Flaky: started"]
    flaky = [line.partition(": ")[2] for line in lines if line.startswith("Flaky")]
    assert flaky[1:4] == ["failed: overloaded", "crashed; restart 1", "started again"]
    assert re.fullmatch(
        r"total: \$0\.000\d+ of \$0\.10 \(\d %\) · 3 calls · \d+ tokens · 1 restart · 1 ended", lines[-1]
    )


def test_a_closed_stderr_does_not_stop_the_program(team: Vega):
    done = team("-c", '"$0" "$@" 2>&-', *COMMAND, "run", "team.vega", "--live", command=["sh"])
    assert (done.returncode, done.stdout) == (0, PRINTED)


def test_nor_does_one_that_is_not_read(team: Vega):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*warm.command(TARGET), "run", "team.vega", "--live"]
    done = subprocess.run(
        command, cwd=team.folder, env=team.env, stdout=subprocess.PIPE, stderr=writing, text=True, check=False
    )
    os.close(writing)
    assert done.stdout == PRINTED


def test_json_has_room_for_nothing_else(team: Vega):
    done = team("run", "team.vega", "--live", "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout)["output"] == PRINTED.splitlines()


def test_lines_of_a_trace_stay_whole(team: Vega):
    """--trace writes past the table, too."""
    shown = Terminal(team, "team.vega", "--live", "--trace", size=(400, 24))
    assert shown.end() == 0
    records = [json.loads(line) for line in shown.screen.splitlines() if line.startswith("{")]
    assert sorted(record["agent"] for record in records) == ["Flaky", "Flaky", "Quick"]


@pytest.mark.parametrize(("flags", "there"), [((), False), (("--live",), True)])
def test_without_the_flag_nothing_of_it_is_imported(team: Vega, flags: tuple[str, ...], there: bool):
    """Neither the view nor a table renderer; in a pipe never the latter."""
    probe = "import sys; from lyra.cli.main import vega; vega(); sys.stderr.write(' '.join(['MODULES', *sys.modules]))"
    done = team("run", "team.vega", *flags, command=[sys.executable, "-c", probe])
    modules = done.stderr.partition("MODULES")[2].split()
    assert ("lyra.cli.vega.live" in modules, "lyra.vega.runtime.picture" in modules) == (there, there)
    assert "rich" not in modules


@pytest.mark.slow
def test_make_run_runs_the_team_live():
    """The first command of the README, as it is piped; ARGS are passed on."""
    tools = Path(sys.executable).parent
    command = ["make", "--silent", "-o", ".venv/.installed", "run", f"BIN={tools}", "ARGS=--budget 1.00"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:4]] == [
        "correctness",
        "style",
        "security",
        "summary",
    ]
    assert "crashed; restart 1" in done.stderr
    assert "of $1.00" in done.stderr.splitlines()[-1]
