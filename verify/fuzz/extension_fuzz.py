"""Extension files of Sage with damage: Markdown with front matter, and manifests of plugins.

`markdown(rng)` and `manifest(rng)` are targets of `fuzz`. A file is read as a command, a skill and a sub-agent: it is
one, or it has mistakes whose lines stand inside the text and whose sentences are fit for a terminal. What was read is
used: a command is expanded.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Final

from lyra.core.ids import ProcessRandom
from lyra.errors import LyraError
from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommand, CustomCommands
from lyra.sage.extensions.extension_files import ExtensionPlace
from lyra.sage.extensions.plugins.plugin import MANIFEST, read_manifest
from lyra.sage.extensions.skills.skills import Skills

__all__ = ["manifest", "markdown"]

_PLACES: Final = (ExtensionPlace("user", "/x"), ExtensionPlace("plugin", "/x", plugin="p"))
_HEAD: Final = (
    *("description: d\n", "name: x\n", "tools: Read\n", "allowed_tools: [Read, 'Bash(git *)']\n", "budget: $1\n"),
    *("triggers: {keywords: [a], patterns: ['(a+)+$'], extensions: [.py]}\n", "max_turns: 3\n", "priority: 1\n"),
    *("arguments: [a, b]\n", "model: m\n", "worktree: true\n", "permission_mode: plan\n", "argument_hint: x\n"),
    *(
        "---\n",
        "- a\n",
        "a: &x [*x]\n",
        "? [a]\n",
        "!!python/object:x {}\n",
        "'",
        '"',
        "{",
        "[",
        "\t",
        "\x00",
        "\x1b[2J",
    ),
    *("\u202e", "\ud800", "\u2028", "null", "1e999", "0x7f", "name: ", ": ", "\n", "  ", "|\n", ">-\n", "%YAML 9\n"),
)
_BODY: Final = (
    *("$ARGUMENTS", "$ARG1", "$ARGUMENTS_JSON", "$a", "$", "@file", "\n", "---\n", "text ", "'", "\x1b", "\u200b"),
)
_TOML: Final = (
    *("schema = 1\n", 'id = "p"\n', 'name = "n"\n', 'version = "1"\n', 'description = "d"\n', "[assets]\n"),
    *("[permissions]\n", 'tools = ["Read"]\n', 'commands = ["../x"]\n'),
    *('skills = ["skills/a"]\n', 'hooks = ["a.toml"]\n', 'dependencies = ["a>=1"]\n', "[[a]]\n", "[a.b]\n", "="),
    *('"', "'''", "\n", "{", "}", "[", "]", "1979-01-01", "\x00", "\u202e", "inf", "a.b.c = 1\n"),
)


def _pieces(rng: ProcessRandom, pieces: tuple[str, ...], most: int) -> str:
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, most)))


def markdown(rng: ProcessRandom) -> None:
    text = f"---\n{_pieces(rng, _HEAD, 8)}\n---\n{_pieces(rng, _BODY, 8)}"
    data = text.encode("utf-8", "surrogatepass" if rng.random() < 0.3 else "replace")
    if rng.random() < 0.1:
        data = bytes(rng.randrange(256) for _ in range(rng.randint(0, 60)))
    place = rng.choice(_PLACES)
    for files, path in (
        (CustomCommands([]), "/x/commands/a.md"),
        (Skills([]), "/x/skills/a/SKILL.md"),
        (AgentFiles([]), "/x/agents/a.md"),
    ):
        entry, mistakes = files._read(data, path, place)
        assert (entry is None) == bool(mistakes), mistakes
        lines = data.count(b"\n") + data.count(b"\r") + 2
        assert all(1 <= mistake.line <= lines for mistake in mistakes), mistakes
        if isinstance(entry, CustomCommand):
            assert entry.description.isprintable()
            with contextlib.suppress(LyraError):
                entry.expand(_pieces(rng, _BODY, 5))


def manifest(rng: ProcessRandom) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, MANIFEST), "wb") as file:
            file.write(_pieces(rng, _TOML, 15).encode())
        plugin, mistakes = read_manifest(folder)
        assert (plugin is None) == bool(mistakes)
