"""Remarks on keys that nothing follows from, or nothing in this case.

The specification knows them and files have them, so they are no mistakes; their author learns that they change
nothing. Keys that are for people (`author`, `tags`, `compliance` …) have no remark: the reference says so.
"""

from __future__ import annotations

from typing import Final

from lyra.vesper.check.capabilities import denied_capability
from lyra.vesper.check.state import CheckState
from lyra.vesper.ir.program import NodeProgram
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.limits import SAMPLES_MAX

__all__ = ["UNENFORCED_RULES"]

_CONSISTENCIES: Final = ("strong", "eventual")
_CODE: Final = "no_effect"


def settings_of_tests(_: NodeProgram, state: CheckState) -> None:
    testing = state.node.testing
    for index, test in enumerate(testing.property_tests):
        if test.strategy:
            message = "`strategy` is for other tools: `vesper test` draws inputs in its own way"
            state.info(_CODE, message, ("testing", "property_tests", index, "strategy"))
    for index, case in enumerate(testing.test_cases):
        if case.steps:
            message = "`steps` of a test case are for people: `vesper test` compares how it ends"
            state.info(_CODE, message, ("testing", "test_cases", index, "steps"))
    size = testing.differential_tests.sample_size
    if size is not None and not 1 <= size <= SAMPLES_MAX:
        message = f"a sample has from 1 to {SAMPLES_MAX} inputs"
        state.error("limit", message, ("testing", "differential_tests", "sample_size"), value=True)


def processors(_: NodeProgram, state: CheckState) -> None:
    if state.node.performance.cpu_limit_cores is not None:
        message = "`cpu_limit_cores` limits nothing: an execution has one thread, and `timeout_seconds` bounds its time"
        state.info(_CODE, message, ("performance", "cpu_limit_cores"))


def consistencies(_: NodeProgram, state: CheckState) -> None:
    """Each write is committed before its step ends, which is `strong`, and more than `eventual` asks for."""
    for step in state.node.all_steps():
        setting = step.settings.get("consistency")
        if setting is None or setting.value is None:
            continue
        if setting.value not in _CONSISTENCIES:
            hint = close_to(str(setting.value), _CONSISTENCIES)
            state.error("unknown_word", "`consistency` is strong or eventual", setting.path, hint=hint, value=True)
        elif setting.value == "eventual":
            state.info(_CODE, "every write is strong: it is committed before the step ends", setting.path, value=True)


def denials(_: NodeProgram, state: CheckState) -> None:
    for index, text in enumerate(state.node.security.denied_capabilities):
        if denied_capability(text) is None:
            path = ("security", "denied_capabilities", index)
            state.warn("bad_capability", f"{text[:80]!r} is no capability, and denies nothing", path, value=True)


UNENFORCED_RULES: Final = (settings_of_tests, processors, consistencies, denials)
