"""Steps out of a document, and the table of their operations.

Settings stand at the top of a step or under `parameters`; what stands there and is no setting of the operation is, for
operations with `free` parameters, a value by name: of a query, a call, a template. A step without a name is called
after the step around it: `check.then[0]`. A mapping with `return_success` or `return_error` and no operation is a
return; so is such a mapping in place of a list of steps.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper.nodes.model import Setting, StepDeclaration
from lyra.vesper.nodes.reader import SectionReader
from lyra.vesper.values.limits import STEP_DEPTH_MAX, STEPS_MAX

_BLOCKS: Final = ("then", "else", "steps")
_RESULTS: Final = ("if_found", "if_empty")
_RETURNS: Final = ("return_success", "return_error")


class StepReader:
    """Reads lists of steps; counts them."""

    def __init__(self, reader: SectionReader) -> None:
        self.reader = reader
        self.count = 0

    def steps(self, value: Any, path: Path, *, parent: str = "", depth: int = 0) -> tuple[StepDeclaration, ...]:
        """Return the steps of a block: a list of them, or a single one."""
        if depth > STEP_DEPTH_MAX:
            self.reader.error("limit", f"steps are nested more than {STEP_DEPTH_MAX} deep", path)
            return ()
        is_by_name = isinstance(value, dict) and all(isinstance(i, dict) and "operation" in i for i in value.values())
        if is_by_name and value:
            self.reader.wrong("a list of steps, each of which begins with `- step: NAME`", value, path)
            return ()
        if isinstance(value, dict):
            step = self.step(value, path, parent or "flow", depth)
            return () if step is None else (step,)
        steps = [
            self.step(item, (*path, index), f"{parent or 'step'}[{index}]", depth)
            for index, item in enumerate(self.reader.items(value, path))
        ]
        return tuple(step for step in steps if step is not None)

    def step(self, value: Any, path: Path, default_name: str, depth: int) -> StepDeclaration | None:
        self.count += 1
        if self.count > STEPS_MAX:
            if self.count == STEPS_MAX + 1:
                self.reader.error("limit", f"the node has more than {STEPS_MAX} steps", path)
            return None
        if not isinstance(value, dict):
            self.reader.wrong("a step", value, path)
            return None
        name = value.get("step")
        if name is not None and not isinstance(name, str):
            self.reader.wrong("a text", name, (*path, "step"))
            name = None
        operation = self._operation(value, path)
        if operation is None:
            return None
        return self._build_declaration(value, path, name or default_name, operation, depth, is_named=bool(name))

    def _operation(self, value: dict[str, Any], path: Path) -> str | None:
        name = value.get("operation")
        if name is None:
            if any(key in value for key in _RETURNS):
                return "return"
            self.reader.error("missing_key", "the step has no `operation`", path)
            return None
        if not isinstance(name, str):
            self.reader.wrong("the name of an operation", name, (*path, "operation"))
            return None
        return name

    def _build_declaration(
        self, value: dict[str, Any], path: Path, name: str, operation: str, depth: int, *, is_named: bool
    ) -> StepDeclaration:
        known = operation_named(operation)
        settings, parameters = self._settings(value, path, known)
        return StepDeclaration(
            name=name,
            operation=operation,
            path=path,
            settings=settings,
            parameters=parameters,
            blocks=self._blocks(settings, name, depth),
            compensations=self._compensations(settings, name, depth),
            description=self.reader.text(value.get("description"), (*path, "description")),
            is_named=is_named,
        )

    def _settings(
        self, value: dict[str, Any], path: Path, operation: Operation | None
    ) -> tuple[dict[str, Setting], dict[str, Setting]]:
        """Return the step's settings by name, and its free parameters. Of an unknown operation, all names are
        settings."""
        below = value.get("parameters")
        names = (*STEP_KEYS, *_RETURNS, *operation.settings) if operation else ()
        settings: dict[str, Setting] = {}
        parameters: dict[str, Setting] = {}
        if isinstance(below, dict):
            has_own = operation is not None and (
                operation.name.startswith(CUSTOM)
                or any(key in value for key in operation.required or operation.settings)
            )
            for key, item in below.items():
                setting = Setting(item, (*path, "parameters", key))
                is_setting = operation is not None and key in names and not (operation.free and has_own)
                if is_setting or operation is None:
                    settings[key] = setting
                else:
                    parameters[key] = setting
            if "parameters" in below and operation is not None and operation.free and not has_own:
                parameters.pop("parameters", None)
                settings.pop("parameters", None)
                inner = self.reader.mapping(below["parameters"], (*path, "parameters", "parameters"))
                for key, item in inner.items():
                    parameters[key] = Setting(item, (*path, "parameters", "parameters", key))
        elif below is not None:
            self.reader.wrong("a mapping", below, (*path, "parameters"))
        for key, item in value.items():
            if key in ("step", "operation", "description", "parameters"):
                continue
            if operation is not None and key not in names:
                if operation.name.startswith(CUSTOM):
                    parameters[key] = Setting(item, (*path, key))
                else:
                    self.reader.unknown_key(key, (*path, key), names)
                continue
            settings[key] = Setting(item, (*path, key))
        if operation is not None and not operation.free:
            for key, setting in parameters.items():
                self.reader.unknown_key(key, setting.path, names)
        return settings, parameters

    def _blocks(self, settings: dict[str, Setting], name: str, depth: int) -> dict[str, tuple[StepDeclaration, ...]]:
        blocks: dict[str, tuple[StepDeclaration, ...]] = {}
        for key in _BLOCKS:
            setting = settings.get(key)
            if setting is not None and setting.value is not None:
                blocks[key] = self.steps(setting.value, setting.path, parent=f"{name}.{key}", depth=depth + 1)
        result = settings.get("on_result")
        if result is not None:
            table = self.reader.mapping(result.value, result.path)
            for key, value in table.items():
                path = (*result.path, key)
                if key not in _RESULTS:
                    self.reader.unknown_key(key, path, _RESULTS)
                elif value is not None:
                    blocks[key] = self.steps(value, path, parent=f"{name}.{key}", depth=depth + 1)
        return blocks

    def _compensations(
        self, settings: dict[str, Setting], name: str, depth: int
    ) -> dict[int, tuple[StepDeclaration, ...]]:
        setting = settings.get("on_error")
        if setting is None:
            return {}
        entries = setting.value if isinstance(setting.value, list) else [setting.value]
        compensations: dict[int, tuple[StepDeclaration, ...]] = {}
        for index, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("compensation_steps") is not None:
                path = (*setting.path, index) if isinstance(setting.value, list) else setting.path
                compensations[index] = self.steps(
                    entry["compensation_steps"],
                    (*path, "compensation_steps"),
                    parent=f"{name}.compensation",
                    depth=depth + 1,
                )
        return compensations


CUSTOM: Final = "custom."
STEP_KEYS: Final = (
    "step",
    "operation",
    "description",
    "parameters",
    "guards",
    "on_success",
    "on_error",
    "on_failure",
    "on_result",
    "error_handling",
    "timeout",
    "retry_policy",
    "output",
)


class Operation(msgspec.Struct, frozen=True):
    """What a step of this operation may and must say."""

    name: str
    settings: tuple[str, ...]
    required: tuple[str, ...] = ()
    free: bool = False  # `parameters` may hold values by names of the author's choice
    acts: bool = False  # has an effect outside the node
    text: str = ""


_TABLE: Final = (
    Operation(
        "validation",
        ("guards", "conditions", "condition", "rules", "checks", "return_error"),
        text="fails unless all guards are true",
    ),
    Operation(
        "conditional",
        ("condition", "then", "else"),
        required=("condition",),
        text="one of two blocks of steps",
    ),
    Operation(
        "state_machine_transition",
        ("state_machine", "entity", "from", "to"),
        required=("state_machine", "from", "to"),
        acts=True,
        text="moves an entity from one state to another",
    ),
    Operation("database_query", ("query",), required=("query",), free=True, acts=True, text="reads rows"),
    Operation(
        "database_write",
        ("table", "data", "consistency"),
        required=("table", "data"),
        acts=True,
        text="adds a row",
    ),
    Operation(
        "database_update",
        ("table", "where", "set", "consistency"),
        required=("table", "where", "set"),
        acts=True,
        text="changes rows",
    ),
    Operation(
        "database_delete",
        ("table", "where", "consistency"),
        required=("table", "where"),
        acts=True,
        text="removes rows",
    ),
    Operation(
        "transaction",
        ("steps",),
        required=("steps",),
        acts=True,
        text="database steps that are all done, or none",
    ),
    Operation(
        "external_api_call",
        ("provider", "endpoint", "method", "headers", "body", "url"),
        free=True,
        acts=True,
        text="calls a server",
    ),
    Operation("event_publish", ("event_type", "data"), required=("event_type",), acts=True, text="publishes an event"),
    Operation(
        "event_subscribe",
        ("event_type", "handler"),
        required=("event_type", "handler"),
        acts=True,
        text="registers a node for events, once",
    ),
    Operation(
        "data_transform",
        (
            "input",
            "transform",
            "function",
            "group_by",
            "aggregations",
            "initial",
            "as",
            "accumulator",
            "field",
            "condition",
        ),
        required=("input", "transform"),
        text="maps, filters, reduces, groups or aggregates a collection",
    ),
    Operation("string_template", ("template",), required=("template",), free=True, text="a text with values in it"),
    Operation(
        "arithmetic",
        ("expression", "scale", "rounding"),
        required=("expression",),
        free=True,
        text="the value of an expression",
    ),
    Operation(
        "return",
        ("return_success", "return_error", "success", "error"),
        free=True,
        text="ends the node",
    ),
    Operation("call_node", ("node_id", "inputs"), required=("node_id",), free=True, acts=True, text="runs a node"),
    Operation(
        "agent_call",
        ("agent", "prompt", "task", "input", "output_type"),
        required=("agent",),
        free=True,
        acts=True,
        text="asks an agent",
    ),
    Operation(
        "for_each",
        ("input", "as", "steps"),
        required=("input", "steps"),
        text="the steps for each element",
    ),
    Operation(
        "loop",
        ("condition", "max_iterations", "steps"),
        required=("condition", "steps"),
        text="the steps while a condition is true",
    ),
    Operation("parallel", ("steps",), required=("steps",), text="steps that do not need each other"),
    Operation("matrix.multiply", ("left", "right"), required=("left", "right"), text="the product of two matrices"),
)
OPERATIONS: Final[dict[str, Operation]] = {operation.name: operation for operation in _TABLE}
EFFECTS: Final = frozenset(operation.name for operation in _TABLE if operation.acts)


def operation_named(name: str) -> Operation | None:
    """Return the operation; `custom.<namespace>.<operation>` has free parameters."""
    if name.startswith(CUSTOM) and name.count(".") >= 2:
        return Operation(name, (), free=True, acts=True)
    return OPERATIONS.get(name)
