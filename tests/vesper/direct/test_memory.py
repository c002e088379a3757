"""One value of an execution takes no more memory than its node may."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.ir import AssignStep, NodeInput, NodeLimits
from lyra.vesper.values.types import ANY, INTEGER, STRING, Array, ValueType
from tests.vesper.building import EXECUTION, arith, give, lit, name, node
from tests.vesper.paths import PATHS, RunPath


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", ["text", "array"])
def test_a_value_beyond_the_memory_limit_is_a_resource_limit(path: RunPath, value: str) -> None:
    item = ir.TemplateText(type=STRING, parts=("x" * 3000, name("i"))) if value == "array" else name("i")
    body = ir.MapOver(type=ANY, collection=name("list"), name="i", body=item)
    joined = ir.Reduce(
        type=STRING,
        collection=name("list"),
        name="i",
        accumulator="all",
        initial=lit(""),
        body=ir.TemplateText(type=STRING, parts=(name("all"), "x" * 3000)),
    )
    inputs = (NodeInput("list", Array(INTEGER)),)
    program = node(
        AssignStep(name="n", target="n", value=joined if value == "text" else body),
        give(result=1),
        inputs=inputs,
        limits=NodeLimits(memory_mb=1),
    )
    assert path(program, {"list": [1] * 300}, EXECUTION).status == "success"
    assert path(program, {"list": [1] * 400}, EXECUTION).error.code == "resource_limit"


def _outcomes(path: RunPath, value: ir.TypedExpression, kind: ValueType, *inputs: Any) -> list[str]:
    program = node(
        AssignStep(name="n", target="n", value=value),
        give(result=1),
        inputs=(NodeInput("s", kind),),
        limits=NodeLimits(memory_mb=1),
    )
    outcomes = [path(program, {"s": item}, EXECUTION) for item in inputs]
    return [outcome.status if outcome.error is None else outcome.error.code for outcome in outcomes]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [STRING, ANY], ids=["string", "any"])
def test_a_text_counts_its_characters(path: RunPath, kind: ValueType) -> None:
    template = ir.TemplateText(type=STRING, parts=("<", name("s", kind), ">"))
    fits, too_long = "x" * (2**20 - 2), "x" * (2**20 - 1)
    assert _outcomes(path, template, kind, fits, too_long) == ["success", "resource_limit"]
    assert _outcomes(path, arith("ab", "+", name("s", kind)), kind, fits, too_long) == ["success", "resource_limit"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("element", "count"), [(1, 16384), ("x" * 10, 14169)], ids=["integer", "text"])
def test_an_array_counts_its_elements_and_their_texts(path: RunPath, element: Any, count: int) -> None:
    copied = ir.MapOver(type=ANY, collection=name("s"), name="i", body=name("i"))
    for kind in (Array(STRING if isinstance(element, str) else INTEGER), ANY):
        outcomes = _outcomes(path, copied, kind, [element] * count, [element] * (count + 1))
        assert outcomes == ["success", "resource_limit"]
