"""Skills: instructions for a kind of work, which a model reads when the work comes up.

    skills/release/SKILL.md, or skills/release.md
    ---
    description: Makes a release of this project
    when_to_use: a version is to be published
    allowed_tools: Read, Edit, Bash(git tag *)
    ---
    First look at CHANGELOG.md …

A model sees names and descriptions in the tool `Skill`, and gets a text by calling it. Where the skill names
`allowed_tools`, nothing else may be used for the rest of that message. A person starts a skill as a slash command
unless it says `user_invocable: false`. With `disable_model_invocation: true` only a person can. Files beside SKILL.md
are read through the tool. `BUILT_IN` come with Sage.

The description of the tool lists names and descriptions within a bound; a call without a name lists all others. A call
gives the text with the arguments put in, and the names of the files beside it. A limit of tools comes from the journal
after a restart. `SkillTools` is a source of tools: a changed file counts from the next message on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.core.checking.check import Mistake, did_you_mean
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.effect import Effect
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.sage.extensions.custom_commands import BUILT_IN_COMMANDS, CustomCommand, expand
from lyra.sage.extensions.extension_files import (
    NAME,
    ExtensionFiles,
    ExtensionPlace,
    MarkdownFile,
    markdown_files,
    one_line,
)
from lyra.tools.function import tool

LISTED_CHARS_MAX: Final = 4_000  # of all lines in the tool's description: it is sent with every request
_LINE_CHARS_MAX: Final = 300
_NAMES_CHARS_MAX: Final = 20_000  # of the list that a call without a name gives
_HEAD: Final = """\
Read the instructions for a kind of work before you begin with it. Without a name: list all skills.

Skills:"""

# ---------------------------------------------------------------- built in


class SkillText(NamedTuple):
    """The parts of a built-in skill."""

    name: str
    description: str
    when_to_use: str
    body: str


_TESTING: Final = """\
# Writing and running tests

1. Find out how this project tests: its rules file, the CI configuration, the tests nearest to the code. Use the
   same runner, layout, fixtures and naming.
2. Run the tests that exist for the code before you change it. A failure that was there before is not yours: say so.
3. Test behaviour that a user of the code relies on, through the interface they use. One reason to fail for each
   test, and a name that states the promise.
4. Cover the ordinary case, the edges (empty, one, many, largest, wrong type, missing) and every error that is
   raised.
5. Nothing random, no sleeping, no network, no dependence on order or on today's date. Give the clock, the seed and
   the folder to the code instead.
6. See each new test fail once for the right reason: undo the change or break the code on purpose, then put it back.
7. Run the smallest set that shows the change first, then the whole suite if it is quick. Report what you ran and
   what it said, failures word for word.

Never make a test pass by weakening what it checks, skipping it or catching its error. If a test is wrong, say why
before you change it."""

_DEBUGGING: Final = """\
# Finding the cause of a fault

1. Reproduce it. Write down the exact command, input and message. If it cannot be reproduced, collect what differs
   (version, data, environment, order) before anything else.
2. Read the whole message and the whole trace. The first error in time matters more than the last.
3. Make the case smaller until taking away anything more makes the fault vanish.
4. State one suspicion at a time, with what you would see if it were true, and look: a debugger, a print, a test,
   `git log` and `git bisect` for what worked before.
5. Follow the data from where it is right to where it is wrong. The cause is at the border, seldom where it shows.
6. Mend the cause, not the symptom. Ask whether the same mistake stands elsewhere, and search for it.
7. Keep a test that fails without the mend. Take out what you added for looking.

Do not change several things at once, and do not go on after a change that made no difference: take it back first.
If two suspicions were wrong, read the code again from the entry point instead of guessing a third time."""

_REVIEW: Final = """\
# Reviewing a change

1. Read what the change is for, then the whole diff, then the code around it: callers, tests, error paths, the types
   it passes through.
2. Look in this order: does it do what it is for; wrong results and lost data; error handling and clean-up; races
   and re-entry; input from outside, rights, secrets; compatibility of files, interfaces and settings; tests; then
   names and structure.
3. Check each suspicion against the code before you write it down. Say of what you could not confirm that you could
   not.
4. For each finding: file and line, what goes wrong and with which input, how grave it is, and a mend in a sentence.
5. The gravest first. Leave out taste and what a formatter does. If all is well, say what you checked.

Ask for the missing test where behaviour changed without one. A larger change than the purpose needs is a finding,
too."""

_GIT_COMMIT: Final = """\
# Preparing a commit

1. Look at `git status`, `git diff` and `git diff --staged`, and at the last ten messages: follow their form.
2. One change a commit. Leave out files that do not belong to it, generated files, secrets and large data. Stage by
   name, never everything blindly.
