"""Pipelines in files: three formats, one meaning, and the place of every mistake."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.checking.document import parse
from lyra.errors import CheckError, ConfigError, LyraError, ParseError
from lyra.kernel.pipelines.files import check_text, load_file
from tests.cases import cases

TOML = """
    name = "p"
    [[agents]]
    name = "a"
    default_next = "b"
    [[agents.routing_rules]]
    condition = "ok"
    value = true
    target = "end"
    [[agents]]
    name = "b"
    [agents.retry_policy]
    max_retries = 2
"""
YAML = """
    name: p
    agents:
      - name: a
        default_next: b
        routing_rules:
          - {condition: ok, value: true, target: end}
      - name: b
        retry_policy:
          max_retries: 2
"""

RULES = """name = "p"
[[agents]]
name = "a"
[[agents.routing_rules]]
target = "a"
[[agents.routing_rules]]
target = "z"
"""


def write(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(textwrap.dedent(text).lstrip())
    return file


def places(text, name):
    problems = check_text(textwrap.dedent(text).lstrip(), file=name)
    return [(problem.line, problem.column, problem.message) for problem in problems]


def test_the_three_formats_say_the_same(tmp_path):
    """TOML, YAML and JSON give one PipelineConfig."""
    config = load_file(write(tmp_path, "p.toml", TOML))
    assert load_file(write(tmp_path, "p.yaml", YAML)) == config
    assert load_file(write(tmp_path, "p.json", json.dumps(config.to_data(), indent=1))) == config
    assert config.agents[1].retry_policy.max_retries == 2


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("p.toml", 'name = "p"\nmax_iterations = 0\n[[agents]]\nname = "a"\n', (2, 1, "max_iterations")),
        ("p.toml", 'name = "p"\n[[agents]]\nname = "a"\n[[agents]]\n  name = "a"\n', (5, 3, "already")),
        ("p.toml", 'name = "p"\n[[agents]]\nname = "a"\nrequires = ["a"]\n', (4, 13, "itself")),
        ("p.toml", 'name = "p"\nagents = [{name = "a"}, {name = "b", default_next = "x"}]\n', (2, 38, "no stage 'x'")),
        (
            "p.toml",
            RULES,
            (7, 1, "no stage 'z'"),
        ),
        ("p.toml", 'name = "p"\n[[agents]]\nname = "a"\n[agents.retry_policy]\nmax = 1\n', (5, 1, "no setting 'max'")),
        ("p.toml", 'name = "p"\n[[agents]]\nagent = "a"\n', (2, 1, "needs a name")),
        ("p.yaml", "name: p\nagents:\n  - name: a\n    error_next: q\n", (4, 5, "no stage 'q'")),
        ("p.yaml", "name: p\nagents:\n  - name: a\n  - after: [b]\n", (4, 5, "needs a name")),
        ("p.json", '{"name": "p",\n "agents": [{"name": "a",\n  "default_next": "q"}]}', (3, 3, "no stage 'q'")),
    ],
)
def test_every_mistake_has_its_place(name, text, expected):
    """The line and the column of the key, or of the stage that lacks one."""
    line, column, words = expected
    assert any((line, column) == place[:2] and words in place[2] for place in places(text, name)), places(text, name)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("p.toml", 'name = "p\n', (1, 10)),
        ("p.toml", 'name = "p"\nname = "q"\n', (2, 11)),
        ("p.yaml", "name: p\nname: q\n", (2, 1)),
        ("p.yaml", "name: [p\n", (2, 1)),
        ("p.yaml", "name: &x p\nother: *x\n", (2, 8)),
        ("p.yaml", "name: !!python/name:os.system x\n", (1, 7)),
        ("p.json", '{"name": "p",\n "name": "q"}', (2, 2)),
        ("p.json", '{"name": }', (1, 10)),
    ],
)
def test_text_that_is_not_its_format(name, text, expected):
    """A ParseError where the text breaks; keys written twice, aliases and tags are refused."""
    (problem,) = check_text(text, file=name)
    assert (problem.line, problem.column, problem.code) == (*expected, "parse"), problem


def test_yaml_words_stay_words():
    """No surprise of YAML 1.1: yes, no, on, off and times are texts."""
    text = "a: yes\nb: on\nc: 12:30\nd: 012\ne: 1.5\nf: 'true'\ng: true\nh: ~\nno: x\ni: 2001-01-01\n"
    data, _ = parse(text, "yaml", "p.yaml")
    assert data == {
        "a": "yes",
        "b": "on",
        "c": "12:30",
        "d": 12,
        "e": 1.5,
        "f": "true",
        "g": True,
        "h": None,
        "no": "x",
        "i": "2001-01-01",
    }


def test_load_raises_the_first_and_names_the_others(tmp_path):
    """A CheckError with its place; the rest under `also`."""
    file = write(tmp_path, "p.yaml", "name: p\nagents:\n  - name: a\n    default_next: x\n    error_next: y\n")
    with pytest.raises(CheckError) as caught:
        load_file(file)
    assert caught.value.place == f"{file}:4:5"
    assert caught.value.also == [f"{file}:5:5: there is no stage 'y'"]


def test_files_that_cannot_be_read(tmp_path):
    """Missing, of another kind, not UTF-8 or too large: one sentence each."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_file(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match="no pipeline file"):
        load_file(tmp_path / "p.txt")
    (tmp_path / "b.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ParseError, match="UTF-8"):
        load_file(tmp_path / "b.toml")
    (tmp_path / "l.toml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="more than"):
        load_file(tmp_path / "l.toml")


@pytest.mark.parametrize("name", ["p.toml", "p.yaml", "p.json"])
def test_depth_is_bounded(name):
    """Brackets without end are a mistake, not a crash."""
    start = {"p.toml": "a = ", "p.yaml": "a: ", "p.json": '{"a": '}[name]
    for many in (100, 100_000):
        (problem,) = check_text(start + "[" * many + "]" * many + ("}" if name == "p.json" else ""), file=name)
        assert problem.code == "parse"


@settings(max_examples=cases(150), deadline=None)
@given(st.sampled_from(["p.toml", "p.yaml", "p.json"]), st.text("abn:=-[]{},\"' \n#&*!.~1\\", max_size=60))
def test_any_text_gives_mistakes_and_nothing_else(name, text):
    """Only LyraError, and every place is inside the text."""
    try:
        problems = check_text(text, file=name)
    except LyraError:
        return
    assert all(1 <= problem.line <= text.count("\n") + 2 for problem in problems)
