"""`lyra agent` runs the hooks of the settings files: the user's own, and a project's where the folder is trusted."""

from __future__ import annotations

from pathlib import Path

from tests.cli.agent_runner import DONE, Runner, call

WRITE = call("Write", file_path="new.txt", content="new")


def mine(run: Runner, text: str) -> None:
    path = Path(run.env["HOME"], ".config", "lyra", "lyra.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_hook_of_the_user_denies_a_call(run):
    """In every format; what it says to the user is on stderr, so that the output stays what programs read."""
    mine(
        run,
        """
        [[hooks.PreToolUse]]
        matcher = "Write"
        command = '''echo '{"decision": "deny", "reason": "not here", "message": "\\u001b[2Jlook"}' '''
        [[hooks.Stop]]
        command = "exit 3"
        """,
    )
    model = run.script(WRITE, DONE)
    done = run("--model", model, "--allowed-tools", "Write")
    assert done.returncode == 0
    assert not (run.folder / "new.txt").exists()
    assert "look" in done.stderr
    assert "\x1b" not in done.stderr
    assert "warning: the hook exit 3 for Stop failed: its exit code is 3" in done.stderr
    lines = run.lines("--model", model, "--allowed-tools", "Write")
    assert any("not here" in line.get("output", "") for line in lines)


def test_a_hook_of_a_project_waits_for_trust(run):
    run.write("lyra.toml", '[[hooks.PreToolUse]]\ncommand = "exit 2"\n')
    model = run.script(WRITE, DONE)
    done = run("--model", model, "--allowed-tools", "Write")
    assert "passed over: lyra.toml (hook PreToolUse)" in done.stderr
    assert (run.folder / "new.txt").exists()
    (run.folder / "new.txt").unlink()
    run("--model", model, "--allowed-tools", "Write", "--trust-folder")
    assert not (run.folder / "new.txt").exists()
