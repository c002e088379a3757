"""Text from outside is shown as text on every page: payloads as names, questions, messages and tool results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from lyra import Agent, Context, tool
from lyra.core.secrets.visible import visible
from lyra.models.sim import SimProvider
from lyra.server.identity import Caller
from tests.browser.addresses import addresses
from tests.browser.conftest import NewPage
from tests.browser.payloads import payloads
from tests.browser.stage import Stage
from tests.browser.watched_page import WatchedPage

_EVERY: Final = 30  # so many have each attack and each ending
_BATCH: Final = 250
_SHOWN: Final = "[window.__hit ?? 0, document.querySelectorAll('.injected').length]"


async def _asks(ctx: Context, text: str) -> str:
    answer = await ctx.ask(text, kind="confirmation", message=text)
    return f"{text} {answer.text}"


async def _fails(_ctx: Context, text: str) -> None:
    raise ValueError(text)


def _as_shown(text: str) -> str:
    """As a person reads a question: no character is invisible."""
    return "\n".join(map(visible, text.split("\n")))


def _name(text: str) -> str:
    """The payload as far as a name may have it: printable."""
    return "".join(character for character in text if character.isprintable())


def _batches(count: int) -> Iterator[list[str]]:
    texts = payloads(count)
    for start in range(0, count, _BATCH):
        yield texts[start : start + _BATCH]


def _agent(name: str, texts: list[str]) -> Agent[Any]:
    """An agent that calls a tool with a payload, gets one back and says one."""

    @tool
    def look(what: str) -> str:
        """Look something up."""
        return texts[(texts.index(what) + 1) % len(texts)]

    replies: list[dict[str, Any]] = [
        {"tool": "look", "text": texts[0].replace("{", "(")},
        {"tool_calls": [{"name": "look", "arguments": {"what": text}} for text in texts[:8]], "text": "I look."},
    ]
    return Agent(name, model=SimProvider({"replies": replies}), tools=[look], description=texts[1])


async def _fill(stage: Stage, texts: list[str]) -> str:
    """Put the texts of a batch wherever text of others comes in; gives the session of a conversation with them."""
    kernel = stage.kernel
    for text in texts:
        kernel.spawn(_asks, text, name=_name(text))
    for text in texts[:10]:
        kernel.spawn(_fails, text, name=_name(f"failed {text}"))
        kernel.register_service({"name": _name(text), "service_type": "worker"})
    kernel.register_agent(texts[0], lambda _envelope: {"text": texts[1]})
    stages = {"name": texts[2], "agents": [{"name": texts[0], "default_next": "end"}]}
    async for _event in kernel.execute_pipeline(stages, {"raw_input": texts[3]}):
        pass
    name = texts[4]
    kernel.register_agent(name, _agent(name, texts))
    face: Any = stage.server._faces[0]
    chats = face.app.parts.chats
    session, process = await chats.open(name, Caller(), "")
    for text in texts[5:10]:
        await process.send(text)
    await stage.until(lambda: len(kernel.interrupts.pending()) >= len(texts))
    return f"/chat/{_quoted(name)}?session_id={session}"


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


async def _clear(stage: Stage) -> None:
    kernel = stage.kernel
    for interrupt in kernel.interrupts.pending():
        await kernel.resolve_interrupt(interrupt.id, {"approved": True, "text": interrupt.question})


async def _look(page: WatchedPage, address: str) -> None:
    await page.go(address)
    await page.page.locator("#live[data-live=open]").wait_for()
    assert await page.page.evaluate(_SHOWN) == [0, 0], address


@pytest.mark.parametrize("count", [_EVERY, pytest.param(500, marks=pytest.mark.long)])
async def test_payloads_are_shown_as_text(stage: Stage, new_page: NewPage, count: int) -> None:
    """No payload runs a script or becomes an element on any page, loaded or live; the inbox shows each one whole."""
    await stage.office.bring(0)
    async with new_page() as page, new_page() as live:
        page.expected.append("answer 404")  # pages of things that are not there show their names, too
        page.expected.append("status of 404")
        await live.go("/inbox")
        for texts in _batches(count):
            conversation = await _fill(stage, texts)
            for address in (*addresses(stage).values(), conversation):
                await _look(page, address)
            for text in texts[:1]:
                pid = next(row.pid for row in stage.kernel.processes.values() if row.name == _name(text))
                await _look(page, f"/processes/{_quoted(pid)}") if "/processes" in addresses(stage) else None
                for unknown in ("nodes", "processes", "runs", "chat", "traces"):
                    await page.go(f"/{unknown}/{_quoted(text)}")
                    assert await page.page.evaluate(_SHOWN) == [0, 0], unknown
            await _look(page, "/inbox")
            shown = await page.page.locator("article.question h2").all_text_contents()
            assert {_as_shown(text) for text in texts} <= set(shown)
            await live.page.wait_for_function(
                f"() => document.querySelectorAll('article.question').length >= {len(texts)}"
            )
            assert await live.page.evaluate(_SHOWN) == [0, 0]
            await _clear(stage)
            await _look(page, "/inbox")
            await asyncio.sleep(0)
