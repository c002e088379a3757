"""Types that msgspec does not know: pydantic's models, anywhere inside a type, without importing pydantic.

`schema_of(kind)` gives the JSON schema of a type and the parts that it refers to; `read_foreign` is the hook with which
msgspec reads such a part of a value. Errors are short sentences, for a model to read. A type with pydantic's own
constraints (`Annotated[int, Field(gt=3)]`, `annotated_types`), which msgspec would pass over, is left to pydantic as a
whole: `with_constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from lyra.core.codec import is_model, read_model
from lyra.errors import ConfigError

__all__ = ["Adapted", "in_short", "is_model", "read_foreign", "schema_of", "with_constraints"]

_CONSTRAINTS = ("pydantic", "pydantic_core", "annotated_types")  # packages whose annotations pydantic enforces


class Adapted:
    """A type that pydantic reads and describes; looks like a model. A subclass is made for each such type.

    `read_foreign` gives an object of it that holds the value."""

    adapter: Any = None

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def model_json_schema(cls, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
        schema: dict[str, Any] = cls.adapter.json_schema(ref_template=ref_template)
        return schema

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        return cls.adapter.validate_python(value)

    @classmethod
    def model_validate_json(cls, data: bytes) -> Any:
        return cls.adapter.validate_json(data)


def with_constraints(kind: Any) -> Any:
    """Return the type, or what represents it where it carries constraints of pydantic's; ConfigError if pydantic cannot
    read the rest of it."""
    if not _is_constrained(kind, set()):
        return kind
    from pydantic import TypeAdapter

    try:
        adapter = TypeAdapter(kind)
        adapter.json_schema()
    except Exception as error:  # noqa: BLE001 - a type's own code may raise anything
        raise ConfigError(
            f"{kind!r} has pydantic's constraints, and pydantic cannot read it: {in_short(error).partition('. ')[0]}",
            hint="use msgspec.Meta for the constraints of a Struct",
        ) from None
    return type("Adapted", (Adapted,), {"adapter": adapter})


def _is_constrained(kind: Any, seen: set[int]) -> bool:
    """Return whether an annotation of pydantic's is anywhere in a type that is not a pydantic model itself."""
    if id(kind) in seen or is_model(kind):
        return False
    seen.add(id(kind))
    if get_origin(kind) is Annotated and any(_is_constraint(mark) for mark in kind.__metadata__):
        return True
    if any(_is_constrained(part, seen) for part in get_args(kind) if not isinstance(part, (str, int, bytes))):
        return True
    if not (is_typeddict(kind) or is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))):
        return False
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - a hint may be any text; msgspec says what it cannot read
        return False
    if is_dataclass(kind) and any(_is_constraint(field.default) for field in fields(kind)):
        return True
    return any(_is_constrained(hint, seen) for hint in hints.values())


def _is_constraint(mark: Any) -> bool:
    return type(mark).__module__.partition(".")[0] in _CONSTRAINTS


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
    """Return a value as a pydantic model, from plain data."""
    if not is_model(kind):
        raise NotImplementedError
    try:
        model = read_model(kind, value)
        return kind(model) if issubclass(kind, Adapted) else model
    except ValueError as error:
        raise ValueError(in_short(error)) from None


def in_short(error: Exception) -> str:
    """Return the error on one line. Of pydantic's report with its URLs only the sentences are kept."""
    told = getattr(error, "errors", None)
    if not callable(told):
        return " ".join(str(error).split())
    return "; ".join(_sentence(problem) for problem in told() if isinstance(problem, Mapping)) or "it is not valid"


def _sentence(wrong: Mapping[str, Any]) -> str:
    place = ".".join(str(step) for step in wrong.get("loc", ()))
    message = " ".join(str(wrong.get("msg", "not valid")).split())
    return f"{place}: {message}" if place else message
