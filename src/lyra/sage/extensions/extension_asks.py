"""The extension files of a project as `lyra trust` shows them: each counts once its content is trusted.

A command, a skill or a sub-agent gives a model instructions, and so does a file beside a skill. What is said of a file
is made of the same bytes that the trust is for. Decides nothing; `places` asks for the trust of each file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from lyra.config.asks import Ask, AskingFile, on_one_line
from lyra.core.checking.document import read_front_matter
from lyra.sage.extensions.places import PROJECT_FOLDER, ExtensionPlace, markdown_files
from lyra.sage.extensions.skills.skills import SKILL_FILE, files_beside, is_skill


def extension_asks(folder: str) -> Iterator[AskingFile]:
    """The extension files of a folder's `.lyra`."""
    place = ExtensionPlace("project", os.path.join(folder, PROJECT_FOLDER))
    if os.path.islink(place.folder):
        return
    for kind, read in (("commands", _of_command), ("agents", _of_agent)):
        for path in markdown_files(place, kind)[0]:
            yield AskingFile(folder, os.path.relpath(path, folder), read)
    for path in markdown_files(place, "skills")[0]:
        if not is_skill(os.path.relpath(path, os.path.join(place.folder, "skills"))):
            continue
        yield AskingFile(folder, os.path.relpath(path, folder), _of_skill)
        if os.path.basename(path) == SKILL_FILE:
            home = os.path.dirname(path)
            for name in files_beside(home):
                yield AskingFile(folder, os.path.relpath(os.path.join(home, name), folder), _of_file_beside)


def _of_command(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    command = "/" + os.path.splitext(name)[0].split(os.sep, 2)[-1].replace(os.sep, ":")
    yield Ask(on_one_line(command), f"adds the command {on_one_line(command)}{_with(keys)}")


def _of_skill(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    skill = on_one_line(keys.get("name") or _named(name))
    yield Ask(f"skill {skill}", f"adds the skill {skill}, which gives the model instructions{_with(keys)}")


def _of_agent(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    agent = on_one_line(keys.get("name") or _named(name))
    tools = f" with the tools {on_one_line(keys['tools'])}" if "tools" in keys else ""
    yield Ask(f"agent {agent}", f"adds the sub-agent {agent}{tools}{_with(keys)}")


def _of_file_beside(data: bytes, name: str) -> Iterator[Ask]:
    skill = on_one_line(name.split(os.sep)[2])
    yield Ask(on_one_line(os.path.basename(name)), f"adds a file of {len(data)} bytes to the skill {skill}")


def _named(name: str) -> str:
    """The name that a path says."""
    inside = os.path.basename(name)
    return os.path.basename(os.path.dirname(name)) if inside == SKILL_FILE else os.path.splitext(inside)[0]


def _with(keys: dict[str, Any]) -> str:
    """What else the front matter asks for."""
    parts = []
    if "description" in keys:
        parts.append(f": {on_one_line(keys['description'])}")
    if "model" in keys:
        parts.append(f"; it asks the model {on_one_line(keys['model'])}")
    return "".join(parts)
