"""The outline of one file: its symbols, and the names that it mentions.

Python and Vega are read by their own parsers, other languages by tree-sitter where the grammar is installed; without it
their files are ranked by what they mention and have no symbols. Of all other files only the name counts. A file that is
not text, too long, or written by a program (lines without end) has no outline, and one that its parser cannot read has
no symbols: no file can stop the map. A signature is one line of the source: what it says up to the body, without
comments, and with every string in it masked, since a default value can hold whole sentences. Grammars come from the
packages of the extra `map`, one package a language: nothing is ever downloaded. `LANGUAGES` says which kinds of nodes
are definitions and which are entered; the body of a function never is.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# ---------------------------------------------------------------- symbol

SIGNATURE_CHARS_MAX: Final = 160
SYMBOLS_MAX: Final = 2_000  # of one file; more are generated code
_NAME_CHARS_MAX: Final = 60
_IDENTIFIERS_MAX: Final = 5_000  # different ones of one file
_STRING: Final = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)""")
_COMMENTS: Final = {"#": re.compile(r"#[^\n]*"), "//": re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)}
_BLANKS: Final = re.compile(r"\s+")
# Comments and strings, in which names are words; what begins in one and never ends is left as it is.
_PROSE: Final = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?:#|//)[^\n]*""", re.DOTALL
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{2,59}(?![A-Za-z0-9_$])")


class MapSymbol(NamedTuple):
    """A definition: `depth` is 0 for one of the file itself, 1 for a member of a class. Lines count from 1."""

    name: str
    signature: str
    line: int
    depth: int = 0


def one_line(source: str, *, comment: str = "#") -> str:
    """Return the source of a signature on one line, strings masked and comments left out, which `#` or `//` begins."""
    text = _STRING.sub("...", source)
    text = _BLANKS.sub(" ", _COMMENTS[comment].sub(" ", text)).strip()
    text = text.replace("( ", "(").replace(", )", ")").replace(" )", ")")
    return text if len(text) <= SIGNATURE_CHARS_MAX else f"{text[:SIGNATURE_CHARS_MAX]}..."


def identifiers(text: str) -> set[str]:
    """Return the different names of three characters and more that a source mentions outside of comments and
    strings."""
    names = set(_IDENTIFIER.findall(_PROSE.sub(" ", text)))
    return names if len(names) <= _IDENTIFIERS_MAX else set()  # a word list or generated code says nothing


# ---------------------------------------------------------------- python outline

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_symbols(text: str) -> list[MapSymbol]:
    """Return the symbols in the order of the source; SyntaxError and others for a file that Python cannot read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in other people's files
        tree = ast.parse(text)
    return list(_python_symbols(tree.body, text.split("\n"), 0))


def _python_symbols(body: Iterable[ast.stmt], lines: Sequence[str], depth: int) -> Iterator[MapSymbol]:
    for node in body:
        if isinstance(node, _Definition):
            yield MapSymbol(node.name, one_line(_signature_head(node, lines)), node.lineno, depth)
            if isinstance(node, ast.ClassDef) and depth == 0:
                yield from _python_symbols(node.body, lines, 1)
        elif isinstance(node, (ast.If, ast.Try)) and depth == 0:  # of another platform, or of typing
            yield from _python_symbols(_branches(node), lines, depth)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and depth == 0:
            yield from _constants(node)


def _branches(node: ast.If | ast.Try) -> list[ast.stmt]:
    return [*node.body, *node.orelse] if isinstance(node, ast.If) else [*node.body, *node.orelse, *node.finalbody]


def _constants(node: ast.Assign | ast.AnnAssign) -> Iterator[MapSymbol]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id[:1].isupper():
            yield MapSymbol(target.id, target.id, node.lineno)


def _signature_head(node: _Definition, lines: Sequence[str]) -> str:
    """Return the source from `def` or `class` to the colon before the body."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", ())
    end = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    start = node.lineno
    if end == start:  # `def f(): return 1`; the columns of the parser count bytes
        line = lines[start - 1].encode()
        return line[node.col_offset : first.col_offset].decode("utf-8", "replace").rstrip().removesuffix(":")
    whole = "\n".join(lines[start - 1 : end - 1])
    return whole[: whole.rindex(":")] if ":" in whole else whole


def vega_symbols(text: str) -> list[MapSymbol]:
    """Return the declarations of a Vega source, also of one with mistakes."""
    from lyra.vega.syntax.ast import Declaration
    from lyra.vega.syntax.parser import parse_all
    from lyra.vega.syntax.source import Source

    symbols = []
    for node in parse_all(Source("", text)).module.statements:
        name = getattr(node, "name", "") if isinstance(node, Declaration) else ""
        if name:
            line = text.count("\n", 0, node.at)
            head = text.split("\n")[line].partition("{")[0].rstrip(" ;")
            symbols.append(MapSymbol(name, one_line(head, comment="//"), line + 1))
    return symbols


