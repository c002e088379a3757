"""Bash: in the sandbox or not at all, with what the Grant gives, its end told, its long output kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, caller, rights
from lyra.errors import CapabilityDenied, LyraError, SandboxUnavailable, ToolError
from lyra.sandbox import Sandbox, examine
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.builtin.bash import OUTPUT_CHARS_MAX, bash_tools
from tests.sandbox.test_proxy import Upstream

WORKING = [state.name for state in asyncio.run(examine()) if state.works]
pytestmark = pytest.mark.skipif(not WORKING, reason="no sandbox works here")

NAMES = {"good.example": ["93.184.216.34"], "inside.example": ["10.0.0.1"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def tools_of(root: Path, **options: Any) -> dict[str, Tool]:
    return {tool.name: tool for tool in builtin_tools(str(root), **options)}


async def bash(tool: Tool, command: str, *, grant: Any = None, **arguments: Any) -> str:
    """As a process with that Grant would call it."""
    assert tool.run is not None
    rights.set(Grant.of(grant) if grant is not None else None)
    return str(await tool.run(command=command, **arguments))


def ran(root: Path, command: str, *, sandbox: Sandbox | None = None, **options: Any) -> str:
    return asyncio.run(bash(tools_of(root, sandbox=sandbox)["Bash"], command, **options))


def failed(root: Path, command: str, **options: Any) -> LyraError:
    with pytest.raises(LyraError) as caught:
        ran(root, command, **options)
    return caught.value


def inside(root: Path, *more: str) -> list[str]:
    return [f"fs.read:{root}/**", f"fs.write:{root}/**", "process.exec", *more]


# ---------------------------------------------------------------- what comes back
def test_both_outputs_in_order_and_how_it_ended(root: Path):
    """With the exit code, the time and what held it, in every result."""
    output = ran(root, "echo one; echo two >&2; echo three; pwd")
    first, last = output.rsplit("\n", 1)
    assert first == f"one\ntwo\nthree\n{root}"
    assert re.fullmatch(r"\[exit code 0 · \d+\.\d s · sandbox (bubblewrap|landlock.*)\]", last)
    assert ran(root, "true").startswith("[exit code 0")


def test_a_failure_is_an_error_with_its_output(root: Path):
    error = failed(root, "echo so far; exit 3")
    assert isinstance(error, ToolError)
    assert (error.reason, error.exit_code) == ("exec_failed", 3)
    assert error.message.startswith("so far\n[exit code 3 ")


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ""},
        {"command": " \n"},
        {"command": "a\0b"},
        {"command": "x" * 70_000},
        {"command": "true", "timeout": 0},
        {"command": "true", "timeout": 601},
        {"command": "true", "timeout": -1},
        {"command": "true", "timeout": float("nan")},
    ],
)
def test_what_is_no_command_is_refused(root: Path, arguments: dict[str, Any]):
    assert failed(root, **arguments).reason == "invalid_arguments"


def test_each_call_starts_anew_in_the_workspace(root: Path):
    """No folder, variable or function of the call before; only files stay."""
    (root / "sub").mkdir()
    ran(root, "cd sub; export X=1; f() { echo f; }; echo kept > file")
    output = ran(root, 'pwd; echo "[$X]"; type f 2>/dev/null; cat sub/file')
    assert output.startswith(f"{root}\n[]\nkept\n")


def test_long_output_is_in_a_file_that_read_and_grep_open(root: Path):
    """Head and tail are shown; the file lies outside the workspace and needs no further right."""
    tools = tools_of(root)
    output = asyncio.run(bash(tools["Bash"], "seq 1 20000", grant=inside(root)))
    assert len(output) < OUTPUT_CHARS_MAX + 500
    assert output.startswith("1\n2\n3\n")
    assert "\n20000\n[exit code 0" in output
    match = re.search(r"all of it is in (\S+)", output)
    assert match is not None
    file = match[1]
    assert not file.startswith(str(root))
    read, grep = tools["Read"], tools["Grep"]
    assert read.needs_of is not None
    assert list(read.needs_of({"file_path": file})) == []
    assert read.run is not None
    assert grep.run is not None
    assert read.run(file_path=file, offset=11_999, limit=1).split()[:2] == ["12000", "12000"]
    assert asyncio.run(grep.run(pattern="^12345$", path=file, output_mode="content")).endswith(":12345:12345")
    assert tools["Write"].run is not None
    with pytest.raises(LyraError):
        tools["Write"].run(file_path=file, content="mine")


def test_what_was_spilled_is_its_processs_own(root: Path):
    """Another process with the same tools cannot read it."""
    tools = tools_of(root)
    output = asyncio.run(bash(tools["Bash"], "seq 1 20000"))
    match = re.search(r"all of it is in (\S+)", output)
    assert match is not None
    assert tools["Read"].run is not None
    token = caller.set("another")
    try:
        with pytest.raises(LyraError):
            tools["Read"].run(file_path=match[1])
        assert tools["Read"].needs_of is not None
        assert [str(need) for need in tools["Read"].needs_of({"file_path": match[1]})] == [f"fs.read:{match[1]}"]
    finally:
        caller.reset(token)


def test_the_spill_ends_with_its_tools(root: Path):
    import gc

    tools = tools_of(root)
    output = asyncio.run(bash(tools["Bash"], "seq 1 20000"))
    match = re.search(r"all of it is in (\S+)", output)
    assert match is not None
    assert os.path.exists(match[1])
    tools.clear()
    gc.collect()
    assert not os.path.exists(match[1])


# ---------------------------------------------------------------- time
def test_a_time_out_ends_everything_it_started(root: Path):
    """Also what went into a session of its own; what was printed is told."""
    began = time.monotonic()
    command = "echo begun; setsid sh -c 'sleep 3; echo late > late' & sleep 60"
    error = failed(root, command, timeout=2)  # a sandbox takes a while to begin beside other tests
    assert time.monotonic() - began < 10
    assert error.reason == "timeout"
    assert error.message.startswith("begun\n[exit code 137 · limit hit: it took too long and was ended")
    time.sleep(1.5)
    assert not (root / "late").exists()


def test_a_cancelled_call_ends_everything_it_started(root: Path):
    tool = tools_of(root)["Bash"]

    async def scene() -> None:
        work = asyncio.create_task(bash(tool, "echo begun > begun; (sleep 1; echo late > late) & sleep 60"))
        while not (root / "begun").exists():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(asyncio.wait_for(scene(), 10))
    time.sleep(1.2)
    assert not (root / "late").exists()


# ---------------------------------------------------------------- what it may touch
def test_outside_the_workspace_nothing_is_written_or_read(root: Path):
    secret = root.parent / "secret"
    secret.write_text("hidden away")
    output = ran(root, f"cat {secret} 2>/dev/null; echo x 2>/dev/null > {root.parent}/made; echo end")
    assert output.startswith("end\n")
    assert not (root.parent / "made").exists()


def test_the_environment_is_clear(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_API_KEY", "sk-very-secret")
    output = ran(root, "env")
    assert "sk-very-secret" not in output
    assert "LYRA_SANDBOX=1" in output


@pytest.mark.parametrize("tier", WORKING)
def test_protected_paths_stay_as_they_are(root: Path, tier: str):
    """`.git` may be read and not written, `.env` neither, whatever folder above it is open; what appears is told."""
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("ours")
    (root / ".env").write_text("KEY=abc")
    (root / "sub").mkdir()
    command = "cat .git/config; cat .env; echo x > .git/config; echo y > .git/hook; mkdir sub/.vscode; echo end"
    for grant in (None, inside(root), Grant.all(), inside(root, f"fs.read:{root.parent}/**")):
        output = ran(root, command, grant=grant, sandbox=Sandbox(tiers=(tier,)))
        assert "ours" in output
        assert "KEY=abc" not in output
        assert (root / ".git" / "config").read_text() == "ours"
        assert not (root / ".git" / "hook").exists()
        assert "protected paths that are new: sub/.vscode" in output
        assert "renamed to sub/.vscode.held-" in output
        assert not (root / "sub" / ".vscode").exists()


def test_the_grant_says_whether_it_may_write(root: Path):
    (root / "a").write_text("one")
    reads = [f"fs.read:{root}/**", "process.exec"]
    assert "one" in ran(root, "cat a; echo two > a; true", grant=reads)
    assert (root / "a").read_text() == "one"
    ran(root, "echo two > a", grant=inside(root))
    assert (root / "a").read_text() == "two\n"
    error = failed(root, "cat a", grant=["process.exec"])
    assert isinstance(error, CapabilityDenied)


def test_what_a_deny_names_is_shut(root: Path):
    (root / "private").mkdir()
    (root / "private" / "x").write_text("mine alone")
    grant = Grant(allow=inside(root), deny=[f"fs.read:{root}/private/**"])
    assert "mine alone" not in ran(root, "cat private/x; ls -R; true", grant=grant)


def test_the_right_is_to_the_whole_line(root: Path):
    """A rule with a wildcard covers one simple command."""
    tool = tools_of(root)["Bash"]
    assert tool.needs_of is not None

    def allowed(command: str, *rules: str, deny: tuple[str, ...] = ()) -> bool:
        assert tool.needs_of is not None
        return all(Grant(rules, deny).allows(need) for need in tool.needs_of({"command": command}))

    assert allowed("git log -1", "process.exec:git *")
    assert not allowed("git log; rm x", "process.exec:git *")
    assert not allowed("make", "process.exec:git *")
    assert allowed("git log; rm x", "process.exec")
    assert not allowed("git log; rm x", "process.exec", deny=("process.exec:rm *",))


@pytest.mark.parametrize("command", ["bash -c 'rm x'", "xargs rm < list", "$(echo rm) x", 'eval "rm x"', "a=rm; $a x"])
def test_a_deny_of_the_grant_sees_wrapped_commands(root: Path, command: str):
    """Also those that stand inside a text, or cannot be known before they run."""
    (root / "x").write_text("kept")
    error = failed(root, command, grant=Grant(allow=inside(root), deny=["process.exec:rm *"]))
    assert isinstance(error, CapabilityDenied)
    assert (root / "x").exists()


def test_more_folders_can_be_read_where_the_grant_allows(root: Path, tmp_path: Path):
    lib, other = tmp_path / "lib", tmp_path / "other"
    for folder in (lib, other):
        folder.mkdir()
        (folder / "file").write_text(f"in {folder.name}")
    tool = {
        bash_tool.name: bash_tool for bash_tool in bash_tools(Workspace(str(root)), readable=[str(lib), str(other)])
    }["Bash"]
    grant = inside(root, f"fs.read:{lib}/**")
    output = asyncio.run(bash(tool, f"cat {lib}/file {other}/file; echo x > {lib}/made; true", grant=grant))
    assert "in lib" in output
    assert "in other" not in output
    assert not (lib / "made").exists()


# ---------------------------------------------------------------- the network
_GET = "exec 3<>/dev/tcp/93.184.216.34/80 && echo reached-it; true"


def test_without_a_rule_there_is_no_network(root: Path):
    """Also where the Grant allows everything: it names no host."""
    for grant in (None, Grant.all(), inside(root)):
        output = ran(root, f"{_GET}; env", grant=grant)
        assert "reached-it" not in output
        assert "proxy" not in output.lower()


def test_a_rule_opens_one_host_through_the_proxy(root: Path):
    """What the proxy refused is told with the result."""

    async def lookup(host: str, _port: int) -> list[str]:
        return NAMES.get(host, [])

    async def scene() -> tuple[str, list[tuple[str, int]]]:
        async with Upstream() as upstream:
            sandbox = Sandbox(lookup=lookup, dial=upstream.dial)
            tool = tools_of(root, sandbox=sandbox)["Bash"]
            fetch = (
                "import urllib.request as u\nfor h in ('good', 'bad', 'inside'):\n"
                " try: print(h, u.urlopen(f'http://{h}.example/', timeout=5).read())\n"
                " except OSError as e: print(h, 'refused')"
            )
            grant = inside(root, "net.http:good.example", "net.http:inside.example")
            (root / "get.py").write_text(fetch)
            return await bash(tool, "/usr/bin/env python3 get.py", grant=grant), upstream.dialled

    output, dialled = asyncio.run(scene())
    if "No such file" in output:
        pytest.skip("the system has no Python of its own")
    assert "good b'hello'" in output
    assert "bad refused" in output
    assert "inside refused" in output
    assert "network: refused bad.example:80" in output
    assert dialled == [("93.184.216.34", 80)]


# ---------------------------------------------------------------- without a sandbox
def test_without_a_sandbox_nothing_runs(root: Path):
    """A clear refusal; there is no way around it."""
    error = failed(root, "echo x > made", sandbox=Sandbox(tiers=()))
    assert isinstance(error, SandboxUnavailable)
    assert "no sandbox works here" in error.message
    assert not (root / "made").exists()


@pytest.mark.skipif("landlock" not in WORKING, reason="no Landlock here")
def test_the_second_tier_tells_its_holes(root: Path):
    output = ran(root, "echo fine", sandbox=Sandbox(tiers=("landlock",)))
    assert output.startswith("fine\n[exit code 0")
    assert "sandbox landlock, which does not hold everything: " in output
    assert "their content cannot" in output


def test_a_folder_of_the_system_is_no_workspace():
    """It would be open for writing."""
    error = failed(Path("/usr"), "true")
    assert error.reason == "permission_denied"


@pytest.mark.parametrize("tier", WORKING)
@pytest.mark.parametrize("hosts", [(), ("net.http:good.example",)], ids=["no network", "a host"])
def test_no_connection_from_outside_reaches_a_command(root: Path, tier: str, hosts: tuple[str, ...]):
    """`net.listen` in the Grant or not: what a command listens on is its own, or it may not listen."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (root / "serve.py").write_text(
        "import socket\n"
        f"with socket.create_server(('127.0.0.1', {port})) as server:\n"
        "    server.settimeout(1)\n"
        "    print('listens', flush=True)\n"
        "    server.accept()\n"
    )

    async def main() -> tuple[str, bool]:
        tool = tools_of(root, sandbox=Sandbox(tiers=(tier,)))["Bash"]
        grant = inside(root, "net.listen", *hosts)
        work = asyncio.ensure_future(bash(tool, "/usr/bin/env python3 serve.py; true", grant=grant))
        reached = False
        while not work.done():
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                reached = True
            await asyncio.sleep(0.02)
        return await work, reached

    output, reached = asyncio.run(main())
    assert not reached, output


