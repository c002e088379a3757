"""The first screen: which model is set up or how to set one up, what the folder asks for, three things to try.

`choose_model` comes before a session is opened: without a model, or without the key that its provider needs, it names
the variables and offers the simulated model. `welcome_lines` are the first lines of the first session of a user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.providers import USUAL
from lyra.sage.terminal.facts import TerminalFacts, size_of
from lyra.sage.terminal.text.styled_lines import MARGIN, Line, exact, for_output, strip_style, wrap

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession


SIMULATED: Final = "sim/echo"
_MORE: Final = (
    "The model can stand in lyra.toml: model under [agent]. sage doctor checks the set-up.",
    "The simulated model needs no key: it repeats what you say, and shows how Sage looks.",
)
_OF_OTHER_AGENTS: Final = ("CLAUDE.md", ".claude", ".codex", ".cursor", ".cursorrules")
_THINGS: Final = ("explain how this project is built", "find a failing test and fix it", "/help")


def missing_variables(
    model: str, providers: Mapping[str, Mapping[str, Any]], env: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the variables of which one has to be set for this model; empty where it has what it needs."""
    provider = model.partition("/")[0]
    usual = USUAL.get(provider)
    if usual is None or "api_key" not in usual.needs or providers.get(provider, {}).get("api_key"):
        return ()
    return () if any(env.get(name) for name in usual.key) else usual.key


def choose_model(model: str, providers: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the model to start with: the one that is set up, or the simulated one where the person takes it; else
    None."""
    missing = missing_variables(model, providers, os.environ)
    if model and not missing:
        return model
    facts = TerminalFacts.read(sys.stdin, sys.stdout)
    width = size_of(sys.stdout)[0]
    for line in _set_up_lines(model, missing):
        for row in wrap(line, width, hanging=4):
            sys.stdout.write(for_output(strip_style(row), unicode=facts.unicode) + "\n")
    try:
        answer = input(f"{' ' * MARGIN}s  try it with the simulated model    enter  leave    ")
    except (EOFError, KeyboardInterrupt):
        answer = ""
    return SIMULATED if answer.strip().lower() == "s" else None


def _set_up_lines(model: str, missing: tuple[str, ...]) -> list[Line]:
    if missing:
        first = f"{exact(model)} needs a key, and {' or '.join(missing)} is not set."
    else:
        first = "No model is set up. Set one of these variables and name a model:"
    rows: list[Line] = [[("", "")], [("", f"{' ' * MARGIN}{first}")], [("", "")]]
    for provider, usual in USUAL.items():
        if usual.example:
            variable = (usual.key or usual.url)[0]
            words = f"{variable:<20} sage --model {provider}/{usual.example}"
            rows.append([("", f"{' ' * (MARGIN + 2)}{words}")])
    rows.append([("", "")])
    rows += [[("", f"{' ' * MARGIN}{words}")] for words in _MORE]
    return [*rows, [("", "")]]


def welcome_lines(session: LiveSession, width: int, *, plain: bool = False) -> list[Line]:
    """Return the first screen of a user who has never used Sage; `plain`: in a terminal that sends whole lines."""
    interrupts, changes = ("ctrl-c", "/permissions mode") if plain else ("esc", "shift-tab")
    provider, _, name = session.model.partition("/")
    rows: list[Line] = [
        [("strong", f"{' ' * MARGIN}Sage works with you on the code of this folder.")],
        [],
        _fact("model", f"{exact(name)} of {exact(provider)}"),
        _fact("folder", _folder_words(session.folder)),
        *_import_facts(session.folder),
        _fact("asks", f"before it changes a file, runs a command or fetches a page; {changes} changes that"),
        _fact("keys", f"{interrupts} interrupts, @ names a file, ! runs a command of yours, ctrl-d leaves"),
        [],
        [("strong", f"{' ' * MARGIN}Three things to try")],
        *([("", f"{' ' * (MARGIN + 2)}{thing}")] for thing in _THINGS),
    ]
    return [part for row in rows for part in wrap(row, width, hanging=MARGIN + 8)]


def _fact(name: str, words: str) -> Line:
    return [("faint", f"{' ' * MARGIN}{name:<8}"), ("", words)]


def _import_facts(folder: str) -> list[Line]:
    """Say how files of other agents are taken over, where the project has some and nothing was taken over yet."""
    names = [name for name in _OF_OTHER_AGENTS if os.path.lexists(os.path.join(folder, name))]
    if not names or os.path.lexists(os.path.join(folder, ".lyra")):
        return []
    words = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
    return [_fact("import", f"{words} here: sage import takes over what Sage can use of it")]


def _folder_words(folder: str) -> str:
    """Return whether the files of the folder ask for something, and whether that is trusted."""
    from lyra.config.asks import folder_asks
    from lyra.config.trust import trust_for

    trust = trust_for(folder)
    waiting = [file for file in folder_asks(folder) if file.state(trust) != "trusted"]
    name = exact(os.path.basename(folder) or folder)
    if not waiting:
        return name
    files = ", ".join(file.shown_name for file in waiting[:5])
    return f"{name}; not trusted, so {files} can only forbid (lyra trust show says what they ask for)"
