"""How a command ends: streams, exit codes, and the shape of an error."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextvars import copy_context

import click
import pytest
from click.testing import CliRunner

from lyra import errors
from lyra._version import __version__
from lyra.cli import render
from lyra.cli.app import COMMANDS, CliCommand, CommandGroup, Lazy, root, run
from lyra.cli.main import main


@pytest.mark.parametrize("args", [["--version"], ["--debug", "--version"]])
def test_version(lyra, args):
    """One line on stdout."""
    done = lyra.real(*args)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lyra {__version__}\n", "")


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"]])
def test_help_names_every_command(lyra, args):
    """`lyra` alone is a question, not a mistake."""
    done = lyra.real(*args)
    assert (done.returncode, done.stderr) == (0, "")
    for name, row in COMMANDS.items():
        assert name in done.stdout
        assert row.help in " ".join(done.stdout.split())  # a long sentence is wrapped
    assert "_LYRA_COMPLETE=bash_source" in done.stdout


def test_a_bare_group_shows_its_help():
    """At every level."""
    result = copy_context().run(CliRunner().invoke, root, ["config"])
    assert result.exit_code == 0
    assert "List every key" in result.output


def test_a_command_called_by_itself_keeps_both_names_of_its_help():
    """click keeps the help option of a command's first call: a program that calls `ps` without `lyra` around it changes
    nothing for those that follow."""

    @click.command(cls=CliCommand)
    def alone() -> None:
        """Do nothing."""

    group = CommandGroup("group", commands=[alone])
    for command in (alone, group):
        result = copy_context().run(CliRunner().invoke, command, ["--help"])
        assert "-h, --help" in result.output
        assert copy_context().run(CliRunner().invoke, command, ["-h"]).output == result.output


def test_the_table_of_commands_tells_the_truth():
    """Each row leads to a command whose own sentence is the row's."""
    ctx = click.Context(root)
    for name, row in COMMANDS.items():
        command = root.get_command(ctx, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=200) == row.help


