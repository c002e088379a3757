"""Hooks: all hooks of a session, run in their order, and what their answers come to.

Hooks of one moment run one after the other. The first `deny` counts and ends the row, `ask` beats `allow`; arguments
that one hook changed are what the next one sees, and an `allow` for other arguments is void. A blocking hook that fails
is a `deny`; any other failure is a warning, and the session continues. An `allow` of a project's or a plugin's hook is
passed over, and their context counts as text from outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from lyra.agents.declaration.hooks import AgentHooks, HookOutcome
from lyra.config.hook_settings import HOOK_EVENTS
from lyra.core.checking.check import one_of
from lyra.core.clock import Clock, SystemClock
from lyra.core.secrets.visible import without_invisible
from lyra.errors import ConfigError
from lyra.sage.extensions.hooks.hook import Hook, HookAnswer, HookFailed, hook_of

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.sandbox import Sandbox


class Hooks:
    """The hooks of a session in `folder`. Commands run in `sandbox`; one is made where none is given. `session_id` is
    what hooks are told, where the session has another name than its process."""

    __slots__ = ("_by_source", "_sandbox", "folder", "session_id")

    def __init__(self, hooks: Iterable[Hook] = (), *, folder: str = ".", sandbox: Sandbox | None = None) -> None:
        self.folder = os.path.realpath(folder)
        self._sandbox = sandbox
        self.session_id = ""
        self._by_source: dict[str, tuple[Hook, ...]] = {}
        for hook in hooks:
            self._by_source[hook.source] = (*self._by_source.get(hook.source, ()), hook)

    @classmethod
    def from_config(
        cls, config: Config, folder: str, *, more: Iterable[Hook] = (), sandbox: Sandbox | None = None
    ) -> Self:
        """Return the hooks of the settings files that count, and `more`."""
        hooks = cls(more, folder=folder, sandbox=sandbox)
        hooks.put_config(config)
        return hooks

    def put_config(self, config: Config) -> None:
        """Take the hooks of the settings files, in place of those taken from files before. The configuration was loaded
        with the trust of the folder: a project's hooks are in it only where its file is trusted."""
        hooks = [hook_of(setting) for setting in config.hooks]
        for source in ("user", "project"):
            self.put(source, [hook for hook in hooks if hook.source == source])

    @classmethod
    def for_session(
        cls,
        hooks: AgentHooks | None,
        config: Config,
        folder: str,
        *,
        session_id: str = "",
        more: Iterable[Hook] = (),
    ) -> AgentHooks | None:
        """Return the hooks of one session: those that the program brings, joined by `more` (of plugins) and those of
        the settings files; None where there are none. Hooks of another kind than these can be joined by none."""
        files_and_more = [*map(hook_of, config.hooks), *more]
        if not files_and_more and (hooks is None or not isinstance(hooks, Hooks)):
            return hooks
        if hooks is not None and not isinstance(hooks, Hooks):
            message = f"there are hooks of settings files or plugins, which {type(hooks).__name__} cannot run"
            raise ConfigError(message, hint="give a Hooks", key="hooks")
        sandbox = None if hooks is None else hooks._sandbox
        own = cls.from_config(config, folder, more=[*(hooks or ()), *more], sandbox=sandbox)
        own.session_id = session_id
        return own

    def put(self, source: str, hooks: Iterable[Hook]) -> None:
        """Take these as the hooks of a source (a plugin that was read again), in place of those it had."""
        self._by_source[source] = tuple(hooks)

    def __iter__(self) -> Any:
        return (hook for hooks in self._by_source.values() for hook in hooks)

    def __bool__(self) -> bool:
        return any(self._by_source.values())

    def matching(self, event: str, data: Mapping[str, Any]) -> list[Hook]:
        """Return the hooks that run at this moment."""
        return [hook for hook in self if hook.event == event and hook.is_for(data)]

    def status_for(self, event: str, data: Mapping[str, Any]) -> str | None:
        """Return what is shown while the hooks for this run; None where there is none."""
        hooks = self.matching(event, data)
        return " · ".join(hook.status for hook in hooks if hook.status) if hooks else None

    async def run(self, event: str, data: Mapping[str, Any]) -> HookOutcome:
        """Run the hooks for a moment, with its fields."""
        one_of(event, HOOK_EVENTS, "the event of a hook")
        fields = {"event": event, "cwd": self.folder, **data}
        if self.session_id:
            fields["session_id"] = self.session_id
        row = _AnswerRow(event)
        for hook in self.matching(event, fields):
            if self._sandbox is None:
                from lyra.sandbox import Sandbox

                self._sandbox = Sandbox()
            try:
                answer = await hook.answer(fields, folder=self.folder, sandbox=self._sandbox)
            except HookFailed as failure:
                row.fail(hook, failure)
            else:
                row.take(hook, answer)
            if row.is_over:
                break
            if row.arguments is not None:
                fields["arguments"] = row.arguments
        return row.outcome()


