"""YAML tools that read and write a file: below the workspace, whatever the value says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.registry import ToolRegistry
from lyra.tools.yaml import ToolEnvironment
from tests.tools.yaml.support import called, environment, mistakes_of, tool_of

READ = """
    name: note
    description: Read a note.
    params: [{name: name, type: string}]
    implementation: {type: file_read, path: "notes/{{name}}.md"}
"""
ANY = """
    name: any
    description: Read any file.
    params: [{name: path, type: string}]
    implementation: {type: file_read}
"""
WRITE = """
    name: keep
    description: Keep a note.
    params: [{name: name, type: string}, {name: text, type: string}, {name: n, type: integer, default: 1}]
    implementation: {type: file_write, path: "notes/{{name}}.md", content: "# {{n}}\\n{{text}}\\n"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "work"
    (inside / "notes").mkdir(parents=True)
    (inside / "notes/a.md").write_text("hello")
    (inside / "other.md").write_text("other")
    (inside / ".env").write_text("KEY=1")
    (tmp_path / "outside.md").write_text("secret")
    os.symlink(tmp_path / "outside.md", inside / "notes/link.md")
    return inside


@pytest.mark.parametrize("path", [".nvm/nvm.sh", ".pyenv/bin/python", "go/bin/x", ".cache/pip/x", "env.sh", "dot"])
def test_files_that_other_programs_obey_are_not_written(folder: Path, monkeypatch, path: str):
    """Places of the home folder, targets of links and what git's settings name; a file may name them in full."""
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".envrc").symlink_to("env.sh")
    (folder / ".gitconfig").write_text("[include]\npath = dot\n")
    text = WRITE.replace("notes/{{name}}.md", "{{name}}")
    result = called(tool_of(text, environment(folder)), name=path, text="x")
    assert "protected" in str(result.output)
    assert not (folder / path).exists()
    called(tool_of(WRITE.replace("notes/{{name}}.md", path), environment(folder)), name="a", text="x")
    assert (folder / path).exists()


