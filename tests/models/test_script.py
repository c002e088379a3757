"""Scripts of the simulated model: files, their mistakes and the places of those."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import CheckError, ConfigError, LyraError, ParseError
from lyra.models.script import Reply, Script, ScriptedCall, ScriptedError, load_script


def write(tmp_path, text: str, name: str = "script.yaml"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_a_whole_file_is_read(tmp_path):
    """Every key of a file ends up in the Script."""
    script = load_script(
        write(
            tmp_path,
            """
seed: 7
chunks: 4
first_s: 0.5
chunk_s: 0.1
price: {input_usd_per_mtok: 0.1, output_usd_per_mtok: 2}
replies:
  - user: "hi (\\\\w+)"
    thinking: hm
    text: "hello {1}"
    usage: {input_tokens: 3}
    stop_reason: max_tokens
  - tool: search
    result: found
    tool_calls:
      - {name: fetch, arguments: {url: x}, id: c9}
    times: 2
  - turn: 3
    system: pirate
    model: m
    contains: plain
    one_of: [a, b]
    error: {kind: rate_limit, retry_after_s: 3, attempts: 2, after_chunks: 1, message: slow}
    chunks: whole
    first_s: 1
    chunk_s: 2
""",
        )
    )
    assert (script.seed, script.chunks, script.first_s, script.chunk_s) == (7, 4, 0.5, 0.1)
    assert script.price.worst_case(10, 1) == 3
    first, second, third = script.all
    assert (first.user.pattern, first.thinking, first.text) == (r"hi (\w+)", "hm", "hello {1}")
    assert (first.usage, first.stop_reason) == ({"input_tokens": 3}, "max_tokens")
    assert (second.tool, second.result.pattern, second.times) == ("search", "found", 2)
    assert second.tool_calls == (ScriptedCall("fetch", {"url": "x"}, "c9"),)
    assert third.error == ScriptedError("rate_limit", "slow", 3.0, 2, 1)
    assert (third.turn, third.system.pattern, third.model, third.contains) == (3, "pirate", "m", "plain")
    assert (third.one_of, third.chunks, third.first_s, third.chunk_s) == (("a", "b"), "whole", 1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("replies:\n  - txt: hi\n", "2:5", "a reply has no setting 'txt'", "did you mean 'text'?"),
        ("replis: []\n", "1:1", "a script has no setting 'replis'", "did you mean 'replies'?"),
        ("replies:\n  - error:\n      kind: rate_limt\n", "3:7", "kind is one of", "did you mean 'rate_limit'?"),
        ("replies:\n  - text: a\n    user: '('\n", "3:5", "no regular expression", "use 'contains' for plain text"),
        ("replies:\n  - tool_calls:\n      - {arguments: {}}\n", "3:9", "a tool call has a 'name'", None),
        ("replies:\n  - tool_calls: [{name: a b}]\n", "2:19", "not a tool's name", None),
        ("replies: 3\n", "1:1", "a list of at most", None),
        ("replies:\n  - 3\n", "2:5", "a reply is a mapping, not 3", None),
        ("- text: a\n- text: b\n", "1:1", "a script is a mapping, not a list", "write `replies:` above the list"),
        ("seed: 1\n", "1:1", "either 'replies' or 'sequence'", None),
        ("replies: []\nsequence: []\n", "1:1", "either 'replies' or 'sequence'", None),
        ("replies: []\nchunks: words\n", "2:1", "chunks is one of", "did you mean 'word'?"),
        ("replies: []\nchunks: 0\n", "2:1", "between 1", None),
        ("replies: []\nfirst_s: -1\n", "2:1", "between 0", None),
        ("replies:\n  - usage: {tokens: 1}\n", "2:5", "usage is one of", None),
        ("replies: []\nprice: {input_usd_per_mtok: 1}\n", "2:1", "a price has 'output_usd_per_mtok'", None),
        (
            "replies: []\nprice:\n  input_usd_per_mtok: x\n  output_usd_per_mtok: 1\n",
            "3:3",
            "input_usd_per_mtok is an amount of dollars",
            None,
        ),
        ("replies:\n  - {turn: 0}\n", "2:6", "between 1", None),
        ("3\n", "1:1", "a script is a mapping", None),
    ],
)
def test_mistakes_have_their_place(tmp_path, text, place, message, hint):
    """The file, the line, the column, what is wrong, and the word that was meant."""
    file = write(tmp_path, text)
    with pytest.raises(CheckError) as raised:
        load_script(file)
    assert message in raised.value.message
    assert raised.value.place == f"{file}:{place}"
    if hint:
        assert hint in str(raised.value.hint)


def test_the_other_mistakes_are_told_too(tmp_path):
    """The first in the file is raised, the rest are its `also`."""
    with pytest.raises(CheckError) as raised:
        load_script(write(tmp_path, "replies:\n  - {txt: a}\n  - {turn: x}\nsed: 1\n"))
    assert raised.value.line == 2
    assert [mistake.rsplit(":", 3)[1] for mistake in raised.value.also] == ["3", "4"]


def test_what_is_no_yaml_is_a_parse_error(tmp_path):
    """With its place as well."""
    with pytest.raises(ParseError) as raised:
        load_script(write(tmp_path, "replies: [\n"))
    assert raised.value.file.endswith("script.yaml")


def test_other_files_are_refused(tmp_path):
    """A Python file is not run because a model's name says so; a missing file is named."""
    with pytest.raises(ConfigError, match="is no script file"):
        load_script(write(tmp_path, "x = 1", "script.py"))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(tmp_path / "none.yaml")


def test_toml_and_json_will_do_too(tmp_path):
    """The keys are the same."""
    assert load_script(write(tmp_path, '[[replies]]\ntext = "a"\n', "s.toml")).all == (Reply("a"),)
    assert load_script(write(tmp_path, '{"sequence": ["a"]}', "s.json")).all == (Reply("a", times=1),)


def test_python_values_are_checked_the_same_way():
    """A wrong value in Python is the same sentence."""
    with pytest.raises(ConfigError, match="stop_reason is one of"):
        Reply("x", stop_reason="done")
    with pytest.raises(ConfigError, match="kind is one of"):
        ScriptedError("nope")
    with pytest.raises(ConfigError, match="a reply has no setting"):
        Script.coerce([{"txt": 1}])


def test_the_page_about_scripts_has_every_key():
    """What can be written in a script is in its how-to."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-agents-offline.md").read_text()
    for kind in (Reply, Script, ScriptedCall, ScriptedError):
        for key in kind.__struct_fields__:
            assert f"`{key}`" in page, key


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["word", "a("]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["replies", "text", "error", "kind", "tool_calls", "name", "usage", "price", "turn", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_anything_is_a_script_or_a_mistake(value):
    """No data whatever makes anything but a Script or one of our errors."""
    try:
        Script.from_data(value)
    except LyraError:
        return
    assert "replies" in value or "sequence" in value


def test_mistakes_of_python_values_have_their_place_in_the_message():
    """There is no file whose line could be named."""
    with pytest.raises(ConfigError, match=r"^replies\[1\]\.error\.kind: ") as caught:
        Script.coerce({"replies": ["x", {"error": {"kind": "nonsense"}}]})
    assert caught.value.fields["key"] == "replies[1].error.kind"
    with pytest.raises(ConfigError, match=r"^user: ") as caught:
        Reply("x", user="(")  # type: ignore[arg-type]  # what is checked here
    assert caught.value.fields["key"] == "user"
