"""Rules as people write them: tools, patterns, examples."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError
from lyra.tools.permissions import Rule, subject_of
from lyra.tools.permissions.rules import read_rules
from lyra.tools.permissions.subjects import read_url

WORK, HOME = "/work", "/home/ann"


def matches(rule: str, tool: str, value: object = None, effect: str = "allow") -> bool:
    names = {"Bash": "command", "WebFetch": "url", "Glob": "path", "Grep": "path", "NotebookEdit": "notebook_path"}
    parsed = Rule(rule, effect, workspace=WORK, home=HOME)  # type: ignore[arg-type]
    arguments = {} if value is None else {names.get(tool, "file_path"): value}
    return parsed.matches(subject_of(tool, arguments, workspace=WORK, home=HOME))


@pytest.mark.parametrize(
    ("rule", "tool", "value", "expected"),
    [
        ("Read", "Read", "a", True),
        ("read", "Read", "a", True),
        ("READ(src/**)", "Read", "src/a/b.py", True),
        ("*", "Anything", None, True),
        ("*", "Bash", "rm x; rm y", True),
        ("Bash", "Bash", "rm x; rm y", True),
        ("Bash(*)", "Bash", "rm x; rm y", True),
        ("Bash", "Read", "a", False),
        ("Bash(git:*)", "Bash", "git status", True),
        ("Bash(git:*)", "Bash", "gitx", False),
        ("Read(src/**)", "Read", "src/a.py", True),
        ("Read(src/**)", "Read", "src", True),
        ("Read(src/**)", "Read", "/work/src/a.py", True),
        ("Read(src/**)", "Read", "srcs/a.py", False),
        ("Read(src/**)", "Read", "src/../b.py", False),
        ("Read(src/**)", "Read", "../work/src/b.py", True),
        ("Read(src/**)", "Read", "/etc/src/b.py", False),
        ("Read(src/*)", "Read", "src/a/b.py", False),
        ("Read(/etc/**)", "Read", "/etc/passwd", True),
        ("Read(/etc/**)", "Read", "etc/passwd", False),
        ("Read(~/.config/**)", "Read", "~/.config/x", True),
        ("Read(~/.config/**)", "Read", "/home/ann/.config/x", True),
        ("Read(docs/)", "Read", "docs/a/b.md", True),
        ("Read(*.py)", "Read", "a/b/c.py", True),
        ("Read(*.py)", "Read", "c.py", True),
        ("Read(*.py)", "Read", "c.pyc", False),
        ("Read(secrets)", "Read", "a/secrets/b", True),
        ("Read(src/**)", "Grep", "src/a", True),
        ("Read(src/**)", "Glob", "lib", False),
        ("Edit(src/**)", "Write", "src/a", True),
        ("Edit(src/**)", "MultiEdit", "src/a", True),
        ("Edit(src/**)", "NotebookEdit", "src/a.ipynb", True),
        ("Write(src/**)", "Edit", "src/a", False),
        ("Edit(src/**)", "Read", "src/a", False),
        ("mcp__github__*", "mcp__github__search", None, True),
        ("mcp__github__*", "mcp__gitlab__search", None, False),
        ("WebFetch(docs.python.org)", "WebFetch", "https://docs.python.org/3/", True),
        ("WebFetch(docs.python.org)", "WebFetch", "https://DOCS.Python.ORG./3/", True),
        ("WebFetch(docs.python.org)", "WebFetch", "https://docs.python.org:443/3/", True),
        ("WebFetch(docs.python.org)", "WebFetch", "https://docs.python.org:8443/3/", False),
        ("WebFetch(docs.python.org)", "WebFetch", "https://docs.python.org.evil.com/", False),
        ("WebFetch(docs.python.org)", "WebFetch", "https://docs.python.org@evil.com/", False),
        ("WebFetch(docs.python.org)", "WebFetch", "https://user:pass@docs.python.org/", True),
        ("WebFetch(docs.python.org)", "WebFetch", "https://evil.com\\@docs.python.org/", False),
        ("WebFetch(docs.python.org)", "WebFetch", "https://evil.com/docs.python.org", False),
        ("WebFetch(domain:python.org)", "WebFetch", "https://python.org/", True),
        ("WebFetch(*.python.org)", "WebFetch", "https://docs.python.org/", True),
        ("WebFetch(*.python.org)", "WebFetch", "https://a.docs.python.org/", False),
        ("WebFetch(**.python.org)", "WebFetch", "https://a.docs.python.org/", True),
        ("WebFetch(*.python.org)", "WebFetch", "https://evilpython.org/", False),
        ("WebFetch(https://x.org/api/*)", "WebFetch", "https://x.org/api/v1", True),
        ("WebFetch(https://x.org/api/*)", "WebFetch", "https://x.org/api/../admin", False),
        ("WebFetch(https://x.org/api/*)", "WebFetch", "https://x.org/api/%2e%2e/admin", False),
        ("WebFetch(https://x.org/api/*)", "WebFetch", "http://x.org/api/v1", False),
        ("WebFetch(https://x.org/)", "WebFetch", "https://x.org", True),
        ("WebFetch(x.org:8080)", "WebFetch", "http://x.org:8080/", True),
        ("WebFetch(x.org:443)", "WebFetch", "https://x.org/", True),
        ("WebFetch(x.org)", "WebFetch", "not a url", False),
        ("WebFetch(x.org)", "WebFetch", 7, False),
    ],
)
def test_what_a_rule_covers(rule: str, tool: str, value: object, *, expected: bool):
    """As an allow."""
    assert matches(rule, tool, value) is expected


@pytest.mark.parametrize(
    ("rule", "tool", "value"),
    [
        ("WebFetch(evil.com)", "WebFetch", "https://evil.com:8443/"),
        ("WebFetch(evil.com)", "WebFetch", "https://x\\@y/"),
        ("WebFetch(evil.com)", "WebFetch", None),
        ("Read(a)", "Read", None),
        ("Read(a)", "Read", "b\0c"),
        ("Bash(rm)", "Bash", "rm -rf x"),
        ("Bash(rm)", "Bash", "ls; rm"),
        ("Bash(git push)", "Bash", "ls && git push"),
    ],
)
def test_in_doubt_a_deny_matches(rule: str, tool: str, value: object):
    """What cannot be read for certain, other ports, and a program's name alone with any arguments."""
    assert matches(rule, tool, value, "deny")


