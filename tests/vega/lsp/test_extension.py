"""The extension for VS Code: what is generated is fresh, the grammar agrees with the lexer, and it can be packaged."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lyra
from codegen.vega_extension import KEYWORD_SCOPES, files, grammar
from lyra.vega.syntax.lexer import KEYWORDS, Tokens, lex
from lyra.vega.syntax.source import Source
from tests.mcp.node import MODULES

HERE = Path(__file__).parent
EXTENSION = HERE.parents[2] / "editors" / "vscode"
EVERYTHING = (HERE.parent / "everything.vega").read_text()


def node(*args: str | Path, text: str = "", folder: Path | None = None) -> str:
    if shutil.which("node") is None:
        pytest.skip("no node")
    done = subprocess.run(
        ["node", *map(str, args)], input=text, capture_output=True, text=True, check=False, timeout=60, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(*packages: str) -> None:
    for package in packages:
        if not (MODULES / package).is_dir():
            pytest.skip(f"{package} is not installed: .ci/node")


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", files())
def test_generated_files_are_fresh(name):
    """`python -m codegen.vega_extension editors/vscode` would change nothing."""
    assert (EXTENSION / name).read_text() == files()[name]


def test_every_keyword_has_a_colour():
    assert sorted(word for words in KEYWORD_SCOPES.values() for word in words) == sorted(KEYWORDS)


def test_the_manifest_names_files_that_are_there():
    manifest = json.loads((EXTENSION / "package.json").read_text())
    contributes = manifest["contributes"]
    named = [manifest["main"], contributes["snippets"][0]["path"], contributes["yamlValidation"][0]["url"]]
    named += [language["configuration"] for language in contributes["languages"]]
    named += [grammar["path"] for grammar in contributes["grammars"]]
    for path in named:
        assert (EXTENSION / path).is_file(), path
    assert contributes["grammars"][0]["scopeName"] == grammar()["scopeName"]
    assert [language["extensions"] for language in contributes["languages"]] == [[".vega"], [".vsp"]]
    for language in contributes["languages"]:
        json.loads((EXTENSION / language["configuration"]).read_text())
        settings = contributes["configuration"]["properties"][f"{language['id']}.command"]
        assert settings["default"] == language["id"]


def test_a_folder_that_is_not_trusted_starts_no_command_of_its_choice():
    manifest = json.loads((EXTENSION / "package.json").read_text())
    limits = manifest["capabilities"]["untrustedWorkspaces"]
    assert limits["supported"] == "limited"
    assert limits["restrictedConfigurations"] == ["vega.command", "vesper.command"]


def test_every_part_the_grammar_includes_is_in_it():
    text = json.dumps(grammar())
    included = set(re.findall(r'"include": "#(\w+)"', text))
    assert included == set(grammar()["repository"])


# ---------------------------------------------------------------- the grammar, by VS Code's engine


@functools.cache
def all_scopes() -> dict[str, dict[tuple[int, int], list[str]]]:
    """Of each text: line and column → the scopes there. One run of node for all of them."""
    installed("vscode-textmate", "vscode-oniguruma")
    texts = [EVERYTHING, *dict.fromkeys(text for text, _, _ in PLACES)]
    out = node(HERE / "tokenize.mjs", MODULES, EXTENSION / "syntaxes" / "vega.tmLanguage.json", text=json.dumps(texts))
    return {
        text: {(line, column): names for line, start, end, names in scopes for column in range(start, end)}
        for text, scopes in zip(texts, json.loads(out), strict=True)
    }


def test_the_grammar_agrees_with_the_lexer():
    """Keywords, numbers, strings and comments of a program with everything in it have their colours, and no others."""
    scopes = all_scopes()[EVERYTHING]
    lexed = lex(Source("", EVERYTHING))
    by_word = {word: scope for scope, words in KEYWORD_SCOPES.items() for word in words}

    def scopes_at(offset: int) -> str:
        line = EVERYTHING.count("\n", 0, offset)
        return " ".join(scopes.get((line, offset - (EVERYTHING.rfind("\n", 0, offset) + 1)), []))

    def check(tokens: Tokens) -> None:
        for kind, value, start, _ in zip(tokens.kinds, tokens.values, tokens.starts, tokens.ends, strict=True):
            told = scopes_at(start)
            shown = EVERYTHING[start : start + 30]
            if kind in by_word:
                assert by_word[kind] in told, (shown, told)
            elif kind in ("int", "float", "money", "duration"):
                assert "constant.numeric" in told, (shown, told)
            elif kind in ("string", "template"):
                assert "string.quoted" in told, (shown, told)
            elif kind == "name":
                assert "comment" not in told, (shown, told)
                assert "keyword.control" not in told or value in SOFT, (shown, told)
            if kind == "template":
                for part in value:
                    if isinstance(part, Tokens):
                        check(part)

    check(lexed.tokens)
    for offset, _ in lexed.comments:
        assert "comment" in scopes_at(offset)


SOFT = frozenset(
    {"in", "async", "budget", "node", "python", "tools", "from", "mcp", "as", "timeout", "after", "on", "reply"}
    | {"supervised", "by"}
)


PLACES = [
    ('print("a ${str::len("b")} c");', "str", "support.module.vega"),
    ('print("a ${str::len("b")} c");', " c", "string.quoted.double.vega"),
    ('print("a ${ {"k": 1}["k"] } c");', " c", "string.quoted.double.vega"),
    ('print("\\n");', "\\n", "constant.character.escape.vega"),
    ('print("\\q");', "\\q", "invalid.illegal.escape.vega"),
    ('let a = "open\nlet b = 1;', "let b", "storage.type.vega"),
    ('let a = """two\nlines""";', "lines", "string.quoted.triple.vega"),
    ("let budget = $0.50;", "$0.50", "constant.numeric.money.vega"),
    ("let wait = 100ms;", "100ms", "constant.numeric.duration.vega"),
    ("agent Coder {\n    model x\n}", "Coder", "entity.name.type.class.vega"),
    ("agent Coder {\n    model x\n}", "model", "support.type.property-name.vega"),
    ("agent A { retry { max_attempts 3 } }\nlet b = 1;", "max_attempts", "support.type.property-name.vega"),
    ("agent A { retry { max_attempts 3 } }\nlet b = 1;", "let", "storage.type.vega"),
    ("let model = 1;", "model", "variable.other.vega"),
    ("fn ask(what: str) -> int { }", "ask", "entity.name.function.vega"),
    ("fn ask(what: str) -> int { }", "int", "support.type.vega"),
    ("c <- text timeout 5s;", "<-", "keyword.operator.send.vega"),
    ("c <- text timeout 5s;", "timeout", "keyword.control.vega"),
    ("// let", "let", "comment.line.double-slash.vega"),
    ("/* let\nlet */ let x;", "let x", "storage.type.vega"),
]


@pytest.mark.parametrize(("text", "part", "scope"), PLACES)
def test_places_have_their_colours(text, part, scope):
    offset = text.index(part)
    line, column = text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)
    assert scope in all_scopes()[text][line, column]


# ---------------------------------------------------------------- the program


def test_it_starts_the_commands_that_are_set():
    """One for each language; that of Vega again when its setting changes; at the end they are stopped."""
    log = json.loads(node(HERE / "activate.cjs", EXTENSION / "extension.js", "/opt/bin/it"))
    started = [entry for entry in log if entry[0] == "client"]
    assert [entry[1] for entry in started] == ["vega", "vesper", "vega"]
    assert [entry[2] for entry in started] == [{"command": "/opt/bin/it", "args": ["lsp"]}] * 3
    each, again = ["client", "start"], ["stop", "client", "start"]
    assert [entry[0] for entry in log] == ["command", "command", *each, *each, *again, "stop", "stop"]
    usual = json.loads(node(HERE / "activate.cjs", EXTENSION / "extension.js", ""))
    assert [entry[2]["command"] for entry in usual if entry[0] == "client"] == ["vega", "vesper", "vega"]
    selected = [entry[3] for entry in usual if entry[0] == "client"][:2]
    assert [[document["language"] for document in documents] for documents in selected] == [
        ["vega"] * 2,
        ["vesper"] * 2,
    ]


def test_a_server_that_is_not_there_is_said_with_a_hint():
    log = json.loads(node(HERE / "activate.cjs", EXTENSION / "extension.js", "vega", "fails"))
    errors = [text for kind, *rest in log if kind == "error" for text in rest]
    assert "pip install 'lyra-agents[lsp]'" in errors[0]


def test_the_library_of_vs_code_understands_the_server(tmp_path, monkeypatch):
    """A whole session by `vscode-languageserver-protocol`: what it sends and reads is what VS Code does."""
    installed("vscode-languageserver-protocol")
    assert lyra.__file__ is not None
    monkeypatch.setenv("PYTHONPATH", str(Path(lyra.__file__).parent.parent))
    heard = json.loads(node(HERE / "session.cjs", MODULES, tmp_path, sys.executable))
    assert heard["initialize"]["capabilities"]["renameProvider"] == {"prepareProvider": True}
    (told,) = heard["diagnostics"]["diagnostics"]
    assert told["message"].startswith("unknown name `prnt`")
    assert "price: free" in heard["hover"]["contents"]["value"]
    assert heard["definition"]["range"]["start"] == {"line": 0, "character": 6}
    assert len(heard["rename"]["changes"][f"file://{tmp_path}/main.vega"]) == 2
    assert len(heard["tokens"]["data"]) % 5 == 0
    assert heard["code"] == 0


# ---------------------------------------------------------------- the package


def copied(folder: Path) -> Path:
    target = folder / "vscode"
    shutil.copytree(EXTENSION, target, ignore=shutil.ignore_patterns("node_modules", "*.vsix", "package-lock.json"))
    return target


def test_npm_packs_it(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    done = subprocess.run(
        ["npm", "pack", "--dry-run", "--json", "--offline"],
        cwd=copied(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (package,) = told if isinstance(told, list) else told.values()
    names = {file["path"] for file in package["files"]}
    assert {"extension.js", "package.json", "README.md", "syntaxes/vega.tmLanguage.json", "snippets/vega.json"} <= names
    assert {"syntaxes/vesper.tmLanguage.json", "schemas/vsp.schema.json", "vesper-configuration.json"} <= names


@pytest.mark.slow
def test_it_becomes_a_vsix_with_all_it_needs(tmp_path):
    """`vsce package`: the file holds the extension and the client library."""
    installed("@vscode/vsce", "vscode-languageclient")
    folder = copied(tmp_path)
    todo, done = ["vscode-languageclient"], set()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        shutil.copytree(MODULES / name, folder / "node_modules" / name, symlinks=True)
        todo += json.loads((MODULES / name / "package.json").read_text()).get("dependencies", {})
    vsce = MODULES / "@vscode" / "vsce" / "vsce"
    node(vsce, "package", "--allow-missing-repository", "--out", "vega.vsix", folder=folder)
    with zipfile.ZipFile(folder / "vega.vsix") as archive:
        names = set(archive.namelist())
    assert "extension/extension.js" in names
    assert "extension/syntaxes/vega.tmLanguage.json" in names
    assert "extension/node_modules/vscode-languageclient/lib/node/main.js" in names
    assert "extension/.gitignore" not in names
