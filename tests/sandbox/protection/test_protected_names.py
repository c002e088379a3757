"""Names that programs of the user obey are protected; what ordinary tasks write is not."""

from __future__ import annotations

import os

import pytest

from lyra.sandbox.protection.protected_names import (
    ASKED_NAMES,
    COMMAND_NAMES,
    HIDDEN,
    IN_HOME,
    NAMES,
    READ_ONLY,
    NameTable,
    find_protected_part,
    home_paths,
)
from tests.cases import each

ORDINARY = [
    *(
        "Makefile",
        "package.json",
        "package-lock.json",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "tox.ini",
        "Cargo.toml",
    ),
    *(
        "go.mod",
        "Gemfile",
        "pom.xml",
        "build.gradle",
        "gradle.properties",
        "Dockerfile",
        "docker-compose.yml",
        "README.md",
    ),
    *(
        ".gitignore",
        ".editorconfig",
        ".dockerignore",
        ".python-version",
        ".nvmrc",
        "conftest.py",
    ),
    *(
        ".github",
        "ci.yml",
        ".gitlab-ci.yml",
        "tsconfig.json",
        "vite.config.ts",
        "requirements.txt",
        "uv.lock",
        ".env.example",
    ),
    *(
        "justfile",
        "Taskfile.yml",
        "Procfile",
        ".rspec",
        ".coveragerc",
        "flake.nix",
    ),
    *("bazel", "tools", "config.edn", "jupyter.py", "toolchain.toml", "miniconda3", "rustfmt.toml", "BUILD.bazel"),
    *("config.toml", "config", "hooks", "bin", "objects", "refs", "HEAD", "pem", "key", "env", "settings.xml", "git"),
]


@each(ORDINARY)
def test_ordinary_files_are_not_protected(name):
    assert NAMES.kind(name) is None
    assert find_protected_part(f"/w/{name}") is None
    assert find_protected_part(f"/w/src/{name}/x", ["/w"]) is None


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (".claude/settings.json", ".claude"),
        (".cursor/mcp.json", ".cursor"),
        (".codex/config.toml", ".codex"),
        (".devcontainer/devcontainer.json", ".devcontainer"),
        (".npmrc", ".npmrc"),
        (".cargo/config.toml", ".cargo/config.toml"),
        ("x.code-workspace", "x.code-workspace"),
        (".zshenv", ".zshenv"),
        (".config/git/config", ".config/git"),
        ("deep/down/.CONFIG/GIT/hooks", ".CONFIG/GIT"),
        (".exrc", ".exrc"),
        (".gdbinit", ".gdbinit"),
        (".tmux.conf", ".tmux.conf"),
        (".config/systemd/user/x.service", ".config/systemd"),
        (".local/bin/ls", ".local/bin"),
        ("pip.conf", "pip.conf"),
        (".yarn/releases/yarn.cjs", ".yarn/releases"),
        ("rust-toolchain.toml", "rust-toolchain.toml"),
        (".lessfilter", ".lessfilter"),
        (".bash_completion", ".bash_completion"),
        ("tools/bazel", "tools/bazel"),
        (".lintstagedrc.json", ".lintstagedrc.json"),
        ("jupyter_server_config.py", "jupyter_server_config.py"),
        ("NuGet.Config", "NuGet.Config"),
        (".lsp/config.edn", ".lsp/config.edn"),
        (".zcompdump-host", ".zcompdump-host"),
    ],
)
def test_what_programs_obey(path, part):
    """By the name, or by the name in a folder of a certain name; in any case of letters."""
    assert find_protected_part(f"/w/{path}", ["/w"]) == part
    assert find_protected_part(f"/w/{path}") == part


def test_names_in_a_folder_of_another_name():
    assert NAMES.part("cargo/config.toml") is None
    assert NAMES.part(".cargo/registry/x") is None
    assert NAMES.part(".config/dotnet-tools.json") is None


