"""One value of an execution takes no more memory than its node may."""

from __future__ import annotations

import pytest

from lyra.vesper.ir import expressions as ir
from lyra.vesper.ir.program import Assign, Input, Limits
from lyra.vesper.values.types import ANY, INTEGER, STRING, Array
from tests.vesper.building import EXECUTION, give, lit, name, node
from tests.vesper.paths import PATHS, RunPath


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", ["text", "array"])
def test_a_value_beyond_the_memory_limit_is_a_resource_limit(path: RunPath, value: str) -> None:
    item = ir.Text(type=STRING, parts=("x" * 3000, name("i"))) if value == "array" else name("i")
    body = ir.MapOver(type=ANY, collection=name("list"), name="i", body=item)
    joined = ir.Reduce(
        type=STRING,
        collection=name("list"),
        name="i",
        accumulator="all",
        initial=lit(""),
        body=ir.Text(type=STRING, parts=(name("all"), "x" * 3000)),
    )
    inputs = (Input("list", Array(INTEGER)),)
    program = node(
        Assign(name="n", target="n", value=joined if value == "text" else body),
        give(result=1),
        inputs=inputs,
        limits=Limits(memory_mb=1),
    )
    assert path(program, {"list": [1] * 300}, EXECUTION).status == "success"
    assert path(program, {"list": [1] * 400}, EXECUTION).error.code == "resource_limit"
