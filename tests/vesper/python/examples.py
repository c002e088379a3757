"""Programs that together use each kind of step and most expressions. Their generated files are checked and imported."""

from __future__ import annotations

from decimal import Decimal

from lyra.vesper import ir
from lyra.vesper.ir import (
    ErrorRule,
    Machine,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ParallelStep,
    StepRetry,
    TransitionStep,
)
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    SetType,
)
from tests.vesper.python.programs import (
    arith,
    assign,
    branch,
    call,
    check,
    cmp,
    contract,
    effect,
    fail,
    failure,
    field,
    for_each,
    host,
    inputs,
    listed,
    logic,
    loop,
    mapped,
    outputs,
    program,
    succeed,
    text,
    validate,
    var,
)

__all__ = ["EXAMPLES"]

_ITEM = RecordType(
    "Item",
    (
        RecordField("sku", STRING),
        RecordField("price", DecimalType(2)),
        RecordField("quantity", INTEGER, required=False, default=1),
        RecordField("note", STRING, required=False),
    ),
)
_MESSAGES = outputs(error_code=STRING, message=STRING)


def _add() -> NodeProgram:
    return program(
        assign("result", arith("+", var("a"), var("b"))),
        node_id="add_numbers_v1",
        intent="Add two numbers",
        inputs=inputs(a=INTEGER, b=INTEGER),
        success=outputs(result=INTEGER),
        postconditions=(contract("result == a + b", cmp("==", var("result"), arith("+", var("a"), var("b")))),),
    )


def _bounded() -> NodeProgram:
    limit = logic("and", cmp(">=", var("value"), 0), cmp("<=", var("value"), 1000))
    return program(
        assign("result", arith("+", arith("*", var("a"), var("b")), 1)),
        succeed(result=var("result"), rest=arith("%", var("result"), 7)),
        node_id="bounded_v1.2.0",
        intent="Multiply two small numbers. No result can be too large, so none is checked",
        inputs=tuple(
            NodeInput(name, INTEGER, constraints=(check(limit, "0 <= value <= 1000"),)) for name in ("a", "b")
        ),
        success=outputs(result=INTEGER, rest=INTEGER),
    )


def _invoice() -> NodeProgram:
    line = arith("*", field(var("item"), "price"), field(var("item"), "quantity"))
    net = ir.Aggregate(
        type=DECIMAL,
        function="sum",
        collection=ir.MapOver(type=ANY, collection=var("items"), name="item", body=line),
    )
    tax = ir.Rounded(type=DECIMAL, operand=arith("*", var("net"), var("rate")), scale=2, rounding="half_up")
    return program(
        validate(cmp(">", ir.Length(type=INTEGER, target=var("items")), 0), error=failure("empty", message="No items")),
        assign("net", net),
        assign("tax", tax),
        succeed(net=var("net"), tax=var("tax"), total=arith("+", var("net"), var("tax"))),
        node_id="invoice_v2",
        intent='Sum up an invoice, "with tax"',
        inputs=(
            NodeInput("items", Array(_ITEM), description="What was sold, one line for each item of the order"),
            NodeInput("rate", DECIMAL, required=False, default=Decimal("0.19")),
        ),
        success=outputs(net=DecimalType(2), tax=DecimalType(2), total=DecimalType(2)),
        error=_MESSAGES,
        preconditions=(contract("rate < 1", cmp("<", var("rate"), 1)),),
        postconditions=(
            contract("total >= net", cmp(">=", var("total"), var("net"))),
            contract("success OR error.code == 'empty'", logic("or", var("success"), _is_code("empty"))),
        ),
    )


def _is_code(code: str) -> ir.TypedExpression:
    return cmp("==", field(var("error"), "code"), code)


def _grades() -> NodeProgram:
    return program(
        branch(
            cmp(">=", var("points"), 90),
            (succeed(grade="excellent"),),
            (
                branch(
                    cmp(">=", var("points"), 50), (succeed(grade="passed"),), (fail("failed", message="Not enough"),)
                ),
            ),
        ),
        node_id="grade_v1",
        intent="Turn points into a grade",
        inputs=inputs(points=INTEGER),
        success=outputs(grade=EnumType(("excellent", "passed"))),
        error=_MESSAGES,
        postconditions=(contract("grade != ''", cmp("!=", var("grade"), "")),),
    )