3. Run the checks that the project runs before a commit.
4. The subject: what the change does, in the imperative, at most 72 characters, no full stop. A blank line. Then
   why, and what a reader of the history has to know; wrapped at 72. Name the issue where the project does.
5. Commands cannot write git's own files: the user commits. End with the exact lines for it, such as
   `!git add src/a.py && git commit`, and the message. No push, amend or rebase unless the user asked for it."""

_SECURITY: Final = """\
# Looking for weaknesses

1. Draw the borders first: what comes from outside (requests, files, arguments, environment, other services, model
   output), and what it must never reach (commands, queries, paths, templates, logs, other users' data).
2. Follow each input to each use. Look for: commands built from strings; queries without parameters; paths that
   leave their folder (`..`, links, absolute paths); unsafe deserialisation; requests to addresses that a user
   chooses; output without escaping; comparisons of secrets that end early; random numbers for secrets from an
   ordinary generator.
3. Check who may do what at every entry, not only in the interface. Look for objects fetched by an id without asking
   whose they are.
4. Look for secrets in code, history, logs, errors and tests. Name the place, never the value.
5. Check bounds: sizes, counts, depth, time, memory. Check what happens when a service fails: closed is right, open
   is not.
6. Look at the dependencies for known faults with the project's own tool.
7. For each finding: where, how it is used by an attacker, what is lost, how grave, and the mend. Show it with the
   smallest harmless example or a test.

Change nothing on a running system, and try nothing against hosts that are not the user's own."""

BUILT_IN_SKILLS: Final = (
    SkillText("testing", "How to write and run tests that show something", "tests are written or changed", _TESTING),
    SkillText("debugging", "How to find the cause of a fault", "something fails and the cause is unknown", _DEBUGGING),
    SkillText("review", "How to review a change", "code is to be judged before it is merged", _REVIEW),
    SkillText("git-commit", "How to prepare a commit", "changes are to be committed with git", _GIT_COMMIT),
    SkillText("security", "How to look for weaknesses in code", "safety against attackers matters", _SECURITY),
)


SKILL_FILE: Final = "SKILL.md"
_GONE: Final = ("priority", "triggers")  # keys of earlier versions: a model chooses by what a skill says of itself
_KEYS: Final = (
    *("name", "description", "when_to_use", "allowed_tools", "user_invocable", "disable_model_invocation"),
    *("argument_hint", *_GONE),
)
_FILES_MAX: Final = 50  # beside one SKILL.md
_DEPTH_MAX: Final = 2
_FILE_BYTES_MAX: Final = 64 * 1024


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """One skill."""

    name: str
    description: str
    body: str
    when_to_use: str = ""
    allowed_tools: tuple[str, ...] | None = None
    user_invocable: bool = True
    model_invocable: bool = True
    argument_hint: str = ""
    folder: str = ""  # of its SKILL.md, whose files it can have read; "" for a skill that is one file
    source: str = "built-in"  # the file
    origin: str = "built-in"  # or user, project, plugin
    plugin: str = ""

    def command(self) -> CustomCommand:
        """Return the skill as a slash command."""
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
        """Return every skill by name, in the order of the names."""
        skills = {**{skill.name: skill for skill in _BUILT_IN}, **self.entries()}
        return dict(sorted(skills.items()))

    def for_model(self) -> dict[str, Skill]:
        """Return those that a model may read by itself."""
        return {name: skill for name, skill in self.all().items() if skill.model_invocable}

    def commands(self) -> dict[str, CustomCommand]:
        """Return those that a person may start, as slash commands; one with a name of a command of Sage's own is
        none."""
        skills = [skill for skill in self.all().values() if skill.user_invocable]
        return {skill.name: skill.command() for skill in skills if skill.name.lower() not in BUILT_IN_COMMANDS}

    def read_beside(self, skill: Skill, name: str) -> str:
        """Return the text of a file beside a skill's SKILL.md."""
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

    def _list_files(self, place: ExtensionPlace) -> tuple[list[str], list[Mistake]]:
        paths, mistakes = markdown_files(place, self.KIND)
        base = os.path.join(place.folder, self.KIND)
        return [path for path in paths if is_skill(os.path.relpath(path, base))], mistakes

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[Skill | None, list[Mistake]]:
        file, mistakes = MarkdownFile.parse(data, path, _KEYS, self.WORD)
        if file is None:
            return None, mistakes
        skill = _skill(file, place)
        return (None if file.report.mistakes else skill), file.report.mistakes


_BUILT_IN: Final = tuple(
    Skill(name=row.name, description=row.description, when_to_use=row.when_to_use, body=row.body)
    for row in BUILT_IN_SKILLS
)
_RESERVED: Final = frozenset(skill.name for skill in _BUILT_IN)


def is_skill(inside: str) -> bool:
    """Return whether a path in the folder `skills` is a skill, and not a file beside one."""
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
        allowed_tools=file.tools("allowed_tools"),
        user_invocable=file.flag("user_invocable", default=True),
        model_invocable=not file.flag("disable_model_invocation"),
        argument_hint=file.text("argument_hint", most=120),
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
    """Return the paths of the files beside a SKILL.md, without hidden ones and links; a bounded number."""
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


class SkillTools:
    """A source with the tool `Skill`; none where there is no skill. `refresh` is called before the tool is made."""

    def __init__(self, skills: Skills, *, refresh: Callable[[], object] | None = None) -> None:
        self.skills = skills
        self._refresh = refresh or skills.refresh
        self._description = ""
        self._tools: tuple[Tool, ...] = ()

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        self._refresh()
        listed = self.skills.for_model()
        description = _description(list(listed.values()))
        if not listed:
            self._tools = ()
        elif description != self._description or not self._tools:  # an unchanged tool is the same object each time
            self._tools = (_skill_tool(self.skills, description),)
        self._description = description
        return self._tools

    @property
    def problems(self) -> tuple[str, ...]:
        return self.skills.problems


def _line(skill: Skill) -> str:
    when = f" Use it when {skill.when_to_use}" if skill.when_to_use else ""
    line = f"- {skill.name}: {skill.description}{'.' if when and skill.description[-1:] not in '.!?' else ''}{when}"
    return line if len(line) <= _LINE_CHARS_MAX else f"{line[: _LINE_CHARS_MAX - 1]}…"


def _description(skills: list[Skill]) -> str:
    """Return the lines that fit; how many are left out is said."""
    lines, size = [], 0
    for skill in skills:
        line = _line(skill)
        size += len(line) + 1
        if size > LISTED_CHARS_MAX:
            break
        lines.append(line)
    if len(lines) < len(skills):
        lines.append(f"… and {len(skills) - len(lines)} more: call it without a name to list them")
    return "\n".join([_HEAD, *lines])


class _SkillSet:
    """The skills as the argument of an effect; the journal knows them by this word."""

    __slots__ = ("skills",)

    def __init__(self, skills: Skills) -> None:
        self.skills = skills

    def to_data(self) -> str:
        return "skills"


async def _invoke(skill_set: _SkillSet, name: str, arguments: str, file: str) -> dict[str, Any]:
    """Return the text that a call gives, and the rules that it limits the message to."""
    skills = skill_set.skills
    known = skills.for_model()
    if not name.strip():
        return {"text": _names(list(known.values())), "only": None}
    skill = known.get(name.strip())
    if skill is None:
        near = did_you_mean(name.strip(), known)
        hint = f"did you mean {near!r}?" if near else "call Skill without a name to list all"
        raise ToolError(f"there is no skill {one_line(name)[:100]!r}; {hint}", reason="not_found")
    if file:
        return {"text": skills.read_beside(skill, file), "only": None}
    text = expand(skill.body, arguments)
    beside = files_beside(skill.folder)
    if beside:
        text = f"{text}\n\nFiles of this skill, to be read with Skill(name, file=…): {', '.join(beside)}"
    return {"text": text, "only": None if skill.allowed_tools is None else list(skill.allowed_tools)}


def _names(skills: list[Skill]) -> str:
    text = "\n".join(map(_line, skills))
    return text if len(text) <= _NAMES_CHARS_MAX else f"{text[:_NAMES_CHARS_MAX]}…"


_INVOKE: Final = Effect(_invoke, name="skill:read", idempotent=True)


def _skill_tool(skills: Skills, description: str) -> Tool:
    async def skill(ctx: Any, name: str = "", arguments: str = "", file: str = "") -> str:
        """Read a skill.

        Args:
            name: the skill's name
            arguments: what the work is about, for skills that ask for it
            file: a file of the skill, to be read instead of its text
        """
        given = await ctx.do(_INVOKE, _SkillSet(skills), name, arguments, file)
        if given["only"] is not None:
            session = runtime_of(ctx.own_process.kernel).sessions.get(ctx.pid)
            if session is None:
                raise ToolError("Skill is called by an agent", reason="not_found")
            session.limit(given["only"])
        return str(given["text"])

    # Trusted: a skill's text is the user's own, or that of a file which the user trusts with this very content.
    return tool(skill, name="Skill", description=description, harmless=True, trusted=True).mark_builtin()