@pytest.mark.parametrize("tier", WORKING)
def test_other_folders_to_work_in_are_protected_alike(root: Path, tmp_path: Path, tier: str):
    """Written where the Grant allows it, but for `.git`; `.env` cannot be read there either."""
    also, shut = tmp_path / "also", tmp_path / "shut"
    for folder in (also, shut):
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_text("ours")
        (folder / ".env").write_text("KEY=abc")
        (folder / "sub").mkdir()
    workspace = Workspace(str(root), also=[str(also), str(shut)])
    tool = {bash_tool.name: bash_tool for bash_tool in bash_tools(workspace, sandbox=Sandbox(tiers=(tier,)))}["Bash"]
    work = "echo x > sub/made; cat .git/config .env; echo x > .git/config"
    command = "; ".join(f"(cd {folder} && {{ {work}; }})" for folder in (also, shut))
    grants: list[Any] = [inside(root, f"fs.read:{also}/**", f"fs.write:{also}/**"), Grant.all()]
    for grant in grants:
        output = asyncio.run(bash(tool, f"{command}; true", grant=grant))
        assert (also / "sub" / "made").read_text() == "x\n"
        assert (shut / "sub" / "made").exists() is (grant is grants[1])
        assert output.count("ours") == (1 if grant is grants[0] else 2)
        assert "KEY=abc" not in output
        assert (also / ".git" / "config").read_text() == (shut / ".git" / "config").read_text() == "ours"


# ---------------------------------------------------------------- git and files that anybody may write
def _repository(folder: Path, config: str) -> None:
    (folder / "objects").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/x\n")
    (folder / "config").write_text(config)


def test_a_folder_made_to_look_like_a_repository_runs_nothing(root: Path):
    """A model may write such files; git would run what they name at the next `git status`."""
    watch = "[core]\n\trepositoryformatversion = 0\n\tworktree = .\n\tfsmonitor = touch PWNED; id\n"
    _repository(root / "sub", watch)
    ran(root, "cd sub; git status; git diff; true")
    ran(root, "git --git-dir=sub status; true")
    assert not list(root.rglob("PWNED"))


def test_git_serves_no_other_folder(root: Path):
    _repository(root / "e", '[core]\n\tbare = true\n[tar "zz"]\n\tcommand = touch ../PWNED; id\n\tremote = true\n')
    output = ran(root, "git init -q --separate-git-dir=/tmp/g . ; git archive --remote=e --format=zz HEAD; true")
    assert "not allowed" in output
    assert not list(root.rglob("PWNED"))
