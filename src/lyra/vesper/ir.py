"""The typed IR that every path reads: a node's inputs, contracts and steps, and the expressions in them.

A path runs a `NodeProgram` from top to bottom: defaults and types of inputs, constraints, preconditions, steps,
postconditions. What acts outside is an `EffectStep`: the path evaluates its request and asks for it; how it is
performed, replayed or compared is not the path's business. An expression says what is computed and of which type; it
has no method that computes. Every path reads it with code of its own, so that a mistake in one is not a mistake in
all. Templates are expressions too (`TemplateText`), and so are transforms of collections: a step that changes nothing
outside is an AssignStep of an expression.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.vesper.values.types import ValueType

# ---------------------------------------------------------------- expressions


class TypedExpression(msgspec.Struct, frozen=True, tag=True, tag_field="is_a", kw_only=True):
    """Any of the expressions below. `place` is the line and column in the file, (0, 0) where there is none."""

    type: ValueType
    place: tuple[int, int] = (0, 0)


class Constant(TypedExpression, frozen=True, tag="constant", kw_only=True):
    value: Any  # None, bool, int, str, Decimal


class NodeVariable(TypedExpression, frozen=True, tag="name", kw_only=True):
    """A variable: an input, the output of a step, a loop's or a transform's element, an ambient object."""

    name: str


class FieldOf(TypedExpression, frozen=True, tag="field", kw_only=True):
    """A field of a record or map; of null, and a missing one of `any`: null."""

    target: TypedExpression
    name: str


class Projection(TypedExpression, frozen=True, tag="project", kw_only=True):
    """The field of each element of an array, as an array; of a null element: null."""

    target: TypedExpression
    name: str


class ItemOf(TypedExpression, frozen=True, tag="item", kw_only=True):
    """An element of an array by its number from 0, or of a map by its key; outside of it, and of null: null."""

    target: TypedExpression
    index: TypedExpression


class Length(TypedExpression, frozen=True, tag="length", kw_only=True):
    """How many characters, bytes, elements or entries; of null: null."""

    target: TypedExpression


class Negate(TypedExpression, frozen=True, tag="negate", kw_only=True):
    operand: TypedExpression


class Not(TypedExpression, frozen=True, tag="not", kw_only=True):
    operand: TypedExpression


class Arithmetic(TypedExpression, frozen=True, tag="arithmetic", kw_only=True):
    """`+ - * / %` of numbers; `+` of two strings; `+ -` of a timestamp and a number of seconds, `-` of timestamps."""

    operator: str
    left: TypedExpression
    right: TypedExpression


class Rounded(TypedExpression, frozen=True, tag="rounded", kw_only=True):
    """A number with so many digits after the point. Of a division, the exact quotient is rounded, once."""

    operand: TypedExpression
    scale: int
    rounding: str  # half_even, half_up or down


class Compare(TypedExpression, frozen=True, tag="compare", kw_only=True):
    """`== != < <= > >=`. An order with null is false."""

    operator: str
    left: TypedExpression
    right: TypedExpression


class Membership(TypedExpression, frozen=True, tag="membership", kw_only=True):
    """Whether the item is in the collection: an element, a key of a map, a part of a text."""

    item: TypedExpression
    collection: TypedExpression


class IsNull(TypedExpression, frozen=True, tag="is_null", kw_only=True):
    operand: TypedExpression


class Logic(TypedExpression, frozen=True, tag="logic", kw_only=True):
    """`AND OR =>`, from left to right; the second operand is evaluated only where it decides. Null counts as false."""

    operator: str  # and, or, implies
    left: TypedExpression
    right: TypedExpression


class Quantifier(TypedExpression, frozen=True, tag="quantifier", kw_only=True):
    """FORALL or EXISTS over the elements of an array or set, in order, to the first that decides."""

    kind: str  # forall, exists
    name: str
    collection: TypedExpression
    body: TypedExpression


class Aggregate(TypedExpression, frozen=True, tag="aggregate", kw_only=True):
    """SUM, COUNT, AVG, MIN or MAX of an array. Nulls are passed over, except by COUNT. Of nothing: 0, 0, null, null,
    null. Integers are summed in order, and each partial sum must fit."""

    function: str  # lower case
    collection: TypedExpression


class Conditional(TypedExpression, frozen=True, tag="conditional", kw_only=True):
    """`then` where the condition is true, else `otherwise`; only that one is evaluated. Null counts as false."""

    condition: TypedExpression
    then: TypedExpression
    otherwise: TypedExpression


class Coalesce(TypedExpression, frozen=True, tag="coalesce", kw_only=True):
    """The first operand that is not null; those after it are not evaluated. Null where all are."""

    operands: tuple[TypedExpression, ...]


class FunctionCall(TypedExpression, frozen=True, tag="call", kw_only=True):
    """A built-in function: see `FUNCTIONS` in expressions.functions. Arguments left out at the end have their
    defaults."""

    function: str
    arguments: tuple[TypedExpression, ...]


class HostCall(TypedExpression, frozen=True, tag="host", kw_only=True):
    """A predicate of the embedding program, by name. Where none is registered the contract is unverifiable."""

    name: str
    arguments: tuple[TypedExpression, ...]


class Old(TypedExpression, frozen=True, tag="old", kw_only=True):
    """The value that an expression had before the first step; in postconditions only. `slot` numbers the node's."""

    slot: int
    operand: TypedExpression


