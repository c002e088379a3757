"""Names, schemas, results and approvals: the parts that need no server."""

from __future__ import annotations

import base64
import stat
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from lyra.agents.declaration.output import Image
from lyra.core.checking.schema import mismatch
from lyra.core.tool import check_tool_name
from lyra.errors import ConfigError, ToolError
from lyra.mcp import Approvals
from lyra.mcp.approvals import pin_of
from lyra.mcp.settings import NAME_CHARS_MAX, server_keys, tool_names
from lyra.mcp.tools import Offered, checkable, output_of, problem, strip_invisible
from tests.mcp.server import PNG


# ---------------------------------------------------------------- names
def test_names_are_what_providers_take():
    """Letters, digits, `_` and `-`; at most 64; the same tool has the same name every time."""
    odd = ["get sum", "get.sum", "get_sum", "x" * 200, "x" * 199 + "y", "", "日本", "a/b"]
    names = tool_names("files", odd)
    assert names["get_sum"] == "mcp__files__get_sum"
    assert len(set(names.values())) == len(odd)
    for name in names.values():
        assert check_tool_name(name) == name
        assert len(name) <= NAME_CHARS_MAX
    assert names == tool_names("files", reversed(odd)) | names
    assert tool_names("files", ["a/b"])["a/b"] == "mcp__files__a_b"


@pytest.mark.parametrize("name", ["é", "../../x", "\u202eevil", "日本x"])
def test_a_name_that_lost_its_letters_is_known_by_a_mark(name):
    """A rule for one of them is a rule for no other."""
    shown_name = tool_names("s", [name])[name]
    assert shown_name == tool_names("s", ["other", name])[name]
    assert len(shown_name.rpartition("_")[2]) == 6
    assert tool_names("s", ["_x"])["_x"] == "mcp__s___x"


def test_no_server_can_look_like_another():
    """Wherever the `__` is put."""
    keys = server_keys(["a", "a_", "a__b", "a_b", "日本", "x" * 64, "A.B"])
    assert len(set(keys.values())) == len(keys)
    assert not any("__" in key or key.startswith("_") or key.endswith("_") for key in keys.values())
    assert tool_names(keys["a"], ["b__c"])["b__c"] != tool_names(keys["a__b"], ["c"])["c"]
    assert all(len(tool_names(key, ["x" * 99])["x" * 99]) <= NAME_CHARS_MAX for key in keys.values())


# ---------------------------------------------------------------- schemas
def test_what_of_a_schema_is_checked():
    """Types, required, bounds, references within it; not patterns, and nothing that leads elsewhere."""
    schema = {
        "type": "object",
        "properties": {
            "point": {"$ref": "#/$defs/point"},
            "text": {"type": "string", "pattern": "^(a+)+$", "maxLength": 3},
            "far": {"$ref": "https://example.org/schema"},
            "odd": {"type": "no such type"},
        },
        "required": ["point"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }
    check = checkable(schema)
    assert mismatch({"point": {"x": 1}, "text": "zzz", "far": 5, "odd": []}, check) is None
    assert mismatch({}, check) == "the value has no point"
    assert mismatch({"point": {"x": "1"}}, check) == "point.x is string, not number"
    assert "text has 4 characters" in str(mismatch({"point": {"x": 1}, "text": "aaaa"}, check))


def test_schemas_that_go_round_in_circles():
    """A reference to itself, and one that doubles at every step, end."""
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    assert mismatch({"child": {"child": {}}}, checkable(tree)) is None
    defs = {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 10} for i in range(12)}
    assert isinstance(checkable({"type": "object", "properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": defs}), dict)


def test_schemas_that_no_tool_can_have():
    """Not of an object, too deep, too large."""
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(3000):
        deep = {"type": "object", "properties": {"a": deep}}
    assert problem({"type": "object"}) is None
    assert problem({"type": "string"}) == "its schema does not describe an object"
    assert "nested" in str(problem(deep)) or "KiB" in str(problem(deep))
    assert "KiB" in str(problem({"type": "object", "title": "x" * 300_000}))