def _loops() -> NodeProgram:
    body = (
        assign("total", arith("+", var("total"), var("number"))),
        branch(cmp(">", var("number"), var("largest")), (assign("largest", var("number")),)),
    )
    countdown = (assign("left", arith("-", var("left"), 1)), assign("words", arith("+", var("words"), "x")))
    return program(
        assign("total", 0),
        assign("largest", 0),
        for_each(var("numbers"), "number", *body),
        assign("left", var("rounds")),
        assign("words", ""),
        loop(cmp(">", var("left"), 0), 100, *countdown),
        node_id="loops_v1",
        intent="Go through numbers, then count down",
        inputs=inputs(numbers=Array(INTEGER), rounds=INTEGER),
        success=outputs(total=INTEGER, largest=INTEGER, words=STRING),
        olds=(ir.Length(type=INTEGER, target=var("numbers")),),
        postconditions=(
            contract(
                "COUNT(numbers) == old(numbers.length)",
                cmp(
                    "==",
                    ir.Aggregate(type=INTEGER, function="count", collection=var("numbers")),
                    ir.Old(type=INTEGER, slot=0, operand=ir.Length(type=INTEGER, target=var("numbers"))),
                ),
            ),
        ),
    )


def _transforms() -> NodeProgram:
    rows = var("rows")
    big = ir.Filter(type=ANY, collection=rows, name="record", body=cmp(">", field(var("record"), "amount"), 10))
    groups = ir.GroupBy(
        type=ANY,
        collection=rows,
        name="record",
        keys=(("region", field(var("record"), "region")),),
        aggregations=(
            ir.Aggregation("total", "sum", field(var("record"), "amount")),
            ir.Aggregation("number", "count"),
        ),
    )
    product = ir.Reduce(
        type=ANY,
        collection=var("factors"),
        name="factor",
        accumulator="product",
        initial=ir.Constant(type=INTEGER, value=1),
        body=arith("*", var("product"), var("factor")),
    )
    every = ir.Quantifier(
        type=BOOLEAN, kind="forall", name="factor", collection=var("factors"), body=cmp(">", var("factor"), 0)
    )
    return program(
        assign("big", big),
        assign("groups", groups),
        assign("product", product),
        assign("square", ir.MatrixProduct(type=ANY, left=var("matrix"), right=var("matrix"))),
        assign("amounts", ir.Projection(type=ANY, target=rows, name="amount")),
        node_id="transforms_v1",
        intent="Filter, group and reduce",
        inputs=inputs(rows=Array(ANY), factors=Array(INTEGER), matrix=Array(Array(INTEGER))),
        success=outputs(big=Array(ANY), groups=ANY, product=INTEGER, square=Array(Array(INTEGER)), amounts=Array(ANY)),
        preconditions=(contract("FORALL factor IN factors: factor > 0", every),),
    )


def _texts() -> NodeProgram:
    greeting = text("Hello, ", var("name"), "! {braces} \"quotes\" 'and' \\ \n", call("upper", var("name")))
    known = ir.Membership(type=BOOLEAN, item=var("language"), collection=listed("de", "en", "fr"))
    return program(
        validate(known, call("matches", var("name"), "^[A-Z]"), error=failure("bad_name", message=text(var("name")))),
        assign("greeting", greeting),
        assign("length", call("len", var("greeting"))),
        assign("is_long", logic("implies", cmp(">", var("length"), 3), call("starts_with", var("greeting"), "H"))),
        succeed(greeting=var("greeting"), length=var("length"), is_long=var("is_long"), day=call("current_timestamp")),
        node_id="texts_v1",
        intent="Greet in several ways",
        inputs=(
            NodeInput("name", STRING, constraints=(check(cmp("!=", call("trim", var("value")), ""), "non_empty"),)),
            NodeInput("language", EnumType(("de", "en", "fr", "it")), required=False, default="en"),
            NodeInput("nickname", Nullable(STRING), required=False),
        ),
        success=outputs(greeting=STRING, length=INTEGER, is_long=BOOLEAN, day=TIMESTAMP),
        error=_MESSAGES,
        invariants=(contract("language != 'xx'", cmp("!=", var("language"), "xx")),),
    )


