"""What may be written next: names in scope, members of modules, settings of the block one is in, keywords, snippets.

`complete` looks at the tokens before the cursor (`hover`) and asks one function for each kind of place, in the order
of `_PLACES`; the first that knows the place answers. Names come from the last tree that could be read, so they are
there while the line that is being written is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lyra.core.rights.capability import VERBS
from lyra.errors import CODES
from lyra.lsp.language import Item
from lyra.vega.checker.expressions import methods_of
from lyra.vega.checker.settings import AGENT_FIELDS, BLOCKS, SUPERVISION, TOOL_SETTINGS
from lyra.vega.checker.types import TYPES, signature_text, takes_text
from lyra.vega.lsp import texts
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.hover import CursorContext, context_at
from lyra.vega.lsp.index import SourceSymbol
from lyra.vega.lsp.project import Project
from lyra.vega.stdlib.table import ERRORS, GLOBALS, LIBRARY, METHODS, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS

_FILES_MAX: Final = 200
_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "agent": AGENT_FIELDS,
    "supervisor": SUPERVISION,
    "supervision": SUPERVISION,
    **BLOCKS,
}


class _CompletionRequest(NamedTuple):
    project: Project
    known: Analysis
    path: str
    offset: int
    context: CursorContext


def complete(project: Project, path: str, offset: int) -> list[Item]:
    """Everything that may stand at an offset; the editor chooses by what is written already."""
    text = project.text(path)
    known = project.last_with_tree(path)
    if text is None or known is None:
        return []
    asked = _CompletionRequest(project, known, path, offset, context_at(text, offset))
    if asked.context.is_comment:
        return []
    for place in _PLACES:
        items = place(asked)
        if items is not None:
            return list({(item.label, item.kind): item for item in items}.values())
    return []


# ---------------------------------------------------------------- places, in the order they are asked


def _in_string(asked: _CompletionRequest) -> list[Item] | None:
    context = asked.context
    if context.string is None:
        return None
    if context.before().kind == "import":
        return _files(asked, context.string)
    return []


def _files(asked: _CompletionRequest, written: str) -> list[Item]:
    """Vega files and folders below the one that is written."""
    folder = asked.project.target(os.path.dirname(written) or ".", asked.path)
    try:
        names = sorted(os.listdir(folder))[:_FILES_MAX]
    except (OSError, ValueError):
        return []
    lead = "" if "/" in written else "./"
    items = []
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".vega") and path != asked.path:
            items.append(Item(lead + name, "file"))
        elif not name.startswith(".") and os.path.isdir(path):
            items.append(Item(f"{lead}{name}/", "file"))
    return items


def _members(asked: _CompletionRequest) -> list[Item] | None:
    """Behind `module::`."""
    context = asked.context
    if context.before().kind != "::":
        return None
    module = context.before(2).value
    if any(opened.what == "capabilities" for opened in context.opened):
        return [Item(name, "word") for verb in VERBS for name in _after(verb, module)]
    symbol = asked.known.index.visible(asked.offset).get(module)
    if symbol is not None and symbol.role == "import":
        target = asked.project.find_imported_file(symbol, asked.path)
        other = asked.project.analysis(target) if target is not None else None
        if other is None:
            return []
        names = other.index.top.names.values()
        wanted = ("agent", "supervisor") if _is_spawned(context, 3) else None
        return [
            _item(other, member)
            for member in names
            if member.role != "import" and (not wanted or member.role in wanted)
        ]
    return [_library_item(name, entry) for name, entry in LIBRARY.get(module, {}).items()]


def _after(verb: str, module: str) -> list[str]:
    lead, _, name = verb.partition(".")
    return [name] if lead == module and name else []


def _methods(asked: _CompletionRequest) -> list[Item] | None:
    """Behind `value.`."""
    context = asked.context
    if context.before().kind != ".":
        return None
    value = context.before(2)
    symbol = asked.known.index.visible(asked.offset).get(value.value) if value.kind == "name" else None
    kind = {"string": "str", "template": "str", "]": "any"}.get(value.kind, "any")
    if symbol is not None:
        kind = asked.known.kind_of(symbol).name
    kinds = [kind] if kind in METHODS else list(METHODS)
    items = []
    for kind_name in kinds:
        for name in methods_of(kind_name):
            module, _, function = METHODS[kind_name].get(name, f"{kind_name}::{name}").partition("::")
            entry = texts.entry_of(module, function)
            detail = signature_text(function, entry) if entry is not None else ""
            items.append(Item(name, "method", detail, entry.text if entry is not None else ""))
    if kind == "response":
        items += [Item(name, "field") for name in ("status", "body", "headers")]
    return items


def _setting(asked: _CompletionRequest) -> list[Item] | None:
    """Inside the block of an agent, a supervisor, `retry` …: a setting's name, or what it takes."""
    context = asked.context
    if context.opened and context.opened[-1].sign == "[":
        return _complete_list(asked, context.opened[-1].what)
    table = _SETTINGS.get(context.inside)
    if table is None:
        return None
    before = context.before()
    if before.value in table and not context.new_line:
        return _values(asked, table[before.value])
    if context.inside == "supervisor" and before.kind == "=":
        return _spawnable(asked)
    items = [_field(name, takes) for name, takes in table.items()]
    if context.inside == "agent":
        items.append(Item("tool", "keyword", "", texts.KEYWORD_TEXTS["tool"], FIELD_SNIPPETS["tool"]))
    if context.inside == "supervisor":
        items.append(Item("child", "keyword", "", "One of its processes.", FIELD_SNIPPETS["child"]))
    return items


