"""What a node answers with: the fields of `return_success` and `return_error`, against those that are declared."""

from __future__ import annotations

from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.state import CheckState, NameScope
from lyra.vesper.check.types import misfit
from lyra.vesper.ir import Arithmetic, Constant, ErrorAnswer, NodeVariable, TypedExpression
from lyra.vesper.nodes.model import FieldDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.types import ANY, INTEGER, STRING, EnumType, ValueType, describe, without_null

CODE_FIELDS: Final = ("error_code", "code")


class AnswerReader:
    """Reads answers of one node."""

    def __init__(
        self, state: CheckState, typing: Typing, success: dict[str, ValueType], error: dict[str, ValueType]
    ) -> None:
        self.state = state
        self.typing = typing
        self.success = success
        self.error = error
        self._optional = {field.name for field in state.node.success if not field.required}

    # ------------------------------------------------------------ success
    def success_of(self, value: Any, path: Path, scope: NameScope) -> tuple[tuple[str, TypedExpression], ...]:
        """Return the success fields of a return; all that are required must be there."""
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.state.error("wrong_form", "`return_success` maps fields to values", path, value=True)
            return ()
        fields: list[tuple[str, TypedExpression]] = []
        for name, item in value.items():
            item_path = (*path, name)
            expression = self.typing.value(item, item_path, scope)
            if name not in self.success:
                self._unknown(name, item_path, self.success, "success field")
                continue
            self.check_fit(expression, self.success[name], item_path)
            fields.append((name, expression))
        for field in self.state.node.success:
            if field.required and field.name not in value:
                message = f"the required output `{field.name}` is not returned here"
                self.state.error("missing_output", message, path)
        return tuple(fields)

    def check_fit(self, expression: TypedExpression, declared: ValueType, path: Path) -> None:
        """Remark on a value that can never have its declared type."""
        if isinstance(expression, Constant):
            self._check_constant(expression, declared, path)
            return
        reason = misfit(expression.type, declared)
        if reason and not (without_null(declared) == INTEGER and self.may_be_integer(expression)):
            self.state.error("type", f"the value does not fit: {reason}", path, value=True)

    def _check_constant(self, expression: Constant, declared: ValueType, path: Path) -> None:
        kind = without_null(declared)
        if isinstance(kind, EnumType) and isinstance(expression.value, str) and expression.value not in kind.values:
            hint = close_to(expression.value, kind.values)
            message = f"{expression.value!r} is no value of {describe(kind)}"
            self.state.error("type", message, path, hint=hint, value=True)
            return
        reason = misfit(expression.type, declared)
        if reason:
            self.state.error("type", f"the value does not fit: {reason}", path, value=True)

    def _unknown(self, name: str, path: Path, known: dict[str, ValueType], what: str) -> None:
        self.state.error("unknown_output", f"there is no {what} `{name}`", path, hint=close_to(name, known))

    # ------------------------------------------------------------ errors
    def error_of(self, value: Any, path: Path, scope: NameScope) -> ErrorAnswer:
        """Return the error of a return: a code, or a mapping with a code."""
        if isinstance(value, str):
            return ErrorAnswer(self._code(value, path, scope))
        if not isinstance(value, dict):
            self.state.error("wrong_form", "`return_error` is a code or maps fields to values", path, value=True)
            return ErrorAnswer(Constant(type=STRING, value="validation_failed"))
        code_key = next((key for key in CODE_FIELDS if key in value), None)
        if code_key is None:
            self.state.error("missing_code", "the error has no `error_code`", path)
            code: TypedExpression = Constant(type=ANY, value=None)
        else:
            code = self._code(value[code_key], (*path, code_key), scope)
        fields: list[tuple[str, TypedExpression]] = []
        for name, item in value.items():
            item_path = (*path, name)
            if name == code_key:
                continue
            expression = self.typing.value(item, item_path, scope)
            if self.error and name not in self.error and name != "message":
                self._unknown(name, item_path, self.error, "error field")
                continue
            if name in self.error:
                self.check_fit(expression, self.error[name], item_path)
            fields.append((name, expression))
        return ErrorAnswer(code, tuple(fields))

    def _code(self, value: Any, path: Path, scope: NameScope) -> TypedExpression:
        expression = self.typing.value(value, path, scope)
        if isinstance(expression, Constant) and isinstance(expression.value, str):
            self.state.codes.add(expression.value)
            self.check_code(expression.value, path)
        elif without_null(expression.type) not in (ANY, STRING) and not isinstance(
            without_null(expression.type), EnumType
        ):
            self.state.error("type", f"an error code is a string, not {describe(expression.type)}", path, value=True)
        elif (declared := self.list_error_codes()) is not None:
            kind = without_null(expression.type)
            if not isinstance(kind, EnumType) or not {*kind.values} <= {*declared, *CODES}:
                message = "the error code comes from a value, and the node lists the codes that it answers with"
                self.state.warn("undeclared_error", message, path, value=True)
        return expression

    def check_code(self, code: str, path: Path) -> None:
        """Error coverage: a code that the node answers with is among those that it declares."""
        declared = self.list_error_codes()
        if declared is not None and code not in declared and code not in CODES:
            hint = close_to(code, declared)
            message = f"error code `{code}` is not declared in outputs.error"
            self.state.error("undeclared_error", message, path, hint=hint, value=True)

    def list_error_codes(self) -> tuple[str, ...] | None:
        """Return the values of the error code's enum; None where the node does not list them."""
        for name in CODE_FIELDS:
            kind = without_null(self.error[name]) if name in self.error else None
            if isinstance(kind, EnumType):
                return kind.values
        return None

    def code_field(self) -> FieldDeclaration | None:
        return next((field for field in self.state.node.error if field.name in CODE_FIELDS), None)

    def may_be_integer(self, expression: TypedExpression) -> bool:
        """Return whether it comes from a quotient of integers, which is an integer where it is exact: only a run can
        tell."""
        if isinstance(expression, NodeVariable):
            return expression.name in self.state.quotients
        if not isinstance(expression, Arithmetic):
            return False
        pair = (expression.left, expression.right)
        are_integers = all(without_null(side.type) == INTEGER or self.may_be_integer(side) for side in pair)
        return are_integers and expression.type != INTEGER
