"""The grammar of the reference is that of the parser: whatever it makes, the parser takes."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lyra.vega.syntax.lexer import KEYWORDS, SIGNS
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Diagnostic, Source
from tests.cases import cases

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "vega.md"
TEXT = re.findall(r"^```text\n(module .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
WORDS = {
    "name": ("alpha", "beta", "Gamma"),
    "word": ("alpha", "beta", "match", "model"),
    "string": ('"text"', '"a ${alpha} b"', '""'),
    "text": ('"text"', '"more"'),
    "number": ("1", "2.5", "$0.50", "30s", "0xff", "1_000"),
}
DEPTH_MAX = 12
TOKENS_MAX = 250


class Rules:
    """The productions as trees: ("or", …), ("seq", …), ("many", x), ("maybe", x), ("text", "if"), ("rule", "block")."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Any] = {}
        for production in re.split(r";\n", text):
            if production.strip():
                name, _, body = production.strip().partition("=")
                self._tokens = re.findall(r'"[^"]*"|[\w]+|[{}\[\]()|]', body)
                self._at = 0
                self.rules[name.strip()] = self._either()
                assert self._at == len(self._tokens), production

    def _either(self) -> Any:
        choices = [self._sequence()]
        while self._at < len(self._tokens) and self._tokens[self._at] == "|":
            self._at += 1
            choices.append(self._sequence())
        return ("or", choices)

    def _sequence(self) -> Any:
        parts = []
        while self._at < len(self._tokens) and self._tokens[self._at] not in ("|", "}", "]", ")"):
            token = self._tokens[self._at]
            self._at += 1
            if token in ("{", "[", "("):
                inside = self._either()
                self._at += 1
                parts.append(({"{": "many", "[": "maybe", "(": "or"}[token], [inside]))
            elif token[0] == '"':
                parts.append(("text", token[1:-1]))
            else:
                parts.append(("rule", token))
        return ("seq", parts)


RULES = Rules(TEXT).rules


class TooLong(Exception):
    pass


class Sentence:
    """What one production makes, by chance."""

    def __init__(self, seed: int, rule: str, depth: int = 0) -> None:
        self.chance = Random(seed)
        self.tokens: list[str] = []
        self.used: set[str] = set()
        self.is_good = True
        try:
            self.rule(rule, depth)
        except TooLong:
            self.is_good = False

    def rule(self, name: str, depth: int) -> None:
        self.used.add(name)
        if len(self.tokens) > TOKENS_MAX:
            raise TooLong
        if name in WORDS:
            self.tokens.append(self.chance.choice(WORDS[name]))
        elif depth > DEPTH_MAX and name in ("expression", "or", "primary", "simple", "prefix"):
            self.tokens.append("alpha")
        elif depth > DEPTH_MAX and name in ("statement", "declaration"):
            self.tokens.append(";")
        elif name == "map":  # of the form that is one everywhere
            self.tokens += ["{", '"key"', ":"]
            self.rule("expression", depth + 1)
            self.tokens.append("}")
        else:
            self.write(RULES[name], depth + 1)

    def write(self, node: Any, depth: int) -> None:
        kind, inside = node
        if kind == "text":
            self.tokens.append(inside)
        elif kind == "rule":
            self.rule(inside, depth)
        elif kind == "seq":
            for part in inside:
                self.write(part, depth)
        elif kind == "or":
            self.write(self.chance.choice(inside), depth)
        else:
            most = 1 if kind == "maybe" or depth > DEPTH_MAX // 2 else 3
            for _ in range(self.chance.randint(0, most)):
                for part in inside:
                    self.write(part, depth)


def is_in_doubt(tokens: list[str]) -> bool:
    """What the page says in words: a statement that begins with `{` is a block, one with `match` ends with its `}`; and
    limits that stand behind two sends."""
    text = " ".join(tokens)
    behind = r"(?:^|[;{}] |=> |\)|; )"
    return bool(
        re.search(r'(?:^|[;{}] ){ "key"', text)
        or len(re.findall(r"timeout|budget", text)) > 1
        or re.search(behind + r"(?:match|receive) ", text)
    )


def mistakes(text: str) -> list[Diagnostic]:
    """Names given twice are no matter of grammar."""
    return [problem for problem in parse_all(Source("grammar", text)).problems if "twice" not in problem.message]


def test_every_production_is_reached_and_taken():
    """Thousands of sentences; each production occurs in one that was tried."""
    used: set[str] = set()
    tried = 0
    for seed in range(max(1_200, cases(3_000))):  # fewer do not reach every production
        sentence = Sentence(seed, "module")
        if not sentence.is_good or is_in_doubt(sentence.tokens):
            continue
        text = " ".join(sentence.tokens)
        problems = mistakes(text)
        assert not problems, f"seed {seed}: {problems[0].render()}\n{text}"
        used |= sentence.used
        tried += 1
    assert tried > cases(500)
    assert set(RULES) - used <= {"match", "receive", "arm", "pattern"}


@pytest.mark.parametrize("rule", ["match", "receive"])
def test_match_and_receive_where_they_are_values(rule):
    """They are left out above because a statement ends with them."""
    for seed in range(cases(500)):
        sentence = Sentence(seed, rule, 4)
        inside = " ".join(sentence.tokens)
        if not sentence.is_good or is_in_doubt(sentence.tokens[1:]):
            continue
        problems = mistakes(f"let x = {inside} ;")
        assert not problems, f"seed {seed}: {problems[0].render()}\n{inside}"


def test_every_sign_and_keyword_is_in_it():
    """And no production is named that is not there."""
    texts = set(re.findall(r'"([^"]+)"', TEXT))
    assert set(SIGNS) | set(KEYWORDS) <= texts
    named = set(re.findall(r"[a-z]+", re.sub(r'"[^"]*"', "", TEXT)))
    assert named <= set(RULES) | set(WORDS)