def _field(name: str, takes: str) -> Item:
    what = takes_text(takes).removesuffix(", see below")
    return Item(name, "field", what, texts.SETTING_TEXTS.get(name, ""), FIELD_SNIPPETS.get(name, ""))


def _complete_list(asked: _CompletionRequest, what: str) -> list[Item] | None:
    """Inside `[…]` of a setting."""
    if what == "tools":
        index = asked.known.index
        own = [symbol for symbol in index.symbols if symbol.role == "tool" and _around(symbol, asked.offset)]
        seen = [tool for tool in index.visible(asked.offset).values() if tool.role in ("function", "tool", "import")]
        return [_item(asked.known, tool) for tool in (*own, *seen)]
    if what == "capabilities":
        return [Item(verb.replace(".", "::"), "word") for verb in VERBS]
    if what == "on" and asked.context.block == "retry":
        return [Item(word, "word") for word in BLOCKS["retry"]["on"].split(" ")[1:]]
    return None


def _around(symbol: SourceSymbol, offset: int) -> bool:
    owner = symbol.owner
    return owner is not None and owner.node.at <= offset <= owner.node.end


def _values(asked: _CompletionRequest, takes: str) -> list[Item] | None:
    form, *words = takes.split(" ")
    if form == "word":
        return [Item(word, "word") for word in words]
    if form == "memory":
        return [
            Item("none", "word"),
            Item("conversation", "word"),
            Item("window", "word", "window(n)", "", "window(${1:10})"),
        ]
    if form == "backoff":
        return [Item(name, "word", "", "", insert) for name, insert in BACKOFFS.items()]
    if form == "type":
        return _types(asked.known)
    return None


def _tool_setting(asked: _CompletionRequest) -> list[Item] | None:
    """Between a tool's head and its body."""
    context = asked.context
    if context.inside not in ("", "agent") or context.before().kind not in (")", "name", "]", "string", "null"):
        return None
    for token in reversed(context.tokens):
        if token.kind in ("{", "}", ";"):
            return None
        if token.kind == "tool":
            return [_field(name, takes) for name, takes in TOOL_SETTINGS.items()]
    return None


def _is_spawned(context: CursorContext, back: int) -> bool:
    """Return whether the token that many steps back is `spawn` or `spawn async`."""
    token = context.before(back)
    return token.kind == "spawn" or (token.value == "async" and context.before(back + 1).kind == "spawn")


def _process(asked: _CompletionRequest) -> list[Item] | None:
    """Behind `spawn` and `mock`."""
    context = asked.context
    if context.before().value == "mock" and context.before().kind == "name":
        return [item for item in _spawnable(asked) if item.kind == "agent"]
    if not _is_spawned(context, 1):
        return None
    items = _spawnable(asked)
    return items if context.before().value == "async" else [*items, Item("async", "keyword")]


