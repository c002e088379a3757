"""Steps: from the declarations of a flow to the steps of the IR, in one walk.

The walk keeps the variables and their types in a `NameScope`. Branches share one scope: a variable that only some of
them write may be null afterwards. `Steps.lower` looks the operation up in a table; effects are in `effects`,
transforms in `transforms`. `names_in` and `writes_of` say what steps of the IR read and write.

What a node answers with, the fields of `return_success` and `return_error`, is held against those that are declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper import ir
from lyra.vesper.check.contracts import ContractReader
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.state import CheckState, NameScope
from lyra.vesper.check.transforms import Transforms
from lyra.vesper.check.types import common, element_of, misfit
from lyra.vesper.expressions.parser import KEYWORDS, has_placeholder
from lyra.vesper.ir import Arithmetic, Constant, ErrorAnswer, NodeVariable, TypedExpression
from lyra.vesper.nodes.model import FieldDeclaration, Setting, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.nodes.steps import CUSTOM, EFFECTS, OPERATIONS, operation_named
from lyra.vesper.values.limits import ITERATIONS_DEFAULT, ITERATIONS_MAX, SCALE_MAX
from lyra.vesper.values.names import is_identifier
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.types import (
    ANY,
    INTEGER,
    NULL,
    STRING,
    Array,
    DecimalType,
    EnumType,
    ValueType,
    describe,
    is_numeric,
    without_null,
)

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


_ROUNDINGS: Final = ("half_even", "half_up", "down")
_WALKS_MAX: Final = 200
_GUARD_KEYS: Final = ("condition", "expression", "guard", "check")
_NOT_IDENTIFIER: Final = re.compile(r"[^A-Za-z0-9_]+")
Lower = Callable[["Steps", StepDeclaration, NameScope], Sequence[ir.Step]]


class Steps:
    """Lowers the steps of one node."""

    def __init__(
        self,
        state: CheckState,
        typing: Typing,
        contracts: ContractReader,
        answers: AnswerReader,
        transforms: Transforms,
    ) -> None:
        self.state = state
        self.typing = typing
        self.contracts = contracts
        self.answers = answers
        self.transforms = transforms
        self.operations: dict[str, Lower] = dict(_OPERATIONS)
        self.walks = 0  # second walks through loops
        self.lower_effect: Lower | None = None  # set by the part that knows effects

    # ------------------------------------------------------------ blocks
    def block(self, declarations: Sequence[StepDeclaration], scope: NameScope) -> tuple[ir.Step, ...]:
        """Return the steps of a block. Those after a return are never reached."""
        steps: list[ir.Step] = []
        is_over = False
        for declaration in declarations:
            if is_over:
                self.state.warn("unreachable", f"step `{declaration.name}` is never reached", declaration.path)
            steps += self.lower(declaration, scope)
            is_over = is_over or always_returns(steps)
        return tuple(steps)

    def lower(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        self.state.observer.enter(step, scope)
        operation = operation_named(step.operation)
        if operation is None:
            hint = close_to(step.operation, OPERATIONS) or f"the operations are {', '.join(OPERATIONS)}"
            path = (*step.path, "operation")
            self.state.error(
                "unknown_operation", f"there is no operation `{step.operation}`", path, hint=hint, value=True
            )
            self.state.is_broken = True
            self.bind(step, ANY, scope)
            return ()
        missing = [key for key in operation.required if key not in step.settings or step.settings[key].value is None]
        for key in missing:
            self.state.error("missing_key", f"{step.operation} has no `{key}`", step.path)
        if missing:
            self.bind(step, ANY, scope)
            return ()
        before = dict(scope.names)
        steps = self._lower_step(step, scope)
        if any(lowered.guards for lowered in steps):
            # After a step with guards, what it wrote may be null, or have its value from before.
            for name, kind in scope.names.items():
                if before.get(name) != kind:
                    scope.names[name] = common(before.get(name, NULL), kind)
        return steps

    def _lower_step(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        if step.operation in EFFECTS or step.operation.startswith(CUSTOM):
            assert self.lower_effect is not None
            return self.lower_effect(self, step, scope)
        for key in ("on_success", "on_result", "timeout", "retry_policy"):
            if key in step.settings and not (key == "on_success" and step.operation == "validation"):
                path = step.settings[key].path
                self.state.warn("no_effect", f"`{key}` has no effect on a step that does not act outside", path)
        for key in ("on_error", "error_handling"):
            if key in step.settings:
                message = f"`{key}` answers failed acts, and a step of {step.operation} does not act outside"
                answers = "`on_failure` says what a failed check answers" if step.operation == "validation" else ""
                hint = answers or "remove it; `error_handling` of the node answers errors of all steps"
                self.state.error("no_effect", message, step.settings[key].path, hint=hint)
        return self.operations[step.operation](self, step, scope)

    # ------------------------------------------------------------ parts of steps
    def guards(self, step: StepDeclaration, scope: NameScope, key: str = "guards") -> tuple[ir.Condition, ...]:
        setting = step.settings.get(key)
        if setting is None or setting.value is None:
            return ()
        is_list = isinstance(setting.value, list)
        items = setting.value if is_list else [setting.value]
        checks = []
        for index, item in enumerate(items):
            path = (*setting.path, index) if is_list else setting.path
            guard, guard_path = item, path
            if isinstance(item, dict):
                key_name = next((name for name in _GUARD_KEYS if name in item), None)
                if key_name is None:
                    self.state.error("wrong_form", "a guard is a condition", path)
                    continue
                guard, guard_path = item[key_name], (*path, key_name)
            checks.append(self.contracts.guard(guard, guard_path, scope))
        return tuple(checks)

    def base(self, step: StepDeclaration, guards: tuple[ir.Condition, ...] = ()) -> dict[str, Any]:
        return {"name": step.name, "guards": guards, "place": self.state.document.place(step.path)}

    def output(self, step: StepDeclaration) -> str:
        """Return the variable that a step writes: `output`, or the step's name."""
        setting = step.settings.get("output")
        if setting is None:
            return _NOT_IDENTIFIER.sub("_", step.name) or "step"
        name = setting.value
        if not isinstance(name, str) or not is_identifier(name):
            self.state.error("bad_name", "`output` is no name of a variable", setting.path, value=True)
            self.state.is_broken = True
            return "_"
        if name in KEYWORDS or name in ("true", "false", "null"):
            self.state.error("reserved_word", f"`{name}` is a word of the language", setting.path, value=True)
        return name

    def bind(self, step: StepDeclaration, kind: ValueType, scope: NameScope) -> str:
        """Write the step's variable."""
        name = self.output(step)
        self.state.observer.bind(step, name, kind)
        self.write(name, kind, scope)
        return name

    def write(self, name: str, kind: ValueType, scope: NameScope) -> None:
        scope.names[name] = kind
        scope.aliases = {alias: value for alias, value in scope.aliases.items() if alias != name}

    def parameters(self, step: StepDeclaration, scope: NameScope) -> NameScope:
        """Return the scope with the step's free parameters as names."""
        if not step.parameters:
            return scope
        values = {
            name: self.typing.value(setting.value, setting.path, scope) for name, setting in step.parameters.items()
        }
        return scope.copy_with(aliases=scope.aliases | values)

    def value_of(self, setting: Setting, scope: NameScope) -> ir.TypedExpression:
        """Return an expression, or a template where the text has a placeholder."""
        if isinstance(setting.value, str) and not has_placeholder(setting.value):
            return self.typing.expression(setting.value, setting.path, scope)
        return self.typing.value(setting.value, setting.path, scope)

    # ------------------------------------------------------------ operations
    def validation(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        checks: tuple[ir.Condition, ...] = ()
        for key in ("guards", "conditions", "condition", "rules", "checks"):
            checks += self.guards(step, scope, key)
        if not checks:
            self.state.error("missing_key", "the validation has no `guards`", step.path)
        return [ir.ValidateStep(checks=checks, failure=self._failure(step, scope), **self.base(step))]

    def _failure(self, step: StepDeclaration, scope: NameScope) -> ir.ErrorAnswer | None:
        setting = step.settings.get("return_error")
        if setting is not None:
            return self.answers.error_of(setting.value, setting.path, scope)
        setting = step.settings.get("on_failure")
        if setting is None or setting.value is None:
            self.state.codes.add("validation_failed")
            return None
        if isinstance(setting.value, dict) and "return_error" in setting.value:
            self.state.judge_keys(setting.value, ("return_error", "description"), setting.path)
            return self.answers.error_of(setting.value["return_error"], (*setting.path, "return_error"), scope)
        return self.answers.error_of(setting.value, setting.path, scope)

    def conditional(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        setting = step.settings["condition"]
        check = self.contracts.guard(setting.value, setting.path, scope)
        if not step.blocks.get("then") and not step.blocks.get("else"):
            self.state.warn("empty_block", "the conditional has neither `then` nor `else`", step.path)
        sides = scope.copy_with(), scope.copy_with()
        then = self.block(step.blocks.get("then", ()), sides[0])
        otherwise = self.block(step.blocks.get("else", ()), sides[1])
        is_over = always_returns(then), always_returns(otherwise)
        merge(scope, [side for side, over in zip(sides, is_over, strict=True) if not over] or [scope.copy_with()])
        branch = ir.BranchStep(condition=check.expression, then=then, otherwise=otherwise, **self.base(step, guards))
        return [branch]

    def arithmetic(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        inner = self.parameters(step, scope)
        setting = step.settings["expression"]
        value = self.typing.expression(setting.value, setting.path, inner)
        is_quotient = self.answers.may_be_integer(value)
        value = self._apply_rounding(step, value)
        name = self.bind(step, value.type, scope)
        (
            self.state.quotients.add
            if is_quotient and not isinstance(value, ir.Rounded)
            else self.state.quotients.discard
        )(name)
        return [ir.AssignStep(target=name, value=value, **self.base(step, guards))]

    def _apply_rounding(self, step: StepDeclaration, value: ir.TypedExpression) -> ir.TypedExpression:
        scale, rounding = step.settings.get("scale"), step.settings.get("rounding")
        if rounding is not None and rounding.value not in _ROUNDINGS:
            self.state.error("unknown_word", f"`rounding` is one of {', '.join(_ROUNDINGS)}", rounding.path, value=True)
            rounding = None
        if scale is None:
            if rounding is not None:
                self.state.error("missing_key", "`rounding` needs a `scale`", rounding.path)
            return value
        if not isinstance(scale.value, int) or isinstance(scale.value, bool) or not 0 <= scale.value <= SCALE_MAX:
            self.state.error("bad_value", f"a scale is a whole number from 0 to {SCALE_MAX}", scale.path, value=True)
            return value
        kind = without_null(value.type)
        if kind != ANY and not is_numeric(kind):
            self.state.error("type", f"a value of type {describe(kind)} has no scale", scale.path)
            return value
        mode = str(rounding.value) if rounding else "half_even"
        return ir.Rounded(
            type=DecimalType(scale.value), operand=value, scale=scale.value, rounding=mode, place=value.place
        )

    def string_template(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        setting = step.settings["template"]
        if not isinstance(setting.value, str):
            self.state.error("wrong_form", "`template` is a text", setting.path, value=True)
            return ()
        value = self.typing.template(setting.value, setting.path, self.parameters(step, scope))
        name = self.bind(step, value.type, scope)
        return [ir.AssignStep(target=name, value=value, **self.base(step, guards))]

    def data_transform(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        value = self.transforms.transform(step, scope)
        name = self.bind(step, value.type, scope)
        return [ir.AssignStep(target=name, value=value, **self.base(step, guards))]

    def matrix_multiply(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        left, right = (self.value_of(step.settings[key], scope) for key in ("left", "right"))
        items = []
        for key, side in (("left", left), ("right", right)):
            row = element_of(side.type)
            item = element_of(row) if row is not None else None
            if item is None or not (without_null(item) == ANY or is_numeric(item)):
                what = describe(without_null(side.type))
                path = step.settings[key].path
                self.state.error("type", f"a matrix is an array of arrays of numbers, not {what}", path, value=True)
                item = ANY
            items.append(without_null(item))
        kind = Array(Array(common(*items)))
        name = self.bind(step, kind, scope)
        product = ir.MatrixProduct(type=kind, left=left, right=right, place=left.place)
        return [ir.AssignStep(target=name, value=product, **self.base(step, guards))]

    def returns(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        success = step.settings.get("return_success") or step.settings.get("success")
        error = step.settings.get("return_error") or step.settings.get("error")
        if success is not None and error is not None:
            self.state.error("wrong_form", "a return is a success or an error, not both", error.path)
        if error is not None:
            value = self.answers.error_of(error.value, error.path, scope)
            return [ir.ReturnStep(error=value, **self.base(step, guards))]
        if success is None:
            path = (*step.path, "parameters") if step.parameters else step.path
            if not step.parameters and self.state.node.success:
                self.state.error("missing_key", "the return has neither `return_success` nor `return_error`", step.path)
                return [ir.ReturnStep(success=(), **self.base(step, guards))]
            success = Setting({name: setting.value for name, setting in step.parameters.items()}, path)
        fields = self.answers.success_of(success.value, success.path, scope)
        return [ir.ReturnStep(success=fields, **self.base(step, guards))]

    def for_each(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        collection = self.transforms.collection(step.settings["input"], scope)
        item = element_of(collection.type)
        if item is None:
            what = describe(without_null(collection.type))
            path = step.settings["input"].path
            self.state.error("type", f"for_each goes through a collection, not {what}", path, value=True)
            item = ANY
        variable = self._variable(step)
        steps = self._lower_rounds(step, scope, {variable: item})
        return [ir.ForEachStep(collection=collection, variable=variable, steps=steps, **self.base(step, guards))]

    def _variable(self, step: StepDeclaration) -> str:
        setting = step.settings.get("as")
        if setting is None:
            return "item"
        if not isinstance(setting.value, str) or not is_identifier(setting.value):
            self.state.error("bad_name", "`as` is no name of a variable", setting.path, value=True)
            return "item"
        return setting.value

    def _lower_rounds(
        self, step: StepDeclaration, scope: NameScope, extra: dict[str, ValueType]
    ) -> tuple[ir.Step, ...]:
        """Return the steps of a loop. Where a round changes types, a second walk starts with what it leaves. The number
        of such walks is bounded, since loops inside loops multiply them."""
        before = dict(scope.names)
        inner = scope.copy_with()
        inner.names.update(extra)
        steps = self.block(step.blocks.get("steps", ()), inner)
        widened = {name: common(kind, inner.names.get(name, kind)) for name, kind in before.items()}
        if widened != before:
            self.walks += 1
            if self.walks > _WALKS_MAX:
                widened = {name: kind if kind == before[name] else ANY for name, kind in widened.items()}
            inner = scope.copy_with(names=widened | extra)
            if self.walks <= _WALKS_MAX:
                steps = self.block(step.blocks.get("steps", ()), inner)
        for name, kind in inner.names.items():
            if name not in extra or name in before:
                scope.names[name] = common(before.get(name, NULL), kind)
        if not steps:
            self.state.warn("empty_block", f"{step.operation} has no steps", step.path)
        return steps

    def loop(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        setting = step.settings["condition"]
        before = set(scope.names)
        steps = self._lower_rounds(step, scope, {})
        known = {name: kind for name, kind in scope.names.items() if name in before}
        check = self.contracts.guard(setting.value, setting.path, scope.copy_with(names=known))
        limit = step.settings.get("max_iterations")
        count = limit.value if limit else ITERATIONS_DEFAULT
        if limit is None:
            self.state.warn(
                "no_limit", f"the loop has no `max_iterations`; it ends after {ITERATIONS_DEFAULT}", step.path
            )
        elif not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= ITERATIONS_MAX:
            self.state.error(
                "bad_value", f"`max_iterations` is a whole number from 1 to {ITERATIONS_MAX}", limit.path, value=True
            )
            count = ITERATIONS_DEFAULT
        return [ir.LoopStep(condition=check.expression, max_iterations=count, steps=steps, **self.base(step, guards))]

    def parallel(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.guards(step, scope)
        written: dict[str, str] = {}
        steps: list[ir.Step] = []
        sides: list[NameScope] = []
        for declaration in step.blocks.get("steps", ()):
            side = scope.copy_with()
            lowered = self.lower(declaration, side)
            steps += lowered
            sides.append(side)
            if any(isinstance(part, ir.TransactionStep) for part in parts_of(lowered)):
                self.state.error("parallel", "a transaction cannot stand among parallel steps", declaration.path)
            if any(isinstance(part, ir.ReturnStep) for part in lowered):
                self.state.error("parallel", "a return cannot stand among parallel steps", declaration.path)
            self._check_parallel(declaration, lowered, written)
        for side in sides:
            for name, kind in side.names.items():
                if scope.names.get(name) != kind:
                    scope.names[name] = kind
        return [ir.ParallelStep(steps=tuple(steps), **self.base(step, guards))]

    def _check_parallel(self, declaration: StepDeclaration, steps: Sequence[ir.Step], written: dict[str, str]) -> None:
        reads, writes = names_in(steps), writes_of(steps)
        for name in sorted((reads | writes) & written.keys()):
            message = f"step `{declaration.name}` needs `{name}` of step `{written[name]}`, which runs at the same time"
            self.state.error("parallel", message, declaration.path)
        written.update(dict.fromkeys(writes, declaration.name))


_OPERATIONS: Final[dict[str, Lower]] = {
    "validation": Steps.validation,
    "conditional": Steps.conditional,
    "arithmetic": Steps.arithmetic,
    "string_template": Steps.string_template,
    "data_transform": Steps.data_transform,
    "matrix.multiply": Steps.matrix_multiply,
    "return": Steps.returns,
    "for_each": Steps.for_each,
    "loop": Steps.loop,
    "parallel": Steps.parallel,
}


def merge(scope: NameScope, sides: Sequence[NameScope]) -> None:
    """Merge the variables of alternative blocks into the scope; a variable that one block lacks may be null."""
    names = {name: None for side in sides for name in side.names}
    merged: dict[str, ValueType] = {}
    for name in names:
        kinds = [side.names.get(name, NULL) for side in sides]
        merged[name] = kinds[0]
        for kind in kinds[1:]:
            merged[name] = common(merged[name], kind)
    scope.names.clear()
    scope.names.update(merged)


def always_returns(steps: Sequence[ir.Step]) -> bool:
    """Return whether the steps always end the node."""
    return any(_returns(step) for step in steps)


def _returns(step: ir.Step) -> bool:
    if step.guards:
        return False
    if isinstance(step, ir.ReturnStep):
        return True
    if isinstance(step, ir.BranchStep):
        return always_returns(step.then) and always_returns(step.otherwise)
    if isinstance(step, ir.TransactionStep):
        return always_returns(step.steps)
    if isinstance(step, ir.EffectStep):
        return always_returns(step.found) and always_returns(step.empty)
    return False


def parts_of(part: Any) -> Iterator[Any]:
    """Yield the part and everything inside it."""
    rest = [part]
    while rest:
        item = rest.pop()
        if isinstance(item, (list, tuple)):
            rest.extend(reversed(item))
        elif isinstance(item, msgspec.Struct):
            yield item
            rest.extend(getattr(item, name) for name in reversed(item.__struct_fields__))


def depth_of(part: Any) -> int:
    """Return how deep the expressions inside are, at most."""
    deepest = 0
    rest = [(part, 0)]
    while rest:
        item, depth = rest.pop()
        if isinstance(item, (list, tuple)):
            rest.extend((inner, depth) for inner in item)
        elif isinstance(item, msgspec.Struct):
            depth = depth + 1 if isinstance(item, ir.TypedExpression) else 0
            deepest = max(deepest, depth)
            rest.extend((getattr(item, name), depth) for name in item.__struct_fields__)
    return deepest


def names_in(part: Any) -> set[str]:
    """Return all names that expressions inside mention."""
    return {item.name for item in parts_of(part) if isinstance(item, ir.NodeVariable)}


def writes_of(part: Any) -> set[str]:
    """Return the variables that steps inside write."""
    names: set[str] = set()
    for item in parts_of(part):
        if isinstance(item, ir.AssignStep):
            names.add(item.target)
        elif isinstance(item, ir.EffectStep):
            names.update(name for name in (item.output, *(name for name, _ in item.extract)) if name)
        elif isinstance(item, ir.TransitionStep) and item.output:
            names.add(item.output)
        elif isinstance(item, ir.ForEachStep):
            names.add(item.variable)
    return names