class ListOf(TypedExpression, frozen=True, tag="list", kw_only=True):
    items: tuple[TypedExpression, ...]


class MapOf(TypedExpression, frozen=True, tag="map", kw_only=True):
    """A map written out, its keys in order."""

    entries: tuple[tuple[str, TypedExpression], ...]


class TemplateText(TypedExpression, frozen=True, tag="text", kw_only=True):
    """A template: texts and expressions, joined. Numbers in canonical form, booleans as true and false, null as
    nothing, timestamps in UTC with Z; other values are a type error."""

    parts: tuple[str | TypedExpression, ...]


class MapOver(TypedExpression, frozen=True, tag="map_over", kw_only=True):
    """The body for each element, as an array."""

    collection: TypedExpression
    name: str
    body: TypedExpression


class Filter(TypedExpression, frozen=True, tag="filter", kw_only=True):
    """The elements for which the body is true."""

    collection: TypedExpression
    name: str
    body: TypedExpression


class Reduce(TypedExpression, frozen=True, tag="reduce", kw_only=True):
    """The accumulator after the last element."""

    collection: TypedExpression
    name: str
    accumulator: str
    initial: TypedExpression
    body: TypedExpression


class Aggregation(msgspec.Struct, frozen=True):
    """An output of GroupBy: the function over the expression for each element of the group; COUNT(*) has none."""

    output: str
    function: str
    operand: TypedExpression | None = None


class GroupBy(TypedExpression, frozen=True, tag="group_by", kw_only=True):
    """One map for each group, in the order in which the groups first appear: its keys, then its aggregations. Without
    keys, one map for all elements. Without aggregations, `items` holds the elements."""

    collection: TypedExpression
    name: str
    keys: tuple[tuple[str, TypedExpression], ...]
    aggregations: tuple[Aggregation, ...] = ()


class MatrixProduct(TypedExpression, frozen=True, tag="matrix_product", kw_only=True):
    """The product of two arrays of rows. Unequal sizes, and rows of unequal length, are a type error."""

    left: TypedExpression
    right: TypedExpression


class Condition(msgspec.Struct, frozen=True):
    """A condition with the text it was written as."""

    text: str
    expression: TypedExpression


class NodeInput(msgspec.Struct, frozen=True):
    name: str
    type: ValueType  # Nullable where it may be absent without a default
    required: bool = True
    default: Any = msgspec.UNSET  # a value of its type; UNSET: none
    constraints: tuple[Condition, ...] = ()  # with `value` for the input
    sensitive: bool = False
    description: str = ""


class NodeOutput(msgspec.Struct, frozen=True):
    name: str
    type: ValueType
    required: bool = True
    sensitive: bool = False
    public: bool = False  # declared `sensitive: false`: shown, though computed from a sensitive value


class Contract(msgspec.Struct, frozen=True):
    """A pre- or postcondition or an invariant. Without an expression it is unverifiable, and `reason` says why."""

    text: str
    expression: TypedExpression | None = None
    reason: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """What a node answers with when it fails: the code, and the other error fields."""

    code: TypedExpression
    fields: tuple[tuple[str, TypedExpression], ...] = ()


