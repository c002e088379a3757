"""What the extension for VS Code has from the languages themselves: Vega's grammar and snippets, the schema of nodes.

    python -m codegen.vega_extension editors/vscode

writes them. The words come from the tables of the lexer, the checker and the library; a test compares the files. A
grammar in TextMate's format only knows lines and patterns: what a name means is said by the server's semantic tokens.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from lyra.vega.checker.settings import AGENT_FIELDS, BLOCKS, SUPERVISION, TOOL_SETTINGS
from lyra.vega.checker.types import TYPES
from lyra.vega.lsp.completion import STATEMENT_SNIPPETS, TOP_SNIPPETS
from lyra.vega.stdlib.table import GLOBALS, LIBRARY
from lyra.vega.values.values import UNITS
from lyra.vesper.lsp.schema import schema_text

# Every keyword, by the colour it gets.
KEYWORD_SCOPES: Final[dict[str, tuple[str, ...]]] = {
    "keyword.control.vega": (
        *("await", "break", "catch", "continue", "defer", "else", "finally", "for", "if", "match", "parallel"),
        *("receive", "return", "session", "spawn", "throw", "try", "while"),
    ),
    "keyword.control.import.vega": ("import",),
    "storage.type.vega": ("agent", "const", "fn", "let", "supervisor", "tool"),
    "constant.language.vega": ("false", "null", "true"),
}
_NAME: Final = r"[^\W\d]\w*"


def files() -> dict[str, str]:
    """The generated files, by their paths in the extension's folder."""
    return {
        "syntaxes/vega.tmLanguage.json": _text(grammar()),
        "snippets/vega.json": _text(snippets()),
        "syntaxes/vesper.tmLanguage.json": _text(
            {"scopeName": "source.vesper", "patterns": [{"include": "source.yaml"}]}
        ),
        "schemas/vsp.schema.json": schema_text(),
    }


def _text(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def snippets() -> dict[str, Any]:
    return {
        text: {"prefix": name, "body": insert.removesuffix("\n").split("\n"), "description": text}
        for name, (text, insert) in {**STATEMENT_SNIPPETS, **TOP_SNIPPETS}.items()
    }


def _words(words: Any) -> str:
    return r"\b(?:" + "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word))) + r")\b"


def _match(pattern: str, name: str) -> dict[str, Any]:
    return {"match": pattern, "name": name}


def _captures(pattern: str, *names: str) -> dict[str, Any]:
    return {"match": pattern, "captures": {str(number): {"name": name} for number, name in enumerate(names, 1) if name}}


def _include(*names: str) -> list[dict[str, Any]]:
    return [{"include": f"#{name}"} for name in names]


def grammar() -> dict[str, Any]:
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Vega",
        "scopeName": "source.vega",
        "fileTypes": ["vega"],
        "firstLineMatch": r"^#!.*\bvega\b",
        "patterns": [_match(r"\A#!.*$", "comment.line.shebang.vega"), *_include("declarations", "code")],
        "repository": {
            "code": {
                "patterns": _include(
                    *("comments", "strings", "numbers", "declarations", "phrases", "keywords", "paths", "types"),
                    *("calls", "operators", "punctuation", "braces"),
                )
            },
            "comments": {"patterns": _comments()},
            "strings": {"patterns": [_string('"""'), _string('"')]},
            "escapes": {"patterns": _escapes()},
            "interpolation": _interpolation(),
            "numbers": {"patterns": _numbers()},
            "declarations": {"patterns": _declarations()},
            "settings": {"patterns": _settings()},
            "phrases": {"patterns": _phrases()},
            "keywords": {"patterns": [_match(_words(words), scope) for scope, words in KEYWORD_SCOPES.items()]},
            "paths": {"patterns": _paths()},
            "types": {"patterns": [_captures(rf"(?:->|:(?!:))\s*({_words(TYPES)})", "support.type.vega")]},
            "calls": {
                "patterns": [
                    _match(rf"{_words(GLOBALS)}(?=\s*\()", "support.function.vega"),
                    _captures(rf"(\.)({_NAME})(?=\s*\()", "punctuation.accessor.vega", "entity.name.function.vega"),
                    _match(rf"\b{_NAME}(?=\s*\()", "entity.name.function.vega"),
                ]
            },
            "operators": {
                "patterns": [
                    _match(r"<-|<~", "keyword.operator.send.vega"),
                    _match(r"->|=>", "keyword.operator.arrow.vega"),
                    _match(r"==|!=|<=|>=|<|>", "keyword.operator.comparison.vega"),
                    _match(r"&&|\|\||!", "keyword.operator.logical.vega"),
                    _match(r"=", "keyword.operator.assignment.vega"),
                    _match(r"[-+*/%]", "keyword.operator.arithmetic.vega"),
                ]
            },
            "punctuation": {
                "patterns": [
                    _match(";", "punctuation.terminator.vega"),
                    _match(",", "punctuation.separator.vega"),
                ]
            },
            "braces": {"begin": r"\{", "end": r"\}", "patterns": _include("code")},
        },
    }


def _comments() -> list[dict[str, Any]]:
    return [
        _match(r"//.*$", "comment.line.double-slash.vega"),
        {"begin": r"/\*", "end": r"\*/", "name": "comment.block.vega"},
    ]


def _escapes() -> list[dict[str, Any]]:
    return [
        _match(
            r"""\\(?:u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[ntr0\\"'$])""",
            "constant.character.escape.vega",
        ),
        _match(r"\\.", "invalid.illegal.escape.vega"),
    ]


