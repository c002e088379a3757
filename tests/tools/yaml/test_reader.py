"""Files of tools: every mistake with its line, every key with a meaning, parameters checked as they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ToolError
from lyra.tools.yaml import read_tools
from tests.tools.yaml.support import called, environment, mistakes_of, tool_of

OLDER = """
    name: weather
    description: The weather of a city.
    params:
      - name: city
        type: string
        description: Its name.
        required: true
      - name: units
        type: string
        default: metric
        enum: [metric, imperial]
    implementation:
      type: http
      method: GET
      url: https://api.example.com/weather/{{.city}}
      headers:
        X-Key: env:WEATHER_KEY
      query:
        units: "{{.units}}"
      timeout: 30s
"""


def test_the_form_that_others_write_loads(tmp_path: Path):
    tool = tool_of(OLDER, environment(tmp_path))
    assert (tool.name, tool.description, tool.timeout_s) == ("weather", "The weather of a city.", 30.0)
    assert tool.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name.", "maxLength": 100_000},
            "units": {"type": "string", "maxLength": 100_000, "enum": ["metric", "imperial"], "default": "metric"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert (tool.guarded, tool.untrusted, tool.idempotent, tool.concurrency, tool.deferred) == (
        True,
        True,
        True,
        "parallel",
        False,
    )


def test_the_keys_of_a_tool_mean_something(tmp_path: Path):
    text = """
        name: a
        description: b
        idempotent: false
        concurrency: 2
        deferred: true
        implementation: {type: http, url: "http://example.org/", timeout: 1.5}
    """
    tool = tool_of(text, environment(tmp_path))
    assert (tool.idempotent, tool.concurrency, tool.deferred, tool.timeout_s) == (False, 2, True, 1.5)


def test_a_file_may_have_several_tools_and_other_forms(tmp_path: Path):
    declaration = "{name: %s, description: x, implementation: {type: file_read, path: a}}"
    for text in (
        f"tools:\n  - {declaration % 'a'}\n  - {declaration % 'b'}\n",
        f"- {declaration % 'a'}\n- {declaration % 'b'}\n",
    ):
        tools, mistakes = read_tools(text.encode(), "a.yaml", environment(tmp_path))
        assert ([tool.name for tool in tools], mistakes) == (["a", "b"], [])
    toml = b'name = "a"\ndescription = "x"\n[implementation]\ntype = "file_read"\npath = "a"\n'
    assert [tool.name for tool in read_tools(toml, "a.toml", environment(tmp_path))[0]] == ["a"]
    twice = f"- {declaration % 'a'}\n- {declaration % 'a'}\n".encode()
    assert "two tools 'a'" in str(read_tools(twice, "a.yaml", environment(tmp_path))[1][0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nnmae: b\n", "a.yaml:2: a tool has no key 'nmae' (did you mean 'name'?)"),
        ("name: a\ndescription: x\n", "a.yaml:1: a tool has an implementation"),
        ("name: 1a\ndescription: x\nimplementation: {}\n", "a.yaml:1: '1a' is not a tool's name"),
        ("name: a\ndescription: x\nimplementation: {type: htpt}\n", "did you mean 'http'?"),
        (
            "name: a\ndescription: x\nimplementation:\n  type: http\n  ulr: x\n",
            "a.yaml:5: an implementation of",
        ),
        ("name: a\ndescription: x\nimplementation: {type: file_read, path: a, timeout: 1h}\n", "timeout"),
        ("name: a\ndescription: x\nimplementation: {type: file_read, path: a, timeout: 9999}\n", "timeout"),
        ("name: a\ndescription: x\nconcurrency: many\nimplementation: {type: file_read}\n", "a.yaml:3: concurrency"),
        ("name: a\ndescription: x\nneeds: [fs.raed]\nimplementation: {type: file_read}\n", "a.yaml:3:"),
        ("name: a\ndescription: x\nneeds: ['*']\nimplementation: {type: file_read, path: a}\n", "uses fs.read, not *"),
        (
            "name: a\ndescription: x\ndeferred: yes\nimplementation: {type: file_read}\n",
            "a.yaml:3: deferred is true",
        ),
        ("name: a\nname: b\n", "a.yaml:2: key 'name' is written twice"),
        ("name: &x a\ndescription: *x\n", "a.yaml:2: aliases are not read"),
        ("name: !!python/object/apply:os.system [id]\n", "a.yaml:1: tag"),
        ("name: [a\n", "a.yaml:2: not YAML"),
        ("[" * 200, "nested too deeply"),
        ("", "a tool is a mapping"),
        ("tools: {}\n", "tools is a list"),
        ("a" * (1 << 21), "more than"),
    ],
)
def test_a_mistake_is_said_with_its_line(tmp_path: Path, text: str, message: str):
    tools, mistakes = read_tools(text.encode(), "a.yaml", environment(tmp_path))
    assert not tools
    assert any(message in str(mistake) for mistake in mistakes), [str(mistake) for mistake in mistakes]


def test_bytes_that_are_no_text_are_a_mistake(tmp_path: Path):
    assert "not UTF-8" in str(read_tools(b"name: a\n\xff", "a.yaml", environment(tmp_path))[1][0])
    assert "is no tool file" in str(read_tools(b"x", "a.txt", environment(tmp_path))[1][0])


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path):
    text = """
        tools:
          - {name: a, description: x, implementation: {type: nothing}}
          - {name: b, implementation: {type: file_read, path: a}}
          - {name: c, description: x, extra: 1, implementation: {type: file_read, path: a}}
    """
    assert [mistake.line for mistake in mistakes_of(text, tmp_path)] == [3, 4, 5]


def test_a_mistake_hides_no_other(tmp_path: Path):
    """Of parameters, of what refers to them, of the rest of the tool; each is said once, and on its line."""
    text = """
        tools:
          - name: a
            description: x
            params:
              - {name: x, tpye: string, enum: [a, a], default: 1}
              - {name: 1y, type: strnig, required: maybe}
              - {name: z, min: 1, default: 3, required: true}
            needs: [fs.raed]
            concurrency: many
            implementation:
              type: exec
              timeout: 1h
              command: [echo, "a {{x}} b", "{{", "{{gone}}"]
              stdin: "a{{x}}"
          - {name: a, description: x, params: [{name: x}], implementation: {type: exec, command: ["{{u}}/{{v}}"]}}
          - name: c
            description: x
            params: [{name: x, type: array}, {name: y, required: false}]
            implementation: {type: file_read, path: "../{{x}}/{{y}}"}
    """
    places = [(mistake.line, mistake.message.partition(",")[0]) for mistake in mistakes_of(text, tmp_path)]
    assert places == [
        (6, "a parameter has no key 'tpye'"),
        (6, "'a' is in the enum twice"),
        (7, "a parameter's name has letters"),
        (7, "a parameter's type is one of string"),
        (7, "required is true or false"),
        (8, "'min' is for integer and number"),
        (8, "z is required"),
        (9, "there is no capability 'fs.raed'"),
        (10, "concurrency is parallel"),
        (13, "a timeout is seconds"),
        (14, "'a {{x}} b' puts a value into the middle of a text that a program reads"),
        (14, "a word of the command: a template is {{name}}: the name of a parameter in two braces"),
        (15, "stdin is one value and nothing else: '{{text}}'"),
        (16, "there are two tools 'a'"),
        (16, "a word of the command names the parameter 'u'"),
        (16, "a word of the command names the parameter 'v'"),
        (20, "x is a part of the path: make it a string"),
        (20, "y is a part of the path: make it a string"),
        (20, "a path has no '..' in it"),
    ]


@pytest.mark.parametrize(
    "implementation",
    [
        "{type: file_read, path: 'notes/{{x}}'}",
        "{type: file_write, path: '{{x}}', content: '{{x}}'}",
        "{type: exec, command: [ls, '{{x}}'], stdin: '{{x}}'}",
        "{type: exec, command: [sed, '{{x}}', f]}",
        "{type: http, url: 'https://{{x}}.example.com/{{x}}?a={{x}}', query: {b: '{{x}}'}, headers: {c: '{{x}}'}}",
        "{type: http, method: POST, url: 'https://example.com/', body: {d: '{{x}}'}}",
    ],
)
@pytest.mark.parametrize(
    "params",
    ["[{name: x, tpye: string}]", "[{nmae: x}]", "[{name: x, type: strnig}]", "[{name: x, enum: 1}]", "x", "[x]"],
)
def test_a_parameter_with_a_mistake_makes_no_second_one(tmp_path: Path, params: str, implementation: str):
    """Whatever refers to it could be right."""
    text = f"""
        name: a
        description: b
        params: {params}
        implementation: {implementation}
    """
    assert {mistake.line for mistake in mistakes_of(text, tmp_path)} == {4}


# ---------------------------------------------------------------- parameters


def reader(tmp_path: Path, params: str) -> Any:
    text = f"""
        name: a
        description: b
        params: {params}
        implementation: {{type: file_read, path: a}}
    """
    return tool_of(text, environment(tmp_path)).run._params.read


@pytest.mark.parametrize(
    ("param", "good", "bad"),
    [
        ("{name: x, type: string, max_length: 3}", ["abc", ""], ["abcd", 3, None, ["a"], "\ud800"]),
        ("{name: x, type: integer, min: 0, max: 5}", [0, 5, 3.0, "4"], [-1, 6, 2.5, "x", True, "1e1", "٣"]),
        ("{name: x, type: number, max: 2}", [1, 1.5, "1.5"], [2.1, "a", True, float("nan"), float("inf")]),
        ("{name: x, type: boolean}", [True, "false"], ["yes", 1, "True"]),
        ("{name: x, type: array, items: {type: integer}, max_length: 2}", [[], [1, 2]], [[1, 2, 3], ["a"], {}]),
        ("{name: x, type: object, properties: {a: {type: string}}}", [{}, {"a": "b"}], [{"a": 1}, {"b": 1}, []]),
        ("{name: x, type: object}", [{"any": [1]}], ["a"]),
        ("{name: x, type: string, enum: [a, b]}", ["a"], ["c", "A"]),
        ("{name: x, type: integer, enum: [1, 2]}", [1, "2"], [3, True]),
        (r"{name: x, type: string, pattern: '[a-z]+\d?'}", ["abc", "a1"], ["1", "a11", "a\n", ""]),
        ("{name: x, type: string, pattern: '(a+)+b'}", ["aab"], ["a" * 2000, "a" * 2001]),
    ],
)
def test_values_are_checked(tmp_path: Path, param: str, good: list[Any], bad: list[Any]):
    read = reader(tmp_path, f"[{param}]")
    for value in good:
        assert list(read({"x": value})) == ["x"]
    for value in bad:
        with pytest.raises(ToolError) as caught:
            read({"x": value})
        assert caught.value.fields["reason"] == "invalid_arguments"


def test_defaults_are_used_and_the_unknown_is_refused(tmp_path: Path):
    read = reader(
        tmp_path, "[{name: a}, {name: b, type: integer, default: 3}, {name: c, type: string, required: false}]"
    )
    assert read({"a": "x"}) == {"a": "x", "b": 3, "c": None}
    assert read({"a": "x", "b": None}) == {"a": "x", "b": 3, "c": None}
    with pytest.raises(ToolError, match="'a' is missing"):
        read({"b": 1})
    with pytest.raises(ToolError, match="no parameter 'd'"):
        read({"a": "x", "d": 1})


def test_a_whole_number_is_one(tmp_path: Path):
    read = reader(tmp_path, "[{name: n, type: integer}]")
    assert [type(read({"n": value})["n"]) for value in (3, 3.0, "3")] == [int, int, int]


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("{name: 'a b'}", "a parameter's name"),
        ("{name: x, type: strng}", "did you mean 'string'"),
        ("{name: x, tpye: string}", "did you mean 'type'"),
        ("{name: x, min: 1}", "'min' is for integer and number"),
        ("{name: x, type: integer, pattern: a}", "'pattern' is for string"),
        ("{name: x, type: boolean, enum: [true]}", "'enum' is for"),
        ("{name: x, pattern: '(?=a)'}", "look-around"),
        ("{name: x, pattern: '(a'}", "not closed"),
        ("{name: x, type: integer, default: a}", "the default does not fit"),
        ("{name: x, enum: [a], default: b}", "the default does not fit"),
        ("{name: x, required: true, default: b}", "never used"),
        ("{name: x, enum: []}", "an enum is a list"),
        ("{name: x, type: integer, enum: [a]}", "cannot be a value of the enum"),
        ("{name: x, enum: [a, a]}", "in the enum twice"),
        ("{name: x, max_length: 0}", "max_length is a whole number"),
        ("{name: x, type: integer, min: low}", "minimum"),
        ("{name: x, type: array, items: {tpye: string}}", "no keyword 'tpye'"),
        ("x", "a parameter is a mapping"),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_a_mistake(tmp_path: Path, param: str, message: str):
    text = f"""
        name: a
        description: b
        params: [{param}]
        implementation: {{type: file_read, path: a}}
    """
    mistakes = mistakes_of(text, tmp_path)
    assert any(message in str(mistake) for mistake in mistakes), [str(mistake) for mistake in mistakes]
    assert mistakes[0].line == 4
    twice = text.replace(f"[{param}]", "[{name: x}, {name: x}]")
    assert "two parameters 'x'" in str(mistakes_of(twice, tmp_path)[0])


def test_a_bad_call_is_told_so_that_a_model_can_learn(tmp_path: Path):
    result = called(tool_of(OLDER, environment(tmp_path)), city="Oslo", unit="metric")
    assert (result.error_code, result.output) == (
        "invalid_arguments",
        "there is no parameter 'unit'. did you mean 'units'?",
    )
