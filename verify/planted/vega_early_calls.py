"""The rules that Vega's early calls keep, and a bug for each: `vega plan` rests on these rules."""

from __future__ import annotations

from typing import Final

from lyra.core.budgets import early_calls
from verify.planted.apply import Change

__all__ = ["BUGS", "RULES"]

RULES: Final[dict[str, str]] = {
    **early_calls.RULES,
    "barrier": "nothing is asked across a return, break, try, session, receive or another effect",
    "branch": "a branch or loop that waits for an answer is not looked into",
    "aliases": "a list or map that changes is not read ahead, under whatever name",
    "copies": "what is computed ahead is computed on copies: a failure leaves no binding behind it",
    "same": "an early answer is taken only by the very call that the program then makes",
    "first": "the first failure in the order of the program is the one raised",
    "crash": "an agent crashes when the program comes to the failure, not before",
    "once": "under a limit a function is called early only if it asks one question at most",
    "early": "who is asked early is asked once more when the run knows who it is",
    "limits": "an agent whose rate limit could fail a call that waits is asked in its turn",
    "clock": "time that was won is given back to rules that go by the clock, before it could fail a call",
    "names": "one process is one process under all its names",
    "given": "what a library function calls runs ahead only if it leaves nothing behind",
    "handed": "a function runs ahead only if it hands back nothing that its caller has",
    "returns": "what a function returns may be what others hold",
    "defaults": "the default of a parameter is one of its values",
    "output": "an answer that is a list can change",
    "tools": "a function that asks sees what the tools of its agents see",
    "depth": "a function that runs ahead is as deep in its calls as in its turn, and calls only so many ahead",
    "fuel": "looking ahead ends after a while",
    "held": "nothing is asked across a spawn whose process is seen by others than those who ask it",
    "settings": "an agent is asked before it is spawned only if its settings are known then",
    "spawn": "a process is started when the program comes to its spawn, and not before",
    "window": "no more calls of an agent are under way than its concurrency allows",
}

_COMPILER: Final = "lyra.vega.compiler.early_calls"
_GROUP: Final = "lyra.vega.machine.fiber"
_MACHINE: Final = "lyra.vega.machine.rare_instructions"
_ALIASES: Final = "lyra.vega.plan.aliases"
_STRETCH: Final = "lyra.vega.plan.straight_line"
_SUMMARIES: Final = "lyra.vega.plan.summaries"
_TARGETS: Final = "lyra.vega.plan.aliases"
_AHEAD: Final = "lyra.vega.runtime.early_calls"
_BUDGET: Final = "lyra.vega.runtime.early_budget"
_SHARED_BUDGET: Final = "lyra.core.budgets.early_calls"
_CALLS: Final = "lyra.vega.runtime.agents.calls"
_DRIVER: Final = "lyra.vega.runtime.driver"
_JOB: Final = "lyra.vega.runtime.job"
_MODELS: Final = "lyra.agents.session.models"

