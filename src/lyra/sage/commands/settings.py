"""Commands that show and change settings: config, model, effort, output, permissions, plan."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.config.files import FILE_NAME, keep_word
from lyra.core.clock import SystemClock
from lyra.core.providers import USUAL
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError
from lyra.models.pricing import Price, context_window, list_published_names
from lyra.models.settings import settings_of
from lyra.sage.agent.live import LiveSession
from lyra.sage.commands.result import (
    Choices,
    SlashArguments,
    SlashChoice,
    SlashResult,
    lines,
    table,
    text,
    tokens,
)
from lyra.tools.permissions.decision import MODES
from lyra.tools.permissions.rules import Rule

OUTPUT_MODES: Final = {
    "text": "tool calls as one line each, with the last lines of those that failed",
    "compact": "tool calls as one line each",
    "verbose": "tool calls with all of their output",
}
THEMES: Final = {
    "dark": "for a dark background",
    "light": "for a light background",
    "contrast": "with more contrast",
    "colour-blind": "blue and yellow in place of green and red",
}
_MODELS_SHOWN: Final = 40
_GO: Final = "The plan is approved. Carry it out now."
_DAYS_BACK: Final = 60


async def config(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    rows = session.config.rows()
    if words:
        rows = [row for row in rows if row.name == words[0] or row.name.startswith(f"{words[0]}.")]
        if not rows:
            session.config.origin(words[0])  # raises, with the nearest name
    else:
        rows = [row for row in rows if row.origin.kind != "default"]
    shown = [(row.name, visible(str(row.value)), row.origin.kind, visible(row.origin.place or "")) for row in rows]
    if not shown:
        return SlashResult.from_blocks(
            "every setting has its default; /config SECTION shows them, `sage config keys` explains"
        )
    return SlashResult.from_blocks(table(("setting", "value", "from", ""), shown))


async def model(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Return a name with a slash is switched to; any other word is looked for in the published names of models."""
    words = arguments.at_most(1)
    if not words or "/" not in words[0]:
        return await asyncio.to_thread(_offer_models, session, words[0] if words else "")
    name = words[0]
    runtime_of(session.kernel).models.find(name)  # raises where the provider is not known, or has no key
    await session.set_model(name)
    return SlashResult.from_blocks(f"model: {session.model}")


def _models_used(session: LiveSession) -> dict[str, str]:
    """Return the model in use, that of the configuration, and those of the last weeks."""
    used = session.spending.log.sums("model", days=_DAYS_BACK, now=SystemClock().now())
    recent = {total.group: "used before" for total in sorted(used, key=lambda total: -total.time)}
    configured = session.config.agent.model
    return {session.model: "", **({configured: "configured"} if configured else {}), **recent}


def _list_published(session: LiveSession, word: str) -> list[str]:
    """Published names with this word in them, of providers that can be asked; the newest of each first."""
    usable = [provider for provider in sorted({*USUAL, *session.config.providers}) if _is_usable(session, provider)]
    prices = runtime_of(session.kernel).models.settings.prices
    names: list[str] = []
    for provider in usable:
        of_it = [f"{provider}/{name}" for name in list_published_names(provider)]
        of_it = [name for name in of_it if word.lower() in name.lower()]
        names += sorted(of_it, key=lambda name: _rank(name, prices.find(name)), reverse=True)
    return names


_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,2})(?:\.(\d{1,2})|-(\d))?(?![\dbkx])")


def _rank(name: str, price: Price | None) -> tuple[bool, int, int, float]:
    """Return the place of a model among its vendor's: the later version first, then the dearer one. No release date is
    published."""
    model = name.partition("/")[2]
    match = _VERSION.search(model)
    first, second = (int(match[1]), int(match[2] or match[3] or 0)) if match else (0, 0)
    return ":" not in model, first, second, sum(price.usd_per_mtok) if price is not None else 0


