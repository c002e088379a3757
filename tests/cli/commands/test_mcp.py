"""`lyra mcp`: what is listed, what is asked before a project's server is started, and what is kept of the answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.support import HERE, PYTHON, SEEN

pytest.importorskip("mcp")


def entry(*more: str) -> dict[str, object]:
    return {"command": PYTHON, "args": ["-IS", str(HERE / "tiny_server.py"), *more], "readable": list(SEEN)}


def project(folder: Path, **servers: object) -> None:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=1))


def test_nothing_to_list(lyra):
    """Says how to get something."""
    done = lyra("mcp", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "[mcp.servers.NAME]" in done.stderr
    assert lyra.json("mcp", "list") == []


def test_list_starts_nothing_and_imports_no_sdk(lyra):
    """The states that are known without a start; secrets in a command line are blotted out."""
    key = "sk-ant-api03-" + "a1B2" * 10
    project(lyra.folder, theirs=entry("--key", key), old={"type": "sse", "url": "https://h/sse"})
    (lyra.folder / "lyra.toml").write_text('[mcp.servers.off]\ncommand = "x"\nenabled = false\n')
    states = {row["name"]: row["state"] for row in lyra.json("mcp", "list")}
    assert states == {"off": "disabled", "theirs": "consent_required", "old": "unsupported_transport"}
    shown = lyra("mcp", "list").stdout
    assert re.search(r"theirs +consent_required +\.mcp\.json", shown)
    assert "--key" in shown
    assert "sk-ant" not in shown
    code = (
        "import sys; from lyra.cli.main import main; code = main(['mcp', 'list']); "
        "sys.exit(code or 9 * ('mcp' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=lyra.folder, env=lyra.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mistake_has_its_line_and_stops_no_other_server(lyra):
    """The entry says what is wrong with it; keys of other programs are one warning; the run goes on."""
    off = {"comand": "x", "disabled": True}
    project(lyra.folder, theirs={"comand": "x"}, fine={**entry(), "autoApprove": ["add"], "icon": "\x1b[2J"}, off=off)
    done = lyra("mcp", "list")
    assert done.returncode == 0
    assert re.search(r"theirs +schema_error +\.mcp\.json +\.mcp\.json:3: .*neither a command nor a url", done.stdout)
    assert re.search(r"fine +consent_required", done.stdout)
    assert re.search(r"off +disabled", done.stdout)
    (warning,) = done.stderr.splitlines()
    assert warning.startswith(
        "warning: .mcp.json: passed over: theirs.comand, fine.autoApprove, fine.icon, off.comand;"
    )
    assert "permission rules alone" in warning
    done = lyra("agent", "-p", "go", "--model", "sim/echo", "--output-format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "success"
    assert done.stderr.count("warning: .mcp.json: passed over") == 1
    assert "theirs: schema_error" in done.stderr


def test_a_projects_server_waits_for_consent(lyra):
    """Tried without it, nothing is started; no user to be asked is a no; agreed to, that is kept for exactly this."""
    project(lyra.folder, theirs=entry())
    done = lyra("mcp", "test", "theirs")
    assert done.returncode == 1
    assert "lyra mcp approve theirs" in done.stdout
    done = lyra.real("mcp", "approve", "theirs")
    assert done.returncode == 1
    assert f"command: {PYTHON} -IS" in done.stdout
    assert "--yes" in done.stderr
    done = lyra.real("mcp", "approve", "theirs", "--yes")
    assert done.returncode == 0
    assert "tool: mcp__theirs__add" in done.stdout
    state = lyra.json("mcp", "test", "theirs")
    assert state["state"] == "connected"
    assert "mcp__theirs__add" in state["tools"]
    project(lyra.folder, theirs=entry("--more"))
    assert lyra("mcp", "test", "theirs").returncode == 1
    project(lyra.folder, theirs=entry())
    assert "taken back" in lyra("mcp", "revoke", "theirs").stdout
    assert "nothing to take back" in lyra("mcp", "revoke", "theirs").stdout
    assert lyra("mcp", "test", "theirs").returncode == 1


def test_what_a_project_writes_does_not_write_to_the_terminal(lyra):
    """Control characters are escaped where a person decides by what they see."""
    project(lyra.folder, theirs=entry("\x1b[2Kharmless"))
    done = lyra("mcp", "approve", "theirs")
    assert "\x1b" not in done.stdout + done.stderr


def test_what_changed_in_a_tool_is_shown_before_the_user_agrees(lyra):
    """Also where its description is the same: a model reads what is said of the arguments, too."""
    project(lyra.folder, theirs=entry())
    assert lyra("mcp", "approve", "theirs", "--yes").returncode == 0
    file = Path(lyra.env["HOME"]) / ".config" / "lyra" / "mcp-approvals.json"
    kept = json.loads(file.read_text())
    (pins,) = kept["pins"].values()
    pins["add"] = "what it said before"
    file.write_text(json.dumps(kept))
    done = lyra("mcp", "approve", "theirs")
    assert "theirs: the tool add now says:\n  Add two numbers." in done.stdout
    assert '"a": {' in done.stdout
    assert '"type": "integer"' in done.stdout


def test_a_persons_own_server_needs_no_consent(lyra):
    """Their file is their word."""
    own = Path(lyra.env["HOME"]) / ".config" / "lyra"
    own.mkdir(parents=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in entry().items()]
    (own / "lyra.toml").write_text("[mcp.servers.mine]\n" + "\n".join(lines))
    assert lyra.json("mcp", "test", "mine")["state"] == "connected"


def test_a_server_that_is_not_there(lyra):
    """With the one that was meant."""
    project(lyra.folder, theirs=entry())
    done = lyra("mcp", "test", "their")
    assert done.returncode == 2
    assert "did you mean 'theirs'?" in done.stderr


def test_a_login_where_there_is_none(lyra):
    """Says what is missing."""
    project(lyra.folder, theirs=entry())
    done = lyra("mcp", "login", "theirs")
    assert done.returncode == 2
    assert "has no login" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--agent", "own.py"], "names no FILE:NAME"),
        (["--agent", "nowhere.py:x"], "is no Python file"),
        (["--agent", "own.py:nothing"], "has no nothing"),
        (["--agent", "broken.py:x"], "cannot be run: ValueError: broken"),
        (["--tools", "Raed"], "no built-in tool 'Raed'"),
        (["--http", "9", "--token-env", "NOTHING"], "holds no token"),
    ],
)
def test_mistakes_of_serve(lyra, args, message):
    """On stderr, before anything is served."""
    (lyra.folder / "own.py").write_text("x = 1\n")
    (lyra.folder / "broken.py").write_text("raise ValueError('broken')\n")
    done = lyra("mcp", "serve", *args)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stdout == ""
