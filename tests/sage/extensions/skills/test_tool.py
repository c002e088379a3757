"""The tool Skill: what a model sees, what a call gives, and that a skill's limit holds for the rest of the message."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra import Agent, Kernel, tool
from lyra.sage.extensions.skills.skills import LISTED_CHARS_MAX, Skills, SkillTools
from lyra.tools.permissions import Permissions, Rule
from tests.agents.support import Recorded, calls, run, says
from tests.kernel.conftest import Crash
from tests.sage.extensions.support import Desk, put

HEAD = "---\ndescription: Makes a release\nwhen_to_use: it is time\n---\n"


def source(desk: Desk) -> SkillTools:
    return SkillTools(Skills(desk.places()))


def answers(desk: Desk, *script: Any, tools: Any = (), count: int = 1) -> list[str]:
    """The answers of an agent with the skills of the desk to some messages."""
    agent = Agent("w", model=says(*script), tools=[source(desk), *tools], permissions=Permissions([Rule("*", "allow")]))

    async def main() -> list[str]:
        async with Kernel("memory") as kernel:
            process = await kernel.spawn(agent)
            return [str(await process.send(f"message {number}")) for number in range(count)]

    texts: list[str] = run(main())
    return texts


def description(tools: SkillTools) -> str:
    (declared,) = tools.__lyra_tools__()
    return declared.description


def test_the_description_lists_skills_within_a_bound(desk: Desk) -> None:
    """Each with its description and when to use it; of those that do not fit the number is said."""
    desk.of_user("skills/release.md", HEAD + "Release.")
    text = description(source(desk))
    assert "- release: Makes a release. Use it when it is time\n" in text
    assert "- testing: " in text
    for number in range(60):
        desk.of_user(f"skills/a{number:02}.md", f"---\ndescription: {'d' * 900}\n---\nT.")
    text = description(source(desk))
    assert len(text) < LISTED_CHARS_MAX + 500
    assert "more: call it without a name" in text
    assert "- release" not in text


def test_an_unchanged_tool_is_the_same_object_and_a_changed_file_counts(desk: Desk) -> None:
    desk.of_user("skills/a.md", HEAD + "A.")
    tools = source(desk)
    before = tools.__lyra_tools__()
    assert tools.__lyra_tools__() == before
    assert tools.__lyra_tools__()[0] is before[0]
    desk.of_user("skills/b.md", HEAD + "B.")
    assert "- b: " in description(tools)


def test_a_call_gives_the_text_with_the_arguments(desk: Desk) -> None:
    desk.of_user("skills/release/SKILL.md", HEAD + "Release $ARG1.")
    put(desk.user / "skills/release/notes.md", "The notes.")
    (text,) = answers(desk, calls("Skill", name="release", arguments="1.2"), "{result}")
    assert text.startswith("Release 1.2.")
    assert "notes.md" in text
    assert answers(desk, calls("Skill", name="release", file="notes.md"), "{result}") == ["The notes."]


def test_a_call_without_a_name_lists_all(desk: Desk) -> None:
    desk.of_user("skills/release.md", HEAD + "Release.")
    (text,) = answers(desk, calls("Skill"), "{result}")
    assert "- release: " in text
    assert "- security: " in text


def test_an_unknown_name_is_told_with_the_one_that_was_meant(desk: Desk) -> None:
    desk.of_user("skills/hidden.md", "---\ndescription: d\ndisable_model_invocation: true\n---\nText.")
    (text,) = answers(desk, calls("Skill", name="testin"), "{result}")
    assert "did you mean 'testing'?" in text
    (text,) = answers(desk, calls("Skill", name="hidden"), "{result}")
    assert "there is no skill 'hidden'" in text


class Probe:
    """A tool that remembers that it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def tools(self) -> list[Any]:
        def other() -> str:
            self.ran.append("other")
            return "ok"

        def wanted() -> str:
            self.ran.append("wanted")
            return "ok"

        return [tool(other, trusted=True), tool(wanted, trusted=True)]


def test_a_skills_limit_holds_for_the_rest_of_the_message(desk: Desk) -> None:
    """The next message is without it."""
    desk.of_user("skills/x.md", "---\ndescription: d\nallowed_tools: wanted\n---\nText.")
    probe = Probe()
    turn = (calls("Skill", name="x"), calls("other"), calls("wanted"), "done")
    answers(desk, *turn, calls("other"), "done", tools=probe.tools, count=2)
    assert probe.ran == ["wanted", "other"]


def test_a_skill_without_allowed_tools_limits_nothing(desk: Desk) -> None:
    desk.of_user("skills/x.md", "---\ndescription: d\n---\nText.")
    probe = Probe()
    answers(desk, calls("Skill", name="x"), calls("other"), "done", tools=probe.tools)
    assert probe.ran == ["other"]


def test_a_skills_limit_outlives_its_kernel(desk: Desk, tmp_path: Path) -> None:
    """Killed after the skill was read: the rest of the message is limited, although the file allows more by now."""
    path = desk.of_user("skills/x.md", "---\ndescription: d\nallowed_tools: wanted\n---\nText.")
    probe = Probe()
    model: Recorded = says(
        calls("Skill", name="x"), {"text": "hangs", "first_s": 60, "times": 1}, calls("other"), calls("wanted"), "done"
    )
    rules = Permissions([Rule("*", "allow")])
    agent = Agent("w", model=model, tools=[source(desk), *probe.tools], permissions=rules)
    store = str(tmp_path / "run.db")

    async def first() -> None:
        async with Crash(Kernel(store)) as kernel:
            (await kernel.spawn(agent, pid="w")).send_async("go")
            while len(model.requests) < 2:
                await asyncio.sleep(0.001)

    async def second() -> None:
        put(path, "---\ndescription: d\n---\nText.")
        async with Kernel(store, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="w")
            while not process.messages or process.messages[-1].text != "done":
                await asyncio.sleep(0.001)

    run(first())
    run(second())
    assert probe.ran == ["wanted"]


def test_reading_a_skill_needs_no_rule(desk: Desk) -> None:
    """It does nothing outside the conversation: it is there in the mode plan, and where no person answers."""
    agent = Agent(
        "w",
        model=says(calls("Skill", name="testing"), "{result}"),
        tools=[source(desk)],
        permissions=Permissions(mode="plan", attended=False),
    )

    async def main() -> str:
        async with Kernel("memory") as kernel:
            return str(await (await kernel.spawn(agent)).send("go"))

    assert run(main()).startswith("# Writing and running tests")
