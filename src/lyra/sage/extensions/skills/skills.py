"""Skills: instructions for a kind of work, which a model reads when the work comes up.

    skills/release/SKILL.md, or skills/release.md
    ---
    description: Makes a release of this project
    when_to_use: a version is to be published
    allowed_tools: Read, Edit, Bash(git tag *)
    triggers: {keywords: [release, publish], extensions: [.toml]}
    ---
    First look at CHANGELOG.md …

A model sees names and descriptions in the tool `Skill` (`tool`), and gets a text by calling it. Where the skill
names `allowed_tools`, nothing else may be used for the rest of that message. A person starts a skill as a slash command
unless it says `user_invocable: false`. With `disable_model_invocation: true` only a person can. Files beside SKILL.md
are read through the tool. `triggers` says which skills fit a message; `built_in` has Sage's own.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from lyra.core.checking.check import Mistake
from lyra.core.checking.watched_files import read_plain_file
from lyra.errors import ToolError
from lyra.sage.extensions.custom_commands import BUILT_IN_COMMANDS, CustomCommand
from lyra.sage.extensions.extension_files import ExtensionFiles, declared_tools
from lyra.sage.extensions.front_matter import NAME, MarkdownFile, one_line
from lyra.sage.extensions.places import ExtensionPlace, markdown_files
from lyra.sage.extensions.skills.built_in import BUILT_IN_SKILLS
from lyra.sage.extensions.skills.triggers import Triggers, read_triggers

SKILL_FILE: Final = "SKILL.md"
_KEYS: Final = (
    *("name", "description", "when_to_use", "allowed_tools", "user_invocable", "disable_model_invocation"),
    *("argument_hint", "priority", "triggers"),
)
_FILES_MAX: Final = 50  # beside one SKILL.md
_DEPTH_MAX: Final = 2
_FILE_BYTES_MAX: Final = 64 * 1024


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """One skill. Of two skills the one with the higher `priority` is listed and suggested first."""

    name: str
    description: str
    body: str
    when_to_use: str = ""
    allowed_tools: tuple[str, ...] | None = None
    user_invocable: bool = True
    model_invocable: bool = True
    argument_hint: str = ""
    priority: int = 0
    triggers: Triggers = Triggers()
    folder: str = ""  # of its SKILL.md, whose files it can have read; "" for a skill that is one file
    source: str = "built-in"  # the file
    origin: str = "built-in"  # or user, project, plugin
    plugin: str = ""

    def command(self) -> CustomCommand:
        """The skill as a slash command."""
        return CustomCommand(
            name=self.name,
            description=self.description,
            body=self.body,
            argument_hint=self.argument_hint,
            allowed_tools=self.allowed_tools,
            source=self.source,
            origin=self.origin,
            plugin=self.plugin,
        )


class Skills(ExtensionFiles[Skill]):
    """The skills of some places, as their files are now; `all` has the built-in ones too."""

    KIND = "skills"
    WORD = "a skill"

    def all(self) -> dict[str, Skill]:
        """Every skill by name, the most important first."""
        skills = {**{skill.name: skill for skill in _BUILT_IN}, **self.entries()}
        return dict(sorted(skills.items(), key=lambda item: (-item[1].priority, item[0])))

    def for_model(self) -> dict[str, Skill]:
        """Those that a model may read by itself."""
        return {name: skill for name, skill in self.all().items() if skill.model_invocable}

    def commands(self) -> dict[str, CustomCommand]:
        """Those that a person may start, as slash commands; one with a name of a command of Sage's own is none."""
        skills = [skill for skill in self.all().values() if skill.user_invocable]
        return {skill.name: skill.command() for skill in skills if skill.name.lower() not in BUILT_IN_COMMANDS}

    def fitting(self, prompt: str, files: tuple[str, ...] = ()) -> list[Skill]:
        """The skills whose triggers fit a message, or the files that it is about; the most important first."""
        return [skill for skill in self.for_model().values() if skill.triggers.fit(prompt, files)]

    def suggestion(self, prompt: str, files: tuple[str, ...] = ()) -> str:
        """A line for the model that names the skills which fit; "" where none does."""
        fitting = self.fitting(prompt, files)[:_SUGGESTED_MAX]
        if not fitting:
            return ""
        named = "; ".join(f"{skill.name} ({skill.description})" for skill in fitting)
        return f"Skills that may fit this message: {named}. Read one with the tool Skill before you begin."

    def read_beside(self, skill: Skill, name: str) -> str:
        """The text of a file beside a skill's SKILL.md."""
        if name not in files_beside(skill.folder):
            raise ToolError(f"the skill {skill.name} has no file {one_line(name)[:100]!r}", reason="not_found")
        path = os.path.join(skill.folder, name)
        try:
            data = read_plain_file(path, _FILE_BYTES_MAX, follow_links=False)
        except OSError as error:
            raise ToolError(f"{name} cannot be read: {error.strerror}", reason="io_error") from None
        place = next((place for place in self._places if skill.source.startswith(place.folder + os.sep)), None)
        if place is None or not place.takes(path, data):
            raise ToolError(f"{name} is not trusted as it is now; see `lyra trust show`", reason="permission_denied")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ToolError(f"{name} is not a text", reason="binary") from None

    def _listed(self, place: ExtensionPlace) -> tuple[list[str], list[Mistake]]:
        paths, mistakes = markdown_files(place, self.KIND)
        base = os.path.join(place.folder, self.KIND)
        return [path for path in paths if is_skill(os.path.relpath(path, base))], mistakes

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[Skill | None, list[Mistake]]:
        file, mistakes = MarkdownFile.of(data, path, _KEYS, self.WORD)
        if file is None:
            return None, mistakes
        skill = _skill(file, place)
        return (None if file.report.mistakes else skill), file.report.mistakes


