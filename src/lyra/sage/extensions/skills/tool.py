"""The tool `Skill`: a model sees which skills there are, and reads one by its name.

Its description lists names and descriptions within a bound; all others are listed by a call without a name. Calling it
gives the skill's text with the arguments put in, and the names of the files beside it, which are read by a second call.
If the skill limits the tools, the limit holds for the rest of the message, also after a restart: the text and the limit
come from the journal then. The tool itself changes nothing outside the conversation. `SkillTools` is a source of tools:
a changed file counts from the next message on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.agents.session.shared import runtime_of
from lyra.core.checking.check import did_you_mean
from lyra.core.effect import Effect
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.sage.extensions.custom_commands import expand
from lyra.sage.extensions.extension_files import one_line
from lyra.sage.extensions.skills.skills import Skill, Skills, files_beside
from lyra.tools.function import tool

LISTED_CHARS_MAX: Final = 4_000  # of all lines in the tool's description: it is sent with every request
_LINE_CHARS_MAX: Final = 300
_NAMES_CHARS_MAX: Final = 20_000  # of the list that a call without a name gives
_HEAD: Final = """\
Read the instructions for a kind of work before you begin with it. Without a name: list all skills.

Skills:"""


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