BUGS: Final[dict[str, tuple[Change, ...]]] = {
    "ordered": (
        Change(_MODELS, "AgentModels.why_in_turn", "self.answers_in_order(agent)", "False"),
        Change(_AHEAD, "_may_start", "if slot is None:\n    return False", "return slot is not None"),
        Change(
            _SUMMARIES,
            "Summaries.why_ordered",
            "'the receiver is not known to be an agent that may be asked early'",
            "''",
        ),
        Change(_SUMMARIES, "Summaries.why_agent_ordered", "return self._agents[key]", "return ''"),
    ),
    "barrier": (
        Change(
            _STRETCH,
            "Stretch.check",
            "raise Barrier(says(effect_site), effect_site.node)",
            """
if effect_site.effect not in ("return", "break", "try", "session"):
    raise Barrier(says(effect_site), effect_site.node)
""",
        ),
        Change(
            _STRETCH,
            "Stretch._statement",
            "raise Barrier(f'the {kind.__name__.lower()}', node)",
            """
if kind in (ast.Try, ast.Session):
    self._statement(node.body)
""",
        ),
    ),
    "branch": (Change(_STRETCH, "Stretch._require_known", "value.level > 1", "False"),),
    "delivery": (Change(_STRETCH, "Stretch._send", "self._find_question_level(process)", "0"),),
    "aliases": (Change(_STRETCH, "Stretch._is_changed", "bool(held_by & self._changed)", "False"),),
    "copies": (
        Change(
            _COMPILER,
            "ahead_set",
            "value = out.register()",
            """
if isinstance(node, ast.Assign):
    from lyra.vega.compiler.control import set_variable
    from lyra.vega.compiler.expressions import compile_expression
    set_variable(out, variable, compile_expression(out, node.value))
    return
value = out.register()
""",
        ),
    ),
    "same": (Change(_GROUP, "EarlyCallGroup.take", "call.is_same(arguments)", "True"),),
    # The first failure in time is raised, not the first in the order of the program.
    "first": (
        Change(
            _AHEAD,
            "_take",
            "early = _early_call(job, group, call)",
            """
early = _early_call(job, group, call)
if early is not None:
    group_calls = job.state.ahead[group.number]
    while not early.task.done() and not group_calls.failed:
        await asyncio.wait(group_calls.under_way, return_when=asyncio.FIRST_COMPLETED)
    early = group_calls.failed[0] if group_calls.failed else early
""",
        ),
    ),
    "cancelled": (
        Change(_DRIVER, "_run_to_end", "await give_up(job)", "None"),
        Change(_AHEAD, "_cancel_open_calls", "task.cancel()", "None"),
        Change(_AHEAD, "_cancel_open_calls", "await asyncio.gather(*tasks, return_exceptions=True)", "None"),
    ),
    "crash": (
        Change(_CALLS, "crash", "early is not None", "False"),
        Change(
            _AHEAD,
            "_ask",
            "return await ask_agent(job, slot, target.pid, message, timeout, budget, is_early=True, early=early)",
            """
try:
    return await ask_agent(job, slot, target.pid, message, timeout, budget, is_early=True, early=early)
except LyraError as error:
    handle_failure(job, slot, error)
    raise
""",
        ),
    ),
    "spend": (
        Change(_SHARED_BUDGET, "EarlyBudget.is_allowed", "self._fits(self.peak)", "True"),
        Change(_AHEAD, "_spend", "early.scope.around.charge(early.scope.usage)", "None"),
        Change(_AHEAD, "_spend", "uncharge(job.world.budget, early.before)", "None"),
    ),
    "room": (
        Change(_SHARED_BUDGET, "EarlyBudget.admit", "self.has_room(usage)", "True"),
        Change(_BUDGET, "EarlyCallBudget.wait_for_those_before", "is_limited(self.around)", "False"),
        Change(_AHEAD, "_may_start", "group_calls.has_gap or not call.in_order", "False"),
    ),
    "once": (Change(_AHEAD, "_may_start", "asks_once or not limited", "True"),),
    "early": (Change(_AHEAD, "_may_start", "job.world.linked.program.agents[slot.plan.name].is_early", "True"),),
    "limits": (
        Change(_MODELS, "AgentModels.why_in_turn", "self.model_limits(agent).values()", "()"),
        Change(_SUMMARIES, "Summaries._why_agent", "self._why_limited(symbol, fields['rate_limit'])", "''"),
    ),
    "clock": (Change(_JOB, "VegaJob.give_back", "self._state.lead.seconds > 0.0", "False"),),
    "names": (Change(_TARGETS, "Targets.process", "values = self._values.get(id(meaning), [])", "return id(meaning)"),),
    "given": (
        Change(
            _SUMMARIES,
            "Summaries._read_callback_effects",
            "getattr(value, 'name', '') or 'the function it is given'",
            "''",
        ),
        Change(_SUMMARIES, "Summaries._in_lambda", "effect_site.through or 'the function it is given'", "''"),
    ),
    "handed": (Change(_MACHINE, "_par_spawn", "_is_fixed(fiber, call.arguments)", "True"),),
    "returns": (
        Change(_ALIASES, "Aliases._resolve_keys", "meaning.kind in _FUNCTIONS", "False"),
        Change(_ALIASES, "Aliases._result", "meaning.kind in _FUNCTIONS", "False"),
    ),
    "defaults": (
        Change(_ALIASES, "Aliases._read", "self._give(declared[id(node)], node.default, module)", "None"),
        Change(_SUMMARIES, "_code", "[*function.parameters, function.body]", "[function.body]"),
        Change(_TARGETS, "Targets._read", "node.default is not None", "False"),
    ),
    "output": (
        Change(
            _ALIASES,
            "Aliases._answers_text",
            "agents = self._targets.agents(node.target, module)",
            "return True",
        ),
    ),
    "tools": (Change(_SUMMARIES, "Summaries._local", "isinstance(node, ast.Send)", "False"),),
    "depth": (
        Change(_AHEAD, "_has_depth", "outer is None", "True"),
        Change(_AHEAD, "_depth", "job.fiber.depth + 1", "0"),
    ),
    "fuel": (Change(_MACHINE, "look_on", "not fiber.looking", "False"),),
    "held": (Change(_SUMMARIES, "Summaries.why_spawn_stays", "self.targets.is_held(node)", "False"),),
    "settings": (Change(_STRETCH, "Stretch._spawn", "not changes", "True"),),
    # The process is started when it is promised, and found again when the program comes to its spawn.
    "spawn": (
        Change(
            _AHEAD,
            "_promise",
            "slot.is_promised = True",
            """
slot.is_promised = True
group_calls.promised["started", promised.pid] = spawn_agent(job, name, settings, slot)
""",
        ),
        Change(
            _AHEAD,
            "_spawn",
            "spawn_agent(job, name, settings, slot)",
            "group_calls.promised.get(('started', promised.pid)) or spawn_agent(job, name, settings, slot)",
        ),
    ),
    # Early calls wait neither for a place in the window of their agent nor for its turn.
    "window": (
        Change(
            _CALLS,
            "ask_agent",
            "window = slot.ahead if ahead is not None else nullcontext()",
            """
async with in_time(slot.plan.name, limit_s, turn=turn):
    return read_answer(slot, await answer())
""",
        ),
    ),
}