@pytest.mark.parametrize("path", ["notes/HEAD", "conf/lyra/answers.md"])
def test_a_file_that_lyra_or_git_obeys_is_not_written(folder: Path, monkeypatch, path: str):
    """Also where the YAML file names it in full."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "conf"))
    for name in ("notes/objects", "notes/refs", "conf/lyra"):
        (folder / name).mkdir(parents=True)
    text = WRITE.replace("notes/{{name}}.md", path)
    result = called(tool_of(text, environment(folder)), name="a", text="x")
    assert "protected" in str(result.output)
    assert not (folder / path).exists()


def test_a_file_is_read(folder: Path):
    assert called(tool_of(READ, environment(folder)), name="a").output == "hello"
    assert called(tool_of(ANY, environment(folder)), path="notes/a.md").output == "hello"
    assert called(tool_of(ANY, environment(folder)), path=str(folder / "other.md")).output == "other"
    assert called(tool_of(READ, environment(folder)), name="b").error_code == "not_found"


@pytest.mark.parametrize(
    "value", ["../other", "../../outside", "x/../../other", "/etc/passwd", "~/x", "..", "a\0", "link"]
)
def test_no_value_leaves_its_folder(folder: Path, value: str):
    result = called(tool_of(READ, environment(folder)), name=value)
    assert result.is_error
    assert result.output != "other"
    assert "secret" not in result.output


@pytest.mark.parametrize("value", ["../outside.md", "/etc/passwd", "notes/link.md", "notes/../../outside.md", ""])
def test_no_path_leaves_the_workspace(folder: Path, value: str):
    result = called(tool_of(ANY, environment(folder)), path=value)
    assert result.is_error
    assert "secret" not in result.output
    assert "root:" not in result.output


def test_keys_are_not_read_unless_the_file_names_them(folder: Path):
    assert called(tool_of(ANY, environment(folder)), path=".env").error_code == "permission_denied"
    assert called(tool_of(ANY, environment(folder)), path="./.ENV").is_error
    os.symlink(".env", folder / "notes/plain.md")
    assert called(tool_of(READ, environment(folder)), name="plain").error_code == "permission_denied"
    named = ANY.replace("{type: file_read}", "{type: file_read, path: .env}").replace(
        "[{name: path, type: string}]", "[]"
    )
    assert called(tool_of(named, environment(folder))).output == "KEY=1"


def test_what_is_no_text_is_an_error(folder: Path):
    (folder / "notes/b.md").write_bytes(b"a\0b")
    assert called(tool_of(READ, environment(folder)), name="b").error_code == "io_error"
    os.mkfifo(folder / "notes/pipe.md")
    assert called(tool_of(READ, environment(folder)), name="pipe").error_code == "invalid_arguments"


def test_a_file_is_written_whole(folder: Path):
    tool = tool_of(WRITE, environment(folder))
    assert called(tool, name="new", text="{{n}} $(id)").output == "notes/new.md was made, 16 bytes"
    assert (folder / "notes/new.md").read_text() == "# 1\n{{n}} $(id)\n"
    os.chmod(folder / "notes/new.md", 0o640)
    assert "was written" in called(tool, name="new", text="second", n=2).output
    assert (folder / "notes/new.md").read_text() == "# 2\nsecond\n"
    assert os.stat(folder / "notes/new.md").st_mode & 0o777 == 0o640
    assert called(tool, name="deeper/new", text="x").output.startswith("notes/deeper/new.md was made")


@pytest.mark.parametrize("value", ["../x", "../../x", "/x", "link", ".git/hooks/pre-commit", "../.lyra/x", "a/.env"])
def test_nothing_is_written_where_it_must_not_be(folder: Path, value: str):
    before = (folder.parent / "outside.md").read_text()
    assert (
        called(tool_of(WRITE.replace("}}.md", "}}"), environment(folder)), name=value, text="x").is_error
        or value == "link"
    )
    assert (folder.parent / "outside.md").read_text() == before
    assert not (folder / "notes/.git").exists()
    assert not (folder.parent / "x").exists()
    assert not (folder / "x").exists()


class Swapped(Workspace):
    """A workspace in which a file is replaced by a link, right before it is opened."""

    __slots__ = ()

    def _beneath(self, path: str, *, reading: bool = False) -> Any:
        swap = os.path.join(self.root, "notes/swap.md")
        os.unlink(swap)
        os.symlink(self.target, swap)
        return super()._beneath(path, reading=reading)

    target = ""


@pytest.mark.parametrize("target", [".env", "../outside.md"])
def test_a_file_that_is_swapped_meanwhile_is_not_opened(folder: Path, target: str):
    (folder / "notes/swap.md").write_text("mine")
    place = Swapped(str(folder))
    Swapped.target = str(folder / target)
    result = called(tool_of(READ, ToolEnvironment(workspace=place)), name="swap")
    assert result.error_code == "permission_denied"
    assert (
        called(tool_of(WRITE, ToolEnvironment(workspace=place)), name="swap", text="x").error_code
        == "permission_denied"
    )
    assert (folder / ".env").read_text() == "KEY=1"


@pytest.mark.anyio
async def test_the_callers_rights_and_the_tools_own_hold(folder: Path):
    root = environment(folder).workspace.root
    registry = ToolRegistry([tool_of(READ, environment(folder))])
    assert (await registry.call("note", {"name": "a"}, grant=Grant([f"fs.read:{root}/other/**"]))).error_code == (
        "permission_denied"
    )
    assert (await registry.call("note", {"name": "a"}, grant=Grant([f"fs.read:{root}/**"]))).output == "hello"
    narrow = tool_of(ANY + f"    needs: ['fs.read:{root}/notes/**']\n", environment(folder))
    assert (await ToolRegistry([narrow]).call("any", {"path": "notes/a.md"})).output == "hello"
    assert (await ToolRegistry([narrow]).call("any", {"path": "other.md"})).error_code == "permission_denied"


@pytest.mark.parametrize(
    ("path", "params", "message"),
    [
        ("../x/{{name}}", "{name: name, type: string}", "no '..'"),
        ("notes/{{name}}", "{name: name, type: array}", "make it a string"),
        ("notes/{{name}}", "{name: name, type: string, required: false}", "and required"),
        ("notes/{{nmae}}", "{name: name, type: string}", "names the parameter 'nmae'"),
    ],
)
def test_a_path_that_cannot_be_meant_is_a_mistake(folder: Path, path: str, params: str, message: str):
    text = f"""
        name: a
        description: b
        params: [{params}]
        implementation: {{type: file_read, path: "{path}"}}
    """
    assert message in mistakes_of(text, folder)[0].message
