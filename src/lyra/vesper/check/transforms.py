"""Transforms of collections: map, filter, reduce, aggregate and group_by as expressions.

The element is `record`, or what `as` names; its fields may be named without it. `function: "x => x * 2"` names the
element too. The accumulator of reduce is `accumulator`. Aggregations are texts such as `SUM(amount)`, `COUNT(*)`, or
mappings with `function` and `field`.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.errors import ParseError
from lyra.vesper import ir
from lyra.vesper.check.infer import Typing, map_of
from lyra.vesper.check.state import CheckState, Element, NameScope, TextSite
from lyra.vesper.check.types import aggregate_type, common, element_of
from lyra.vesper.expressions.functions import AGGREGATES
from lyra.vesper.expressions.parser import has_placeholder, parse_expression
from lyra.vesper.expressions.terms import BinaryTerm, CallTerm, NameTerm, StarTerm, Term
from lyra.vesper.nodes.model import Setting, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.names import is_identifier
from lyra.vesper.values.types import ANY, Array, RecordField, RecordType, ValueType, describe, without_null

TRANSFORMS: Final = ("map", "filter", "reduce", "aggregate", "group_by")


class Transforms:
    """Reads the data_transform steps of one node."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing

    def transform(self, step: StepDeclaration, scope: NameScope) -> ir.TypedExpression:
        """Return the expression of a step."""
        collection = self.collection(step.settings.get("input"), scope)
        item = element_of(collection.type)
        setting = step.settings["transform"]
        kind = setting.value
        if item is None:
            what = describe(without_null(collection.type))
            path = step.settings["input"].path
            self.state.error("type", f"the input of a transform is a collection, not {what}", path, value=True)
            item = ANY
        if kind not in TRANSFORMS:
            hint = close_to(str(kind), TRANSFORMS)
            self.state.error(
                "unknown_word", f"`transform` is one of {', '.join(TRANSFORMS)}", setting.path, hint=hint, value=True
            )
            return ir.Constant(type=ANY, value=None)
        return self._kinds[kind](self, step, scope, collection, item)

    def collection(self, setting: Setting | None, scope: NameScope) -> ir.TypedExpression:
        """Return the input of a step: an expression, or a template with one placeholder."""
        if setting is None:
            return ir.Constant(type=ANY, value=None)
        if isinstance(setting.value, str) and has_placeholder(setting.value):
            return self.typing.template(setting.value, setting.path, scope)
        return self.typing.expression(setting.value, setting.path, scope)

    # ------------------------------------------------------------ kinds
    def _map(
        self, step: StepDeclaration, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        name, body = self._body(step, "function", scope, item)
        return ir.MapOver(type=Array(body.type), collection=collection, name=name, body=body, place=collection.place)

    def _filter(
        self, step: StepDeclaration, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        key = "condition" if "condition" in step.settings and "function" not in step.settings else "function"
        name, body = self._body(step, key, scope, item)
        self._boolean(body, step.settings.get(key))
        return ir.Filter(type=Array(item), collection=collection, name=name, body=body, place=collection.place)

    def _reduce(
        self, step: StepDeclaration, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        setting = step.settings.get("initial")
        initial: ir.TypedExpression = (
            self.typing.value(setting.value, setting.path, scope) if setting else ir.Constant(type=ANY, value=None)
        )
        if setting is None:
            self.state.error("missing_key", "reduce has no `initial`", step.path)
        accumulator = self._identifier(step, "accumulator", "accumulator")
        kind = initial.type
        name, body = self._body(step, "function", scope.with_name(accumulator, kind), item)
        if common(kind, body.type) != kind:
            kind = common(kind, body.type)
            name, body = self._body(step, "function", scope.with_name(accumulator, kind), item)
        return ir.Reduce(
            type=common(kind, body.type),
            collection=collection,
            name=name,
            accumulator=accumulator,
            initial=initial,
            body=body,
            place=collection.place,
        )

    def _aggregate(
        self, step: StepDeclaration, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        setting = step.settings.get("function")
        if setting is not None and "aggregations" not in step.settings and "group_by" not in step.settings:
            return self._aggregate_all(step, setting, scope, collection, item)
        return self._group_by(step, scope, collection, item)

    def _aggregate_all(
        self, step: StepDeclaration, setting: Setting, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        """Return one aggregate over the whole collection: a function's name, with a field, or an expression."""
        word = str(setting.value).strip()
        if word.upper() not in AGGREGATES:
            name = self._identifier(step, "as", "record")
            scope = scope.copy_with(names=scope.names | {name: collection.type})
            scope.aliases = scope.aliases | {name: collection}
            return self.typing.expression(setting.value, setting.path, scope)
        field = step.settings.get("field")
        if field is not None:
            name, body = self._body(step, "field", scope, item, fields_first=True)
            collection = ir.MapOver(type=Array(body.type), collection=collection, name=name, body=body)
            item = body.type
        kind = aggregate_type(word.lower(), item)
        if kind is None:
            what = describe(without_null(item))
            self.state.error("type", f"`{word}` does not take elements of type {what}", setting.path, value=True)
            kind = ANY
        return ir.Aggregate(type=kind, function=word.lower(), collection=collection, place=collection.place)

    def _group_by(
        self, step: StepDeclaration, scope: NameScope, collection: ir.TypedExpression, item: ValueType
    ) -> ir.TypedExpression:
        name = self._identifier(step, "as", "record")
        inner = scope.with_name(name, item)
        inner.element = Element(name, item, is_first=True)
        keys = self._keys(step, inner)
        aggregations = self._aggregations(step, inner)
        fields = [RecordField(key, value.type) for key, value in keys]
        for aggregation in aggregations:
            operand = aggregation.operand.type if aggregation.operand is not None else ANY
            fields.append(RecordField(aggregation.output, aggregate_type(aggregation.function, operand) or ANY))
        names = [field.name for field in fields]
        for field in fields:
            if names.count(field.name) > 1:
                self.state.error("duplicate_name", f"`{field.name}` is the name of two columns", step.path)
                break
        if not aggregations:
            fields.append(RecordField("items", Array(item)))
        row = RecordType("", tuple(fields))
        return ir.GroupBy(
            type=Array(row) if keys else row,
            collection=collection,
            name=name,
            keys=tuple(keys),
            aggregations=tuple(aggregations),
            place=collection.place,
        )

    _kinds: Final = {
        "map": _map,
        "filter": _filter,
        "reduce": _reduce,
        "aggregate": _aggregate,
        "group_by": _group_by,
    }

    # ------------------------------------------------------------ parts
    def _identifier(self, step: StepDeclaration, key: str, default: str) -> str:
        setting = step.settings.get(key)
        if setting is None:
            return default
        if not isinstance(setting.value, str) or not is_identifier(setting.value):
            self.state.error("bad_name", f"`{key}` is no name", setting.path, value=True)
            return default
        return setting.value

    def _body(
        self, step: StepDeclaration, key: str, scope: NameScope, item: ValueType, *, fields_first: bool = False
    ) -> tuple[str, ir.TypedExpression]:
        """Return the element's name and the expression for each element."""
        name = self._identifier(step, "as", "record")
        setting = step.settings.get(key)
        if setting is None:
            self.state.error("missing_key", f"the transform has no `{key}`", step.path)
            return name, ir.Constant(type=ANY, value=None)
        bound = lambda_name(setting.value)
        if bound is not None:
            return bound, self._lambda(setting, bound, scope, item)
        inner = scope.with_name(name, item)
        inner.element = Element(name, item, is_first=fields_first)
        return name, self._type_mapping(setting.value, setting.path, inner)

    def _lambda(self, setting: Setting, name: str, scope: NameScope, item: ValueType) -> ir.TypedExpression:
        term = parse_expression(setting.value)
        assert isinstance(term, BinaryTerm)
        inner = scope.with_name(name, item)
        inner.element = Element(name, item)
        return self.typing.term(term.right, inner, TextSite(setting.path))

    def _type_mapping(self, value: Any, path: Path, scope: NameScope) -> ir.TypedExpression:
        """Return a mapping of expressions is a record for each element; texts with placeholders are templates."""
        if isinstance(value, dict):
            return map_of({key: self._type_mapping(item, (*path, key), scope) for key, item in value.items()})
        if isinstance(value, str) and not has_placeholder(value):
            return self.typing.expression(value, path, scope)
        return self.typing.value(value, path, scope)

    def _boolean(self, body: ir.TypedExpression, setting: Setting | None) -> None:
        kind = without_null(body.type)
        if setting is not None and kind != ANY and describe(kind) not in ("boolean", "null"):
            message = f"a condition is a boolean, not {describe(kind)}"
            self.state.error("not_boolean", message, setting.path, value=True)

    def _keys(self, step: StepDeclaration, scope: NameScope) -> list[tuple[str, ir.TypedExpression]]:
        setting = step.settings.get("group_by")
        if setting is None:
            return []
        is_list = isinstance(setting.value, list)
        texts = setting.value if is_list else [setting.value]
        keys: list[tuple[str, ir.TypedExpression]] = []
        for index, text in enumerate(texts):
            path = (*setting.path, index) if is_list else setting.path
            if not isinstance(text, str):
                self.state.error("wrong_form", "a key of `group_by` is the name of a field", path, value=True)
                continue
            expression = self.typing.expression(text, path, scope)
            keys.append((text.strip().rpartition(".")[2], expression))
        return keys

    def _aggregations(self, step: StepDeclaration, scope: NameScope) -> list[ir.Aggregation]:
        setting = step.settings.get("aggregations")
        if setting is None:
            return []
        aggregations: list[ir.Aggregation] = []
        if isinstance(setting.value, dict):
            entries = [(name, item, (*setting.path, name)) for name, item in setting.value.items()]
        elif isinstance(setting.value, list):
            entries = [(_output_name(item), item, (*setting.path, index)) for index, item in enumerate(setting.value)]
        else:
            self.state.error("wrong_form", "`aggregations` maps names to aggregates", setting.path, value=True)
            return []
        for name, item, path in entries:
            aggregation = self._aggregation(name, item, path, scope)
            if aggregation is not None:
                aggregations.append(aggregation)
        return aggregations

    def _aggregation(self, name: str, value: Any, path: Path, scope: NameScope) -> ir.Aggregation | None:
        if not name:
            self.state.error("missing_key", "the aggregation has no `output`", path)
            return None
        if isinstance(value, dict):
            function = str(value.get("function", "")).upper()
            field = value.get("field")
            text = "*" if field in (None, "*") else str(field)
            key_path = (*path, "field") if field is not None else path
            if function not in AGGREGATES:
                self.state.error("unknown_word", f"`function` is one of {', '.join(AGGREGATES)}", key_path)
                return None
            if text == "*":
                return self._type_count(name, function, key_path)
            try:
                term = parse_expression(text)
            except ParseError as error:
                self.state.syntax(error, TextSite(key_path))
                return None
            return self._type_aggregation(name, function.lower(), term, TextSite(key_path), scope)
        if not isinstance(value, str):
            self.state.error("wrong_form", "an aggregation is a text such as SUM(amount)", path, value=True)
            return None
        site = TextSite(path)
        try:
            term = parse_expression(value)
        except ParseError as error:
            self.state.syntax(error, site)
            return None
        if not isinstance(term, CallTerm) or term.function.upper() not in AGGREGATES or len(term.arguments) != 1:
            hint = f"one of {', '.join(AGGREGATES)}"
            self.state.error("wrong_form", "an aggregation is a text such as SUM(amount)", path, hint=hint, value=True)
            return None
        argument = term.arguments[0]
        if isinstance(argument, StarTerm):
            return self._type_count(name, term.function, path)
        return self._type_aggregation(name, term.function.lower(), argument, site, scope)

    def _type_count(self, name: str, function: str, path: Path) -> ir.Aggregation | None:
        if function.upper() != "COUNT":
            self.state.error("type", f"`{function}` needs a field", path, value=True)
            return None
        return ir.Aggregation(name, "count")

    def _type_aggregation(
        self, name: str, function: str, term: Term, site: TextSite, scope: NameScope
    ) -> ir.Aggregation | None:
        operand = self.typing.term(term, scope, site)
        if aggregate_type(function, operand.type) is None:
            what = describe(without_null(operand.type))
            self.state.error("type", f"`{function.upper()}` does not take values of type {what}", site.path, value=True)
            return None
        return ir.Aggregation(name, function, operand)


def lambda_name(value: Any) -> str | None:
    """Return the parameter of `name => expression`."""
    if not isinstance(value, str) or "=>" not in value:
        return None
    try:
        term = parse_expression(value)
    except ParseError:
        return None
    is_lambda = isinstance(term, BinaryTerm) and term.operator == "=>" and isinstance(term.left, NameTerm)
    return term.left.name if is_lambda and isinstance(term, BinaryTerm) and isinstance(term.left, NameTerm) else None


def _output_name(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return str(value.get("output") or value.get("name") or "")