_SUGGESTED_MAX: Final = 3
_PRIORITY_MAX: Final = 1_000
_BUILT_IN: Final = tuple(
    Skill(name=row.name, description=row.description, when_to_use=row.when_to_use, body=row.body)
    for row in BUILT_IN_SKILLS
)
_RESERVED: Final = frozenset(skill.name for skill in _BUILT_IN)


def is_skill(inside: str) -> bool:
    """Whether a path in the folder `skills` is a skill, and not a file beside one."""
    parts = inside.split(os.sep)
    return len(parts) == 1 or (len(parts) == 2 and parts[1] == SKILL_FILE)


def _skill(file: MarkdownFile, place: ExtensionPlace) -> Skill:
    inside = os.path.basename(file.path)
    folder = os.path.dirname(file.path) if inside == SKILL_FILE else ""
    description = file.text("description")
    if "description" not in file.keys:
        file.report.add((), "a skill has a description, by which a model chooses it")
    return Skill(
        name=_name(file, place, os.path.basename(folder) if folder else inside[: -len(".md")]),
        description=description,
        body=file.body,
        when_to_use=file.text("when_to_use"),
        allowed_tools=declared_tools(file, "allowed_tools", place),
        user_invocable=file.flag("user_invocable", default=True),
        model_invocable=not file.flag("disable_model_invocation"),
        argument_hint=file.text("argument_hint", most=120),
        priority=file.whole("priority", least=-_PRIORITY_MAX, most=_PRIORITY_MAX) or 0,
        triggers=read_triggers(file),
        folder=folder,
        source=file.path,
        origin=place.origin,
        plugin=place.plugin,
    )


def _name(file: MarkdownFile, place: ExtensionPlace, by_path: str) -> str:
    name = file.text("name") or by_path
    if not NAME.match(name):
        file.report.add(("name",), f"{one_line(name)!r} is not a name: use letters, digits, '_' and '-'")
    elif place.plugin:
        return f"{place.plugin}:{name}"
    elif name.lower() in _RESERVED:
        file.report.add(("name",), f"{name} is a skill of Sage's own, and a file cannot take its name")
    return name


def files_beside(folder: str) -> list[str]:
    """The paths of the files beside a SKILL.md, without hidden ones and links; a bounded number."""
    if not folder:
        return []
    names: list[str] = []
    waiting = [("", 0)]
    while waiting and len(names) < _FILES_MAX:
        inside, depth = waiting.pop(0)
        try:
            with os.scandir(os.path.join(folder, inside)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            path = os.path.join(inside, entry.name)
            if entry.name.startswith(".") or not entry.name.isprintable() or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting += [(path, depth + 1)] if depth < _DEPTH_MAX else []
            elif entry.is_file(follow_symlinks=False) and path != SKILL_FILE:
                names.append(path)
    return names[:_FILES_MAX]
