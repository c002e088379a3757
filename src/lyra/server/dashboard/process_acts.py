"""What a person can do with a process: Stop, Restart and Ask, as forms of its page."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from lyra.errors import ConfigError, LyraError
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import act_form, link, see_other
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.processes.restarting import restart_process, why_no_restart

_RESTART_S: Final = 10.0  # a form waits this long for the process to stop; the supervisor goes on
_MESSAGE_CHARS_MAX: Final = 100_000


def act_buttons(call: HttpCall, pid: str) -> Html:
    """The forms of one process."""
    process = call.kernel.processes.get(pid)
    ended = "" if process is not None and process.alive else "It has ended"
    return tag(
        "div",
        _ask_form(call, pid, ended),
        act_form(
            call,
            link(call, "acts/processes", pid, "restart"),
            tag("button", "Restart", type="submit"),
            why_not=ended or why_no_restart(call.kernel, pid),
        ),
        act_form(
            call,
            link(call, "acts/processes", pid, "stop"),
            tag("button", "Stop", type="submit", class_="danger"),
            why_not=ended,
        ),
        class_="bar acts",
    )


def _ask_form(call: HttpCall, pid: str, why_not: str) -> Html:
    return act_form(
        call,
        link(call, "acts/processes", pid, "ask"),
        tag("label", "Message", for_="ask-message", class_="unseen"),
        tag(
            "input",
            id="ask-message",
            name="message",
            required=True,
            maxlength=_MESSAGE_CHARS_MAX,
            placeholder="Ask or tell it something",
            autocomplete="off",
        ),
        tag("button", "Ask", type="submit"),
        why_not=why_not,
        class_="bar ask",
    )


async def _stop(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    await call.kernel.terminate(pid, call.form.get("reason") or "stopped by a person", force=True)
    return see_other(call, "processes", pid)


async def _restart(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    process = call.kernel.processes.get(pid)
    above = "" if process is None or process.parent is None else process.parent.pid
    with suppress(TimeoutError):
        async with asyncio.timeout(_RESTART_S):
            return see_other(call, "processes", await restart_process(call.kernel, pid))
    return see_other(call, "processes", above or pid)


async def _ask(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    message = call.form.get("message", "").strip()
    if not message or len(message) > _MESSAGE_CHARS_MAX:
        raise ConfigError("the message is empty or too long", key="message")
    try:
        agent = call.kernel.agent(pid)
    except LyraError:  # a program that is no agent takes the text as it is
        await call.kernel.send(pid, message)
    else:
        agent.send_async(message, wait_for_person=True)  # the answer is shown in its conversation
    return see_other(call, "processes", pid)


def _endpoint(act: str, summary: str, handler: object) -> Endpoint:
    return Endpoint(
        name=f"acts.process_{act}",
        method="POST",
        path=f"/acts/processes/{{pid}}/{act}",
        summary=summary,
        handler=handler,  # type: ignore[arg-type]
        is_documented=False,
    )


ENDPOINTS: Final = (
    _endpoint("stop", "Stop a process", _stop),
    _endpoint("restart", "Have its supervisor start a process again", _restart),
    _endpoint("ask", "Put a question or a message to a process", _ask),
)
