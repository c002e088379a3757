"""Steps that act outside: their requests, the capabilities they need, what they bind.

The request of each kind is a map:

    db.query         query (text with :p0 …), values
    db.write         table, data
    db.update        table, where {sql, values}, set {column: {sql, values}}
    db.delete        table, where {sql, values}
    http.call        provider, endpoint (a text, or texts and values in turn), method, headers, parameters
    event.publish    event_type, data
    event.subscribe  event_type, handler
    node.call        node_id, parameters
    agent.call       agent, prompt, parameters, format (json, where the answer is not read as a text)
    custom.A.B       the step's parameters
    db.transaction   rights, values (of the variables that its steps read)

A query binds its rows to `query_result` as well as to its output; a field of `query_result` is that of the first
row. Any other response is also `response` while `on_success.extract` is read. The provider of an HTTP call is a name of
the file, or the host of a whole address. Values in an endpoint are kept apart from its text, so that they can be quoted
on their own.

A capability is a dotted name; `*` stands for any part, and at the end for any rest. `covering` finds the declared
capability that covers a needed one. The right to write a table covers reading it. A provider of HTTP is covered by its
own name or by a host that has the name as a label: `stripe` by `network.http_client.api.stripe.com`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from lyra.core.checking.document import Path
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError, ParseError
from lyra.vesper import ir
from lyra.vesper.check.contracts import Constraints
from lyra.vesper.check.infer import QUERY_RESULT, Typing, map_of
from lyra.vesper.check.rules import ErrorRules
from lyra.vesper.check.sql import Sql, mentions_column
from lyra.vesper.check.state import CheckState, NameScope, TextSite
from lyra.vesper.check.steps import Steps, always_returns, merge, names_in, parts_of
from lyra.vesper.check.types import TypeTable
from lyra.vesper.expressions.parser import has_placeholder, parse_expression
from lyra.vesper.expressions.terms import IndexTerm, MemberTerm, NameTerm, Term
from lyra.vesper.nodes.model import Setting, StepDeclaration
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.nodes.steps import CUSTOM, EFFECTS
from lyra.vesper.sql.tables import query_tables, table_problem
from lyra.vesper.sql.tokens import SqlRefused
from lyra.vesper.values.limits import SQL_CHARS_MAX
from lyra.vesper.values.names import bare_id, is_node_id
from lyra.vesper.values.triggers import seconds_of
from lyra.vesper.values.types import ANY, BYTES, STRING, TIMESTAMP, Array, EnumType, ValueType

# What can be rolled back, and what has no effect.
_IN_TRANSACTIONS: Final = frozenset({"database_query", "database_write", "database_update", "database_delete"})
_NOT_IN_TRANSACTIONS: Final = (EFFECTS | {"parallel"}) - _IN_TRANSACTIONS
_KINDS: Final = {
    "database_query": "db.query",
    "database_write": "db.write",
    "database_update": "db.update",
    "database_delete": "db.delete",
    "external_api_call": "http.call",
    "event_publish": "event.publish",
    "event_subscribe": "event.subscribe",
    "call_node": "node.call",
    "agent_call": "agent.call",
}


class EffectLowering:
    """Lowers the effect steps of one node."""

    def __init__(
        self,
        state: CheckState,
        steps: Steps,
        rules: ErrorRules,
        machines: dict[str, ir.Machine],
        types: TypeTable,
    ) -> None:
        self.state = state
        self.types = types
        self.steps = steps
        self.typing = steps.typing
        self.rules = rules
        self.machines = machines
        self.sql = Sql(state, steps.typing)
        self.http = HttpLowering(state, steps.typing)
        self._rights: dict[str, None] | None = None  # of the steps of a transaction

    def lower(self, _: Steps, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        if step.operation == "state_machine_transition":
            return self._transition(step, scope)
        if step.operation == "transaction":
            return self._transaction(step, scope)
        kind = _KINDS.get(step.operation, step.operation)
        guards = self.steps.guards(step, scope)
        request, capabilities, output_type = self._request(kind, step, scope)
        capability = self._require_capabilities(capabilities, step)
        rules = self.rules.read_step(step, scope)
        retry = self.rules.policy_of(step, rules)
        output = self.steps.bind(step, output_type, scope)
        extract = self._extract(step, output, output_type, kind, scope)
        if_found, if_empty = self._results(step, kind, scope)
        return [
            ir.EffectStep(
                kind=kind,
                capability=capability,
                request=request,
                output=output,
                output_type=output_type,
                checks=self._answer_checks(step, output_type) if kind == "agent.call" else (),
                extract=extract,
                found=if_found,
                empty=if_empty,
                rules=rules,
                retry=retry,
                timeout_s=self._timeout(step),
                **self.steps.base(step, guards),
            )
        ]

    def _request(
        self, kind: str, step: StepDeclaration, scope: NameScope
    ) -> tuple[ir.TypedExpression, list[str], ValueType]:
        match kind:
            case "db.query":
                setting = step.settings["query"]
                if not isinstance(setting.value, str):
                    self.state.error("wrong_form", "`query` is a text of SQL", setting.path, value=True)
                    return map_of({}), [], Array(ANY)
                if len(setting.value) > SQL_CHARS_MAX:
                    self.state.error("limit", f"the query has more than {SQL_CHARS_MAX} characters", setting.path)
                    return map_of({}), [], Array(ANY)
                named = {name: self._value(item, scope) for name, item in step.parameters.items()}
                query, values = self.sql.query_of(setting.value, setting.path, scope, named)
                capabilities = self._read_rights(query, setting) if query else []
                request = map_of({"query": ir.Constant(type=STRING, value=query), "values": map_of(values)})
                return request, capabilities, Array(ANY)
            case "db.write":
                table, data = self._table(step), step.settings["data"]
                if not isinstance(data.value, dict) or not data.value:
                    self.state.error("wrong_form", "`data` maps columns to values", data.path, value=True)
                request = map_of({"table": ir.Constant(type=STRING, value=table), "data": self._value(data, scope)})
                return request, [f"database.write.{table}"] if table else [], ANY
            case "db.update":
                return self._update(step, scope)
            case "db.delete":
                table, where = self._table(step), step.settings["where"]
                condition = self.sql.where(where.value, where.path, scope, table)
                request = map_of({"table": ir.Constant(type=STRING, value=table), "where": condition})
                return request, [f"database.write.{table}"] if table else [], ANY
            case "http.call":
                return self.http.request(step, scope)
            case "event.publish" | "event.subscribe":
                setting = step.settings["event_type"]
                values = {"event_type": self._value(setting, scope)}
                for key in ("data", "handler"):
                    if key in step.settings:
                        values[key] = self._value(step.settings[key], scope)
                name = setting.value if isinstance(setting.value, str) and not has_placeholder(setting.value) else "*"
                return map_of(values), [f"events.{kind.removeprefix('event.')}.{name}"], ANY
            case "node.call":
                return self._node(step, scope)
            case "agent.call":
                return self._agent(step, scope)
        values = {name: self._value(setting, scope) for name, setting in step.parameters.items()}
        return map_of(values), [step.operation], ANY

    def _value(self, setting: Setting, scope: NameScope) -> ir.TypedExpression:
        return self.typing.value(setting.value, setting.path, scope)

    def _read_rights(self, query: str, setting: Setting) -> list[str]:
        """Return the right for each table that a query reads."""
        try:
            return [f"database.read.{table}" for table in query_tables(query).tables] or ["database.read"]
        except SqlRefused as error:
            self.sql.report_refusal(error, query, str(setting.value), setting.path)
            return []

    def _table(self, step: StepDeclaration) -> str:
        setting = step.settings["table"]
        if not isinstance(setting.value, str) or has_placeholder(setting.value):
            self.state.error("wrong_form", "`table` is the name of a table", setting.path, value=True)
            return ""
        problem = table_problem(setting.value)
        if problem:
            self.state.error("wrong_form", problem, setting.path, value=True)
            return ""
        return setting.value

    def _update(self, step: StepDeclaration, scope: NameScope) -> tuple[ir.TypedExpression, list[str], ValueType]:
        table, where, changes = self._table(step), step.settings["where"], step.settings["set"]
        if not isinstance(changes.value, dict) or not changes.value:
            self.state.error("wrong_form", "`set` maps columns to values", changes.path, value=True)
            return map_of({}), [], ANY
        values = {
            column: self._change(column, item, (*changes.path, column), scope, table)
            for column, item in changes.value.items()
        }
        request = map_of(
            {
                "table": ir.Constant(type=STRING, value=table),
                "where": self.sql.where(where.value, where.path, scope, table),
                "set": map_of(values),
            }
        )
        return request, [f"database.write.{table}"] if table else [], ANY

    def _change(self, column: str, value: Any, path: Path, scope: NameScope, table: str) -> ir.TypedExpression:
        """Return the new value of a column: arithmetic on the column itself is SQL, anything else is bound."""
        if isinstance(value, dict) and list(value) == ["expression"]:
            value, path, is_row = value["expression"], (*path, "expression"), True
        else:
            is_row = False
        if isinstance(value, str):
            try:
                term: Term | None = parse_expression(value, sql=True)
            except ParseError as error:
                term = None
                if is_row:
                    self.state.syntax(error, TextSite(path))
            if term is not None and (is_row or mentions_column(term, column)):
                return self.sql.row(term, TextSite(path), scope, table)
        bound = map_of({"p0": self.typing.value(value, path, scope)})
        return map_of({"sql": ir.Constant(type=STRING, value=":p0"), "values": bound})

    def _node(self, step: StepDeclaration, scope: NameScope) -> tuple[ir.TypedExpression, list[str], ValueType]:
        setting = step.settings["node_id"]
        node_id = setting.value
        if not isinstance(node_id, str) or not (is_node_id(node_id) or is_node_id(f"{node_id}_v1")):
            self.state.error("bad_node_id", "`node_id` is no id of a node", setting.path, value=True)
            node_id = ""
        if bare_id(node_id) == bare_id(self.state.node.node_id):
            self.state.error("recursive_node", "the node calls itself", setting.path, value=True)
        inputs = step.settings.get("inputs")
        values = {key: self._value(item, scope) for key, item in step.parameters.items()}
        parameters: ir.TypedExpression = self._value(inputs, scope) if inputs is not None else map_of(values)
        request = map_of({"node_id": ir.Constant(type=STRING, value=node_id), "parameters": parameters})
        return request, [], ANY

    def _agent(self, step: StepDeclaration, scope: NameScope) -> tuple[ir.TypedExpression, list[str], ValueType]:
        agent = step.settings["agent"]
        prompt = step.settings.get("prompt") or step.settings.get("task") or step.settings.get("input")
        if prompt is None:
            self.state.error("missing_key", "agent_call has no `prompt`", step.path)
        values = {"agent": self._value(agent, scope)}
        if prompt is not None:
            values["prompt"] = self._value(prompt, scope)
        if step.parameters:
            values["parameters"] = map_of({key: self._value(item, scope) for key, item in step.parameters.items()})
        name = agent.value if isinstance(agent.value, str) and not has_placeholder(agent.value) else "*"
        kind = self._answer_type(step)
        if kind not in (ANY, STRING, TIMESTAMP, BYTES) and not isinstance(kind, EnumType):
            values["format"] = ir.Constant(type=STRING, value="json")
        return map_of(values), [f"agents.call.{name}"], kind

    def _answer_type(self, step: StepDeclaration) -> ValueType:
        """Return the type that an agent's answer must have."""
        setting = step.settings.get("output_type")
        if setting is None or setting.value is None:
            return ANY
        if not isinstance(setting.value, str):
            self.state.error("wrong_form", "`output_type` is the name of a type", setting.path, value=True)
            return ANY
        return self.types.read(setting.value, setting.path)

    def _answer_checks(self, step: StepDeclaration, kind: ValueType) -> tuple[ir.Condition, ...]:
        """Return the constraints that an agent's answer must keep: those of its custom type and its fields."""
        setting = step.settings.get("output_type")
        if setting is None or not isinstance(setting.value, str):
            return ()
        return Constraints(self.state, self.typing, self.types).list_checks(setting.value, kind, setting.path)

    def _transition(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        checks = self.steps.guards(step, scope)
        setting = step.settings["state_machine"]
        machine = self.machines.get(str(setting.value))
        if machine is None:
            hint = close_to(str(setting.value), self.machines) or "declare it under `state_machines`"
            message = f"there is no state machine `{setting.value}`"
            self.state.error("unknown_machine", message, setting.path, hint=hint, value=True)
        source, target = (self._value(step.settings[key], scope) for key in ("from", "to"))
        if machine is not None:
            self._check_move(machine, source, target, step)
        entity_setting = step.settings.get("entity")
        if entity_setting is None:
            self.state.warn("no_entity", "the transition has no `entity`: all executions share one state", step.path)
            entity: ir.TypedExpression = ir.Constant(type=STRING, value=str(setting.value))
        else:
            entity = self._value(entity_setting, scope)
        output = self.steps.output(step)
        self.steps.write(output, STRING, scope)
        return [
            ir.TransitionStep(
                machine=str(setting.value),
                entity=entity,
                source=source,
                target=target,
                checks=checks,
                output=output,
                **self.steps.base(step),
            )
        ]

    def _check_move(
        self, machine: ir.Machine, source: ir.TypedExpression, target: ir.TypedExpression, step: StepDeclaration
    ) -> None:
        names = []
        for key, expression in (("from", source), ("to", target)):
            if not isinstance(expression, ir.Constant) or not isinstance(expression.value, str):
                return
            names.append(expression.value)
            if expression.value not in machine.states:
                hint = close_to(expression.value, machine.states)
                message = f"`{machine.name}` has no state `{expression.value}`"
                self.state.error("unknown_state", message, step.settings[key].path, hint=hint, value=True)
                return
        if not any((before, after) == (names[0], names[1]) for before, after, _ in machine.moves):
            message = f"`{machine.name}` has no transition from `{names[0]}` to `{names[1]}`"
            self.state.error("undeclared_transition", message, step.settings["to"].path, value=True)

    def _transaction(self, step: StepDeclaration, scope: NameScope) -> Sequence[ir.Step]:
        guards = self.steps.guards(step, scope)
        for inner in step.blocks.get("steps", ()):
            for part in (inner, *inner.inner()):
                self._judge_inside(part)
        for key in ("output", "on_success", "on_result"):
            if key in step.settings:
                message = f"`{key}` has no effect on a transaction: its steps have outputs of their own"
                self.state.warn("no_effect", message, step.settings[key].path)
        before = dict(scope.names)
        rules_scope = scope.copy_with()
        kept, self._rights = self._rights, {}
        steps = self.steps.block(step.blocks.get("steps", ()), scope)
        rights, self._rights = tuple(self._rights), kept
        if not any(isinstance(part, ir.EffectStep) for part in parts_of(steps)):
            self.state.error("transaction", "the transaction has no step over the database", step.path)
        rules = self.rules.read_step(step, rules_scope)
        read = sorted((names_in(steps) & before.keys()) - self.state.ambient)
        values: dict[str, ir.TypedExpression] = {name: ir.NodeVariable(type=before[name], name=name) for name in read}
        named = ir.ListOf(
            type=Array(STRING), items=tuple(ir.Constant(type=STRING, value=right) for right in sorted(rights))
        )
        return [
            ir.TransactionStep(
                capability=next(iter(sorted(rights)), ""),
                request=map_of({"rights": named, "values": map_of(values)}),
                steps=steps,
                rules=rules,
                retry=self.rules.policy_of(step, rules),
                timeout_s=self._timeout(step),
                **self.steps.base(step, guards),
            )
        ]

    def _judge_inside(self, step: StepDeclaration) -> None:
        """Remark on what cannot be rolled back, and on settings that the transaction as a whole has."""
        if step.operation in _NOT_IN_TRANSACTIONS or step.operation.startswith(CUSTOM):
            message = f"`{step.operation}` cannot stand in a transaction: it could not be rolled back"
            if step.operation == "parallel":
                message = "`parallel` cannot stand in a transaction: its statements run one after the other"
            self.state.error("transaction", message, step.path)
        for key in ("retry_policy", "timeout"):
            if key in step.settings and step.operation in EFFECTS:
                message = f"`{key}` belongs to the transaction: a statement is not repeated alone"
                self.state.error("transaction", message, step.settings[key].path)
        if step.compensations:
            message = "a step of a transaction has no compensation: an error rolls it back"
            self.state.error("transaction", message, step.settings["on_error"].path)

    def _extract(
        self, step: StepDeclaration, output: str, kind: ValueType, effect: str, scope: NameScope
    ) -> tuple[tuple[str, ir.TypedExpression], ...]:
        response = ir.NodeVariable(type=kind, name=output)
        alias = QUERY_RESULT if effect == "db.query" else "response"
        extract: list[tuple[str, ir.TypedExpression]] = []
        if effect in ("db.query", "http.call") and output != alias:
            extract.append((alias, response))
            self.steps.write(alias, kind, scope)
        setting = step.settings.get("on_success")
        if setting is None or setting.value is None:
            return tuple(extract)
        table = setting.value.get("extract") if isinstance(setting.value, dict) else None
        if not isinstance(table, dict):
            self.state.error("wrong_form", "`on_success` has `extract`, which maps names to paths", setting.path)
            return tuple(extract)
        self.state.judge_keys(setting.value, ("extract", "description"), setting.path)
        inner = scope.copy_with(names=scope.names | {"response": kind})
        if output != "response" and effect not in ("http.call",):
            inner.aliases = inner.aliases | {"response": response}
        for name, text in table.items():
            value = self._path(text, (*setting.path, "extract", name), inner, response)
            extract.append((name, value))
            inner.names[name] = value.type
            self.steps.write(name, value.type, scope)
        return tuple(extract)

    def _path(self, text: Any, path: Path, scope: NameScope, response: ir.TypedExpression) -> ir.TypedExpression:
        """Return a value of the response: an expression, a template, or a path inside the response."""
        if not isinstance(text, str) or has_placeholder(text):
            return self.typing.value(text, path, scope)
        text = text.removeprefix("$.")
        try:
            term = parse_expression(text)
        except ParseError as error:
            self.state.syntax(error, TextSite(path))
            return response
        root = _root(term)
        if root is not None and root not in scope.names and root not in scope.aliases:
            names = scope.copy_with(aliases=scope.aliases | {root: ir.FieldOf(type=ANY, target=response, name=root)})
            return self.typing.term(term, names, TextSite(path))
        return self.typing.term(term, scope, TextSite(path))

    def _results(
        self, step: StepDeclaration, kind: str, scope: NameScope
    ) -> tuple[tuple[ir.Step, ...], tuple[ir.Step, ...]]:
        if "on_result" not in step.settings:
            return (), ()
        if kind != "db.query":
            self.state.warn("no_effect", "`on_result` belongs to a query", step.settings["on_result"].path)
        sides = scope.copy_with(), scope.copy_with()
        if_found = self.steps.block(step.blocks.get("if_found", ()), sides[0])
        if_empty = self.steps.block(step.blocks.get("if_empty", ()), sides[1])
        ends = (always_returns(if_found), always_returns(if_empty))
        merge(scope, [side for side, over in zip(sides, ends, strict=True) if not over] or [scope.copy_with()])
        return if_found, if_empty

    def _require_capabilities(self, capabilities: list[str], step: StepDeclaration) -> str:
        """Return the capability of the step; each that it needs is declared."""
        declared = self.state.node.security.capabilities_required
        result = ""
        if self._rights is not None:
            self._rights.update(dict.fromkeys(capabilities))
        for capability in capabilities:
            self.state.needed.setdefault(capability, step.path)
            covered = covering(capability, declared)
            result = result or covered or capability
        return result

    def _timeout(self, step: StepDeclaration) -> float | None:
        setting = step.settings.get("timeout")
        if setting is None or setting.value is None:
            return None
        seconds = seconds_of(setting.value)
        if seconds is None:
            message = "`timeout` is a duration such as 30s or 500ms"
            self.state.error("bad_duration", message, setting.path, value=True)
        return seconds


def _root(term: Term) -> str | None:
    while isinstance(term, (MemberTerm, IndexTerm)):
        term = term.target
    return term.name if isinstance(term, NameTerm) else None


METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


class HttpLowering:
    """Lowers the calls of one node."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing

    def request(self, step: StepDeclaration, scope: NameScope) -> tuple[ir.TypedExpression, list[str], ValueType]:
        provider = step.settings.get("provider")
        endpoint = step.settings.get("endpoint") or step.settings.get("url")
        name = provider.value if provider and isinstance(provider.value, str) else ""
        host = ""
        if endpoint is not None and isinstance(endpoint.value, str) and "://" in endpoint.value:
            host = urlsplit(endpoint.value.split("{")[0]).hostname or ""
        if not name and not host:
            self.state.error("missing_key", "external_api_call has no `provider`", step.path)
        method = self._method(step)
        values: dict[str, ir.TypedExpression] = {
            "provider": ir.Constant(type=STRING, value=name or host),
            "endpoint": self._endpoint(endpoint, scope) if endpoint else ir.Constant(type=STRING, value=""),
            "method": ir.Constant(type=STRING, value=method),
        }
        headers = step.settings.get("headers")
        if headers is not None:
            values["headers"] = self._value(headers, scope)
        body = step.settings.get("body")
        parameters = {key: self._value(setting, scope) for key, setting in step.parameters.items()}
        values["parameters"] = self._value(body, scope) if body is not None and not parameters else map_of(parameters)
        return map_of(values), [f"network.http_client.{name or host}"] if name or host else [], ANY

    def _endpoint(self, setting: Setting, scope: NameScope) -> ir.TypedExpression:
        """Return a text, or a list in which texts of the file and values take turns: values are quoted on their own."""
        expression = self._value(setting, scope)
        if isinstance(expression, ir.Constant):
            return expression
        parts: list[ir.TypedExpression] = []
        for part in expression.parts if isinstance(expression, ir.TemplateText) else (expression,):
            if isinstance(part, str):
                parts.append(ir.Constant(type=STRING, value=part))
                continue
            if len(parts) % 2 == 0:
                parts.append(ir.Constant(type=STRING, value=""))
            parts.append(ir.TemplateText(type=STRING, parts=(part,)))
        return ir.ListOf(type=Array(STRING), items=tuple(parts))

    def _method(self, step: StepDeclaration) -> str:
        setting = step.settings.get("method")
        if setting is None:
            return "POST"
        method = str(setting.value).upper()
        if method not in METHODS:
            self.state.error("unknown_word", f"`method` is one of {', '.join(METHODS)}", setting.path, value=True)
            return "POST"
        return method

    def _value(self, setting: Setting, scope: NameScope) -> ir.TypedExpression:
        return self.typing.value(setting.value, setting.path, scope)


DANGEROUS: Final = ("filesystem.write", "exec.shell_command", "network.raw_socket")
_HTTP: Final = "network.http_client"
_READ, _WRITE = "database.read.", "database.write."


def matches(pattern: str, capability: str) -> bool:
    """Return whether a declared capability covers one that is needed."""
    wanted, parts = capability.split("."), pattern.split(".")
    for index, part in enumerate(parts):
        if part == "*" and index == len(parts) - 1:
            return len(wanted) > index
        if index >= len(wanted) or part not in ("*", wanted[index]):
            return False
    is_table = pattern.startswith((_READ, _WRITE))  # `users` is a table, `users.orders` a table of a schema
    return len(wanted) == len(parts) if is_table else len(wanted) >= len(parts)


def covering(capability: str, declared: Iterable[str]) -> str | None:
    """Return the capability to ask for: the declared one that names the same thing, the needed one where a pattern
    covers it, None where nothing does."""
    declared = list(declared)
    if any(matches(pattern, capability) for pattern in declared):
        return capability
    if capability.startswith(f"{_HTTP}."):
        provider = capability.removeprefix(f"{_HTTP}.")
        for pattern in declared:
            host = pattern.removeprefix(f"{_HTTP}.")
            if host != pattern and (provider in host.split(".") or host == provider):
                return pattern
    if capability.startswith(_READ):
        table = capability.removeprefix(_READ)
        return next((capability for pattern in declared if matches(pattern, _WRITE + table)), None)
    return None


def overlap(required: str, denied: str) -> bool:
    """Return whether a denied capability covers a required one or a part of it."""
    return matches(denied, required) or matches(required, denied)


def parse_denial(text: str) -> Capability | None:
    """Return the capability that a denial means; `network` means all of `network.*`. None where it means none."""
    for spelling in (text, f"{text}.*"):
        try:
            return Capability.parse(spelling)
        except ConfigError:
            continue
    return None