def _hostile() -> NodeProgram:
    names = ("class", "print", "type", "run", "effects", "total", "_x", "self", "INTEGER_MAX", "NodeError", "holds")
    total: ir.TypedExpression = ir.Constant(type=INTEGER, value=0)
    for name in names:
        total = arith("+", total, var(name))
    return program(
        assign("def", total),
        assign("broken", text('"""', var("class"), "{print}", "'; import os; os.abort() #")),
        succeed(**{"def": var("def"), "import": var("broken")}),
        node_id="hostile_v1",
        intent='"""\nimport os\nos.abort()\n"""',
        inputs=inputs(**dict.fromkeys(names, INTEGER)),
        success=outputs(**{"def": INTEGER, "import": STRING}),
        preconditions=(contract('class > 0 """ + x\n\'', cmp(">", var("class"), 0)),),
    )


def _kinds() -> NodeProgram:
    return program(
        assign("first", ir.ItemOf(type=ANY, target=var("tags"), index=ir.Constant(type=INTEGER, value=0))),
        assign("price", field(field(var("order"), "item"), "price")),
        assign("half", ir.Rounded(type=DECIMAL, operand=arith("/", var("price"), 3), scale=4, rounding="half_even")),
        assign("quotient", arith("/", var("count"), 4)),
        branch(
            ir.IsNull(type=BOOLEAN, operand=var("note")), (assign("said", "nothing"),), (assign("said", var("note")),)
        ),
        succeed(
            first=var("first"),
            half=var("half"),
            quotient=var("quotient"),
            said=var("said"),
            negative=ir.Negate(type=ANY, operand=var("price")),
            sizes=mapped(tags=call("len", var("tags")), labels=call("len", var("labels"))),
        ),
        node_id="kinds_v1",
        intent="Use a value of each type",
        inputs=(
            *inputs(
                order=RecordType("Order", (RecordField("item", _ITEM),)),
                tags=Array(STRING),
                labels=SetType(STRING),
                counts=MapType(STRING, INTEGER),
                data=BYTES,
                when=TIMESTAMP,
                flag=BOOLEAN,
                anything=ANY,
                count=INTEGER,
            ),
            NodeInput("note", Nullable(STRING), required=False),
        ),
        success=(
            *outputs(half=DecimalType(4), quotient=DECIMAL, said=STRING, negative=DECIMAL, sizes=ANY),
            NodeOutput("first", STRING, required=False),
        ),
        preconditions=(
            contract("host('x')", host("allowed", var("flag"))),
            contract("user.active", field(var("user"), "active")),
            contract("everybody is happy", None, "prose"),
        ),
        ambient=("user",),
    )


def _payment() -> NodeProgram:
    charge = effect(
        "charge",
        "http.call",
        mapped(provider="bank", parameters=mapped(amount=var("amount"), key=var("key"))),
        "charged",
        extract=(("transaction", field(var("response"), "id")),),
        retry=StepRetry(attempts=2),
        timeout_s=5.0,
        rules=(
            ErrorRule("declined", "return_error", failure("payment_declined", message=text("Declined: ", var("key")))),
            ErrorRule("timeout", "retry"),
        ),
    )
    refund = effect("refund", "http.call", mapped(provider="bank", refund=var("transaction")))
    save = effect(
        "save",
        "db.write",
        mapped(table="payments", data=mapped(id=var("transaction"), amount=var("amount"))),
        rules=(ErrorRule("*", "compensate", failure("not_saved", message="Taken back"), (refund,)),),
    )
    look = effect(
        "look",
        "db.query",
        mapped(query="SELECT * FROM payments WHERE key = :key", values=mapped(key=var("key"))),
        "earlier",
        found=(succeed(transaction=field(ir.ItemOf(type=ANY, target=var("earlier"), index=expr0()), "id")),),
    )
    return program(
        validate(cmp(">", var("amount"), 0), error=failure("validation_failed", message="Nothing to pay")),
        look,
        charge,
        save,
        effect("tell", "event.publish", mapped(event_type="payment.done", data=mapped(id=var("transaction")))),
        succeed(transaction=var("transaction")),
        node_id="payment_v1",
        intent="Charge a payment once",
        inputs=(
            *inputs(amount=DecimalType(2), key=STRING),
            NodeInput("note", STRING, required=False, default="a very long default text " * 6),
        ),
        success=outputs(transaction=STRING),
        error=_MESSAGES,
        rules=(ErrorRule("effect_failed", "map_to", failure("unavailable", message="Try again later")),),
        postconditions=(
            contract(
                "success => transaction != null",
                logic("implies", var("success"), cmp("!=", var("transaction"), ir.Constant(type=ANY, value=None))),
            ),
        ),
        invariants=(contract("amount > 0", cmp(">", var("amount"), 0)),),
        pure=False,
        idempotency_key="key",
    )


