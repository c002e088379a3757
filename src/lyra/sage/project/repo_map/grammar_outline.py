"""The symbols of files in other languages, by tree-sitter, where the grammar of the language is installed.

Grammars come from the packages of the extra `map`, one package a language, with the grammar inside: nothing is ever
downloaded. The tree is walked through files, namespaces and classes, and never into the body of a function. `LANGUAGES`
says which kinds of nodes are definitions and which are entered. Without the package of a language its
files are read by patterns (`symbol`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.sage.project.repo_map.symbol import SYMBOLS_MAX, MapSymbol, one_line

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


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
    """The language whose definitions are `classes` and `others`."""
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
    """Whether the grammar of a language is there. It is not loaded."""
    import importlib.util

    modules = ("tree_sitter", LANGUAGES[name].module)
    return all(importlib.util.find_spec(module) is not None for module in modules)


def grammar_symbols(name: str, data: bytes) -> list[MapSymbol] | None:
    """The symbols in the order of the source; None where the grammar is not installed."""
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
    """The definitions among the children of a node, and in the classes and namespaces there."""
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
    """The definition itself: a template, a type definition and a variable have it as a part."""
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
    """The name that a node defines; "" where it has none."""
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
    """The source of a definition up to its body."""
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
