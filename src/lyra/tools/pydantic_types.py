"""Types that msgspec does not know: pydantic's models, anywhere inside a type, without importing pydantic.

`schema_of(kind)` gives the JSON schema of a type and the parts that it refers to; `read_foreign` is the hook with which
msgspec reads such a part of a value. Errors are short sentences, for a model to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["in_short", "is_model", "read_foreign", "schema_of"]


def is_model(kind: Any) -> bool:
    """Whether it is the class of a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def schema_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(schema, parts) as `msgspec.json.schema_components` has them; raises TypeError where there is none."""
    theirs: dict[str, Any] = {}

    def hook(model: Any) -> dict[str, Any]:
        if not is_model(model):
            raise NotImplementedError
        # Parts are named after the model they belong to: two models may each have an inner one of the same name.
        schema: dict[str, Any] = model.model_json_schema(ref_template=f"#/$defs/{model.__name__}.{{model}}")
        for name, part in schema.pop("$defs", {}).items():
            theirs[f"{model.__name__}.{name}"] = part
        return schema

    (reference,), parts = msgspec.json.schema_components([kind], schema_hook=hook)
    return reference, {**parts, **theirs}


def read_foreign(kind: Any, value: Any) -> Any:
    """A value as a pydantic model, from plain data."""
    if not is_model(kind):
        raise NotImplementedError
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(in_short(error)) from None


def in_short(error: Exception) -> str:
    """The error on one line. Of pydantic's report with its URLs only the sentences are kept."""
    told = getattr(error, "errors", None)
    if not callable(told):
        return " ".join(str(error).split())
    return "; ".join(_sentence(problem) for problem in told() if isinstance(problem, Mapping)) or "it is not valid"


def _sentence(wrong: Mapping[str, Any]) -> str:
    place = ".".join(str(step) for step in wrong.get("loc", ()))
    message = " ".join(str(wrong.get("msg", "not valid")).split())
    return f"{place}: {message}" if place else message
