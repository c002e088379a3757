"""Hover, definition, references, rename, outline and layout of a node in an editor."""

from __future__ import annotations

import pytest

from lyra.lsp.language import RenameRefused
from lyra.vesper.check.judge import check_text
from lyra.vesper.nodes import load

from .nodes import FEE, HERE, NOTE, at, opened, replaced


def lines_of(places, text=FEE):
    return [text.count("\n", 0, place.at) + 1 for place in places]


# ---------------------------------------------------------------- diagnostics


def test_mistakes_stand_at_their_places_with_hints():
    text = replaced("round(sum * percent", "round(sum * percnt")
    language, _ = opened(text)
    (remark,) = (remark for remark in language.diagnose(HERE, thorough=True) if remark.severity == "error")
    assert text[remark.at : remark.end] == "percnt"
    assert "`percnt` is not defined here" in remark.message
    assert remark.hint == "did you mean `percent`?"
    (fix,) = language.fixes(HERE, remark)
    assert (fix.text, fix.at, fix.end) == ("percent", remark.at, remark.end)


def test_they_are_those_of_validate():
    """For every kind of severity; the place is the line and column that `vesper validate` prints."""
    text = replaced("    as: line\n", "    as: line\n    timeout: 5s\n    colour: red\n").replace(
        "type: function", "type: 5x"
    )
    language, _ = opened(text)
    remarks = language.diagnose(HERE, thorough=False)
    issues = check_text(text, HERE, callees=lambda _: None)
    assert {issue.severity for issue in issues} >= {"error", "warning"}
    assert [(remark.severity, remark.message, remark.hint) for remark in remarks] == [
        (issue.severity, issue.message, issue.hint) for issue in issues
    ]
    for remark, issue in zip(remarks, issues, strict=True):
        line = text.count("\n", 0, remark.at) + 1
        assert (line, remark.at - text.rfind("\n", 0, remark.at)) == (issue.line, issue.column)


def test_a_text_that_is_no_yaml_has_one_remark():
    language, _ = opened("node_id: {\n")
    assert [remark.severity for remark in language.diagnose(HERE, thorough=False)] == ["error"]


def test_a_node_that_is_called_counts_as_it_is_on_the_screen():
    """Its error codes are looked at; a change of its text changes the remarks about the caller."""
    failing = NOTE.replace(
        "outputs: {kept: boolean}", "outputs: {success: {kept: boolean}, error: {error_code: 'enum[full]'}}"
    ).replace("flow:\n", "flow:\n  - {operation: return, return_error: {error_code: full}}\n")
    language, _ = opened(note=NOTE)
    assert not any("full" in remark.message for remark in language.diagnose(HERE, thorough=True))
    other, _ = opened(note=failing)
    assert any("full" in remark.message for remark in other.diagnose(HERE, thorough=True))
    assert language.depends_on(HERE, "/work/nodes/note.vsp")
    assert not language.depends_on(HERE, "/elsewhere/note.vsp")


# ---------------------------------------------------------------- hover


@pytest.mark.parametrize(
    ("part", "inside", "words"),
    [
        ("lines) > 0", 0, ["lines: array<Line>", "an input", "what is paid"]),
        ("percent / 100", 2, ["percent: decimal", "min: 0"]),
        ("sum * percent", 0, ["sum: decimal", "given by step `more`", "an output"]),
        ("line.price", 0, ["line: Line"]),
        ("line.price", 6, ["price: decimal(2)"]),
        ("round(sum", 2, ["round(x: number, digits: integer = 0", "half_up"]),
        ("COUNT(", 1, ["COUNT(list)"]),
        ("for_each", 1, ["the steps for each element", "needs: input, steps"]),
        ("on_failure:", 1, ["what a validation that fails answers"]),
        ("contracts:", 1, ["conditions before, after"]),
        ("array<Line>", 8, ["Line {name: string, price: decimal}"]),
        ("{fee}", 2, ["fee: decimal", "given by step `take`"]),
        ("node_id: note", 10, ["note_v2(text: string) -> kept: boolean", "Keep a note"]),
        ("one.price", 0, ["one: Line"]),
    ],
)
def test_hover_says_what_a_place_is(part, inside, words):
    language, _ = opened(note=NOTE)
    shown = language.hover(HERE, at(part, inside=inside))
    assert shown is not None
    for word in words:
        assert word in shown.text, shown.text


