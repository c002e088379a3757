"""A node as its file declares it: data with the paths of its parts, nothing judged yet.

Expressions and templates are texts here; `lyra.vesper.check` reads them. Every declaration has the path of its part
of the file, with which `Node.document` finds its line and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper.loading import Issue, NodeDocument


class ChangelogEntry(msgspec.Struct, frozen=True):
    """An entry of the change log."""

    version: str = ""
    date: str = ""
    changes: tuple[str, ...] = ()


class Metadata(msgspec.Struct, frozen=True):
    """What is known about a node. `route`, `events` and `schedule` say how handlers and jobs are reached."""

    author: str = ""
    created: str = ""
    version: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    changelog: tuple[ChangelogEntry, ...] = ()
    route: str = ""  # of an http_handler: a method and a path
    events: tuple[str, ...] = ()  # of an event_handler
    schedule: str = ""  # of a scheduled_job: `every 5m`, or five fields of cron


class FieldDeclaration(msgspec.Struct, frozen=True):
    """An input, an output or a field of a custom type."""

    name: str
    type: str
    path: Path
    required: bool = True
    default: Any = msgspec.UNSET  # as it is written; UNSET: none
    constraints: tuple[tuple[Any, Path], ...] = ()  # texts and one-key maps
    values: tuple[str, ...] = ()  # of an enum
    scale: int | None = None
    sensitive: bool | None = None  # None: the file says nothing
    description: str = ""


class TypeDeclaration(msgspec.Struct, frozen=True):
    """A custom type: a record with fields, or a base type with constraints."""

    name: str
    path: Path
    fields: tuple[FieldDeclaration, ...] = ()
    base: FieldDeclaration | None = None
    constraints: tuple[tuple[Any, Path], ...] = ()


class ContractText(msgspec.Struct, frozen=True):
    text: str
    path: Path
    is_prose: bool = False  # written as a mapping: a label and a sentence


class Contracts(msgspec.Struct, frozen=True):
    preconditions: tuple[ContractText, ...] = ()
    postconditions: tuple[ContractText, ...] = ()
    invariants: tuple[ContractText, ...] = ()


class Setting(msgspec.Struct, frozen=True):
    """A value in a file, and its path."""

    value: Any
    path: Path


_WITHOUT_TARGET: Final = ("validation", "conditional", "return", "for_each", "loop", "parallel", "transaction")


class StepDeclaration(msgspec.Struct, frozen=True):
    """A step: its operation, its settings by name, and the steps inside it by block.

    Settings stand at the top of the step or under `parameters`; the top wins. `parameters` keeps what stands under that
    key and is no setting of the operation. Blocks are then, else, steps, if_found and if_empty.
    """

    name: str
    operation: str
    path: Path
    settings: dict[str, Setting] = {}
    parameters: dict[str, Setting] = {}
    blocks: dict[str, tuple[StepDeclaration, ...]] = {}
    compensations: dict[int, tuple[StepDeclaration, ...]] = {}  # by entry of on_error
    description: str = ""
    is_named: bool = True

    @property
    def target(self) -> str:
        """The variable that the step writes, "" where it writes none."""
        if self.operation in _WITHOUT_TARGET:
            return ""
        return str(self.settings["output"].value) if "output" in self.settings else self.name

    def inner(self) -> Iterator[StepDeclaration]:
        """Yield the steps inside this one, at any depth."""
        for block in (*self.blocks.values(), *self.compensations.values()):
            for step in block:
                yield step
                yield from step.inner()


class ErrorHandling(msgspec.Struct, frozen=True):
    """What the node does about an error code."""

    code: str
    path: Path
    settings: dict[str, Setting] = {}
    compensation: tuple[StepDeclaration, ...] = ()


class NodeRates(msgspec.Struct, frozen=True):
    """How often a node may be executed, as texts such as `100/minute`; empty: no limit."""

    per_user: str = ""
    overall: str = ""  # `global` in the file


class Performance(msgspec.Struct, frozen=True):
    expected_latency_ms: int | Decimal | None = None
    p99_latency_ms: int | Decimal | None = None
    max_latency_ms: int | Decimal | None = None
    memory_limit_mb: int | None = None
    cpu_limit_cores: int | Decimal | None = None
    timeout_seconds: int | Decimal | None = None
    rate_limit: NodeRates | None = None


class Security(msgspec.Struct, frozen=True):
    capabilities_required: tuple[str, ...] = ()
    denied_capabilities: tuple[str, ...] = ()
    sensitive_data: tuple[str, ...] | bool = ()  # names of fields, or true for all
    audit_level: str = ""  # none, basic or detailed; empty: not said
    compliance: tuple[str, ...] = ()


class DeclaredMetric(msgspec.Struct, frozen=True):
    """A figure that a node asks to be kept: executions counted, a number shown, or numbers spread over buckets."""

    name: str = ""
    type: str = "counter"
    labels: tuple[str, ...] = ()
    buckets: tuple[int | Decimal, ...] = ()


class DeclaredAlert(msgspec.Struct, frozen=True):
    """A condition on the latest executions of a node that is told as an Event when it becomes true."""

    condition: str = ""
    severity: str = "warning"
    notify: tuple[str, ...] = ()


class NodeTracing(msgspec.Struct, frozen=True):
    enabled: bool = False
    sample_rate: int | Decimal | None = None


class NodeLogging(msgspec.Struct, frozen=True):
    level: str = "none"
    structured: bool = False
    include_request_id: bool = False


class Observability(msgspec.Struct, frozen=True):
    metrics: tuple[DeclaredMetric, ...] = ()
    alerts: tuple[DeclaredAlert, ...] = ()
    tracing: NodeTracing = NodeTracing()
    logging: NodeLogging = NodeLogging()


class PropertyTest(msgspec.Struct, frozen=True):
    property: str = ""
    description: str = ""
    strategy: str = ""  # for other tools
    invariant: str = ""
    verify: str = ""


class TestCase(msgspec.Struct, frozen=True):
    """A test in the file: inputs, and the part of the outcome that is expected."""

    __test__ = False

    name: str = ""
    description: str = ""
    inputs: dict[str, Any] = {}
    expected_output: dict[str, Any] = {}
    answers: dict[str, Any] | None = None  # by step: what its acts are answered; None: they are performed
    steps: tuple[Any, ...] = ()


class DifferentialTests(msgspec.Struct, frozen=True):
    """What `vesper verify` does for a node where no number of inputs is asked for."""

    enabled: bool = True
    sample_size: int | None = None


class Testing(msgspec.Struct, frozen=True):
    property_tests: tuple[PropertyTest, ...] = ()
    test_cases: tuple[TestCase, ...] = ()
    differential_tests: DifferentialTests = DifferentialTests()


class MoveDeclaration(msgspec.Struct, frozen=True):
    """A transition that a state machine allows."""

    source: str
    target: str
    path: Path
    guard: Setting | None = None


class MachineDeclaration(msgspec.Struct, frozen=True):
    name: str
    path: Path
    initial: str = ""
    states: tuple[str, ...] = ()
    moves: tuple[MoveDeclaration, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """Everything that a file declares. `issues` are the remarks of the reader."""

    node_id: str
    kind: str
    intent: str
    document: NodeDocument
    metadata: Metadata = Metadata()
    inputs: tuple[FieldDeclaration, ...] = ()
    success: tuple[FieldDeclaration, ...] = ()
    error: tuple[FieldDeclaration, ...] = ()
    types: tuple[TypeDeclaration, ...] = ()
    contracts: Contracts = Contracts()
    flow: tuple[StepDeclaration, ...] = ()
    error_handling: tuple[ErrorHandling, ...] = ()
    performance: Performance = Performance()
    security: Security = Security()
    observability: Observability = Observability()
    testing: Testing = Testing()
    documentation: dict[str, Any] = {}
    state_machines: tuple[MachineDeclaration, ...] = ()
    idempotent: bool = False
    issues: tuple[Issue, ...] = ()

    @property
    def file(self) -> str:
        return self.document.file

    def all_steps(self) -> Iterator[StepDeclaration]:
        """Yield the steps of the flow and those inside them."""
        for step in self.flow:
            yield step
            yield from step.inner()
        for rule in self.error_handling:
            yield from rule.compensation