def expr0() -> ir.Constant:
    return ir.Constant(type=INTEGER, value=0)


def _order_states() -> NodeProgram:
    paid = TransitionStep(
        name="mark_paid",
        machine="order",
        entity=var("order_id"),
        source=ir.Constant(type=STRING, value="open"),
        target=ir.Constant(type=STRING, value="paid"),
        checks=(check(cmp(">", var("amount"), 0)),),
        output="state",
    )
    both = ParallelStep(
        name="both",
        steps=(
            effect("first", "custom.shop.first", mapped(id=var("order_id")), "one_answer"),
            effect("second", "custom.shop.second", mapped(id=var("order_id")), "other_answer"),
        ),
    )
    return program(
        both,
        paid,
        succeed(state=var("state"), answers=listed(var("one_answer"), var("other_answer"))),
        node_id="order_states_v1",
        intent="Move an order on",
        inputs=inputs(order_id=STRING, amount=INTEGER),
        success=outputs(state=STRING, answers=Array(ANY)),
        machines=(
            Machine(
                "order",
                "open",
                ("open", "paid"),
                (("open", "paid", check(cmp("<", var("amount"), 100))), ("paid", "open", None)),
            ),
        ),
        pure=False,
    )


def _long() -> NodeProgram:
    name = "a_rather_long_name_for_an_input_that_makes_lines_long"
    names = [f"{name}_{number}" for number in range(5)]
    total: ir.TypedExpression = var(names[0])
    for item in names[1:]:
        total = arith("+", total, var(item))
    condition: ir.TypedExpression = cmp(">", var(names[0]), 0)
    for item in names[1:]:
        condition = logic("and", condition, cmp(">", var(item), 0))
    mixed = logic("or", condition, cmp("==", arith("/", var(names[0]), var(names[1])), var(names[2])))
    return program(
        validate(condition, mixed, error=failure("too_small", message="word " * 40, reason=var(names[3]))),
        assign("total", total),
        assign("everything", listed(*(var(item) for item in names))),
        assign("as_map", mapped(**{f"key_of_{item}": var(item) for item in names})),
        assign("text", text(*(part for item in names for part in ("some words between the numbers ", var(item))))),
        succeed(total=var("total"), everything=var("everything"), as_map=var("as_map"), text=var("text")),
        node_id="long_lines_v1",
        intent="Words of an intent that goes on and on " * 12,
        inputs=inputs(**dict.fromkeys(names, DECIMAL)),
        success=outputs(total=DECIMAL, everything=Array(DECIMAL), as_map=MapType(STRING, DECIMAL), text=STRING),
        error=(*_MESSAGES, NodeOutput("reason", DECIMAL, required=False)),
        postconditions=(contract("total > 0 and more " * 12, logic("or", cmp(">", var("total"), 0), mixed)),),
    )


EXAMPLES = tuple(
    make()
    for make in (
        _add,
        _bounded,
        _invoice,
        _grades,
        _loops,
        _transforms,
        _texts,
        _hostile,
        _kinds,
        _payment,
        _order_states,
        _long,
    )
)