@pytest.mark.parametrize(
    ("args", "sentence", "hint"),
    [
        (["cofig"], "lyra has no command 'cofig'", "did you mean 'config'?"),
        (["xyzzy"], "lyra has no command 'xyzzy'", f"commands: {', '.join(sorted(COMMANDS))}"),
        (["config", "shwo"], "lyra config has no command 'shwo'", "did you mean 'show'?"),
        (["config", "show", "--origni"], "--origni", "did you mean --origin?"),
        (["config", "show", "more"], "more", "see lyra config show --help"),
        (["store", "export", "--after", "x"], "'x'", "see lyra store export --help"),
        (["--nonsense"], "--nonsense", "see lyra --help"),
        (["--set"], "--set", "see lyra --help"),
        (["--debug"], "Missing command", "see lyra --help"),
    ],
)
def test_bad_usage_is_exit_2_with_a_hint(capsys, args, sentence, hint):
    """`error[usage]: …` on stderr, nothing on stdout, and what was probably meant."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert any(line.startswith("error[usage]: ") and sentence in line for line in lines)
    assert f"  hint: {hint}" in lines


def test_a_lyra_error_has_place_hint_and_its_exit_code(lyra):
    """error[code], then where, then what to try; further mistakes after it; no traceback."""
    (lyra.folder / "lyra.toml").write_text('[kernel]\nstroe = "x"\nlease_s = "soon"\n')
    done = lyra.real("config", "show", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error[config]: there is no setting 'kernel.stroe'",
        "  at lyra.toml:2",
        "  hint: did you mean kernel.store?",
        "  also: lyra.toml:3: kernel.lease_s is a number, not 'soon'",
    ]


@pytest.mark.parametrize(
    "args", [["--debug", "store", "info"], ["store", "--debug", "info"], ["store", "info", "--debug"]]
)
def test_debug_shows_the_traceback_anywhere(lyra, args):
    """Before or after the command's name; the error's lines still come last."""
    done = lyra(*args)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-2].startswith("error[store]: ")
    assert "Traceback" not in lyra("store", "info").stderr


def test_set_works_before_and_after(lyra):
    """`--set` is one option wherever it stands; the last one wins."""
    data = lyra.json(
        "--set", "kernel.lease_s=1", "config", "--set", "kernel.lease_s=2", "show", "--set", "budget.usd=3"
    )
    assert data["kernel"]["lease_s"] == 2.0
    assert data["budget"]["usd"] == "$3.00"


@pytest.mark.parametrize("code", sorted(errors.CODES))
def test_every_error_code_has_its_exit_code(code, capsys):
    """The table in errors.py is what the shell sees."""
    error = errors.error_from_data({"code": code, "message": "it failed"})
    assert render.report(error, debug=False) == errors.CODES[code].exit
    assert capsys.readouterr().err.startswith(f"error[{code}]: it failed\n")


@pytest.fixture
def broken(monkeypatch):
    """A command that ends the way a test wants."""

    def install(error: BaseException) -> None:
        @click.command()
        def fail() -> None:
            raise error

        monkeypatch.setitem(COMMANDS, "fail", Lazy(__name__, "Fail.", "_FAIL"))
        monkeypatch.setitem(globals(), "_FAIL", fail)

    return install


def test_a_bug_is_told_without_a_traceback(broken, capsys):
    """error[internal] in one line, and how to see more; passwords masked, control characters escaped."""
    broken(ZeroDivisionError("by\nzero \x1b[31m postgresql://u:hunter2@h"))
    assert main(["fail"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0] == r"error[internal]: ZeroDivisionError: by zero \x1b[31m postgresql://u:***@h"
    assert "--debug" in err.splitlines()[1]
    assert main(["--debug", "fail"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "hunter2" not in err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_130_and_one_line(broken, capsys, error):
    """Also when a prompt was aborted."""
    broken(error)
    assert main(["fail"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_click_error_looks_like_ours(broken, capsys):
    """Whatever click raises has the same shape."""
    broken(click.ClickException("no such thing"))
    assert main(["fail"]) == 2
    assert capsys.readouterr().err == "error[usage]: no such thing\n"


def hears_sigint() -> None:
    """Tests that run in the background of a shell ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_in_a_real_run(lyra, tmp_path):
    """SIGINT while a command waits: exit 130 and one line on stderr."""
    os.mkfifo(lyra.folder / "waits.db")  # doctor reads a store's header and waits for a writer
    child = subprocess.Popen(
        [*lyra.command, "doctor", "--set", "kernel.store=waits.db"],
        cwd=lyra.folder,
        env=lyra.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hears_sigint,  # noqa: PLW1509 (one thread, and nothing but a signal is set)
    )
    # Opening the other end returns once the child has opened its own: it is inside the command now.
    with open(lyra.folder / "waits.db", "wb"):
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error(lyra):
    """`lyra config keys | head -0`: nothing on stderr."""
    shell = f"{subprocess.list2cmdline(lyra.command[:1])} -c '{lyra.command[2]}' config keys"
    done = subprocess.run(
        ["bash", "-c", f"({shell}; echo $? >&3) 3>code | head -c 0"],
        cwd=lyra.folder,
        env=lyra.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
    assert (lyra.folder / "code").read_text() in ("141\n", "0\n")  # 0: the pipe's buffer took it all in time


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_told(lyra):
    """A result that could not be written is a failure, said once."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*lyra.command, "config", "show"],
            cwd=lyra.folder,
            env=lyra.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) <= 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_completion_comes_with_click(lyra):
    """The shell's question gets the names of commands."""
    done = lyra.real(_LYRA_COMPLETE="bash_complete", COMP_WORDS="lyra sto", COMP_CWORD="1")
    assert done.returncode == 0
    assert "store" in done.stdout


def _in_terminal(lyra, *args: str, **env: str) -> str:
    """What a person sees: stdout and stderr are one terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*lyra.command, *args],
        cwd=lyra.folder,
        env={**lyra.env, "TERM": "xterm", "COLUMNS": "60", **env},
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
    os.close(ours)
    return seen.decode()


def test_a_terminal_gets_colour_and_wrapping(lyra):
    """Tables fit the width; NO_COLOR is respected for results and errors."""
    seen = _in_terminal(lyra, "config", "keys")
    assert "\x1b[" in seen
    assert max(len(line) for line in seen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()) <= 60
    assert "\x1b[3" not in _in_terminal(lyra, "config", "keys", NO_COLOR="1")
    assert "\x1b[31m" in _in_terminal(lyra, "store", "info")
    assert "\x1b[" not in _in_terminal(lyra, "store", "info", NO_COLOR="1")


def test_text_from_outside_cannot_write_to_the_terminal():
    """Escape sequences and direction marks are shown, not obeyed; newlines and tabs stay."""
    assert render.printable("a\x1b[2Jb\u202ec\x9b\r\n\td") == "a\\x1b[2Jb\\u202ec\\x9b\\x0d\n\td".replace(
        "\\x0d", "\\r"
    )


def test_a_locale_is_no_reason_to_fail(lyra):
    """Output that the locale cannot encode is escaped."""
    done = lyra.fresh("config", "keys", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "postgresql://\\u2026" in done.stdout


def test_a_group_inside_a_group_is_one_of_ours():
    """Shared options and did-you-mean at every level."""
    outer = CommandGroup("outer")

    @outer.group()
    def inner() -> None:
        """Inner."""

    assert isinstance(inner, CommandGroup)
    assert run(["config", "--help"]) == 0


def test_python_m_lyra_is_the_command(lyra):
    done = subprocess.run(
        [sys.executable, "-m", "lyra", "--version"],
        env=lyra.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.startswith("lyra ")


# A Ctrl-C at the import of one module, in a fresh interpreter.
PRESSED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
OURS = ("lyra", "lyra._imports", "lyra._version", "lyra.cli", "lyra.cli.main", "lyra.__main__")
class Pressed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r} or not {module!r} and name not in OURS:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Pressed)
from lyra.cli.main import {name} as main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("name", "module", "args"),
    [
        ("main", "", ["--help"]),
        ("vega", "", ["--help"]),
        ("main", "click", ["--help"]),
        ("main", "lyra.cli.app", ["tools", "list"]),
        ("main", "lyra.mcp.servers", ["tools", "list"]),
        ("vega", "lyra.cli.vega.group", ["check", "a.vega"]),
    ],
)
def test_ctrl_c_while_modules_are_imported_ends_quietly(lyra, name, module, args):
    """From the first import after those that the way in is made of (`module` empty) to the last of a command."""
    done = subprocess.run(
        [sys.executable, "-c", PRESSED.format(module=module, name=name), *args],
        cwd=lyra.folder,
        env=lyra.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