_OWN_PARSERS: Final = {"python": python_symbols, "vega": vega_symbols}

# ---------------------------------------------------------------- grammar outline

_DEPTH_MAX: Final = 12  # classes and namespaces inside one another
_HEAD_BYTES_MAX: Final = 2_000


class GrammarLanguage(NamedTuple):
    """The module of a grammar and its function, and kinds of nodes: those that define something, those of them whose
    bodies have members, and those that are entered to look for more (a file, a namespace)."""

    module: str
    function: str
    defines: frozenset[str]
    classes: frozenset[str]
    enters: frozenset[str]


def _language(module: str, function: str, *, classes: str = "", others: str, enters: str) -> GrammarLanguage:
    """Return the language whose definitions are `classes` and `others`."""
    kinds = [frozenset(words.split()) for words in (f"{classes} {others}", classes, enters)]
    return GrammarLanguage(module, function, *kinds)


_JAVASCRIPT: Final = {
    "classes": "class_declaration",
    "others": "function_declaration generator_function_declaration method_definition variable_declarator",
    "enters": "export_statement lexical_declaration variable_declaration",
}
_TYPESCRIPT: Final = {
    "classes": "class_declaration abstract_class_declaration interface_declaration",
    "others": f"{_JAVASCRIPT['others']} type_alias_declaration enum_declaration function_signature method_signature "
    "abstract_method_signature",
    "enters": f"{_JAVASCRIPT['enters']} ambient_declaration internal_module expression_statement module",
}
_C: Final = {
    "others": "function_definition struct_specifier union_specifier enum_specifier type_definition declaration "
    "preproc_function_def",
    "enters": "preproc_ifdef preproc_if preproc_else linkage_specification",
}

LANGUAGES: Final[dict[str, GrammarLanguage]] = {
    "javascript": _language("tree_sitter_javascript", "language", **_JAVASCRIPT),
    "typescript": _language("tree_sitter_typescript", "language_typescript", **_TYPESCRIPT),
    "tsx": _language("tree_sitter_typescript", "language_tsx", **_TYPESCRIPT),
    "go": _language(
        "tree_sitter_go",
        "language",
        others="function_declaration method_declaration type_spec type_alias",
        enters="type_declaration",
    ),
    "rust": _language(
        "tree_sitter_rust",
        "language",
        classes="impl_item trait_item",
        others="function_item function_signature_item struct_item enum_item union_item type_item mod_item "
        "macro_definition",
        enters="mod_item",
    ),
    "java": _language(
        "tree_sitter_java",
        "language",
        classes="class_declaration interface_declaration enum_declaration record_declaration "
        "annotation_type_declaration",
        others="method_declaration constructor_declaration",
        enters="enum_body_declarations",
    ),
    "c": _language("tree_sitter_c", "language", **_C),
    "cpp": _language(
        "tree_sitter_cpp",
        "language",
        classes="class_specifier struct_specifier",
        others=f"{_C['others']} namespace_definition template_declaration field_declaration alias_declaration",
        enters=f"{_C['enters']} namespace_definition",
    ),
    "ruby": _language(
        "tree_sitter_ruby", "language", classes="class", others="module method singleton_method", enters="module"
    ),
    "php": _language(
        "tree_sitter_php",
        "language_php",
        classes="class_declaration interface_declaration trait_declaration enum_declaration",
        others="function_definition method_declaration",
        enters="namespace_definition",
    ),
    "c_sharp": _language(
        "tree_sitter_c_sharp",
        "language",
        classes="class_declaration interface_declaration struct_declaration record_declaration enum_declaration",
        others="delegate_declaration method_declaration constructor_declaration property_declaration",
        enters="namespace_declaration file_scoped_namespace_declaration",
    ),
}


@lru_cache(maxsize=len(LANGUAGES))
def _parser(name: str) -> Parser | None:
    language = LANGUAGES[name]
    try:
        from tree_sitter import Language, Parser

        grammar = importlib.import_module(language.module)
        return Parser(Language(getattr(grammar, language.function)()))
    except (ImportError, AttributeError, ValueError, TypeError):  # not installed, or of another version
        return None


def is_installed(name: str) -> bool:
    """Return whether the grammar of a language is there. It is not loaded."""
    import importlib.util

    modules = ("tree_sitter", LANGUAGES[name].module)
    return all(importlib.util.find_spec(module) is not None for module in modules)


def grammar_symbols(name: str, data: bytes) -> list[MapSymbol] | None:
    """Return the symbols in the order of the source; None where the grammar is not installed."""
    parser = _parser(name)
    if parser is None:
        return None
    symbols: list[MapSymbol] = []
    for symbol in _walk(LANGUAGES[name], parser.parse(data).root_node, 0, 0):
        symbols.append(symbol)
        if len(symbols) >= SYMBOLS_MAX:
            break
    return symbols