def _offer_models(session: LiveSession, word: str) -> SlashResult:
    """Return the models to choose from: those that were used, or those whose names have a word; all where a face lets
    a person choose."""
    used = _models_used(session) if not word else {}
    published = dict.fromkeys(_list_published(session, word), "")
    prices = runtime_of(session.kernel).models.settings.prices
    rows = {
        name: (_window(name), show_price(prices.find(name)), "in use" if name == session.model else about)
        for name, about in (used | published | used).items()
    }
    listed = [(visible(name), *rows[name]) for name in (used or published)]
    more = f"{len(listed) - _MODELS_SHOWN} more; " if len(listed) > _MODELS_SHOWN else ""
    hint = f"{more}/model PROVIDER/MODEL switches, /model WORD searches; names that are not listed work, too"
    if not listed:
        return SlashResult.from_blocks("no published name of a provider that has a key matches", hint)
    shown = table(("model", "window", "a million tokens", ""), listed[:_MODELS_SHOWN])
    offered = [SlashChoice(name, "  ".join(filter(None, row)), f"/model {name}") for name, row in rows.items()]
    return SlashResult.from_blocks(shown, hint, choices=Choices("model", offered))


def show_price(price: Price | None) -> str:
    """Return what a million tokens cost, in and out; `?` where that is not known."""
    if price is None:
        return "?"
    into, out = price.usd_per_mtok
    return f"${into:g} in, ${out:g} out"


def _is_usable(session: LiveSession, provider: str) -> bool:
    """Return whether the settings are there that a call needs; nothing is sent."""
    try:
        settings = settings_of(provider, session.config.providers.get(provider))
    except ConfigError:
        return False
    return bool(settings.api_key) or provider in session.config.providers


def _window(name: str) -> str:
    size = context_window(name)
    return tokens(size) if size else ""


EFFORTS: Final = {
    "none": "no thinking before an answer",
    "low": "a little thinking, for work that is plain",
    "medium": "some thinking",
    "high": "much thinking, for what is hard; it takes longer and costs more",
}