def test_what_cannot_be_seen_is_not_in_a_description():
    """Invisible characters could hold instructions for the model; the pin is of the whole."""
    hidden = Offered("a", "Add.\u200b\u202e\U000e0041\x1b[2J", {"type": "object"})
    assert hidden.shown == "Add.[2J"
    assert hidden.pin != Offered("a", "Add.[2J", {"type": "object"}).pin
    assert len(Offered("a", "x" * 9000, {}).shown) == 4001
    inside = {"title": "A\u200b", "default": "b\U000e0041", "examples": ["c\u202e"], "pattern": "d\u2060"}
    nested = {"type": "object", "properties": {"a": inside, "b": {"anyOf": [{"description": "A\u200b."}]}}}
    assert strip_invisible(nested)["properties"] == {
        "a": {"title": "A", "default": "b", "examples": ["c"], "pattern": "d"},
        "b": {"anyOf": [{"description": "A."}]},
    }
    assert problem(nested) is None


@pytest.mark.parametrize(
    "inside",
    [
        {"properties": {"a\u200b": {}}},
        {"properties": {"a": {"enum": ["x", "\U000e0041"]}}},
        {"properties": {"a": {"const": "\u202ex"}}},
        {"required": ["a\u2063"]},
        {"properties": {"a": {"anyOf": [{"properties": {"\ufe01": {}}}]}}},
    ],
)
def test_a_schema_that_hides_something_in_what_a_call_repeats_is_not_used(inside):
    """Names and fixed values have to be sent as they are, so they cannot be cleaned."""
    assert problem({"type": "object", **inside}) == "its schema has a name or a value with invisible characters"


# ---------------------------------------------------------------- results
def result(*content: Any, **more: Any) -> CallToolResult:
    return CallToolResult(content=list(content), **more)


def text(content: str) -> TextContent:
    return TextContent(type="text", text=content)


def test_results():
    """Texts are joined, data is data, what a model cannot see is told in a line."""
    assert output_of(result(text("a"), text("b")), "t") == "a\nb"
    assert output_of(result(), "t") == ""
    assert output_of(result(structured_content={"a": [1]}), "t") == {"a": [1]}
    assert output_of(result(text("said"), structured_content={"a": 1}), "t") == "said"
    sound = AudioContent(type="audio", data="AAAA", mime_type="audio/wav")
    assert output_of(result(sound), "t") == "[audio/wav, 4 characters of base64]"
    link = ResourceLink(type="resource_link", uri="note://a", name="a note")
    assert output_of(result(link), "t") == "[resource note://a: a note]"
    held = EmbeddedResource(type="resource", resource=TextResourceContents(uri="note://a", text="inside"))
    assert output_of(result(held), "t") == "inside"


def test_pictures():
    """Those that models see; a few of them; what is none is said to be none."""
    picture = ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
    came = output_of(result(text("look"), picture), "t")
    assert [type(part) for part in came] == [str, Image]
    many = output_of(result(*[picture] * 20), "t")
    assert sum(isinstance(part, Image) for part in many) == 8
    broken = ImageContent(type="image", data="!!", mime_type="image/png")
    assert output_of(result(broken), "t") == "[an image/png that cannot be read]"
    drawn = ImageContent(type="image", data="AAAA", mime_type="image/svg+xml")
    assert output_of(result(drawn), "t") == "[image: image/svg+xml, 4 characters of base64]"


def test_results_have_an_end():
    """Long texts, long data and long errors are cut."""
    assert len(output_of(result(text("x" * 10**6)), "t")) < 100_100
    assert output_of(result(text("a\x1b[2J\u202eb\0\tc\n")), "t") == "a[2Jb\tc\n"
    assert len(output_of(result(structured_content={"a": "x" * 10**6}), "t")) < 100_100
    with pytest.raises(ToolError) as caught:
        output_of(result(text("y" * 10**6), is_error=True), "t")
    assert len(caught.value.message) < 4_100


# ---------------------------------------------------------------- approvals
def test_consents_and_pins_are_kept_privately(tmp_path):
    """In a file that only its owner can read; another process sees them; taking back takes back."""
    folder = tmp_path / "own"
    mine = Approvals(folder)
    assert not mine.consented("f1")
    mine.consent("f1", "files")
    assert mine.changed("f1", {"add": "p1"}) == set()
    other = Approvals(folder)
    assert other.consented("f1")
    assert other.changed("f1", {"add": "p2", "new": "p3"}) == {"add"}
    assert other.changed("f1", {"add": "p2"}) == {"add"}  # not because it was asked twice
    other.accept("f1", {"add": "p2"})
    assert mine.changed("f1", {"add": "p2"}) == set()
    assert mine.changed("f1", {"add": "p1"}) == {"add"}
    assert mine.changed("f2", {"add": "p1"}) == set()
    mode = stat.S_IMODE((folder / "mcp-approvals.json").stat().st_mode)
    assert (mode, stat.S_IMODE(folder.stat().st_mode)) == (0o600, 0o700)
    assert mine.forget("f1")
    assert not mine.forget("f1")
    assert not other.consented("f1")


