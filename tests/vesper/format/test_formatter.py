"""`vesper fmt`: one layout, the same meaning, all comments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lyra.errors import ParseError
from lyra.vesper.check.judge import lower_unchecked
from lyra.vesper.format.layout import KEY_ORDER, format_text, is_same_data, read_tree
from lyra.vesper.loading import read_document
from lyra.vesper.nodes.sections import NODE_KEYS, read_node
from tests.cases import cases
from tests.vesper.format.documents import mutated, random_document

TESTS = Path(__file__).parents[2]
FILES = sorted((TESTS / "vesper" / "files").rglob("*.vsp"))
CORPUS = sorted((TESTS / "language" / "vesper").rglob("*.vsp"))


def comments_of(text: str) -> Counter[str]:
    return Counter(comment.text for comment in read_tree(text)[2])


def assert_holds(text: str) -> str:
    """The promises of the formatter, on one text."""
    result = format_text(text)
    assert format_text(result) == result
    assert is_same_data(read_document(text).data, read_document(result).data)
    assert comments_of(result) == comments_of(text)
    assert not any(line != line.rstrip() for line in result.split("\n") if "#" in line[:1])
    return result


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_formatted_node_has_the_same_digest(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = assert_holds(text)
    before, after = read_node(text)[0], read_node(result)[0]
    assert before is not None
    assert after is not None
    assert lower_unchecked(before).digest == lower_unchecked(after).digest


@pytest.mark.slow
@pytest.mark.parametrize("files", [CORPUS[::5], pytest.param(CORPUS, marks=pytest.mark.long)], ids=["some", "all"])
def test_every_file_of_the_language_tests_can_be_formatted(files: Sequence[Path]) -> None:
    """Those that are no YAML, on purpose, are left alone."""
    for path in files:
        text = path.read_text(encoding="utf-8")
        try:
            data = read_document(text).data
        except ParseError:
            continue
        if isinstance(data, dict):
            assert_holds(text)


@settings(max_examples=cases(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_documents_keep_meaning_and_comments(seed: int) -> None:
    """Formatting a formatted text changes nothing."""
    text = random_document(seed)
    try:
        read_document(text)
    except ParseError:
        return
    assert_holds(text)


@settings(max_examples=cases(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), path=st.sampled_from(FILES))
def test_changed_files_keep_meaning_and_comments(seed: int, path: Path) -> None:
    text = mutated(path.read_text(encoding="utf-8"), seed)
    try:
        read_document(text)
    except ParseError:
        return
    assert_holds(text)


def test_keys_have_the_order_of_the_specification() -> None:
    """An empty line is between sections, none between the three lines at the top; unknown keys come last."""
    text = "flow: []\nother: 1\n\n\ninputs:\n    a: string\nintent: x\ntype: function\nnode_id: a_v1\n"
    assert format_text(text) == (
        "node_id: a_v1\ntype: function\nintent: x\n\ninputs:\n  a: string\n\nflow: []\n\nother: 1\n"
    )
    assert sorted(KEY_ORDER) == sorted(NODE_KEYS)


def test_a_comment_at_the_head_of_the_file_stays_there() -> None:
    """A licence right above the first key does not go with it when another key is written first."""
    text = "# the licence\n# of the file\nflow: []\nnode_id: a_v1\n"
    assert assert_holds(text) == "# the licence\n# of the file\n\nnode_id: a_v1\n\nflow: []\n"
    assert assert_holds("# about the id\nnode_id: a_v1\nflow: []\n").startswith("# about the id\nnode_id: a_v1\n")


def test_comments_move_with_their_key_and_the_file_keeps_its_own() -> None:
    text = """\
# about the file

# what it does
flow:
  - step: a  # behind
    operation: return
    # end of the step
  # end of the flow
node_id: a_v1 # the id
# the end
"""
    assert (
        format_text(text)
        == """\
# about the file

node_id: a_v1  # the id

# what it does
flow:
  - step: a  # behind
    operation: return
    # end of the step
  # end of the flow

# the end
"""
    )


@pytest.mark.parametrize(
    ("written", "formatted"),
    [
        ('"amount > 0"', "amount > 0"),
        ("'{amount}'", '"{amount}"'),
        ('"yes"', '"yes"'),
        ("yes", '"yes"'),
        ('"1.0"', '"1.0"'),
        ('"1.0.0"', "1.0.0"),
        ("1.50", "1.50"),
        ('"a: b"', '"a: b"'),
        ("'say \"hi\": x'", "'say \"hi\": x'"),
        ('"a\\tb"', '"a\\tb"'),
        ("{a:   1,b: [x,y]}", "{a: 1, b: [x, y]}"),
        ("[ ]", "[]"),
        ("2025-01-08T10:00:00Z", "2025-01-08T10:00:00Z"),
    ],
)
def test_quotes_stand_only_where_they_are_needed(written: str, formatted: str) -> None:
    assert format_text(f"intent: {written}\n") == f"intent: {formatted}\n"


def test_a_long_flow_collection_becomes_a_block() -> None:
    values = ", ".join(f"value_{index}" for index in range(20))
    result = format_text(f"inputs: {{kind: [{values}], other: 1}}\n")
    assert result.startswith("inputs:\n  kind:\n    - value_0\n")
    assert result.endswith("    - value_19\n  other: 1\n")


def test_a_text_over_several_lines_is_folded() -> None:
    words = "word " * 30 + "end"
    result = format_text("intent: word\n  " + "\n  ".join(words.split()[1:]) + "\n")
    assert result.startswith("intent: >-\n  word")
    assert max(map(len, result.splitlines())) <= 100


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n", "a: *x\n", "a: 1\na: 2\n", "a: [\n"])
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        format_text(text)
