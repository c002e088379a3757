"""Checking what agents, tools and supervisors are set to: one table of settings each, with what they take.

A setting's value is a number, a text, an amount and so on, a word out of a list (`strategy restart`), or one of the
few forms with arguments (`window(10)`, `exponential(100ms, 2.0, 5s)`). Words are not names of variables, so they are
compared with the list and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lyra.core.limits import RETRY_ATTEMPTS_MAX
from lyra.core.policies.policy import OTP, STRATEGIES
from lyra.core.policies.retry import ERROR_CLASSES
from lyra.errors import ConfigError
from lyra.vega.bytecode.program import SPELLINGS
from lyra.vega.checker.expressions import kind_of, member_of
from lyra.vega.checker.scope import ModuleCheck, nearest
from lyra.vega.checker.types import ValueKind, accepts
from lyra.vega.syntax import ast

PRIORITIES: Final = ("realtime", "high", "normal", "low", "idle")

# Setting → what it takes: a kind of value, or `form argument …` for the forms in `_FORMS`.
AGENT_FIELDS: Final[dict[str, str]] = {
    "model": "text or texts",
    "system": "text",
    "temperature": "number 0",
    "max_tokens": "int 1",
    "min_tokens": "int 1",
    "fit_budget": "bool",
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
_WANTED: Final[dict[str, tuple[str, ValueKind]]] = {
    "text": ("a text", ValueKind("str")),
    "bool": ("true or false", ValueKind("bool")),
    "number": ("a number", ValueKind("float")),
    "int": ("a whole number", ValueKind("int")),
    "duration": ("a duration, such as `30s`", ValueKind("duration")),
    "money": ("an amount of money, such as `$0.50`", ValueKind("money")),
}


def check_supervision(check: ModuleCheck, settings: dict[str, ast.Expression], places: dict[str, int]) -> None:
    _check_settings(check, "supervision", settings, places, SUPERVISION)


def check_agent_settings(check: ModuleCheck, agent: ast.Agent) -> None:
    check.own_tools = frozenset(tool.name for tool in agent.tools)
    for name, value in agent.fields.items():
        offset = agent.places[name]
        takes = AGENT_FIELDS.get(name)
        if takes is None:
            _unknown_setting(check, offset, name, "an agent", AGENT_FIELDS)
        elif isinstance(value, dict):
            if takes != "block":
                check.error(offset, offset + len(name), f"`{name}` takes no `{{ … }}`")
                continue
            places = {setting: agent.places[f"{name}.{setting}"] for setting in value}
            _check_settings(check, name, value, places, BLOCKS[name])
            if name == "rate_limit" and not {"requests_per_minute", "tokens_per_minute"} & set(value):
                check.error(
                    offset, offset + len(name), "`rate_limit` says neither requests_per_minute nor tokens_per_minute"
                )
        elif takes == "block":
            settings = ", ".join(BLOCKS[name])
            check.error_on(value, f"`{name}` takes a block", f"write `{name} {{ … }}` with {settings}")
        else:
            _check_setting(check, name, value, takes)


def check_tool_settings(check: ModuleCheck, tool: ast.Tool) -> None:
    _check_settings(check, "a tool", tool.settings, tool.places, TOOL_SETTINGS)


# ---------------------------------------------------------------- one setting


def _check_settings(
    check: ModuleCheck,
    what: str,
    settings: Mapping[str, ast.Expression],
    places: Mapping[str, int],
    table: Mapping[str, str],
) -> None:
    for name, value in settings.items():
        if name in table:
            _check_setting(check, name, value, table[name])
        else:
            _unknown_setting(check, places.get(name, value.at), name, what, table)


def _unknown_setting(check: ModuleCheck, offset: int, name: str, what: str, table: Iterable[str]) -> None:
    near = nearest(name, table)
    hint = f"did you mean `{near}`?" if near else f"there are {', '.join(table)}"
    noun = "field" if what == "an agent" else "setting"
    check.error(
        offset, offset + len(name), f"{what if what[:2] in ('a ', 'an') else f'`{what}`'} has no {noun} `{name}`", hint
    )


def _check_setting(check: ModuleCheck, name: str, value: ast.Expression, takes: str) -> None:
    form, _, rest = takes.partition(" ")
    rule = _FORMS.get(takes) or _FORMS.get(form)
    if rule is not None:
        rule(check, name, value, rest)
    else:
        _check_value(check, name, value, form, rest)


def _check_value(check: ModuleCheck, name: str, value: ast.Expression, form: str, rest: str) -> None:
    words, wanted = _WANTED[form]
    kind = kind_of(check, value)
    if not accepts(wanted, kind) or kind.name == "null":
        check.error_on(value, f"`{name}` is {words}")
        return
    number = _number(value)
    bounds = [int(word) for word in rest.split()]
    if number is not None and bounds and number < bounds[0]:
        check.error_on(value, f"`{name}` is at least {bounds[0]}")
    elif number is not None and len(bounds) > 1 and number > bounds[1]:
        check.error_on(value, f"`{name}` is at most {bounds[1]}")


def _check_word(check: ModuleCheck, name: str, value: ast.Expression, rest: str) -> None:
    known = rest.split()
    word = value.name if isinstance(value, ast.Name) else value.value if isinstance(value, ast.Literal) else None
    if word in known:
        return
    near = nearest(word, known) if isinstance(word, str) else None
    check.error_on(value, f"`{name}` is one of {', '.join(known)}", f"did you mean `{near}`?" if near else None)


def _check_words(check: ModuleCheck, name: str, value: ast.Expression, rest: str) -> None:
    for item in _items_of(check, name, value, "words"):
        _check_word(check, name, item, rest)


def _check_texts(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    for item in _items_of(check, name, value, "texts"):
        _check_value(check, name, item, "text", "")


def _check_text_or_texts(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    if isinstance(value, ast.ListLiteral):
        _check_texts(check, name, value, "")
        return
    kind = kind_of(check, value)
    if not (accepts(ValueKind("str"), kind) or accepts(ValueKind("list", (ValueKind("str"),)), kind)):
        check.error_on(value, f"`{name}` is a text or a list of texts")


def _items_of(check: ModuleCheck, name: str, value: ast.Expression, what: str) -> list[ast.Expression]:
    if isinstance(value, ast.ListLiteral):
        return value.items
    kind = kind_of(check, value) if what == "texts" else None
    if kind is None or not accepts(ValueKind("list"), kind):
        check.error_on(value, f"`{name}` is a list of {what}", f"write `{name} […]`")
    return []


def _check_duration_or_int(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    if kind_of(check, value).name not in ("any", "int", "duration"):
        check.error_on(value, f"`{name}` is a duration, such as `60s`")


def _check_memory(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    if isinstance(value, ast.Call) and isinstance(value.callee, ast.Name) and value.callee.name == "window":
        _check_arguments(check, "window", value, ("int 1",), at_least=1)
    else:
        hint = "the last ten messages: `memory window(10)`"
        word = value.name if isinstance(value, ast.Name) else None
        if word not in ("none", "conversation"):
            near = nearest(word, ("none", "conversation", "window")) if word else None
            check.error_on(
                value,
                f"`{name}` is none, conversation or window(n)",
                f"did you mean `{near}`?" if near and near != "window" else hint,
            )


def _check_backoff(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    if isinstance(value, ast.Call) and isinstance(value.callee, ast.Name) and value.callee.name in _BACKOFFS:
        _check_arguments(check, value.callee.name, value, _BACKOFFS[value.callee.name], at_least=1)
        return
    callee = value.callee if isinstance(value, ast.Call) else value
    _check_word(check, name, callee, " ".join(_BACKOFFS))


def _check_arguments(check: ModuleCheck, form: str, call: ast.Call, takes: tuple[str, ...], *, at_least: int) -> None:
    given: list[ast.Argument] = call.arguments
    if not at_least <= len(given) <= len(takes):
        count = f"{at_least} to {len(takes)} arguments" if at_least < len(takes) else "one argument"
        check.error_on(call, f"`{form}` takes {count}")
    for argument, wanted in zip(given, takes, strict=False):
        kind, _, rest = wanted.partition(" ")
        if argument.name:
            check.error_on(argument, f"the arguments of `{form}` have no names")
        _check_value(check, form, argument.value, kind, rest)


def _check_type_field(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    assert isinstance(value, ast.TypeLiteral), name
    kind_of(check, value)


def _check_tools(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    for item in _items_of(check, name, value, "tools"):
        if isinstance(item, ast.Literal) and isinstance(item.value, str):
            continue  # one of the host's tools, by its name
        if isinstance(item, ast.Path):
            member_of(check, item)
        elif not isinstance(item, ast.Name):
            check.error_on(item, "a tool is given by its name")
        else:
            _check_tool_name(check, item)


def _check_tool_name(check: ModuleCheck, item: ast.Name) -> None:
    binding = check.scope.find(item.name)
    if item.name in check.own_tools:
        return
    if binding is None and not check.has_foreign_tools:
        known = [name for name in check.scope.all_names() if _is_tool(check, name)]
        near = nearest(item.name, known)
        check.error_on(item, f"unknown tool `{item.name}`", f"did you mean `{near}`?" if near else None)
    elif binding is not None and not _is_tool(check, item.name):
        check.error_on(item, f"`{item.name}` is not a tool", "a tool is declared with `tool`")


def _is_tool(check: ModuleCheck, name: str) -> bool:
    binding = check.scope.find(name)
    return binding is not None and binding.role in ("tool", "function", "import")


def _check_capabilities(check: ModuleCheck, name: str, value: ast.Expression, _: str) -> None:
    for item in _items_of(check, name, value, "capabilities"):
        if isinstance(item, ast.Path):
            _check_capability(check, item, f"{item.module}.{item.name}")
        elif isinstance(item, ast.Literal) and isinstance(item.value, str):
            _check_capability_text(check, item, item.value)
        else:
            check.error_on(item, "a capability is written `fs::read`", 'or as a text: `"fs.read:/project/**"`')


def _check_capability(check: ModuleCheck, item: ast.Path, written: str) -> None:
    from lyra.core.rights.capability import VERBS, Capability  # few programs name one, and all wait for imports

    try:
        name = Capability.parse(written).name
    except ConfigError:
        name = written
    if name not in VERBS and name not in SPELLINGS:
        near = nearest(written, VERBS)
        hint = f"did you mean `{near.replace('.', '::')}`?" if near else _OWN_CAPABILITY
        check.error_on(item, f"`{written.replace('.', '::')}` is no known capability", hint)


def _check_capability_text(check: ModuleCheck, item: ast.Literal, written: str) -> None:
    """Check a text, which may name a capability that only the user's own tools know, but it has to be well formed."""
    from lyra.core.rights.capability import Capability

    try:
        Capability.parse(written)
    except ConfigError as wrong:
        check.error_on(item, wrong.message, wrong.hint)


_OWN_CAPABILITY: Final = 'one that only your own tools know is a text: `"tickets.close"`'


def _number(value: ast.Expression) -> float | None:
    """Return the number that is written there, if one is."""
    if (
        isinstance(value, ast.Unary)
        and isinstance(value.operand, ast.Literal)
        and type(value.operand.value) in (int, float)
    ):
        return float(-value.operand.value)
    if isinstance(value, ast.Literal) and type(value.value) in (int, float):
        return float(value.value)
    return None


_FORMS: Final[dict[str, Callable[[ModuleCheck, str, ast.Expression, str], None]]] = {
    "word": _check_word,
    "words": _check_words,
    "texts": _check_texts,
    "text or texts": _check_text_or_texts,
    "duration or int": _check_duration_or_int,
    "memory": _check_memory,
    "backoff": _check_backoff,
    "type": _check_type_field,
    "tools": _check_tools,
    "capabilities": _check_capabilities,
}
