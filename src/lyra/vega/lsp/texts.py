"""How things are shown to a person: signatures, settings, prices; and a sentence for every keyword.

Everything is Markdown. The settings of an agent are read from its declaration as they are written: a value that is
computed is shown as it stands in the source.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lyra.core.budgets.money import Money
from lyra.errors import ConfigError
from lyra.vega.lsp.index import SourceSymbol
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.syntax.source import Source

if TYPE_CHECKING:
    from lyra.models.pricing import Prices


KEYWORD_TEXTS: Final[dict[str, str]] = {
    "agent": "Declares an agent: a model with its settings and tools.",
    "await": "Waits for what `spawn async` started, or for the end of a stream.",
    "break": "Leaves the loop.",
    "catch": "Handles an error by its name; `Error` is every error.",
    "const": "A name for a value that never changes.",
    "continue": "Goes on with the loop's next turn.",
    "defer": "Runs a block at the function's end, whatever happens.",
    "else": "What is done when the condition does not hold.",
    "false": "The bool that is not true.",
    "finally": "Runs a block after `try`, whatever happens.",
    "fn": "Declares a function.",
    "for": "A loop: `for x in list { … }` or `for let i = 0; i < n; i = i + 1 { … }`.",
    "if": "A branch. The condition is a bool.",
    "import": "Takes in another file, a node or the tools of a server.",
    "let": "Declares a variable; it is seen from here to the end of the block.",
    "match": "Chooses an arm by its pattern.",
    "null": "No value.",
    "parallel": "What stands in the block may run at the same time; it ends when all of it has.",
    "receive": "Takes the oldest message that fits one of the patterns.",
    "return": "Ends the function, with a value.",
    "session": "A block with a budget of its own.",
    "spawn": "Starts a process: an agent, a supervisor, or with `fn` a function.",
    "supervisor": "Declares a tree of processes that are restarted when they fail.",
    "throw": "Raises an error: a text, or `Name(text)`.",
    "tool": "Declares a function that a model may call.",
    "true": "The bool that is.",
    "try": "Runs a block and handles its errors.",
    "while": "A loop that runs as long as its condition holds.",
}

# What a setting is for; what it takes is in the checker's tables.
SETTING_TEXTS: Final[dict[str, str]] = {
    "model": "The model that answers; of a list, the next one when one fails.",
    "system": "What the model is told before every conversation.",
    "temperature": "How freely the model chooses its words.",
    "max_tokens": "The longest answer.",
    "min_tokens": "A budget that cannot pay for so long an answer refuses the call.",
    "fit_budget": "Whether an answer that its budget cut is taken; otherwise that is BudgetExceeded.",
    "timeout": "The longest time for one call with its tries; where `retry` names `timeout`, for each try.",
    "budget": "The most one call may cost.",
    "retry": "When and how often a failed call is tried again.",
    "circuit_breaker": "After so many failures, calls are refused for a while.",
    "rate_limit": "How many calls or tokens a minute.",
    "priority": "Who runs first when several could.",
    "memory": "What of the conversation is kept between calls.",
    "concurrency": "How many calls may be under way at once.",
    "output": "The type of the answer: it is read and checked.",
    "tools": "What the model may call.",
    "capabilities": "What it may do to the world. Without them it may only think.",
    "max_attempts": "Calls in all; 1 is no retry.",
    "backoff": "The pause before the next try.",
    "on": "Which failures are tried again.",
    "threshold": "Failures in a row that open the breaker.",
    "reset_after": "How long it stays open.",
    "half_open_max": "Calls let through to see whether it works again.",
    "requests_per_minute": "Calls in a minute.",
    "tokens_per_minute": "Tokens in a minute.",
    "burst": "Calls that may come at once.",
    "strategy": "What happens when the limit is reached, or when a child fails.",
    "max_restarts": "More than these within the window, and it gives up.",
    "window": "The time in which restarts are counted.",
    "allowed_paths": "The only paths the tool may touch.",
    "allowed_commands": "The only commands the tool may run.",
    "description": "What the model is told about the tool.",
}


def code(text: str) -> str:
    return f"```vega\n{text}\n```"


def entry_of(module: str, name: str) -> LibraryEntry | None:
    return LIBRARY.get(module, {}).get(name) if module else GLOBALS.get(name)


def heading(source: Source, symbol: SourceSymbol, kind: str = "") -> str:
    """Return the first line of a declaration, as one would write it."""
    node, shown = symbol.node, f": {kind}" if kind and kind != "any" else ""
    if isinstance(node, (ast.Function, ast.Tool)):
        word = "fn" if isinstance(node, ast.Function) else "tool"
        return f"{word} {node.name}({', '.join(parameters(source, node.parameters))}){_result(source, node.result)}"
    if isinstance(node, ast.Const):
        value = source.text[node.value.at : node.value.end]
        return f"const {node.name}{shown}" + (f" = {value}" if len(value) <= 60 and "\n" not in value else "")
    if isinstance(node, ast.Parameter):
        return source.text[node.at : node.end]
    if isinstance(node, ast.Import):
        return source.text[node.at : node.end]
    if symbol.role in ("agent", "supervisor", "child"):
        return f"{symbol.role} {symbol.name}"
    return f"let {symbol.name}{shown}"


def parameters(source: Source, given: list[ast.Parameter]) -> list[str]:
    return [source.text[parameter.at : parameter.end] for parameter in given]


def _result(source: Source, result: ast.Type | None) -> str:
    return f" -> {source.text[result.at : result.end]}" if result is not None else ""


def comment_above(source: Source, comments: list[tuple[int, str]], start: int) -> str:
    """Return the `//` lines right above a declaration, without their slashes."""
    lines: list[str] = []
    line, _ = source.place(start)
    by_line = {source.place(offset)[0]: text for offset, text in comments if offset < start}
    while (text := by_line.get(line - 1)) is not None:
        if not text.startswith("//") or source.line(line - 1).strip() != text.strip():
            break
        lines.append(text.lstrip("/").strip())
        line -= 1
    return "\n".join(reversed(lines))


# ---------------------------------------------------------------- agents


def agent_card(source: Source, agent: ast.Agent) -> str:
    """Describe what matters about an agent before a call: who answers, what it costs, what it may do."""
    rows: list[tuple[str, str]] = []
    models = model_names(agent)
    for model in models:
        rows.append(("model", f"`{model}`"))
        rows.append(("price", price_line(model, source.name)))
    if "model" in agent.fields and not models:
        rows.append(("model", f"`{_quote_source(source, agent.fields['model'])}`"))
    for name in ("budget", "timeout", "max_tokens", "memory", "concurrency", "priority", "output", "capabilities"):
        value = agent.fields.get(name)
        if isinstance(value, ast.Expression):
            shown = f"`{_quote_source(source, value)}`"
            rows.append((name, f"{shown} a call" if name == "budget" else shown))
    for name in ("retry", "rate_limit", "circuit_breaker"):
        block = agent.fields.get(name)
        if isinstance(block, dict):
            inside = ", ".join(f"{key} {_quote_source(source, value)}" for key, value in block.items())
            rows.append((name, f"`{inside}`"))
    rows += _tools(source, agent)
    if "capabilities" not in agent.fields and not any(tool.settings.get("capabilities") for tool in agent.tools):
        rows.append(("capabilities", "none"))
    return "\n".join(f"- {name}: {text}" for name, text in rows)


def answer_type(source: Source, agent: ast.Agent) -> str:
    """Return what a call of an agent gives: text, or what its `output` says."""
    output = agent.fields.get("output")
    return "str" if output is None else _quote_source(source, output)


def _tools(source: Source, agent: ast.Agent) -> list[tuple[str, str]]:
    rows = []
    listed = agent.fields.get("tools")
    if isinstance(listed, ast.Expression):
        rows.append(("tools", f"`{_quote_source(source, listed)}`"))
    for tool in agent.tools:
        needs = tool.settings.get("capabilities")
        text = f"`{tool.name}({', '.join(parameters(source, tool.parameters))})`"
        rows.append(("tool", f"{text} with `{_quote_source(source, needs)}`" if needs is not None else text))
    return rows


def model_names(agent: ast.Agent) -> list[str]:
    """Return the models that are written as texts."""
    value = agent.fields.get("model")
    items = value.items if isinstance(value, ast.ListLiteral) else [value]
    return [item.value for item in items if isinstance(item, ast.Literal) and isinstance(item.value, str)]


def price_line(model: str, path: str = "") -> str:
    """Say what a thousand tokens cost, by the price table and the settings that hold at a path; unknown is said to be
    unknown."""
    from lyra.models.names import model_name
    from lyra.models.stream import TokenUsage

    try:
        name = model_name(model)
    except ConfigError:
        return "unknown: no provider is known for this model"
    price = _prices(os.path.dirname(path)).find(str(name))
    if price is None:
        return "unknown"
    if price.is_free:
        return "free"
    into, out = (price.cost(TokenUsage(*tokens)) for tokens in ((1000, 0), (0, 1000)))
    more = ", more for long inputs" if len(price.tiers) > 1 else ""
    return f"{Money(into)} in, {Money(out)} out per 1k tokens{more}"


def _prices(folder: str) -> Prices:
    from lyra.config import Config
    from lyra.models.pricing import Prices

    try:
        return Prices.from_config(Config.load(folder if os.path.isdir(folder) else None))
    except ConfigError:  # `lyra config` and every run say what is wrong with the settings
        return Prices()


def _quote_source(source: Source, value: ast.Expression | dict[str, ast.Expression]) -> str:
    if isinstance(value, dict):
        return "{ … }"
    text = " ".join(source.text[value.at : value.end].split())
    return text if len(text) <= 80 else text[:79] + "…"