def test_hover_finds_the_functions_of_the_table_alone():
    language, _ = opened(replaced("round(sum * percent / 100, 2)", "sum"))
    assert language.hover(HERE, at("# What", inside=3)) is None
    text = replaced("round(sum", "rond(sum")
    language, _ = opened(text)
    assert language.hover(HERE, at("rond(", inside=1, text=text)) is None


# ---------------------------------------------------------------- definition, references


@pytest.mark.parametrize(
    ("part", "inside", "line", "word"),
    [
        ("lines) > 0", 0, 12, "lines"),
        ("percent / 100", 0, 13, "percent"),
        ("line.price", 0, 34, "line"),
        ("sum * percent", 0, 36, "sum"),
        ("sum + line", 0, 30, "sum"),
        ("fee <= sum", 0, 16, "fee"),
        ("one.price", 0, 23, "one"),
        ("array<Line>", 8, 9, "Line"),
        ("{fee}", 1, 40, "fee"),
    ],
)
def test_definition_is_the_declaration_or_the_step_that_gives_it(part, inside, line, word):
    language, _ = opened()
    place = language.definition(HERE, at(part, inside=inside))
    assert place is not None
    assert FEE[place.at : place.end] == word
    assert lines_of([place]) == [line]


def test_definition_of_a_called_node_is_its_file():
    language, _ = opened(note=NOTE)
    place = language.definition(HERE, at("node_id: note", inside=10))
    assert place is not None
    assert place.path == "/work/nodes/note.vsp"
    alone, _ = opened()
    assert alone.definition(HERE, at("node_id: note", inside=10)) is None


def test_definition_of_a_parameter_and_of_a_state_machine():
    text = """\
node_id: ship_v1
type: function
intent: Ship an order
inputs: {id: string, base: decimal}
state_machines:
  order: {initial: new, states: [new, sent], transitions: [{from: new, to: sent}]}
flow:
  - step: price
    operation: arithmetic
    expression: base * rate
    parameters: {rate: "{base}"}
  - {step: send, operation: state_machine_transition, state_machine: order, entity: "{id}", from: new, to: sent}
"""
    language, _ = opened(text)
    rate = language.definition(HERE, at("* rate", inside=3, text=text))
    assert rate is not None
    assert rate.at == at("rate: ", text=text)
    machine = language.definition(HERE, at("machine: order", inside=10, text=text))
    assert machine is not None
    assert machine.at == at("order: {", text=text)


def test_references_are_all_places_of_the_name():
    language, _ = opened()
    places = language.references(HERE, at("sum * percent"), with_declaration=True)
    assert lines_of(places) == [16, 22, 30, 36, 36, 39, 50]
    assert len(language.references(HERE, at("sum * percent"), with_declaration=False)) == 4


# ---------------------------------------------------------------- rename


def renamed(text: str, offset: int, name: str) -> str:
    language, _ = opened(text)
    assert language.find_name(HERE, offset) is not None
    for place in sorted(language.rename(HERE, offset, name), reverse=True):
        text = text[: place.at] + name + text[place.end :]
    return text


@pytest.mark.parametrize(
    ("old", "part"),
    [("lines", "lines) > 0"), ("percent", "percent:"), ("sum", "sum +"), ("fee", "{fee}"), ("line", "line.")],
)
def test_a_name_is_changed_everywhere_in_the_node(old, part):
    """The node stays valid, its tests too: nothing of the old name is left, in keys, expressions and test cases."""
    offset = at(part, inside=1 if part.startswith("{") else 0)
    text = renamed(FEE, offset, "renamed_one")
    assert check_text(text, HERE) == check_text(FEE, HERE)
    assert load(text).testing.test_cases[0].expected_output.keys() == {
        name.replace(old, "renamed_one") if name == old else name for name in ("sum", "fee")
    }
    language, _ = opened(text)
    assert all(item.symbol.name != old for item in language.analysis(HERE).occurrences)
    assert renamed(text, text.index("renamed_one"), old) == FEE


