"""`vesper lsp`, spoken to over its pipes by the client of the tests of `vega lsp`: what an editor does with a node."""

from __future__ import annotations

import pytest

from tests.lsp.client import Client, span

from .nodes import FEE, NOTE, replaced

pytest.importorskip("pygls")


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """One server for the tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "note.vsp").write_text(NOTE)
    client = Client(folder, language="vesper")
    client.start()
    yield client
    try:
        assert client.process.poll() is None, client.errors.decode()
        assert client.stop() == 0
        assert client.errors == b""
    finally:
        client.close()


def position(text: str, part: str, inside: int = 0) -> tuple[int, int]:
    offset = text.index(part) + inside
    return text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)


def test_it_offers_what_it_answers_and_no_more(tmp_path):
    """Lenses and semantic tokens are Vega's; a client that asks for them is told that there are none."""
    client = Client(tmp_path, language="vesper")
    try:
        answer = client.start()
        can = answer["capabilities"]
        assert answer["serverInfo"]["name"] == "vesper"
        for name in (
            *("hover", "definition", "references", "rename", "completion", "documentFormatting", "documentSymbol"),
            *("codeAction", "documentHighlight"),
        ):
            assert can[f"{name}Provider"], name
        assert not can.keys() & {"codeLensProvider", "semanticTokensProvider", "signatureHelpProvider"}
        assert client.stop() == 0
    finally:
        client.close()


def test_mistakes_are_told_at_each_change_with_their_hints(editor):
    told = editor.open("b.vsp", replaced("round(sum * percent", "round(sum * percnt"))
    wrong = next(mistake for mistake in told if mistake["severity"] == 1)
    assert wrong["message"] == "`percnt` is not defined here\nhint: did you mean `percent`?"
    assert wrong["source"] == "vesper"
    place = (wrong["range"]["start"]["line"], wrong["range"]["start"]["character"])
    assert place == position(FEE, "percent / 100")
    mended = editor.edit("b.vsp", (place[0], place[1] + 4), (place[0], place[1] + 4), "e")
    assert not any(mistake["severity"] == 1 for mistake in mended)
    broken = editor.edit("b.vsp", (0, 0), (0, 0), "{")
    assert [mistake["severity"] for mistake in broken] == [1]


def test_hover_definition_and_references(editor):
    editor.open("c.vsp", FEE)
    at = position(FEE, "percent / 100")
    shown = editor.get("textDocument/hover", editor.place_in("c.vsp", *at))
    assert "percent: decimal" in shown["contents"]["value"]
    assert shown["range"] == span(at, (at[0], at[1] + 7))
    found = editor.get("textDocument/definition", editor.place_in("c.vsp", *at))
    declared = position(FEE, "percent:")
    assert found == {"uri": editor.uri("c.vsp"), "range": span(declared, (declared[0], declared[1] + 7))}
    called = editor.get("textDocument/definition", editor.place_in("c.vsp", *position(FEE, "node_id: note", 10)))
    assert called["uri"] == editor.uri("note.vsp")
    places = editor.get("textDocument/references", editor.place_in("c.vsp", *at, context={"includeDeclaration": True}))
    marked = editor.get("textDocument/documentHighlight", editor.place_in("c.vsp", *at))
    assert len(places) == len(marked) == 4


def test_completion_in_a_text_that_is_no_yaml(editor):
    editor.open("d.vsp", FEE)
    at = position(FEE, "round(sum")
    end = (at[0], len(FEE.splitlines()[at[0]]))
    editor.edit("d.vsp", at, end, "'sum + li")
    items = editor.get("textDocument/completion", editor.place_in("d.vsp", at[0], at[1] + 9))["items"]
    labels = {item["label"]: item for item in items}
    assert labels["lines"]["detail"] == "array<Line>"
    assert labels["round"]["insertText"] == "round($1)"


def test_rename_and_a_name_that_is_refused(editor):
    editor.open("e.vsp", FEE)
    at = position(FEE, "percent / 100")
    assert editor.get("textDocument/prepareRename", editor.place_in("e.vsp", *at))["placeholder"] == "percent"
    edit = editor.get("textDocument/rename", editor.place_in("e.vsp", *at, newName="share"))
    changes = edit["changes"][editor.uri("e.vsp")]
    assert [change["newText"] for change in changes] == ["share"] * 4
    refused = editor.ask("textDocument/rename", editor.place_in("e.vsp", *at, newName="fee"))
    assert refused["error"]["code"] == -32803
    assert "already a name" in refused["error"]["message"]


def test_quick_fix_and_layout(editor):
    text = replaced("type: function", "type:    function").replace("sum * percent", "sum * percnt")
    editor.open("f.vsp", text)
    at = position(text, "percnt")
    actions = editor.get(
        "textDocument/codeAction",
        {"textDocument": {"uri": editor.uri("f.vsp")}, "range": span(at, at), "context": {"diagnostics": []}},
    )
    assert [action["title"] for action in actions] == ["Change to `percent`"]
    options = {"tabSize": 2, "insertSpaces": True}
    (edit,) = editor.get("textDocument/formatting", {"textDocument": {"uri": editor.uri("f.vsp")}, "options": options})
    assert "type: function\n" in edit["newText"]


def test_a_change_of_a_called_node_is_told_about_its_callers(editor):
    editor.open("g.vsp", FEE)
    failing = NOTE.replace("{kept: boolean}", "{success: {kept: boolean}, error: {error_code: 'enum[full]'}}")
    editor.open(
        "note.vsp", failing.replace("flow:", "flow:\n  - {operation: return, return_error: {error_code: full}}")
    )
    told = editor.diagnostics("g.vsp")
    assert any("full" in mistake["message"] for mistake in told)
    editor.tell("textDocument/didClose", {"textDocument": {"uri": editor.uri("note.vsp")}})
    assert not any("full" in mistake["message"] for mistake in editor.diagnostics("g.vsp"))


@pytest.mark.parametrize("text", ["[" * 3_000, "a: !!python/name:os.system x", "\u0000", "- &a *a", "{" + "a: {" * 200])
def test_a_hostile_file_leaves_the_server_alive(editor, text):
    """One mistake or more, no line on stderr, and the next file has answers."""
    assert editor.open("h.vsp", text) != []
    for method in ("hover", "definition", "completion", "documentHighlight"):
        editor.get(f"textDocument/{method}", editor.place_in("h.vsp", 0, 2))
    assert not any(mistake["severity"] == 1 for mistake in editor.open("i.vsp", FEE))