async def effort(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    if not words:
        rows = [(word, about, "in use" if word == session.effort else "") for word, about in EFFORTS.items()]
        usual = [] if session.effort else ["as the vendor of the model has it"]
        return SlashResult.from_blocks(table(("effort", "", ""), rows), *usual)
    session.set_effort(arguments.choice(words[0], EFFORTS))
    return SlashResult.from_blocks(session.effort_note or f"effort: {session.effort}: {EFFORTS[session.effort]}")


async def output(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    now = str(session.facts.settings.get("output", "text"))
    if not words:
        rows = [(mode, about, "in use" if mode == now else "") for mode, about in OUTPUT_MODES.items()]
        return SlashResult.from_blocks(table(("output", "", ""), rows))
    mode = arguments.choice(words[0], OUTPUT_MODES)
    session.keep(output=mode)
    return SlashResult.from_blocks(f"output: {mode}: {OUTPUT_MODES[mode]}")


async def theme(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Show the themes, or take one, which the user's own settings keep."""
    words = arguments.at_most(1)
    if words:
        name = arguments.choice(words[0], THEMES)
        own = user_folder(os.environ)
        if own is None:
            raise ConfigError("there is no folder for settings of your own", hint="set HOME", key="HOME")
        file = Path(own) / FILE_NAME
        await asyncio.to_thread(keep_word, file, "sage.theme", name)
        return SlashResult.from_blocks(f"theme: {name}, kept in {visible(str(file))}", themes=(name,))
    now = Config.load(session.folder, lenient=True).sage.theme
    rows = [(name, about, "in use" if name == now else "") for name, about in THEMES.items()]
    offered = [SlashChoice(name, "  ".join(filter(None, row)), f"/theme {name}") for name, *row in rows]
    return SlashResult.from_blocks(
        table(("theme", "", ""), rows), choices=Choices("theme", offered), themes=tuple(THEMES)
    )


async def add_dir(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Show the folders of a session, or add one."""
    path = arguments.text
    if path:
        folder = await session.add_folder(path)
        return SlashResult.from_blocks(f"Sage works in {visible(folder)}, too; changes there can be undone")
    folders = (session.folder, *session.headless.setup.also)
    return SlashResult.from_blocks(lines(map(visible, folders)), "/add-dir FOLDER adds one")


async def permissions(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    flags = arguments.flags("keep")
    words = arguments.words
    if not words:
        rules = session.headless.setup.permissions
        order = ("deny", "ask", "allow")
        ordered = sorted((*rules.rules, *rules.answers), key=lambda rule: order.index(rule.effect))
        rows = [(rule.effect, visible(rule.text), visible(rule.source)) for rule in ordered]
        mode = f"mode: {session.mode}: {MODES[session.mode]}"
        if not rows:
            return SlashResult.from_blocks(mode, 'no rules; /permissions allow "Bash(git diff *)" adds one')
        return SlashResult.from_blocks(mode, table(("", "rule", "from"), rows))
    action = arguments.choice(words[0], ("allow", "deny", "mode"))
    if action == "mode":
        return await _mode(session, arguments, words[1:])
    if len(words) != 2:
        raise arguments.mistake("one rule is expected, in quotes where it has blanks")
    return _add(session, action, words[1], keep="keep" in flags)


def _add(session: LiveSession, effect: Any, written: str, *, keep: bool) -> SlashResult:
    setup = session.headless.setup
    rules = setup.permissions
    source = "answers" if keep else "session"
    rule = Rule(written, effect, source=source, workspace=rules.workspace, home=rules.home)
    rules.add(rule, as_answer=keep)
    if keep:
        rules.keep(rule)
        where = "in this folder from now on"
    else:
        options = session.options
        field = "allow" if effect == "allow" else "deny"
        session.options = msgspec.structs.replace(options, **{field: (*getattr(options, field), written)})
        where = "in this session, until it is closed; --keep keeps it for this folder"
    session.process.regrant(setup.grant)
    return SlashResult.from_blocks(f"{effect} {rule.text}: {where}")


async def _mode(session: LiveSession, arguments: SlashArguments, words: list[str]) -> SlashResult:
    if not words:
        rows = [(mode, about, "in use" if mode == session.mode else "") for mode, about in MODES.items()]
        return SlashResult.from_blocks(table(("mode", "", ""), rows))
    await session.set_mode(arguments.choice(words[0], MODES))
    return SlashResult.from_blocks(f"mode: {session.mode}: {MODES[session.mode]}")


async def plan(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    """Words other than open, go, off and clear are a task to plan."""
    word = arguments.text.strip()
    if word == "open":
        kept = session.facts.settings.get("plan")
        return SlashResult.from_blocks(text(str(kept)) if kept else "there is no plan yet; /plan TASK makes one")
    if word == "clear":
        session.keep(plan="")
        return SlashResult.from_blocks("the plan is forgotten")
    if word == "off":
        return await _leave_plan(session)
    if word == "go":
        left = await _leave_plan(session)
        return left if session.mode == "plan" else SlashResult(blocks=left.blocks, prompt=_GO)
    if session.mode != "plan":
        session.keep(mode_before_plan=session.mode)
        await session.set_mode("plan")
    about = lines(["plan mode: reading only; /plan off leaves it, /plan open shows the last plan"])
    return SlashResult.from_blocks(about, prompt=arguments.text or None)


async def _leave_plan(session: LiveSession) -> SlashResult:
    if session.mode != "plan":
        return SlashResult.from_blocks(f"the mode is {session.mode}, not plan")
    before = str(session.facts.settings.get("mode_before_plan") or "default")
    await session.set_mode(before if before != "plan" else "default")
    return SlashResult.from_blocks(f"mode: {session.mode}")