def test_another_tool_behind_a_known_name_counts_as_changed(tmp_path):
    """Pins are of a server's own names; rules and the model know `mcp__s__a_b`, which `a.b` and `a_b` both come to."""
    approvals = Approvals(tmp_path)

    def changed(*tools: str) -> set[str]:
        return approvals.changed("f1", dict.fromkeys(tools, "p"), tool_names("s", tools))

    assert changed("a.b") == set()
    assert changed("a_b") == {"a_b"}
    assert changed("a_b") == {"a_b"}  # not because it was asked twice
    assert changed("a.b", "a_b") == {"a_b"}  # it takes the name, and the first gets another one
    assert changed("a.b") == set()
    approvals.accept("f1", {"a_b": "p"}, tool_names("s", ["a_b"]))
    assert changed("a_b") == set()
    assert changed("a.b") == {"a.b"}


def test_a_broken_file_agrees_to_nothing(tmp_path):
    """It is an error with its place, not an empty one."""
    (tmp_path / "mcp-approvals.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        Approvals(tmp_path).consented("f1")
    assert caught.value.place == str(tmp_path / "mcp-approvals.json")


def test_a_server_with_ever_new_names_fills_nothing(tmp_path):
    """Beyond so many its tools are withheld; the consents of others stay readable, and a person can still agree."""
    approvals = Approvals(tmp_path)
    approvals.consent("f2", "other")
    for turn in range(6):
        names = {f"t{turn}-{number}" + "x" * 180: "p" for number in range(500)}
        assert approvals.changed("f1", names) == (set() if turn < 2 else set(names))
    size = (tmp_path / "mcp-approvals.json").stat().st_size
    assert size < 300_000
    assert approvals.consented("f2")
    approvals.accept("f1", names)
    assert approvals.changed("f1", names) == set()
    assert (tmp_path / "mcp-approvals.json").stat().st_size <= size + 500


def test_what_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("lyra.mcp.approvals._FILE_BYTES_MAX", 500)
    approvals = Approvals(tmp_path)
    approvals.consent("f1", "files")
    with pytest.raises(ConfigError, match="no room for more consents"):
        approvals.consent("f2", "x" * 1_000)
    assert approvals.consented("f1")


def test_without_a_folder_it_is_remembered_for_now():
    """A service without a home."""
    approvals = Approvals(None)
    approvals.consent("f1", "files")
    assert approvals.consented("f1")
    assert not Approvals(None).consented("f1")


def test_a_pin_is_of_the_words_and_the_schema():
    """The order of keys says nothing, everything else does."""
    same = pin_of("a", {"type": "object", "properties": {}}), pin_of("a", {"properties": {}, "type": "object"})
    assert same[0] == same[1]
    assert pin_of("a", {}) != pin_of("b", {})
    assert pin_of("a", {}) != pin_of("a", {"type": "object"})


def test_a_schema_that_is_nested_too_deeply_is_refused_on_every_python():
    """The depth is counted: how deep Python itself recurses differs by version."""
    for depth, refused in ((150, False), (250, True), (100_000, True)):
        schema: dict[str, object] = {"type": "object"}
        for _ in range(depth):
            schema = {"type": "object", "not": schema}
        assert (problem(schema) == "its schema is nested too deeply") is refused
        while isinstance(inner := schema.pop("not", None), dict):  # taken apart: Python frees it recursively otherwise
            schema = inner


def test_the_approvals_of_a_user_lie_in_their_own_folder(tmp_path):
    """As the environment names it: `XDG_CONFIG_HOME`, or `.config` of the home; nowhere without both."""
    Approvals.of_user({"XDG_CONFIG_HOME": str(tmp_path / "config")}).consent("f1", "files")
    Approvals.of_user({"HOME": str(tmp_path / "home")}).consent("f2", "files")
    assert Approvals(tmp_path / "config" / "lyra").consented("f1")
    assert Approvals(tmp_path / "home" / ".config" / "lyra").consented("f2")
    assert not Approvals.of_user({}).consented("f1")