def test_a_name_of_a_quantifier_is_its_own():
    text = FEE.replace("as: line", "as: one").replace("line.price", "one.price")
    changed = renamed(text, at("one.price >=", text=text), "each")
    assert "FORALL each IN lines: each.price >= 0" in changed
    assert changed.count("one.price") == 1


def test_loops_of_the_same_element_name_are_told_apart():
    inner = """\
      - step: inner
        operation: for_each
        input: lines
        as: line
        steps:
          - {step: deep, operation: arithmetic, expression: line.price, output: last}
"""
    text = FEE.replace("output: sum}\n", "output: sum}\n" + inner)
    changed = renamed(text, at("line.price, output: last", text=text), "deeper")
    assert "as: deeper" in changed
    assert "expression: deeper.price, output: last" in changed
    assert "expression: sum + line.price" in changed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fee", "already a name"),
        ("9a", "is no name"),
        ("a b", "is no name"),
        ("AND", "a word of the language"),
        ("user", "a word of the language"),
        ("idempotency_key", "a name with a meaning"),
    ],
)
def test_a_name_that_cannot_be_given_is_refused(name, reason):
    language, _ = opened()
    with pytest.raises(RenameRefused, match=reason):
        language.rename(HERE, at("sum * percent"), name)


def test_what_has_no_name_of_its_own_is_refused():
    language, _ = opened()
    with pytest.raises(RenameRefused, match="no input, variable or output"):
        language.rename(HERE, at("intent"), "x")
    assert language.find_name(HERE, at("intent")) is None
    unnamed = replaced("    as: line\n", "").replace("line.price", "item.price")
    language, _ = opened(unnamed)
    with pytest.raises(RenameRefused, match="a name that the language gives"):
        language.rename(HERE, at("item.price", text=unnamed), "x")
    language, _ = opened("node_id: {\n")
    with pytest.raises(RenameRefused, match="mend it first"):
        language.rename(HERE, 2, "x")


def test_a_name_that_a_property_test_or_a_metric_needs_is_refused():
    text = FEE + "  property_tests: [{property: small, invariant: fee <= sum}]\n"
    language, _ = opened(text)
    with pytest.raises(RenameRefused, match="the property test `small`"):
        language.rename(HERE, at("sum * percent"), "total")
    text = FEE + "observability: {metrics: [{name: fee, type: gauge, labels: [percent]}]}\n"
    language, _ = opened(text)
    with pytest.raises(RenameRefused, match="the metric `fee`"):
        language.rename(HERE, at("{fee}", inside=1), "cost")
    assert "labels: [share]" in renamed(text, at("percent:"), "share")


def test_a_name_that_is_meant_without_being_written_is_refused():
    """`all(line.price > 0)` goes through `lines`: with another name it would not."""
    text = replaced("COUNT(lines) > 0", "all(line.price >= 0)")
    language, _ = opened(text)
    with pytest.raises(RenameRefused, match="something else"):
        language.rename(HERE, at("lines:", text=text), "rows")


# ---------------------------------------------------------------- outline, layout


def test_the_outline_has_sections_fields_and_steps():
    language, _ = opened()
    entries = {entry.name: entry for entry in language.outline(HERE)}
    assert [entry.name for entry in entries["inputs"].inside] == ["lines", "percent"]
    steps = entries["flow"].inside
    assert [step.name for step in steps] == ["check", "sum", "add", "take", "log"]
    assert [step.name for step in steps[2].inside] == ["more"]
    for entry in (*entries.values(), *steps):
        assert entry.at <= entry.name_at <= entry.name_end <= entry.end


def test_the_layout_is_that_of_fmt():
    language, _ = opened("intent: x\nnode_id: a_v1\ntype:   function\n")
    (edit,) = language.format(HERE)
    assert edit[2].startswith("node_id: a_v1\n")
    assert opened()[0].format(HERE) == []
    assert opened("node_id: {\n")[0].format(HERE) == []
