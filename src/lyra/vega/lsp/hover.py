"""What an editor shows about the word under the pointer, and about the call in which the cursor is.

`context_at` tells what stands before the cursor where text is typed, and what is open around it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lyra.lsp.language import Hover, SignatureHelp
from lyra.vega.checker.checker import node_heading
from lyra.vega.checker.expressions import methods_of
from lyra.vega.checker.settings import AGENT_FIELDS, BLOCKS, SUPERVISION, TOOL_SETTINGS
from lyra.vega.checker.types import signature_text, takes_text
from lyra.vega.lsp import texts
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.index import MemberReference, SourceSymbol
from lyra.vega.lsp.project import Project
from lyra.vega.stdlib.table import ERRORS, LIBRARY, METHODS, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.syntax.lexer import KEYWORDS, Lexed, lex
from lyra.vega.syntax.source import Source

_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_NEVER_CLOSED: Final = "this `${` is never closed"


class CursorToken(NamedTuple):
    kind: str
    value: str
    at: int
    end: int

    @property
    def is_word(self) -> bool:
        return self.kind == "name" or self.kind in KEYWORDS


class OpenBracket(NamedTuple):
    """An open bracket: its sign, what it belongs to (`agent`, `supervisor`, `retry`, `fn`, `call`, …), where it
    stands among the tokens, and how many commas came after it."""

    sign: str
    what: str
    place: int
    commas: int = 0


class CursorContext(NamedTuple):
    tokens: list[CursorToken]  # before the word at the cursor
    word: str  # as far as it is written
    opened: list[OpenBracket]  # the innermost last
    string: str | None = None  # inside a string: what it holds so far
    is_comment: bool = False
    new_line: bool = False  # whether the word is the first of its line

    def before(self, back: int = 1) -> CursorToken:
        """Return the token that many steps before the word."""
        return self.tokens[-back] if back <= len(self.tokens) else CursorToken("", "", 0, 0)

    @property
    def inside(self) -> str:
        """Return what the innermost bracket belongs to."""
        return self.opened[-1].what if self.opened else ""

    @property
    def block(self) -> str:
        """Return what the innermost brace belongs to."""
        return next((bracket.what for bracket in reversed(self.opened) if bracket.sign == "{"), "")


def context_at(text: str, offset: int) -> CursorContext:
    text = text[:offset]
    start = 0
    lexed = lex(Source("", text))
    while (inner := _open_expression(lexed)) is not None:  # a string inside `${…}` inside a string …
        start += inner
        lexed = lex(Source("", text[start:]))
    tokens = [
        CursorToken(kind, value if isinstance(value, str) else "", begin + start, end + start)
        for kind, value, begin, end in zip(
            lexed.tokens.kinds, lexed.tokens.values, lexed.tokens.starts, lexed.tokens.ends, strict=True
        )
        if kind != "end"
    ]
    broken = [problem for problem in lexed.problems if "never closed" in problem.message]
    if broken:
        begin = broken[-1].at + start
        is_string = text[begin] == '"'
        tokens = [token for token in tokens if token.at < begin]
        return CursorContext(
            tokens, "", _brackets(tokens), text[begin:].lstrip('"') if is_string else None, not is_string
        )
    comment_at, comment = lexed.comments[-1] if lexed.comments else (0, "")
    if comment.startswith("//") and start + comment_at + len(comment) == len(text):
        return CursorContext(tokens, "", [], None, is_comment=True)
    word = ""
    if tokens and tokens[-1].end == offset and tokens[-1].is_word:
        word = tokens.pop().value
    here = offset - len(word)
    new_line = "\n" in text[tokens[-1].end if tokens else 0 : here] or not tokens
    return CursorContext(tokens, word, _brackets(tokens), new_line=new_line)


def _open_expression(lexed: Lexed) -> int | None:
    """Return the start of the expression of a `${` that is never closed."""
    starts = [problem.at + 2 for problem in lexed.problems if problem.message == _NEVER_CLOSED]
    return starts[-1] if starts else None


def _brackets(tokens: list[CursorToken]) -> list[OpenBracket]:
    opened: list[OpenBracket] = []
    for index, token in enumerate(tokens):
        if token.kind in _OPENING:
            opened.append(OpenBracket(token.kind, _owner(tokens, index, opened), index))
        elif token.kind in _OPENING.values():
            while opened and _OPENING[opened[-1].sign] != token.kind:
                opened.pop()  # one that was never closed
            if opened:
                opened.pop()
        elif token.kind == "," and opened:
            opened[-1] = opened[-1]._replace(commas=opened[-1].commas + 1)
    return opened


def _owner(tokens: list[CursorToken], index: int, opened: list[OpenBracket]) -> str:
    """Return what a bracket belongs to, by the words before it."""
    before = tokens[index - 1] if index else CursorToken("", "", 0, 0)
    two = tokens[index - 2] if index > 1 else CursorToken("", "", 0, 0)
    inside = opened[-1].what if opened else ""
    if tokens[index].kind == "{":
        if two.kind in ("agent", "supervisor"):
            return two.kind
        if inside == "agent" and before.value in BLOCKS:
            return before.value
        if (two.value, before.value) == ("supervised", "by"):
            return "supervision"
        return "mock" if two.value == "mock" else "receive" if before.kind == "receive" else "block"
    if tokens[index].kind == "(":
        if two.kind in ("fn", "tool"):
            three = tokens[index - 3] if index > 2 else CursorToken("", "", 0, 0)
            spawned = three.kind in ("spawn", "=") or three.value == "async"
            return "call" if two.kind == "fn" and spawned else "parameters"
        return "call" if before.is_word and before.kind not in KEYWORDS else "("
    return before.value if before.is_word and inside in ("agent", "block", "", "retry") else "["


_WORD: Final = re.compile(r"\w+")
_TABLES: Final[dict[str, dict[str, str]]] = {
    "agent": AGENT_FIELDS,
    "supervisor": SUPERVISION,
    "supervision": SUPERVISION,
    "tool": TOOL_SETTINGS,
    **BLOCKS,
}


def hover(project: Project, path: str, offset: int) -> Hover | None:
    known = project.analysis(path)
    if known is None:
        return None
    index = known.index
    member = index.member_at(offset)
    if member is not None and not member.parameter:
        return Hover(member.at, member.end, _member(project, path, member) or "")
    use = index.use_at(offset)
    if use is not None:
        return Hover(use.at, use.end, describe(project, known, use.symbol))
    sent = _arrow(project, known, offset)
    if sent is not None:
        return sent
    word = _word_at(known.text, offset)
    return _word(known, offset, *word) if word is not None else None


def _word_at(text: str, offset: int) -> tuple[int, int, str] | None:
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    for word in _WORD.finditer(text, start, end if end >= 0 else len(text)):
        if word.start() <= offset <= word.end():
            return word.start(), word.end(), word[0]
    return None


def _word(known: Analysis, offset: int, start: int, end: int, word: str) -> Hover | None:
    """Describe what is no name of the program: settings, models, modules, methods, errors, keywords."""
    setting = known.index.settings.get(start)
    if setting is not None:
        return Hover(start, end, setting_text(*setting))
    if (start, word) in known.index.modules and word in LIBRARY:
        return Hover(start, end, f"{texts.code(word)}\nA module of the library: {', '.join(LIBRARY[word])}.")
    if (start, word) in known.index.errors:
        return Hover(start, end, f"{texts.code(word)}\nAn error{': ' + ERRORS[word] if word in ERRORS else ''}.")
    model = _model_at(known, offset)
    if model is not None:
        return model
    for node in known.index.methods:
        if isinstance(node, ast.MethodCall) and known.text.find(node.name, node.target.end, node.end) == start:
            text = method_text(known.kinds.get(id(node.target)), node.name)
            return Hover(start, end, text) if text else None
    tokens = known.lexed.tokens
    if word in KEYWORDS and start in tokens.starts and tokens.kinds[tokens.starts.index(start)] == word:
        return Hover(start, end, f"{texts.code(word)}\n{texts.KEYWORD_TEXTS[word]}")
    return None


def _model_at(known: Analysis, offset: int) -> Hover | None:
    for agent in known.module.statements:
        value = agent.fields.get("model") if isinstance(agent, ast.Agent) else None
        for item in value.items if isinstance(value, ast.ListLiteral) else [value]:
            if isinstance(item, ast.Literal) and isinstance(item.value, str) and item.at <= offset <= item.end:
                return Hover(item.at, item.end, f"`{item.value}`\n\n{texts.price_line(item.value, known.name)}")
    return None


def setting_text(table: str, name: str) -> str:
    """Return a setting of an agent, a tool or a supervisor: what it is for and what it takes."""
    takes = _TABLES.get(table, {}).get(name)
    if takes is None:
        return texts.code(name)
    what = takes_text(takes).removesuffix(", see below")
    return f"{texts.code(name)}\n{texts.SETTING_TEXTS.get(name, '')}\n\nTakes {what}."


def method_text(kind: object, name: str) -> str:
    """Return a method by the kind of the value before its dot; of an unknown kind, every one it may be."""
    word = getattr(kind, "name", "any")
    kinds = [word] if name in methods_of(word) else [owner for owner in METHODS if name in methods_of(owner)]
    sections = []
    for owner in kinds:
        target = METHODS[owner].get(name, f"{owner}::{name}")
        module, _, function = target.partition("::")
        entry = texts.entry_of(module, function)
        if entry is not None:
            sections.append(f"{texts.code(f'{module}::{signature_text(function, entry)}')}\n{entry.text}")
    return "\n\n".join(dict.fromkeys(sections))


def _member(project: Project, path: str, member: MemberReference) -> str | None:
    entry = texts.entry_of(member.module_name, member.name) if member.module is None else None
    if entry is not None:
        lead = f"{member.module_name}::" if member.module_name else ""
        kind = "Goes through the door: an effect." if entry.how == "effect" else "Pure."
        return f"{texts.code(lead + signature_text(member.name, entry))}\n{entry.text}\n\n{kind}"
    meaning = project.meaning(member, path)
    known = project.analysis(meaning[0]) if meaning is not None else None
    if meaning is None or known is None:
        return texts.code(f"{member.module_name}::{member.name}")
    return describe(project, known, meaning[1])


def describe(project: Project, known: Analysis, symbol: SourceSymbol) -> str:
    """Return a symbol of the program."""
    kind = str(known.kind_of(symbol))
    asked = _find_asked_agent(project, known, symbol.node.value) if isinstance(symbol.node, ast.Let) else None
    if asked is not None and kind == "any":
        kind = texts.answer_type(*asked)
    parts = [texts.code(texts.heading(known.source, symbol, kind))]
    above = texts.comment_above(known.source, known.module.comments, symbol.node.at)
    if above and symbol.role not in ("parameter", "child"):
        parts.append(above)
    node = symbol.node
    if isinstance(node, ast.Agent):
        parts.append(texts.agent_card(known.source, node))
    elif isinstance(node, ast.Parameter) and symbol.owner is not None:
        parts.append(f"A parameter of `{symbol.owner.name}`.")
    elif isinstance(node, ast.Tool):
        parts += _tool(known, node)
    elif isinstance(node, ast.Supervisor):
        parts.append("Children: " + ", ".join(f"`{child.name}`" for child in node.children) + ".")
    elif isinstance(node, ast.Import):
        parts += _import(project, known, symbol)
    elif asked is not None:
        parts.append(f"What agent `{asked[1].name}` answers:\n\n{texts.agent_card(*asked)}")
    elif isinstance(node, ast.Let):
        behind = _agent_of(project, known, node.value)
        if behind is not None:
            parts.append(f"The process of agent `{behind[1].name}`:\n\n{texts.agent_card(*behind)}")
    return "\n\n".join(parts)


def _tool(known: Analysis, node: ast.Tool) -> list[str]:
    rows = [
        f"- {name}: `{known.text[value.at : value.end]}`"
        for name, value in node.settings.items()
        if value.end > value.at
    ]
    return ["\n".join(rows)] if rows else []


def _import(project: Project, known: Analysis, symbol: SourceSymbol) -> list[str]:
    imported = symbol.node
    if isinstance(imported, ast.Import) and imported.kind == "node":
        node = project.node(imported.target, known.name)
        return [] if node is None else [texts.code(node_heading(symbol.name, node)), node.intent]
    target = project.find_imported_file(symbol, known.name)
    index = project.index(target) if target is not None else None
    if index is None:
        return []
    names = [f"`{name}`" for name, declared in index.top.names.items() if declared.role != "import"]
    return [f"It has {', '.join(names[:20])}." if names else "It declares nothing."]


def _arrow(project: Project, known: Analysis, offset: int) -> Hover | None:
    """`<-` and `<~`: who is asked, what comes back and what it costs."""
    for node in known.index.sends:
        start = known.text.find("<", node.target.end, node.message.at)
        if not 0 <= start <= offset <= start + 2:
            continue
        asked = _find_asked_agent(project, known, node)
        if asked is None:
            return Hover(start, start + 2, "Sends a message to a process, and waits for its answer.")
        answer = "a stream of its text" if node.is_stream else f"`{texts.answer_type(*asked)}`"
        lead = f"Asks agent `{asked[1].name}`; the answer is {answer}."
        return Hover(start, start + 2, f"{lead}\n\n{texts.agent_card(*asked)}")
    return None


def _find_asked_agent(
    project: Project, known: Analysis, value: ast.Expression | None
) -> tuple[Source, ast.Agent] | None:
    """Return the agent that a call asks, where its process is a variable that was spawned as one."""
    if not isinstance(value, ast.Send):
        return None
    use = known.index.use_at(value.target.end - 1) if isinstance(value.target, ast.Name) else None
    node = use.symbol.node if use is not None else None
    return _agent_of(project, known, node.value if isinstance(node, ast.Let) else value.target)


def _agent_of(project: Project, known: Analysis, value: ast.Expression | None) -> tuple[Source, ast.Agent] | None:
    """Return the agent behind `spawn A`, since that is who is asked and paid, and the source that declares it."""
    while isinstance(value, ast.Await):
        value = value.operand
    if not isinstance(value, ast.Spawn) or value.is_function:
        return None
    offset = value.target.end - 1
    member = known.index.member_at(offset)
    use = known.index.use_at(offset)
    if member is not None and member.module is not None:
        meaning = project.meaning(member, known.name)
    else:
        meaning = (known.name, use.symbol) if use is not None else None
    declared = project.analysis(meaning[0]) if meaning is not None else None
    if meaning is None or declared is None or not isinstance(meaning[1].node, ast.Agent):
        return None
    return declared.source, meaning[1].node


# ---------------- Which function is being called at the cursor, and which of its parameters comes next


def signature_help(project: Project, path: str, offset: int) -> SignatureHelp | None:
    known = project.last_with_tree(path)
    text = project.text(path)
    if known is None or text is None:
        return None
    context = context_at(text, offset)
    for opened in reversed(context.opened):
        if opened.sign == "(" and opened.what == "call":
            named = _find_argument_name(context, opened.place)
            callee = _callee(project, known, context, opened.place, offset)
            return callee._replace(active=_active(callee, opened.commas, named)) if callee is not None else None
        if opened.sign == "{":
            return None
    return None


def _find_argument_name(context: CursorContext, index: int) -> str:
    """Return the name of the argument that is being written, if it is given by name."""
    inside = context.tokens[index + 1 :]
    for token_index in range(len(inside) - 1, 0, -1):
        if inside[token_index].kind == ",":
            break
        if inside[token_index].kind == ":" and inside[token_index - 1].is_word:
            return inside[token_index - 1].value
    return ""


def _active(callee: SignatureHelp, commas: int, named: str) -> int:
    for index, parameter in enumerate(callee.parameters):
        if named and parameter.split(":")[0].split("=")[0].strip(" ?") == named:
            return index
    return min(commas, max(0, len(callee.parameters) - 1))


def _callee(project: Project, known: Analysis, context: CursorContext, index: int, offset: int) -> SignatureHelp | None:
    tokens = context.tokens
    name = tokens[index - 1].value
    sign = tokens[index - 2].kind if index > 1 else ""
    before = tokens[index - 3].value if index > 2 else ""
    visible = known.index.visible(offset)
    if sign == "::":
        module = visible.get(before)
        if module is not None and module.role == "import":
            meaning = project.meaning(MemberReference(0, 0, module, before, name), known.name)
            other = project.analysis(meaning[0]) if meaning is not None else None
            return _describe_declaration(other, meaning[1]) if meaning is not None and other is not None else None
        return _library(f"{before}::", name, texts.entry_of(before, name))
    if sign == ".":
        kind = known.kind_of(visible[before]).name if before in visible else "any"
        return _method(name, [kind] if kind in METHODS else list(METHODS))
    if name in visible:
        return _node(project, known, visible[name]) or _describe_declaration(known, visible[name])
    return _library("", name, texts.entry_of("", name))


def _node(project: Project, known: Analysis, symbol: SourceSymbol) -> SignatureHelp | None:
    """Return an imported node: its inputs are its parameters."""
    imported = symbol.node
    node = (
        project.node(imported.target, known.name)
        if isinstance(imported, ast.Import) and imported.kind == "node"
        else None
    )
    if node is None:
        return None
    label = node_heading(symbol.name, node)
    inside = label[label.index("(") + 1 : label.index(") -> ")]
    return SignatureHelp(label, inside.split(", ") if inside else [], 0, node.intent)


def _library(lead: str, name: str, entry: LibraryEntry | None) -> SignatureHelp | None:
    if entry is None:
        return None
    label = lead + signature_text(name, entry)
    inside = label[label.index("(") + 1 : label.rindex(")")]
    return SignatureHelp(label, inside.split(", ") if inside else [], 0, entry.text)


def _method(name: str, kinds: list[str]) -> SignatureHelp | None:
    for kind in kinds:
        module, _, function = METHODS[kind].get(name, f"{kind}::{name}").partition("::")
        entry = texts.entry_of(module, function)
        if entry is not None:
            rest = entry._replace(parameters=entry.parameters[1:], required=max(0, entry.required - 1))
            return _library(".", name, rest)
    return None


def _describe_declaration(known: Analysis, symbol: SourceSymbol) -> SignatureHelp | None:
    node = symbol.node
    if isinstance(node, ast.Let) and isinstance(node.value, ast.Lambda):
        parameters = texts.parameters(known.source, node.value.parameters)
        return SignatureHelp(f"{node.name}({', '.join(parameters)})", parameters, 0)
    if not isinstance(node, (ast.Function, ast.Tool)):
        return None
    above = texts.comment_above(known.source, known.module.comments, node.at)
    return SignatureHelp(texts.heading(known.source, symbol), texts.parameters(known.source, node.parameters), 0, above)