class Step(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Any of the steps below. A step whose guards are not all true is skipped."""

    name: str
    guards: tuple[Condition, ...] = ()
    place: tuple[int, int] = (0, 0)


class ValidateStep(Step, frozen=True, tag="validate", kw_only=True):
    """Fails unless all checks are true; `failure` is the declared answer, else `validation_failed`."""

    checks: tuple[Condition, ...]
    failure: ErrorAnswer | None = None


class AssignStep(Step, frozen=True, tag="assign", kw_only=True):
    target: str
    value: TypedExpression


class BranchStep(Step, frozen=True, tag="branch", kw_only=True):
    condition: TypedExpression
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()


class ForEachStep(Step, frozen=True, tag="for_each", kw_only=True):
    """The steps for each element; variables that they assign keep their last value."""

    collection: TypedExpression
    variable: str
    steps: tuple[Step, ...]


class LoopStep(Step, frozen=True, tag="loop", kw_only=True):
    """The steps while the condition is true; `loop_limit` after `max_iterations` rounds."""

    condition: TypedExpression
    max_iterations: int
    steps: tuple[Step, ...]


class ParallelStep(Step, frozen=True, tag="parallel", kw_only=True):
    """Steps that may run at once: none reads what another writes. The first error in written order counts."""

    steps: tuple[Step, ...]


class ReturnStep(Step, frozen=True, tag="return", kw_only=True):
    """Ends the node: with success fields, or with an error."""

    success: tuple[tuple[str, TypedExpression], ...] | None = None
    error: ErrorAnswer | None = None


class TransitionStep(Step, frozen=True, tag="transition", kw_only=True):
    """Moves an entity from one state of a machine to another: an effect, since states last."""

    machine: str
    entity: TypedExpression
    source: TypedExpression
    target: TypedExpression
    checks: tuple[Condition, ...] = ()
    output: str = ""


class StepRetry(msgspec.Struct, frozen=True):
    attempts: int = 3  # the first included
    backoff: str = "exponential"  # exponential, linear or constant
    base: int = 2
    initial_delay_s: float = 1.0
    errors: tuple[str, ...] = ("*",)  # that are tried again; * for what may pass by itself


ANSWERING: Final = ("map_to", "return_error", "compensate")  # actions of rules that a path obeys; others are the host's


class ErrorRule(msgspec.Struct, frozen=True):
    """What to do about an error: of a step (`on_error`) or of the node (`error_handling`)."""

    error: str  # a code or kind of error; * for any
    action: str  # retry, backoff, map_to, return_error, compensate, circuit_breaker
    answer: ErrorAnswer | None = None
    compensation: tuple[Step, ...] = ()
    retry: StepRetry | None = None
    threshold: int = 5
    open_s: float = 60.0


class EffectStep(Step, frozen=True, tag="effect", kw_only=True):
    """An act outside the node. The request is evaluated, performed, and its response bound to `output`.

    `kind` is db.query, db.write, db.update, db.delete, http.call, event.publish, event.subscribe, node.call, agent.call
    or custom.NAMESPACE.OPERATION. `capability` is the right it needs. `extract` assigns variables from the response;
    `found` and `empty` are the steps of a query's `on_result`. An agent's answer is read as `output_type`, and must
    keep `checks`, which name it `value`.
    """

    kind: str
    capability: str
    request: TypedExpression
    output: str = ""
    output_type: ValueType
    checks: tuple[Condition, ...] = ()
    extract: tuple[tuple[str, TypedExpression], ...] = ()
    found: tuple[Step, ...] = ()
    empty: tuple[Step, ...] = ()
    rules: tuple[ErrorRule, ...] = ()
    retry: StepRetry | None = None
    timeout_s: float | None = None


TRANSACTION: Final = "db.transaction"  # the kind of its request


class TransactionStep(Step, frozen=True, tag="transaction", kw_only=True):
    """Steps over the database that are all done or none, as one act. `request` has the rights that they need and the
    values that they read. An error, also one that they answer with, takes back what they changed, variables too."""

    capability: str
    request: TypedExpression
    steps: tuple[Step, ...]
    rules: tuple[ErrorRule, ...] = ()
    retry: StepRetry | None = None
    timeout_s: float | None = None


class Machine(msgspec.Struct, frozen=True):
    """A state machine: its states, and the moves that are allowed."""

    name: str
    initial: str
    states: tuple[str, ...]
    moves: tuple[tuple[str, str, Condition | None], ...]


class NodeLimits(msgspec.Struct, frozen=True):
    """What one execution may use."""

    time_s: float = 30.0
    memory_mb: int = 512
    steps: int = 10_000_000


class NodeProgram(msgspec.Struct, frozen=True):
    node_id: str
    kind: str  # function, http_handler, …
    intent: str
    digest: str  # of everything that decides what the node does
    inputs: tuple[NodeInput, ...]
    success: tuple[NodeOutput, ...]
    error: tuple[NodeOutput, ...]
    steps: tuple[Step, ...]
    preconditions: tuple[Contract, ...] = ()
    postconditions: tuple[Contract, ...] = ()
    invariants: tuple[Contract, ...] = ()
    olds: tuple[TypedExpression, ...] = ()  # by slot
    machines: tuple[Machine, ...] = ()
    rules: tuple[ErrorRule, ...] = ()  # error_handling
    capabilities: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    ambient: tuple[str, ...] = ()  # objects that the caller's context supplies
    limits: NodeLimits = NodeLimits()
    pure: bool = True  # no step acts outside
    idempotency_key: str = ""  # the input of that name, if there is one
    idempotent: bool = False  # its results may be kept
    audit: str = ""  # none, basic or detailed; empty: the file says nothing