def _string(quote: str) -> dict[str, Any]:
    three = len(quote) == 3
    return {
        "begin": quote,
        "end": quote if three else r'"|(?<!\\)$',  # one that is not closed ends with its line
        "name": f"string.quoted.{'triple' if three else 'double'}.vega",
        "patterns": _include("escapes", "interpolation"),
    }


def _interpolation() -> dict[str, Any]:
    return {
        "begin": r"\$\{",
        "end": r"\}",
        "beginCaptures": {"0": {"name": "punctuation.section.embedded.begin.vega"}},
        "endCaptures": {"0": {"name": "punctuation.section.embedded.end.vega"}},
        "name": "meta.embedded.expression.vega",
        "patterns": _include("code"),
    }


def _numbers() -> list[dict[str, Any]]:
    units = "|".join(sorted(UNITS, key=lambda unit: (-len(unit), unit)))
    number = r"[0-9][0-9_]*(?:\.[0-9][0-9_]*)?"
    return [
        _match(r"\$[0-9][0-9_]*(?:\.[0-9]+)?", "constant.numeric.money.vega"),
        _match(rf"\b{number}(?:{units})\b", "constant.numeric.duration.vega"),
        _match(r"\b0[xX][0-9a-fA-F_]+\b", "constant.numeric.hex.vega"),
        _match(r"\b0[bB][01_]+\b", "constant.numeric.binary.vega"),
        _match(rf"\b{number}(?:[eE][+-]?[0-9]+)?\b", "constant.numeric.vega"),
    ]


def _declarations() -> list[dict[str, Any]]:
    head = {"1": {"name": "storage.type.vega"}, "2": {"name": "entity.name.type.class.vega"}}
    function = {"1": {"name": "storage.type.vega"}, "2": {"name": "entity.name.function.vega"}}
    return [
        {
            "begin": rf"\b(agent|supervisor)\s+({_NAME})\s*(?=\{{)",
            "beginCaptures": head,
            "end": r"(?<=\})",
            "name": "meta.agent.vega",
            "patterns": [
                {"begin": r"\{", "end": r"\}", "patterns": _include("comments", "settings", "code")},
            ],
        },
        {"match": rf"\b(fn|tool)\s+({_NAME})", "captures": function},
        _captures(rf"\b(let|const)\s+({_NAME})", "storage.type.vega", "variable.other.vega"),
        _captures(r"^\s*(test)\s+(?=\")", "storage.type.vega"),
        _captures(rf"^\s*(mock)\s+({_NAME})\s*(?=\{{)", "storage.type.vega", "entity.name.type.class.vega"),
    ]


def _settings() -> list[dict[str, Any]]:
    """The names of settings: at the beginning of a line, behind a brace, or behind another value on the same line."""
    inner = {name for block in BLOCKS.values() for name in block}
    names = _words({*AGENT_FIELDS, *inner, *SUPERVISION, *TOOL_SETTINGS})
    return [
        _captures(rf"\b(child)\s+({_NAME})\s*(=)", "storage.type.vega", "variable.other.vega", "keyword.operator.vega"),
        _match(rf"{names}(?=\s+[\w\"$\[{{-])", "support.type.property-name.vega"),
        {"begin": r"\{", "end": r"\}", "patterns": _include("comments", "settings", "code")},
    ]


def _phrases() -> list[dict[str, Any]]:
    """Words that mean something at their place alone."""
    control = "keyword.control.vega"
    return [
        _captures(rf"\b(for)\s+({_NAME})\s+(in)\b", control, "variable.other.vega", control),
        _captures(r"\b(spawn)\s+(async)\b(?=\s+\w)", control, control),
        _captures(r"\b(session)\s+(budget)\b", control, control),
        _captures(
            r"\b(import)\s+(node|python)\b(?=\s*\")", "keyword.control.import.vega", "keyword.control.import.vega"
        ),
        _captures(r"\b(import)\s+(tools)\s+(from)\s+(mcp)\b", *["keyword.control.import.vega"] * 4),
        _captures(rf"(?<=\")\s+(as)\s+({_NAME})", "keyword.control.import.vega", "entity.name.namespace.vega"),
        _captures(r"(?<=[\"\w)\]}])\s+(timeout|budget)(?=\s+[\d$])", control),
        _captures(r"\b(after)(?=\s+[\d\w]+\s*=>)", control),
        _captures(rf"\b(catch|throw)\s+({_NAME})", control, "entity.name.type.vega"),
        _captures(r"\b(on)(?=\s+\")", control),
        _captures(r"(?<=\")\s+(reply)\b", control),
        {
            "begin": r"\b(supervised)\s+(by)\s*(?=\{)",
            "beginCaptures": {"1": {"name": control}, "2": {"name": control}},
            "end": r"(?<=\})",
            "patterns": [{"begin": r"\{", "end": r"\}", "patterns": _include("comments", "settings", "code")}],
        },
    ]


def _paths() -> list[dict[str, Any]]:
    return [
        _captures(rf"({_words(LIBRARY)})(::)({_NAME})", "support.module.vega", "", "support.function.vega"),
        _captures(rf"\b({_NAME})(::)({_NAME})", "entity.name.namespace.vega", "", "entity.name.function.vega"),
    ]


def main(folder: str) -> None:
    for name, text in files().items():
        (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
