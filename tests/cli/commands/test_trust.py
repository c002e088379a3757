"""The trust of a folder from a shell: the question on a terminal, the line without one, and `lyra trust`."""

from __future__ import annotations

import json
import os
import pty
import select
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.cli.commands.trust import render_passed_over
from lyra.config.asks import Ask, FileAsks
from tests import trusting, warm
from tests.cli.conftest import TARGET

RULES = 'allow = ["Bash(make *)"]\ndeny = ["Read(x)"]\n'
AGENT = ("agent", "-p", "go", "--model", "sim/echo")


def project(lyra: Any, text: str = RULES, name: str = ".lyra/permissions.toml") -> Path:
    path: Path = lyra.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def allows(lyra: Any, *flags: str) -> bool:
    return bool(lyra.json("permissions", "explain", "Bash", "make a", *flags)["decision"] == "allow")


def at_a_terminal(lyra: Any, answer: str, *args: str, before: str = "") -> tuple[int, str]:
    """The command on a terminal of its own: what it printed there; the answer is typed once it asks."""
    command = [*warm.command(TARGET), *args]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(lyra.folder)
        os.execve(command[0], command, {**lyra.env, "COLUMNS": "400"})  # sentences stay on one line
    os.write(fd, before.encode())
    shown, typed, end = b"", False, time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.5)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        if b"Trust these files?" in shown and not typed:
            os.write(fd, answer.encode())
            typed = True
    os.close(fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, shown.decode().replace("\r\n", "\n")


# ---------------------------------------------------------------- the question
def test_the_first_run_at_a_terminal_asks_once(lyra):
    """What the files ask for is shown; the answer is kept for the next runs, with a terminal or without one."""
    project(lyra)
    code, shown = at_a_terminal(lyra, "y\n", *AGENT)
    assert code == 0
    assert f"{lyra.folder} brings files that ask for something:" in shown
    assert "lets Bash(make *) happen without a question" in shown
    assert "Read(x)" not in shown  # a deny asks for nothing
    assert "Trust these files?" in shown
    assert shown.rstrip().endswith("go")
    assert allows(lyra)
    code, shown = at_a_terminal(lyra, "y\n", *AGENT)
    assert (code, shown) == (0, "go\n")
    assert lyra(*AGENT).stderr == ""


def test_a_no_is_kept(lyra):
    """The run goes on, tightened; it is not asked again, and says what it passed over."""
    project(lyra)
    code, shown = at_a_terminal(lyra, "n\n", *AGENT)
    assert code == 0
    assert "these files can only tighten" in shown
    assert not allows(lyra)
    code, shown = at_a_terminal(lyra, "y\n", *AGENT)
    assert "Trust these files?" not in shown
    assert ".lyra/permissions.toml (allow)" in shown
    assert not allows(lyra)


def test_enter_decides_nothing(lyra):
    """Each key is said with what it does; Enter alone trusts nothing, keeps no answer, and the next start asks."""
    project(lyra)
    code, shown = at_a_terminal(lyra, "\n", *AGENT)
    assert code == 0
    for words in ("y      trust these files", "n      refuse these files", "enter  decide nothing"):
        assert words in shown
    assert not allows(lyra)
    assert lyra.json("trust", "list") == []
    code, shown = at_a_terminal(lyra, "y\n", *AGENT)
    assert "Trust these files?" in shown
    assert allows(lyra)


def test_what_was_typed_before_the_question_is_no_answer(lyra):
    """A line to paste that ends in `y` agrees to nothing."""
    project(lyra)
    _, shown = at_a_terminal(lyra, "n\n", *AGENT, before="y\ny\n")
    assert "these files can only tighten" in shown
    assert not allows(lyra)


def test_another_content_asks_again_and_says_what_changed(lyra):
    """A no is for that file alone: what was trusted before stays trusted."""
    path = project(lyra)
    project(lyra, '{"mcpServers": {"x": {"command": "true"}}}', ".mcp.json")
    trusting.answer(lyra.folder, lyra.env)
    path.write_text('allow = ["Bash"]\n')
    assert not allows(lyra)
    code, shown = at_a_terminal(lyra, "n\n", *AGENT)
    assert code == 0
    assert "permissions.toml (changed since you trusted it on 2" in shown
    assert "+ lets Bash happen without a question" in shown
    assert "- lets Bash(make *) happen without a question" in shown
    assert "MCP server x:" not in shown.partition("Trust these files?")[0]
    states = {file["file"]: file["state"] for file in lyra.json("trust", "show")["files"]}
    assert states == {".mcp.json": "trusted", ".lyra/permissions.toml": "refused"}


def test_a_run_of_a_vega_program_asks_too(lyra):
    project(lyra, 'kernel.store = "state.db"\n', "lyra.toml")
    (lyra.folder / "hello.vega").write_text('print("hello");')
    code, shown = at_a_terminal(lyra, "y\n", "run", "hello.vega")
    assert code == 0
    assert "keeps the journal of its runs in state.db" in shown
    assert (lyra.folder / "state.db").is_file()


def test_an_escape_sequence_of_a_file_is_not_shown(lyra):
    project(lyra, 'allow = ["Read(\\u001b[2J\\u202e)"]\n')
    _, shown = at_a_terminal(lyra, "n\n", *AGENT)
    assert "\x1b[2J" not in shown
    assert "Read(⟨U+001B⟩[2J⟨U+202E⟩)" in shown


def test_files_with_too_much_to_show_are_not_asked_about(lyra):
    project(lyra, f"allow = {json.dumps([f'Read({number})' for number in range(200)])}\n")
    code, shown = at_a_terminal(lyra, "y\n", *AGENT)
    assert code == 0
    assert "Trust these files?" not in shown
    done = lyra("trust", "add", "--yes")
    assert done.returncode == 3
    assert "cannot be trusted by an answer" in done.stderr
    assert lyra.json("trust", "list") == []
    assert lyra(*AGENT, "--trust-folder").stderr == ""


# ---------------------------------------------------------------- without a terminal
def test_without_a_terminal_one_line_says_what_was_passed_over(lyra):
    project(lyra)
    project(lyra, 'kernel.store = "x.db"\n[providers.here]\nbase_url = "http://localhost:1"\n', "lyra.toml")
    done = lyra(*AGENT)
    assert (done.returncode, done.stdout) == (0, "go\n")
    assert done.stderr == (
        "note: this folder is not trusted, so its files can only tighten; passed over: lyra.toml (kernel.store, "
        "providers.here.base_url); .lyra/permissions.toml (allow). Trust it for this run with --trust-folder, or from "
        "now on with `lyra trust add`\n"
    )
    assert not (lyra.folder / "x.db").exists()


def test_the_line_is_bounded():
    asks = tuple(Ask("x" * 1000, "s") if number == 0 else Ask(f"n{number}", "s") for number in range(300))
    line = render_passed_over(
        [FileAsks("/a", "lyra.toml", "", asks), FileAsks("/a", "b", "", problem="it cannot be read")]
    )
    assert len(line) < 600
    assert "280 more" in line
    assert "/a/b (it cannot be read)" in line


def test_a_flag_trusts_the_folder_for_one_run(lyra):
    """`--trust-project`, its earlier name, does the same; nothing is kept."""
    project(lyra)
    for flag in ("--trust-folder", "--trust-project"):
        assert allows(lyra, flag)
        assert lyra(*AGENT, flag).stderr == ""
    assert lyra("--trust-folder", *AGENT).stderr == ""
    assert not allows(lyra)
    assert lyra.json("trust", "list") == []


def test_trust_is_of_one_command(lyra):
    """In one process too: the next command has its own."""
    project(lyra, "kernel.lease_s = 9\n", "lyra.toml")
    assert lyra.json("config", "show", "--trust-folder")["kernel"]["lease_s"] == 9
    assert lyra.json("config", "show")["kernel"]["lease_s"] == 3
    assert "passed over: kernel.lease_s" in lyra("config", "show").stderr


def test_without_a_model_the_waiting_one_is_named(lyra):
    project(lyra, '[agent]\nmodel = "sim-like/echo"\n', "lyra.toml")
    done = lyra("agent", "-p", "go")
    assert done.returncode == 2
    assert "no model is named" in done.stderr
    assert "agent.model" in done.stderr


def test_a_trusted_folder_starts_its_servers(lyra):
    """As its person agreed to them with the rest; the trust taken back, they wait again."""
    pytest.importorskip("mcp")
    project(lyra, '{"mcpServers": {"x": {"command": "/nowhere/server"}}}', ".mcp.json")
    project(lyra, '[mcp.servers.y]\ncommand = "/nowhere/server"\n', "lyra.toml")

    def states() -> set[str]:
        return {server["state"] for server in lyra.json("mcp", "list")}

    assert states() == {"consent_required"}
    assert lyra("trust", "add", "--yes").returncode == 0
    assert states() == {"disconnected"}
    done = lyra("mcp", "revoke", "x")
    assert "lyra trust revoke" in done.stderr
    assert lyra("trust", "revoke").returncode == 0
    assert states() == {"consent_required"}


def test_a_server_that_was_approved_alone_needs_no_question(lyra):
    """`lyra mcp approve` is an answer for one server: a folder that asks for nothing else is not asked about."""
    pytest.importorskip("mcp")
    project(lyra, '{"mcpServers": {"x": {"command": "true"}}}', ".mcp.json")
    assert "server x" in lyra(*AGENT).stderr
    lyra("mcp", "approve", "x", "--yes")
    assert "not trusted" not in lyra(*AGENT).stderr


# ---------------------------------------------------------------- lyra trust
def test_show_add_list_and_revoke(lyra):
    path = project(lyra)
    assert lyra("trust", "list").stderr == "no folder was answered for yet\n"
    shown = lyra.json("trust", "show")
    assert shown["folder"] == str(lyra.folder)
    assert not shown["trusted"]
    (file,) = shown["files"]
    assert (file["file"], file["state"], file["problem"]) == (".lyra/permissions.toml", "new", None)
    assert file["asks"] == ["lets Bash(make *) happen without a question"]
    done = lyra("trust", "add", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trusted")
    (answer,) = lyra.json("trust", "list")
    assert answer["folder"] == str(lyra.folder)
    assert answer["files"] == [{"file": file["file"], "sha256": file["sha256"], "trusted": True, "asks": file["asks"]}]
    assert lyra.json("trust", "show")["trusted"]
    row = lyra("trust", "list").stdout.splitlines()[1]
    assert row.split()[:3] == [str(lyra.folder), "trusted", ".lyra/permissions.toml"]
    assert "permissions.toml: trusted" in lyra("trust", "show").stdout
    path.write_text("allow = ['Bash']\n")
    assert "changed since you trusted it" in lyra("trust", "show").stdout
    assert lyra("trust", "revoke").stdout == f"{lyra.folder}: taken back\n"
    assert "nothing to take back" in lyra("trust", "revoke").stdout
    assert lyra.json("trust", "list") == []


def test_a_folder_can_be_named(lyra, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "lyra.toml").write_text("kernel.lease_s = 9\n")
    assert lyra("trust", "add", str(other), "--yes").returncode == 0
    assert lyra.json("trust", "show", str(other))["trusted"]
    other.rename(tmp_path / "moved")
    assert not lyra.json("trust", "show", str(tmp_path / "moved"))["trusted"]
    assert lyra("trust", "revoke", str(other)).stdout == f"{other}: taken back\n"
    done = lyra("trust", "show", str(other))
    assert done.returncode == 2
    assert "is no folder" in done.stderr


def test_an_answer_covers_the_file_above_too(lyra):
    """`add` and `revoke` in a folder are for the lyra.toml above it that counts there."""
    project(lyra, "kernel.lease_s = 9\n", "lyra.toml")
    (lyra.folder / "deep").mkdir()
    top, lyra.folder = lyra.folder, lyra.folder / "deep"
    assert lyra("trust", "add", "--yes").returncode == 0
    assert lyra.json("config", "show")["kernel"]["lease_s"] == 9
    assert [answer["folder"] for answer in lyra.json("trust", "list")] == [str(top)]
    lyra("trust", "revoke")
    assert lyra.json("config", "show")["kernel"]["lease_s"] == 3


def test_without_a_terminal_adding_needs_a_yes(lyra):
    project(lyra)
    done = lyra.real("trust", "add")
    assert done.returncode == 3
    assert "--yes" in done.stderr
    assert done.stdout.splitlines()[-1] == "not trusted"
    assert lyra.json("trust", "list") == []


def test_adding_asks_at_a_terminal(lyra):
    project(lyra)
    code, shown = at_a_terminal(lyra, "y\n", "trust", "add")
    assert code == 0
    assert "lets Bash(make *) happen" in shown
    assert allows(lyra)
    code, _ = at_a_terminal(lyra, "n\n", "trust", "add")
    assert code == 3
    assert not allows(lyra)


def test_a_folder_that_asks_for_nothing(lyra):
    assert "ask for nothing" in lyra("trust", "show").stdout
    done = lyra("trust", "add")
    assert done.returncode == 0
    assert "nothing to trust" in done.stdout
    assert lyra.json("trust", "show") == {"folder": str(lyra.folder), "trusted": True, "files": []}


def test_the_help_says_it(lyra):
    for command in (("agent",), ("run",), ("tools", "call"), ("mcp", "serve"), ()):
        assert "--trust-folder" in lyra(*command, "--help").stdout
    assert "--trust-folder" not in lyra("audit", "--help").stdout


# ---------------------------------------------------------------- the flag, command by command
TOOL = json.dumps({"name": "peek", "description": "x", "implementation": {"type": "file_read", "path": "x"}})


def test_the_flag_of_agents_and_explanations(lyra):
    """`lyra agent --trust-folder`, `lyra permissions explain --trust-folder`, and before the command's name."""
    project(lyra)
    for flags in (("agent", "--trust-folder"), ("--trust-folder", "agent")):
        assert lyra(*flags, *AGENT[1:]).stderr == ""
    assert "not trusted" in lyra(*AGENT).stderr
    assert lyra("permissions", "explain", "--trust-folder", "Bash", "make a").stdout.startswith("allow")
    assert lyra("permissions", "explain", "Bash", "make a").stdout.startswith("ask")


def test_the_flag_of_tools(lyra):
    """`lyra tools list --trust-folder` and `lyra tools call --trust-folder` have the folder's own tools."""
    project(lyra, TOOL, ".lyra/tools/peek.json")
    (lyra.folder / "x").write_text("content")

    def names(*flags: str) -> list[str]:
        return [tool["name"] for tool in lyra.json("tools", "list", *flags)["tools"]]

    assert "peek" not in names()
    assert "peek" in names("--trust-folder")
    assert lyra("tools", "call", "--trust-folder", "peek", "--allow", "peek").stdout == "content\n"
    done = lyra("tools", "call", "peek", "--allow", "peek")
    assert done.returncode != 0
    assert "peek.json (tool peek)" in done.stderr


def test_the_flag_of_mcp(lyra, monkeypatch):
    """`lyra mcp list --trust-folder` and `lyra mcp test --trust-folder` have the folder's consent, `lyra mcp serve
    --trust-folder` its rules."""
    pytest.importorskip("mcp")
    project(lyra)
    project(lyra, '{"mcpServers": {"x": {"command": "/nowhere/server"}}}', ".mcp.json")
    assert lyra.json("mcp", "list", "--trust-folder")[0]["state"] == "disconnected"
    assert lyra.json("mcp", "list")[0]["state"] == "consent_required"
    assert "consent_required" not in lyra("mcp", "test", "--trust-folder", "x").stdout
    assert "consent_required" in lyra("mcp", "test", "x").stdout
    served: list[Any] = []

    async def serve(offer: Any) -> None:
        served.append([rule.text for rule in offer._agent.permissions.rules_of("allow", "Bash")])

    monkeypatch.setattr("lyra.cli.commands.mcp._serve_stdio", serve)
    lyra("mcp", "serve", "--trust-folder")
    lyra("mcp", "serve")
    assert served == [["Bash(make *)"], []]


def test_the_flag_of_vega(lyra):
    """`lyra run --trust-folder`, `lyra vega run --trust-folder`, `lyra vega resume --trust-folder` and `lyra vega
    --trust-folder` keep runs in the store that the folder names."""
    project(lyra, 'kernel.store = "state.db"\n', "lyra.toml")
    (lyra.folder / "hello.vega").write_text('print("hello");')
    for number, words in enumerate(
        (("run", "--trust-folder"), ("vega", "run", "--trust-folder"), ("vega", "--trust-folder", "run"))
    ):
        assert lyra(*words, "hello.vega", "--run-id", f"r{number}").stderr == f"run r{number}\n"
        assert f"r{number}" not in lyra("vega", "runs").stdout
    assert len(lyra.json("vega", "--trust-folder", "runs")) == 3
    assert lyra("vega", "resume", "--trust-folder", "r0").stdout == "hello\n"
    assert lyra("vega", "resume", "r0").returncode != 0