def _spawnable(asked: _CompletionRequest) -> list[Item]:
    seen = asked.known.index.visible(asked.offset).values()
    roles = ("agent", "supervisor", "import")
    items = [_item(asked.known, symbol) for symbol in seen if symbol.role in roles]
    return [*items, Item("fn", "keyword", "", "A function in a process of its own.", "fn ${1:name}($2)")]


def _type(asked: _CompletionRequest) -> list[Item] | None:
    """Behind `->`, and behind the `:` of a variable or parameter."""
    context = asked.context
    last, three = context.before(), context.before(3)
    declared = last.kind == ":" and (three.kind in ("let", "const") or context.inside == "parameters")
    return _types(asked.known) if last.kind == "->" or declared else None


def _types(known: Analysis) -> list[Item]:
    plain = [Item(name, "type") for name in TYPES if name[0].islower() and name != "function"]
    agents = [Item(node.name, "agent") for node in known.module.statements if isinstance(node, ast.Agent)]
    return [*plain, Item("Result", "type"), *agents]


def _error(asked: _CompletionRequest) -> list[Item] | None:
    """Behind `catch` and `throw`."""
    if asked.context.before().kind not in ("catch", "throw"):
        return None
    thrown = {name: "" for _, name in asked.known.index.errors}
    names = {**thrown, **{row.catch: "" for row in CODES.values()}, **ERRORS}
    if asked.context.before().kind == "catch":
        return [Item(name, "error", "", text, f"{name}(${{1:reason}}) {{\n    $0\n}}") for name, text in names.items()]
    return [Item(name, "error", "", text, f'{name}("$1")') for name, text in names.items()]


def _nothing(asked: _CompletionRequest) -> list[Item] | None:
    """Offer nothing where a new name is being invented."""
    context = asked.context
    last, two = context.before(), context.before(2)
    invents = last.kind in ("let", "const", "agent", "supervisor", "tool") or (
        last.kind == "fn" and two.kind != "spawn"
    )
    names = context.inside == "parameters" and last.kind in ("(", ",")
    return [] if invents or names or (last.value == "as" and two.kind == "string") else None


def _anything(asked: _CompletionRequest) -> list[Item]:
    """Offer all that may represent a statement or an expression."""
    context = asked.context
    items = [_item(asked.known, symbol) for symbol in asked.known.index.visible(asked.offset).values()]
    items += [_library_item(name, entry) for name, entry in GLOBALS.items()]
    items += [
        Item(name, "module", "module", f"{', '.join(list(names)[:8])} …", f"{name}::")
        for name, names in LIBRARY.items()
    ]
    items += [Item(word, "keyword", "", texts.KEYWORD_TEXTS[word]) for word in KEYWORDS]
    if context.new_line or context.before().kind in (";", "{", "}"):
        items += _snippets(STATEMENT_SNIPPETS)
        if not context.opened:
            items += _snippets(TOP_SNIPPETS)
    if context.opened and context.opened[-1].what == "call":
        items += _complete_arguments(asked)
    return items


def _snippets(table: dict[str, tuple[str, str]]) -> Iterable[Item]:
    return [Item(name, "snippet", text, "", insert) for name, (text, insert) in table.items()]


def _complete_arguments(asked: _CompletionRequest) -> list[Item]:
    """`name: ` for the parameters of a function of this file."""
    place = asked.context.opened[-1].place
    callee = asked.context.tokens[place - 1].value
    symbol = asked.known.index.visible(asked.offset).get(callee)
    parameters = getattr(symbol.node, "parameters", ()) if symbol is not None else ()
    return [Item(f"{parameter.name}:", "parameter", "", "", f"{parameter.name}: ") for parameter in parameters]


# ---------------------------------------------------------------- items


def _item(known: Analysis, symbol: SourceSymbol) -> Item:
    detail = ""
    if symbol.role in ("function", "tool"):
        detail = texts.heading(known.source, symbol)
    elif symbol.role in ("variable", "parameter", "constant"):
        kind = str(known.kind_of(symbol))
        detail = "" if kind == "any" else kind
    elif symbol.role == "agent" and isinstance(symbol.node, ast.Agent):
        detail = ", ".join(texts.model_names(symbol.node))
    insert = f"{symbol.name}::" if symbol.role == "import" else ""
    above = texts.comment_above(known.source, known.module.comments, symbol.node.at) if symbol.is_top else ""
    return Item(symbol.name, symbol.role, detail, above, insert)


