"""A sentence for each key of a node and of a step, for editors and for the reference page."""

from __future__ import annotations

from typing import Final

SECTION_TEXTS: Final = {
    "node_id": "the id with its version, such as payment_handler_v1 or payment_handler_v1.2.0",
    "type": "what the node is for",
    "intent": "what the node does, in one sentence",
    "idempotent": "true: equal inputs have equal results, which are kept instead of executing the node again",
    "metadata": "author, version, description, dependencies, change log; how handlers and jobs are reached",
    "types": "custom types: records with fields, or a base type with constraints",
    "inputs": "the inputs by name: a type, or a mapping with type, default and constraints",
    "outputs": "the fields of a success and of an error; without these two keys all are of a success",
    "state_machines": "states and the transitions that are allowed between them",
    "contracts": "conditions before, after and during an execution",
    "flow": "the steps, in order",
    "error_handling": "what is done about an error code, wherever it occurs",
    "performance": "expected times, and limits that are enforced",
    "security": "the rights that the node needs, and what must not be shown",
    "observability": "metrics, alerts, tracing and logging",
    "testing": "test cases, properties and differential tests",
    "documentation": "examples and notes for people; not interpreted",
}

STEP_TEXTS: Final = {
    "step": "the name of the step",
    "operation": "what the step does",
    "description": "a sentence for people",
    "parameters": "settings of the operation, or values by names of your choice",
    "guards": "conditions; unless all are true a step is skipped, a validation fails, a transition is invalid",
    "on_success": "`extract`: variables out of the answer",
    "on_error": "rules about errors of this step, tried in order",
    "on_failure": "what a validation that fails answers",
    "on_result": "steps for a query that has rows (`if_found`) or none (`if_empty`)",
    "error_handling": "another name for on_error",
    "timeout": "a duration such as 30s",
    "retry_policy": "how often, and after which pauses, the step is tried again",
    "output": "the variable that holds the result",
}

_FOR_PEOPLE: Final = "for people, not interpreted"
# What follows from keys inside sections, where their names do not tell.
KEY_TEXTS: Final = {
    "metadata.author": _FOR_PEOPLE,
    "metadata.created": _FOR_PEOPLE,
    "metadata.tags": _FOR_PEOPLE,
    "metadata.changelog": _FOR_PEOPLE,
    "performance.expected_latency_ms": "an alert (info) where the median of the last 100 executions is above it",
    "performance.p99_latency_ms": "an alert where the 99th percentile of the last 100 executions is above it",
    "performance.max_latency_ms": "an alert where one of the last 100 executions took longer",
    "performance.cpu_limit_cores": "limits nothing: an execution has one thread",
    "performance.timeout_seconds": "the execution takes no longer",
    "performance.memory_limit_mb": "no value and no response is larger",
    "security.capabilities_required": "an execution without them is refused before its first step",
    "security.denied_capabilities": "refused also where it is granted, to the node and to the nodes that it calls",
    "security.compliance": _FOR_PEOPLE,
    "testing.property_tests[].strategy": "for other tools, not interpreted",
    "testing.test_cases[].steps": _FOR_PEOPLE,
    "testing.differential_tests.enabled": "false: `vesper verify` compares nothing unless it is given -n",
    "testing.differential_tests.sample_size": "inputs that `vesper verify` compares without -n",
}
