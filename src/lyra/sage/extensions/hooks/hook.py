"""Hook: one function or program, the moment it runs at, and for what.

    Hook("PreToolUse", check, matcher="Edit|Write", blocking=True)
    hook_from({"event": "Stop", "command": "./tests-pass.sh"}, source="plugin:checks")

A function gets the fields of the moment as a dict and gives None, text or a mapping of `answer.ANSWER_KEYS`; it may be
async. One that is not runs in a thread. `source` says where a hook comes from: only the user's own and functions of the
program (`user`, `python`) may answer a question with `allow`, and only their context is not text from outside.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.config.hook_settings import TIMEOUT_S, HookSetting, check_hook, read_hook
from lyra.core.checking.check import one_of, real
from lyra.core.hook_events import HOOK_EVENTS
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.sage.extensions.hooks.answer import HookAnswer, HookFailed, read_answer
from lyra.sage.extensions.hooks.hook_command import HookCommand
from lyra.sage.extensions.hooks.matcher import HookMatcher

if TYPE_CHECKING:
    from lyra.sandbox import Sandbox


_TRUSTED: Final = ("user", "python")
_NAME_CHARS_MAX: Final = 80
_TIMEOUTS_S_MAX: Final[dict[str, float]] = {"StatusLine": 1.0}  # a terminal waits for it


class Hook:
    __slots__ = ("_function", "blocking", "command", "event", "matcher", "name", "source", "status", "timeout_s")

    def __init__(
        self,
        event: str,
        function: Callable[[dict[str, Any]], Any] | HookCommand,
        *,
        matcher: str = "",
        blocking: bool = False,
        timeout_s: float = TIMEOUT_S,
        status: str = "",
        name: str = "",
        source: str = "python",
    ) -> None:
        self.event = one_of(event, HOOK_EVENTS, "the event of a hook")
        self.command = function if isinstance(function, HookCommand) else None
        if self.command is None and not callable(function):
            raise ConfigError(f"a hook is a function, not {function!r}", hint="Hook('Stop', check)", key="function")
        self._function: Any = function
        given = name or (self.command.text if self.command is not None else getattr(function, "__qualname__", ""))
        self.name = visible(given or "a function").replace("\n", " ")[:_NAME_CHARS_MAX]
        check_hook(event, matcher, self.name, blocking=blocking)
        self.matcher = HookMatcher(matcher, self.name)
        self.blocking = blocking
        limit_s = real(timeout_s, f"timeout_s of {self.name}", above=0.0)
        self.timeout_s = min(limit_s, _TIMEOUTS_S_MAX.get(event, limit_s))
        self.status = status
        self.source = source

    @property
    def is_trusted(self) -> bool:
        """Whether it may answer a question with `allow`, and its context is the user's own text."""
        return self.source in _TRUSTED

    def is_for(self, data: Mapping[str, Any]) -> bool:
        return self.matcher.matches(data.get(HOOK_EVENTS[self.event].matches))

    async def answer(self, data: Mapping[str, Any], *, folder: str, sandbox: Sandbox) -> HookAnswer:
        """Run it with these fields; raises HookFailed for whatever goes wrong."""
        if self.command is not None:
            return await self.command.answer(self.event, data, folder=folder, sandbox=sandbox, timeout_s=self.timeout_s)
        try:
            async with asyncio.timeout(self.timeout_s):
                value = await self._call(dict(data))
        except TimeoutError:
            raise HookFailed(f"it took longer than {self.timeout_s:g} s") from None
        except HookFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            raise HookFailed(f"it raised {type(error).__name__}: {error}") from None
        return read_answer(self.event, value)

    async def _call(self, data: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(data)
        value = await asyncio.to_thread(self._function, data)
        return await value if inspect.isawaitable(value) else value

    def __repr__(self) -> str:
        return f"Hook({self.event!r}, {self.name!r}, source={self.source!r})"


def hook_from(mapping: Mapping[str, Any], *, source: str, base: str = "") -> Hook:
    """The hook that a mapping describes: `event` and the keys of `[[hooks.EVENT]]`. A relative program is taken from
    the folder `base`, else from the session's. Hooks that are not the user's own cannot leave the sandbox."""
    entry = dict(mapping)
    if "event" not in entry:
        raise ConfigError("a hook has an event and a command", hint='such as {"event": "Stop", "command": "./check"}')
    event = one_of(entry.pop("event"), HOOK_EVENTS, "the event of a hook")
    setting = read_hook(event, entry, name=f"the hook for {event} ({source})")
    if not setting.sandbox and source not in _TRUSTED:
        raise ConfigError(f"a hook of {source} runs in the sandbox", hint="take out sandbox", key="sandbox")
    return _of_setting(setting._replace(base=base), source)


def hook_of(setting: HookSetting) -> Hook:
    """The hook of a settings file."""
    return _of_setting(setting, setting.origin)


def _of_setting(setting: HookSetting, source: str) -> Hook:
    command = HookCommand(setting.command, in_sandbox=setting.sandbox, base=setting.base)
    return Hook(
        setting.event,
        command,
        matcher=setting.matcher,
        blocking=setting.blocking,
        timeout_s=setting.timeout_s,
        status=setting.status,
        source=source,
    )
