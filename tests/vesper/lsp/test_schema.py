"""The published JSON Schema: current, satisfied by every valid file, and strict about wrong ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from lyra.errors import ParseError
from lyra.vesper.check.judge import check_text
from lyra.vesper.loading import read_document
from lyra.vesper.lsp.schema import SECTION_TEXTS, STEP_TEXTS, json_schema, schema_text
from lyra.vesper.nodes.sections import NODE_KEYS
from lyra.vesper.nodes.steps import OPERATIONS, STEP_KEYS
from lyra.vesper.values.outcome import CODES
from verify.reference.vesper import pages

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "tests" / "vesper" / "files").rglob("*.vsp"))
CORPUS = sorted((ROOT / "tests" / "language" / "vesper").rglob("*.vsp"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def data_of(name: str) -> Any:
    text = (ROOT / "tests" / "vesper" / "files" / f"{name}.vsp").read_text(encoding="utf-8")
    return copy.deepcopy(read_document(text).data)


def test_the_published_files_are_current() -> None:
    """After a change to a table: `python -m verify reference`."""
    kept = ROOT / "docs" / "reference" / "vsp.schema.json"
    assert kept.read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_example_files_fit(path: Path, validator: Any) -> None:
    errors = list(validator.iter_errors(read_document(path.read_text(encoding="utf-8")).data))
    assert errors == []


def test_files_that_the_checker_accepts_fit(validator: Any) -> None:
    """All files of the language tests without errors and without unknown keys."""
    for path in CORPUS:
        text = path.read_text(encoding="utf-8")
        try:
            data = read_document(text).data
        except ParseError:
            continue
        issues = check_text(text)
        if not any(issue.severity == "error" or issue.code == "unknown_key" for issue in issues):
            assert [error.message for error in validator.iter_errors(data)] == [], path


def put(data: Any, path: tuple[str | int, ...], value: Any) -> None:
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("inptus",), {}),
        (("node_id",), "HelloWorld"),
        (("intent",), ["a", "list"]),
        (("metadata", "autor"), "x"),
        (("metadata", "tags"), {"a": 1}),
        (("metadata", "changelog"), [{"versoin": "1"}]),
        (("inputs", "name", "requird"), True),
        (("inputs", "name", "required"), "yes"),
        (("inputs", "name"), {"required": True}),
        (("inputs", "name", "scale"), -1),
        (("inputs", "bad name"), "string"),
        (("outputs", "success", "length"), 5),
        (("outputs", "failure"), {"code": "string"}),
        (("contracts", "precondition"), []),
        (("contracts", "preconditions"), [5]),
        (("flow",), "steps"),
        (("flow", 0, "operation"), "validaton"),
        (("flow", 0, "guard"), []),
        (("flow", 1, "timeout"), "soon"),
        (("flow", 1, "output"), 5),
        (("flow", 1, "retry_policy"), {"backoff": "sometimes"}),
        (("flow", 1, "on_error"), [{"action": "ignore"}]),
        (("flow", 1, "on_error"), [{"acton": "retry"}]),
        (("flow", 1), {"step": "x", "operation": "string_template", "output": "y"}),
        (("flow", 1), {"step": "x", "operation": "conditional", "condition": "true", "then": [{"step": "y"}]}),
        (("flow", 1), {"step": "x", "operation": "for_each", "input": "y", "parameters": {"stepz": []}}),
        (("flow", 1), {"step": "x"}),
        (("performance",), {"timeout_seconds": "fast"}),
        (("performance",), {"memory_limit_mb": -5}),
        (("security",), {"audit_level": "loud"}),
        (("state_machines",), {"m": {"states": ["a"], "transitions": [{"from": "a"}]}}),
        (("types",), {"Money": {}}),
        (("error_handling",), {"x": {"action": "ignore"}}),
        (("testing", "test_cases"), {"name": "x"}),
    ],
)
def test_wrong_files_do_not_fit(path: tuple[str | int, ...], value: Any, validator: Any) -> None:
    """Unknown keys, wrong types, missing settings."""
    data = data_of("hello_world")
    put(data, path, value)
    assert list(validator.iter_errors(data)) != []


@pytest.mark.parametrize("key", ["node_id", "type", "intent"])
def test_a_file_without_a_required_key_does_not_fit(key: str, validator: Any) -> None:
    data = data_of("hello_world")
    del data[key]
    assert [error.validator for error in validator.iter_errors(data)] == ["required"]


@pytest.mark.parametrize(
    "step",
    [
        {"return_success": {"message": "x"}},
        {"step": "x", "operation": "arithmetic", "parameters": {"expression": "1 + 1", "output": "y"}},
        {"operation": "custom.images.resize", "width": 5, "anything": [1]},
        {"operation": "loop", "condition": "true", "steps": {"operation": "arithmetic", "expression": "1"}},
        {"operation": "database_query", "query": "SELECT 1", "on_result": {"if_empty": {"return_error": "x"}}},
        {"operation": "call_node", "node_id": "a_v1", "on_error": {"timeout": "retry"}, "timeout": 5},
    ],
)
def test_other_ways_to_write_a_step_fit(step: Any, validator: Any) -> None:
    data = data_of("hello_world")
    data["flow"] = [step]
    assert [error.message for error in validator.iter_errors(data)] == []


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_needs_its_settings(name: str, validator: Any) -> None:
    data = data_of("hello_world")
    operation = OPERATIONS[name]
    data["flow"] = [{"step": "x", "operation": name}]
    assert (list(validator.iter_errors(data)) == []) == (not operation.required)
    data["flow"] = [{"step": "x", "operation": name, "no_such_setting": 1}]
    assert list(validator.iter_errors(data)) != []


def test_every_key_and_code_has_its_sentence() -> None:
    """The page names all sections, operations and codes."""
    assert sorted(SECTION_TEXTS) == sorted(NODE_KEYS)
    assert sorted(STEP_TEXTS) == sorted(STEP_KEYS)
    page = pages("", lambda titles, rows: "\n".join(" | ".join(row) for row in (titles, *rows)))["vesper-nodes.md"]
    for word in (*NODE_KEYS, *STEP_KEYS, *OPERATIONS, *CODES):
        assert f"`{word}`" in page