def _library_item(name: str, entry: LibraryEntry) -> Item:
    return Item(name, "function", signature_text(name, entry), entry.text)


_PLACES: Final[tuple[Callable[[_CompletionRequest], list[Item] | None], ...]] = (
    _in_string,
    _members,
    _methods,
    _tool_setting,
    _setting,
    _process,
    _type,
    _error,
    _nothing,
    _anything,
)


# ---------------------------------------------------------------- snippets
# Pieces of program that editors offer to write; `${1:…}` is where the cursor goes first, `$0` where it ends.

# name → (a sentence, the text)
TOP_SNIPPETS: Final[dict[str, tuple[str, str]]] = {
    "agent": (
        "an agent with a model and a budget",
        (
            'agent ${1:Name} {\n    model "${2:claude-sonnet-4-5}"\n    system "${3:You are helpful.}"\n'
            "    budget \\$${4:0.50}\n}\n"
        ),
    ),
    "fn": ("a function", "fn ${1:name}($2) {\n    $0\n}\n"),
    "tool": ("a tool", "tool ${1:name}(${2:path}: str) -> str capabilities [${3:fs::read}] {\n    $0\n}\n"),
    "supervisor": (
        "a tree of processes",
        (
            "supervisor ${1:Name} {\n    strategy ${2:restart}\n    max_restarts ${3:3}\n    window ${4:60s}\n"
            "    child ${5:worker} = ${6:Agent}\n}\n"
        ),
    ),
    "test": ("a test with a scripted model", 'test "${1:name}" {\n    $0\n}\n'),
    "import": ("another file", 'import "./${1:file}.vega" as ${2:name};\n'),
}

STATEMENT_SNIPPETS: Final[dict[str, tuple[str, str]]] = {
    "ask": ("start an agent and ask it", 'let ${1:p} = spawn ${2:Agent};\nlet ${3:answer} = ${1:p} <- "${4:…}";\n'),
    "for in": ("a loop over a list", "for ${1:x} in ${2:list} {\n    $0\n}\n"),
    "for let": ("a loop that counts", "for let ${1:i} = 0; ${1:i} < ${2:n}; ${1:i} = ${1:i} + 1 {\n    $0\n}\n"),
    "if": ("a branch", "if ${1:condition} {\n    $0\n}\n"),
    "while": ("a loop", "while ${1:condition} {\n    $0\n}\n"),
    "match": ("choose by pattern", "match ${1:value} {\n    Ok(${2:x}) => $3,\n    Err(${4:e}) => $0,\n}\n"),
    "try": ("handle errors", "try {\n    $0\n} catch ${1:Error}(${2:reason}) {\n    print(${2:reason});\n}\n"),
    "session": ("a block with a budget", "session budget \\$${1:1.00} {\n    $0\n}\n"),
    "parallel": ("do things at the same time", "parallel {\n    $0\n}\n"),
    "receive": ("take a message", "receive {\n    ${1:message} => $0,\n    after ${2:5s} => null,\n}\n"),
}

FIELD_SNIPPETS: Final[dict[str, str]] = {
    "model": 'model "$1"',
    "system": 'system "$1"',
    "retry": "retry { max_attempts ${1:3} backoff exponential(${2:100ms}, ${3:2.0}, ${4:5s}) }",
    "circuit_breaker": "circuit_breaker { threshold ${1:5} reset_after ${2:30s} }",
    "rate_limit": "rate_limit { requests_per_minute ${1:60} }",
    "budget": "budget \\$${1:0.50}",
    "timeout": "timeout ${1:30s}",
    "tools": "tools [$1]",
    "capabilities": "capabilities [$1]",
    "allowed_paths": 'allowed_paths ["$1"]',
    "allowed_commands": 'allowed_commands ["$1"]',
    "description": 'description "$1"',
    "tool": "tool ${1:name}($2) -> ${3:str} {\n    $0\n}",
    "child": "child ${1:name} = ${2:Agent}",
}

BACKOFFS: Final[dict[str, str]] = {
    "exponential": "exponential(${1:100ms}, ${2:2.0}, ${3:5s})",
    "linear": "linear(${1:100ms}, ${2:5s})",
    "constant": "constant(${1:1s})",
}