@pytest.mark.parametrize(
    "rule", ["", "(", "Bash(", "Bash)", "Bash()", "Bash( )", "1x", "a b", "mcp__*(x)", "TodoWrite(x)"]
)
def test_what_is_no_rule_is_an_error_with_its_place(rule: str):
    """Never a rule that matches nothing in silence."""
    with pytest.raises(ConfigError) as caught:
        Rule(rule, "deny", source="user: permissions.toml:3")
    assert caught.value.place == "user: permissions.toml:3"


@pytest.mark.parametrize("value", [None, 3, ["x"], {}])
def test_other_values_are_no_rules(value: object):
    with pytest.raises(ConfigError):
        read_rules([value], "deny", source="here")
    with pytest.raises(ConfigError):
        read_rules(3 if value == ["x"] else value, "deny", source="here")


def test_rules_prove_themselves():
    """Examples that hold pass; one that does not is an error that names rule, example and place."""
    good = {"rule": "Bash(git push *)", "match": ["git push origin", "ls; git push"], "not_match": "git pull"}
    assert read_rules([good, "Read"], "deny", source="here")[0].text == "Bash(git push *)"
    for bad in ({**good, "match": ["git pull"]}, {**good, "not_match": ["ls && git push"]}):
        with pytest.raises(ConfigError, match="its own example") as caught:
            read_rules([bad], "deny", source="user: p.toml:7")
        assert caught.value.place == "user: p.toml:7"
    with pytest.raises(ConfigError, match="no setting"):
        read_rules([{**good, "matches": []}], "deny", source="here")
    with pytest.raises(ConfigError, match="list of examples"):
        read_rules([{**good, "match": 3}], "deny", source="here")


@pytest.mark.parametrize(
    "text",
    ["", "x", "http://", "http:///a", "http://a b/", "http://a\n/", "http://[::1", "http://a:99999/", "http://é/"],
)
def test_urls_that_two_readers_may_read_differently_are_none(text: str):
    assert read_url(text) is None
