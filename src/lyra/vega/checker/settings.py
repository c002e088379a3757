"""Checking what agents, tools and supervisors are set to: one table of settings each, with what they take.

A setting's value is a number, a text, an amount and so on, a word out of a list (`strategy restart`), or one of the
few forms with arguments (`window(10)`, `exponential(100ms, 2.0, 5s)`). Words are not names of variables, so they are
compared with the list and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lyra.core.limits import RETRY_ATTEMPTS_MAX
from lyra.core.policies.restart import OTP, STRATEGIES
from lyra.core.policies.retry import ERROR_CLASSES
from lyra.errors import ConfigError
from lyra.vega.bytecode.program import SPELLINGS
from lyra.vega.checker.processes import ProcessChecker
from lyra.vega.checker.scope import nearest
from lyra.vega.checker.types import Kind, accepts
from lyra.vega.syntax.ast import (
    Agent,
    Argument,
    Call,
    Expression,
    ListLiteral,
    Literal,
    Name,
    Path,
    Tool,
    TypeLiteral,
    Unary,
)

__all__ = ["AGENT_FIELDS", "BLOCKS", "SUPERVISION", "TOOL_SETTINGS", "SettingsChecker"]

PRIORITIES: Final = ("realtime", "high", "normal", "low", "idle")

# Setting → what it takes: a kind of value, or `form argument …` for the forms in `_FORMS`.
AGENT_FIELDS: Final[dict[str, str]] = {
    "model": "text or texts",
    "system": "text",
    "temperature": "number 0",
    "max_tokens": "int 1",
    "timeout": "duration",
    "budget": "money",
    "retry": "block",
    "circuit_breaker": "block",
    "rate_limit": "block",
    "priority": "word " + " ".join(PRIORITIES),
    "memory": "memory",
    "concurrency": "int 1",
    "output": "type",
    "tools": "tools",
    "capabilities": "capabilities",
}
BLOCKS: Final[dict[str, dict[str, str]]] = {
    "retry": {
        "max_attempts": f"int 1 {RETRY_ATTEMPTS_MAX}",
        "backoff": "backoff",
        "on": "words " + " ".join(ERROR_CLASSES),
    },
    "circuit_breaker": {"threshold": "int 0", "reset_after": "duration", "half_open_max": "int 1"},
    "rate_limit": {
        "requests_per_minute": "int 1",
        "tokens_per_minute": "int 1",
        "burst": "int 1",
        "strategy": "word queue reject backpressure",
    },
}
SUPERVISION: Final[dict[str, str]] = {
    "strategy": "word " + " ".join((*STRATEGIES, *OTP)),
    "max_restarts": "int -1",
    "window": "duration or int",
    "backoff": "backoff",
}
TOOL_SETTINGS: Final[dict[str, str]] = {
    "capabilities": "capabilities",
    "allowed_paths": "texts",
    "allowed_commands": "texts",
    "description": "text",
}
# `backoff` kind → its arguments, each a kind of value; all but the first may be left out.
_BACKOFFS: Final[dict[str, tuple[str, ...]]] = {
    "exponential": ("duration", "number 1", "duration"),
    "linear": ("duration", "duration"),
    "constant": ("duration",),
}
_WANTED: Final[dict[str, tuple[str, Kind]]] = {
    "text": ("a text", Kind("str")),
    "number": ("a number", Kind("float")),
    "int": ("a whole number", Kind("int")),
    "duration": ("a duration, such as `30s`", Kind("duration")),
    "money": ("an amount of money, such as `$0.50`", Kind("money")),
}


class SettingsChecker(ProcessChecker):
    own_tools: frozenset[str] = frozenset()  # of the agent that is being looked at
    has_foreign_tools = False  # some import brings tools whose names are only known when the program runs

    def supervision(self, settings: dict[str, Expression], places: dict[str, int]) -> None:
        self._all("supervision", settings, places, SUPERVISION)

    def agent(self, agent: Agent) -> None:
        self.own_tools = frozenset(tool.name for tool in agent.tools)
        for name, value in agent.fields.items():
            at = agent.places[name]
            takes = AGENT_FIELDS.get(name)
            if takes is None:
                self._unknown_setting(at, name, "an agent", AGENT_FIELDS)
            elif isinstance(value, dict):
                if takes != "block":
                    self.error(at, at + len(name), f"`{name}` takes no `{{ … }}`")
                    continue
                places = {setting: agent.places[f"{name}.{setting}"] for setting in value}
                self._all(name, value, places, BLOCKS[name])
                if name == "rate_limit" and not {"requests_per_minute", "tokens_per_minute"} & set(value):
                    self.error(
                        at, at + len(name), "`rate_limit` says neither requests_per_minute nor tokens_per_minute"
                    )
            elif takes == "block":
                settings = ", ".join(BLOCKS[name])
                self.error_on(value, f"`{name}` takes a block", f"write `{name} {{ … }}` with {settings}")
            else:
                self._one(name, value, takes)

    def tool_settings(self, tool: Tool) -> None:
        self._all("a tool", tool.settings, tool.places, TOOL_SETTINGS)

    # ---------------------------------------------------------------- one setting

    def _all(
        self, what: str, settings: Mapping[str, Expression], places: Mapping[str, int], table: Mapping[str, str]
    ) -> None:
        for name, value in settings.items():
            if name in table:
                self._one(name, value, table[name])
            else:
                self._unknown_setting(places.get(name, value.at), name, what, table)

    def _unknown_setting(self, at: int, name: str, what: str, table: Iterable[str]) -> None:
        near = nearest(name, table)
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(table)}"
        noun = "field" if what == "an agent" else "setting"
        self.error(
            at, at + len(name), f"{what if what[:2] in ('a ', 'an') else f'`{what}`'} has no {noun} `{name}`", hint
        )

    def _one(self, name: str, value: Expression, takes: str) -> None:
        form, _, rest = takes.partition(" ")
        check = _FORMS.get(takes) or _FORMS.get(form)
        if check is not None:
            check(self, name, value, rest)
        else:
            self._value(name, value, form, rest)

    def _value(self, name: str, value: Expression, form: str, rest: str) -> None:
        words, wanted = _WANTED[form]
        kind = self.kind(value)
        if not accepts(wanted, kind) or kind.name == "null":
            self.error_on(value, f"`{name}` is {words}")
            return
        number = _number(value)
        bounds = [int(word) for word in rest.split()]
        if number is not None and bounds and number < bounds[0]:
            self.error_on(value, f"`{name}` is at least {bounds[0]}")
        elif number is not None and len(bounds) > 1 and number > bounds[1]:
            self.error_on(value, f"`{name}` is at most {bounds[1]}")

    def _word(self, name: str, value: Expression, rest: str) -> None:
        known = rest.split()
        word = value.name if isinstance(value, Name) else value.value if isinstance(value, Literal) else None
        if word in known:
            return
        near = nearest(word, known) if isinstance(word, str) else None
        self.error_on(value, f"`{name}` is one of {', '.join(known)}", f"did you mean `{near}`?" if near else None)

    def _words(self, name: str, value: Expression, rest: str) -> None:
        for item in self._items(name, value, "words"):
            self._word(name, item, rest)

    def _texts(self, name: str, value: Expression, _: str) -> None:
        for item in self._items(name, value, "texts"):
            self._value(name, item, "text", "")

    def _text_or_texts(self, name: str, value: Expression, _: str) -> None:
        if isinstance(value, ListLiteral):
            self._texts(name, value, "")
            return
        kind = self.kind(value)
        if not (accepts(Kind("str"), kind) or accepts(Kind("list", (Kind("str"),)), kind)):
            self.error_on(value, f"`{name}` is a text or a list of texts")

    def _items(self, name: str, value: Expression, what: str) -> list[Expression]:
        if isinstance(value, ListLiteral):
            return value.items
        kind = self.kind(value) if what == "texts" else None
        if kind is None or not accepts(Kind("list"), kind):
            self.error_on(value, f"`{name}` is a list of {what}", f"write `{name} […]`")
        return []

    def _duration_or_int(self, name: str, value: Expression, _: str) -> None:
        if self.kind(value).name not in ("any", "int", "duration"):
            self.error_on(value, f"`{name}` is a duration, such as `60s`")

    def _memory(self, name: str, value: Expression, _: str) -> None:
        if isinstance(value, Call) and isinstance(value.callee, Name) and value.callee.name == "window":
            self._arguments("window", value, ("int 1",), at_least=1)
        else:
            hint = "the last ten messages: `memory window(10)`"
            word = value.name if isinstance(value, Name) else None
            if word not in ("none", "conversation"):
                near = nearest(word, ("none", "conversation", "window")) if word else None
                self.error_on(
                    value,
                    f"`{name}` is none, conversation or window(n)",
                    f"did you mean `{near}`?" if near and near != "window" else hint,
                )

    def _backoff(self, name: str, value: Expression, _: str) -> None:
        if isinstance(value, Call) and isinstance(value.callee, Name) and value.callee.name in _BACKOFFS:
            self._arguments(value.callee.name, value, _BACKOFFS[value.callee.name], at_least=1)
            return
        callee = value.callee if isinstance(value, Call) else value
        self._word(name, callee, " ".join(_BACKOFFS))

    def _arguments(self, form: str, call: Call, takes: tuple[str, ...], *, at_least: int) -> None:
        given: list[Argument] = call.arguments
        if not at_least <= len(given) <= len(takes):
            count = f"{at_least} to {len(takes)} arguments" if at_least < len(takes) else "one argument"
            self.error_on(call, f"`{form}` takes {count}")
        for argument, wanted in zip(given, takes, strict=False):
            kind, _, rest = wanted.partition(" ")
            if argument.name:
                self.error_on(argument, f"the arguments of `{form}` have no names")
            self._value(form, argument.value, kind, rest)

    def _type_field(self, name: str, value: Expression, _: str) -> None:
        assert isinstance(value, TypeLiteral), name
        self.kind(value)

    def _tools(self, name: str, value: Expression, _: str) -> None:
        for item in self._items(name, value, "tools"):
            if isinstance(item, Literal) and isinstance(item.value, str):
                continue  # one of the host's tools, by its name
            if isinstance(item, Path):
                self.member(item)
            elif not isinstance(item, Name):
                self.error_on(item, "a tool is given by its name")
            else:
                self._tool_name(item)

    def _tool_name(self, item: Name) -> None:
        binding = self.scope.find(item.name)
        if item.name in self.own_tools:
            return
        if binding is None and not self.has_foreign_tools:
            known = [name for name in self.scope.all_names() if self._is_tool(name)]
            near = nearest(item.name, known)
            self.error_on(item, f"unknown tool `{item.name}`", f"did you mean `{near}`?" if near else None)
        elif binding is not None and not self._is_tool(item.name):
            self.error_on(item, f"`{item.name}` is not a tool", "a tool is declared with `tool`")

    def _is_tool(self, name: str) -> bool:
        binding = self.scope.find(name)
        return binding is not None and binding.role in ("tool", "function", "import")

    def _capabilities(self, name: str, value: Expression, _: str) -> None:
        for item in self._items(name, value, "capabilities"):
            if isinstance(item, Path):
                self._capability(item, f"{item.module}.{item.name}")
            elif isinstance(item, Literal) and isinstance(item.value, str):
                self._capability_text(item, item.value)
            else:
                self.error_on(item, "a capability is written `fs::read`", 'or as a text: `"fs.read:/project/**"`')

    def _capability(self, item: Path, written: str) -> None:
        from lyra.core.rights.capability import VERBS, Capability  # few programs name one, and all wait for imports

        try:
            name = Capability.parse(written).name
        except ConfigError:
            name = written
        if name not in VERBS and name not in SPELLINGS:
            near = nearest(written, VERBS)
            hint = f"did you mean `{near.replace('.', '::')}`?" if near else _OWN_CAPABILITY
            self.error_on(item, f"`{written.replace('.', '::')}` is no known capability", hint)

    def _capability_text(self, item: Literal, written: str) -> None:
        """As a text it may be one that only somebody's own tools know, but it has to be one."""
        from lyra.core.rights.capability import Capability

        try:
            Capability.parse(written)
        except ConfigError as wrong:
            self.error_on(item, wrong.message, wrong.hint)


_OWN_CAPABILITY: Final = 'one that only your own tools know is a text: `"tickets.close"`'


def _number(value: Expression) -> float | None:
    """The number that is written there, if one is."""
    if isinstance(value, Unary) and isinstance(value.operand, Literal) and type(value.operand.value) in (int, float):
        return float(-value.operand.value)
    if isinstance(value, Literal) and type(value.value) in (int, float):
        return float(value.value)
    return None


_FORMS: Final[dict[str, Callable[[Any, str, Expression, str], None]]] = {
    "word": SettingsChecker._word,
    "words": SettingsChecker._words,
    "texts": SettingsChecker._texts,
    "text or texts": SettingsChecker._text_or_texts,
    "duration or int": SettingsChecker._duration_or_int,
    "memory": SettingsChecker._memory,
    "backoff": SettingsChecker._backoff,
    "type": SettingsChecker._type_field,
    "tools": SettingsChecker._tools,
    "capabilities": SettingsChecker._capabilities,
}