class _AnswerRow:
    """The answers of one row of hooks so far."""

    def __init__(self, event: str) -> None:
        self._can_deny = bool(HOOK_EVENTS[event].denial)
        self._event = event
        self._decision: Literal["", "allow", "ask", "deny"] = ""
        self._reason = ""
        self._context: list[str] = []
        self._tainted = False
        self._messages: list[str] = []
        self._warnings: list[str] = []
        self._ends_turn = False
        self.arguments: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        return self._decision == "deny" or self._ends_turn

    def fail(self, hook: Hook, failure: HookFailed) -> None:
        sentence = f"the hook {hook.name} for {self._event} failed: {failure}"
        if hook.blocking and self._can_deny:
            self._decision, self._reason = "deny", f"{sentence}; it is blocking, so this is denied"
        else:
            self._warnings.append(sentence)

    def take(self, hook: Hook, answer: HookAnswer) -> None:
        if answer.message:
            self._messages.append(f"{hook.name}: {answer.message}")
        if answer.context:
            self._context.append(answer.context)
            self._tainted = self._tainted or not hook.is_trusted
        if answer.arguments is not None:
            self.arguments = answer.arguments
            if self._decision == "allow":  # it was given for other arguments
                self._decision = ""
        self._ends_turn = answer.ends_turn
        decision = answer.decision
        if decision == "allow" and not hook.is_trusted:
            self._warnings.append(f"the hook {hook.name} of {hook.source} says allow, which only your own hooks may")
            return
        if not decision or (decision == "allow" and self._decision == "ask"):
            if answer.ends_turn:
                self._reason = self._describe_hook(hook, answer.reason)
            return
        self._decision, self._reason = decision, self._describe_hook(hook, answer.reason)

    @staticmethod
    def _describe_hook(hook: Hook, reason: str) -> str:
        return f"hook {hook.name}: {reason}" if reason else f"hook {hook.name}"

    def outcome(self) -> HookOutcome:
        return HookOutcome(
            decision=self._decision,
            reason=self._reason if self._decision or self._ends_turn else "",
            arguments=self.arguments,
            context="\n\n".join(self._context),
            tainted=self._tainted,
            messages=tuple(self._messages),
            warnings=tuple(self._warnings),
            ends_turn=self._ends_turn,
        )


_EVERY_S: Final = 0.3
_CHARS_MAX: Final = 200
# Control sequences (colours, the cursor), operating system commands (titles, links), and other escapes.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|\x9b[0-?]*[ -/]*[@-~]?"
)


class StatusLine:
    """The text that a StatusLine hook prints, for a terminal to draw. The status line of one terminal."""

    __slots__ = ("_began_s", "_clock", "_hooks", "_is_running", "text", "warnings")

    def __init__(self, hooks: AgentHooks, *, clock: Clock | None = None) -> None:
        self._hooks = hooks
        self._clock = clock or SystemClock()
        self._began_s: float | None = None
        self._is_running = False
        self.text = ""
        self.warnings: tuple[str, ...] = ()  # of the last run

    async def refresh(self, data: Mapping[str, Any]) -> str:
        """Return the text for these fields (`model`, `mode`, `cost_usd`, `context_tokens` and others); "" without a
        hook."""
        now_s = self._clock.monotonic()
        if self._is_running or (self._began_s is not None and now_s - self._began_s < _EVERY_S):
            return self.text
        if self._hooks.status_for("StatusLine", data) is None:
            self.text = ""
            return self.text
        self._began_s, self._is_running = now_s, True
        try:
            outcome = await self._hooks.run("StatusLine", data)
        finally:
            self._is_running = False
        self.warnings = outcome.warnings
        if not outcome.warnings:
            lines = without_invisible(_ESCAPES.sub("", outcome.context)).splitlines()
            self.text = lines[0].replace("\t", " ").strip()[:_CHARS_MAX] if lines else ""
        return self.text
