"""Pieces of program that editors offer to write; `${1:…}` is where the cursor goes first, `$0` where it ends.

The extension for VS Code has the same ones, written from these tables.
"""

from __future__ import annotations

from typing import Final

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
    "tool": (
        "a tool",
        "tool ${1:name}(${2:path}: str) -> str capabilities [${3:fs::read}] {\n    $0\n}\n",
    ),
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
