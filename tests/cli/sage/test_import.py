"""`sage import`: what is shown, written and taken back, and what the project's files need before they count."""

from __future__ import annotations

import json
from typing import Any

SETTINGS = {"permissions": {"allow": ["Bash(make:*)"], "defaultMode": "bypassPermissions"}}


def filled(sage: Any) -> None:
    sage.write("CLAUDE.md", "Answer in Norwegian.\n")
    sage.write(".claude/settings.json", json.dumps(SETTINGS))
    sage.write(".claude/commands/greet.md", "hello $1")


def test_import_shows_writes_and_takes_back(sage: Any) -> None:
    filled(sage)
    dry = sage("import", "--dry-run")
    assert (dry.returncode, (sage.folder / ".lyra").exists()) == (0, False)
    done = sage("import")
    assert done.returncode == 0, done.stderr
    for shown in (dry.stdout, done.stdout):
        assert ".lyra/rules/claude.md" in shown
        assert ".claude/settings.json  defaultMode: bypassPermissions: say it yourself" in shown
    assert "once you trust them" in done.stderr
    assert (sage.folder / ".lyra/permissions.toml").exists()
    assert "as it was" in sage("import").stdout
    assert "removed" in sage("import", "--undo").stdout
    assert not (sage.folder / ".lyra").exists()
    assert "nothing to take over" in sage("import", "memory").stderr


def test_import_counts_with_trust(sage: Any) -> None:
    """Rules of a project are those of its authors, whoever asked for the import."""
    filled(sage)
    sage("import")
    hello = ("-p", "/greet you", "--model", "sim/echo")
    assert sage(*hello).stdout == "/greet you\n"
    assert sage("trust", "add", "--yes").returncode == 0
    assert sage(*hello).stdout == "hello you\n"


def test_import_as_json(sage: Any) -> None:
    filled(sage)
    sage.write(".cursorrules", "Old.")
    data = json.loads(sage("import", "claude", "--json").stdout)
    assert data["root"] == str(sage.folder)
    files = {row["file"]: row for row in data["files"]}
    assert set(files) == {".lyra/rules/claude.md", ".lyra/commands/greet.md", ".lyra/permissions.toml"}
    assert files[".lyra/commands/greet.md"] == {
        "file": ".lyra/commands/greet.md",
        "act": "new",
        "kind": "command",
        "source": ".claude/commands/greet.md",
        "agent": "claude",
        "why": "",
    }
    assert [row["what"] for row in data["left_out"]] == ["defaultMode: bypassPermissions"]


def test_import_of_the_user(sage: Any) -> None:
    """It counts at once and in every folder: the files are the user's own."""
    home = sage.home
    (home / ".claude").mkdir()
    (home / ".claude/CLAUDE.md").write_text("Answer in Norwegian.\n")
    done = sage("import", "--user")
    assert (done.returncode, "trust" in done.stderr) == (0, False)
    model = sage.folder.parent / "told.json"
    model.write_text(json.dumps({"replies": [{"system": "Answer in Norwegian", "text": "ja"}]}))
    assert sage("-p", "hi", "--model", f"sim/script:{model}").stdout == "ja\n"
    sage("import", "--user", "--undo")
    assert sage("-p", "hi", "--model", f"sim/script:{model}").stdout != "ja\n"


def test_undo_stands_alone(sage: Any) -> None:
    assert sage("import", "claude", "--undo").returncode == 2
    assert sage("import", "gemini").returncode == 2