def test_the_folders_above_a_workspace_do_not_count():
    """A person who works in such a folder has chosen it; not so in a repository's folder, or in Lyra's."""
    assert find_protected_part("/h/.claude/worktrees/x/src/a.py", ["/h/.claude/worktrees/x"]) is None
    assert find_protected_part("/h/.claude/worktrees/x/.claude/a", ["/h/.claude/worktrees/x"]) == ".claude"
    assert find_protected_part("/h/.config/nvim/init.lua", ["/h/.config/nvim"]) is None
    assert find_protected_part("/h/.config/git/x", ["/h/.config"]) == ".config/git"
    assert find_protected_part("/p/.git/modules/x/hooks/y", ["/p/.git/modules/x"]) == ".git"
    assert find_protected_part("/p/.lyra/x", ["/p/.lyra"]) == ".lyra"


def test_examples_are_shown():
    assert [NAMES.kind(name) for name in (".env.example", ".env.sample", ".env.local", ".ENV")] == [
        None,
        None,
        "hidden",
        "hidden",
    ]


def test_a_table_of_ones_own():
    """Stars anywhere in a name; what is in both tables is hidden."""
    table = NameTable(["a*", "*.x", "b", "d/e"], ["b", "*.y.z", "s*t*u"])
    kinds = {name: table.kind(name) for name in ("abc", "q.x", "b", "q.y.z", "sxtyu", "e", "x", "q.z")}
    assert kinds == {
        "abc": "read_only",
        "q.x": "read_only",
        "b": "hidden",
        "q.y.z": "hidden",
        "sxtyu": "hidden",
        "e": None,
        "x": None,
        "q.z": None,
    }
    assert table.kind("e", table.beside("d")) == "read_only"


def test_the_tables_are_well_formed():
    """A name has one folder at most, no name is ordinary, and none is twice in a table."""
    for table in (READ_ONLY, HIDDEN):
        assert all(name.count("/") <= 1 and name == name.strip("/") for name in table)
        assert len(table) == len(set(table))
    assert not {name.lower() for name in READ_ONLY} & {name.lower() for name in ORDINARY}


def test_folders_of_programs_in_the_home_folder(monkeypatch, tmp_path):
    """Those of the table."""
    monkeypatch.setenv("HOME", str(tmp_path))
    read_only, hidden = home_paths()
    assert {f"{tmp_path}/{name}" for name in IN_HOME} == set(read_only)
    assert f"{tmp_path}/.mozilla" in hidden
    monkeypatch.setenv("HOME", "/")
    assert home_paths() == ((), ())
    assert os.path.expanduser("~") == "/"


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".flake8",
            "mypy.ini",
            "eslint.config.js",
            "eslint.config.mjs",
            ".eslintrc.json",
            ".prettierrc",
            ".rubocop.yml",
        ),
        *("AGENTS.md", "CLAUDE.md", "deep/down/claude.md", "GEMINI.md", "SAGE.md", ".github/copilot-instructions.md"),
    ],
)
def test_files_that_a_person_is_asked_about(path):
    """Settings of checkers and instructions for agents: commands do not write them, and they are not refused to file
    tools, which ask. Settings of builds and tests are neither."""
    assert ASKED_NAMES.part(path) is not None
    assert COMMAND_NAMES.part(path) is not None
    assert find_protected_part(f"/w/{path}", ["/w"]) is None
    for name in ORDINARY:
        assert COMMAND_NAMES.kind(name) is None


@pytest.mark.parametrize("name", [".huskyrc.js", "eslint.config.js", ".zcompdump-x", ".prettierrc"])
def test_a_name_that_was_set_aside_is_not_set_aside_again(name):
    """A pattern (`.huskyrc*`) does not match what was renamed because of it; keys stay hidden under their new name."""
    assert COMMAND_NAMES.kind(name) == "read_only"
    assert COMMAND_NAMES.kind(f"{name}.held-x7k2ab") is None
    assert COMMAND_NAMES.kind(".env.local.held-x7k2ab") == "hidden"