def _walk(language: GrammarLanguage, node: Node, depth: int, level: int) -> Iterator[MapSymbol]:
    """Yield the definitions among the children of a node, and in the classes and namespaces there."""
    if level > _DEPTH_MAX:
        return
    for child in node.named_children:
        if child.type in language.defines:
            symbol = _symbol(child, depth)
            if symbol is not None:
                yield symbol
        target = _innermost(child)
        body = target.child_by_field_name("body")
        if target.type in language.classes:
            if body is not None:
                yield from _walk(language, body, 1, level + 1)
        elif child.type in language.enters:
            yield from _walk(language, body or child, depth, level + 1)


def _innermost(node: Node) -> Node:
    """Return the definition itself: a template, a type definition and a variable have it as a part."""
    if node.type == "template_declaration" and node.named_children:
        return node.named_children[-1]
    if node.type == "type_definition":
        return node.child_by_field_name("type") or node
    return node


_FUNCTIONS: Final = ("arrow_function", "function_expression", "function", "class", "generator_function")
_WITHOUT_BRACES: Final = ("method", "singleton_method", "class", "module")  # of Ruby
_DATA_MEMBERS: Final = ("declaration", "field_declaration")  # of C: they declare functions, and variables too


def _symbol(node: Node, depth: int) -> MapSymbol | None:
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        if value is None or value.type not in _FUNCTIONS:
            return None
    if node.type in _DATA_MEMBERS and not _declares_function(node):
        return None
    name = _name(node)
    return MapSymbol(name, one_line(_head(node), comment="//"), node.start_point[0] + 1, depth) if name else None


def _declares_function(node: Node) -> bool:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
        declarator = declarator.child_by_field_name("declarator") or (
            declarator.named_children[-1] if declarator.named_children else None
        )
    return declarator is not None and declarator.type == "function_declarator"


def _name(node: Node) -> str:
    """Return the name that a node defines; "" where it has none."""
    node = _innermost(node) if node.type == "template_declaration" else node
    for _ in range(_DEPTH_MAX):
        named = (
            node.child_by_field_name("name")
            or node.child_by_field_name("declarator")
            or (node.child_by_field_name("type") if node.type == "impl_item" else None)
        )
        if named is None:
            break
        node = named
    text = (node.text or b"").decode("utf-8", "replace")
    return (
        text.rpartition("::")[2].partition("<")[0] if len(text) <= 200 and "\n" not in text and " " not in text else ""
    )


def _head(node: Node) -> str:
    """Return the source of a definition up to its body."""
    body = _innermost(node).child_by_field_name("body")
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        body = value.child_by_field_name("body") if value is not None else None
    end = body.start_byte - node.start_byte if body is not None else _HEAD_BYTES_MAX
    text = (node.text or b"")[: min(end, _HEAD_BYTES_MAX)].decode("utf-8", "replace")
    if body is None:
        is_ruby = node.type in _WITHOUT_BRACES
        text = text.partition("\n")[0].partition(";")[0] if is_ruby else text.partition("{")[0]
    return text.rstrip().rstrip("{;:=").removesuffix("=>").rstrip()


FILE_BYTES_MAX: Final = 512 * 1024
_LINE_BYTES_MEAN_MAX: Final = 300  # longer lines on average are written by a program
_MANY_BYTES: Final = 20_000
_ENDINGS_OF: Final[dict[str, str]] = {
    "python": "py pyi",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c h",
    "cpp": "cc cpp cxx hpp hh hxx cu",
    "ruby": "rb",
    "php": "php",
    "c_sharp": "cs",
    "kotlin": "kt kts",
    "swift": "swift",
    "scala": "scala",
    "lua": "lua",
    "shell": "sh bash",
    "elixir": "ex exs",
    "sql": "sql",
    "protobuf": "proto",
    "vega": "vega",
}
_LANGUAGE_OF: Final = {ending: name for name, endings in _ENDINGS_OF.items() for ending in endings.split()}


class FileOutline(NamedTuple):
    symbols: list[MapSymbol]
    mentions: set[str]


def language_of(path: str) -> str:
    """Return the language of a file by its name; "" for one whose content is not looked at."""
    return _LANGUAGE_OF.get(os.path.splitext(path)[1][1:].lower(), "")


def outline_of(path: str, data: bytes, *, parsers: bool = True) -> FileOutline:
    """Return what a file defines and mentions. Without `parsers` no symbols are looked for."""
    language = language_of(path)
    is_generated = len(data) > _MANY_BYTES and len(data) > _LINE_BYTES_MEAN_MAX * (data.count(b"\n") + 1)
    if not language or len(data) > FILE_BYTES_MAX or b"\0" in data or is_generated:
        return FileOutline([], set())
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return FileOutline(_symbols(language, text, data, parsers=parsers)[:SYMBOLS_MAX], identifiers(text))


def _symbols(language: str, text: str, data: bytes, *, parsers: bool) -> list[MapSymbol]:
    if parsers and language in _OWN_PARSERS:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return _OWN_PARSERS[language](text)
    elif parsers and language in LANGUAGES:
        return grammar_symbols(language, data) or []
    return []
