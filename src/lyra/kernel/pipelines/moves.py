"""How one row changes a pipeline's session: a pure state machine that moves tokens from stage to stage.

Gates and forks are passed at once; only agents are run. A `Move` uses the time in the row and never reads a clock, so
that the same rows give the same session after a restart. `orchestrator` decides what is due next, and `runner` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lyra.core.envelope import OpenQuestion, TerminalReason
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.routing import JoinStrategy, MergeStrategy, NodeKind, condition_holds, holds
from lyra.kernel.pipelines.session import (
    IN_DOUBT,
    Fork,
    Question,
    Session,
    Token,
    evaluate_routing,
    follows,
    gather_state,
)


# ---------------------------------------------------------------- open questions
# One for each token that asked, and those about the whole session. The envelope shows the oldest open one or, when
# none is open, the last that ended, with its answer.
def ask(
    session: Session,
    interrupt: dict[str, Any],
    *,
    token: int = 0,
    stage: str = "",
    own: bool = False,
    interrupt_id: str = "",
    now: float = 0.0,
) -> None:
    """Add an open question; without a token the whole session waits for it."""
    session.asks += 1
    kind = str(interrupt.get("kind") or "")
    question = Question(session.asks, token, stage, kind, interrupt, interrupt_id, own, now)
    session.waiting = [*session.waiting, question]
    show(session)


def find_question(session: Session, interrupt: Mapping[str, Any], number: int | None) -> Question | None:
    """Return the question of a row, by its number; a row of an older version has none, and means its id, else the
    last."""
    if number is not None:
        return session.question(number)
    known = [question for question in session.waiting if question.id and question.id == interrupt.get("id")]
    candidates = known or session.waiting
    return candidates[-1] if candidates else None


def drop_questions(session: Session, token: Token) -> None:
    """Remove the questions of a token that no longer waits."""
    if token.state == "waiting":
        session.waiting = [question for question in session.waiting if question.token != token.id]
        show(session)


def show(session: Session) -> None:
    """Show the oldest open question in the envelope."""
    session.envelope.interrupt_pending = bool(session.waiting)
    if session.waiting:
        session.envelope.interrupt = OpenQuestion(session.waiting[0].interrupt)


Tell = Callable[[str, str, str, dict[str, Any]], None]  # pid, event type, stage, facts

# Whether a limited edge leads back → why the pipeline ended.
_LIMITED: Final = {True: TerminalReason.MAX_LOOP_EXCEEDED, False: TerminalReason.EDGE_LIMIT_EXCEEDED}
# Code of the error that a stage failed with → why the pipeline ended; any other is TOOL_FAILED_FATALLY.
_FATAL: Final = {"model_error": TerminalReason.LLM_FAILED_FATALLY}
DENIED: Final = "User denied confirmation"


class Move:
    """The change of one session by one row."""

    __slots__ = ("config", "envelope", "now", "session", "steps", "tell_all")

    def __init__(self, session: Session, now: float, tell: Tell) -> None:
        self.session = session
        self.config = session.pipeline_config
        self.envelope = session.envelope
        self.now = now
        self.tell_all = tell
        self.steps = 0
        session.last_activity_at = now

    def tell(self, kind: str, stage: str = "", **facts: Any) -> None:
        self.tell_all(self.session.process_id, kind, stage, facts)

    # ------------------------------------------------------------------ the rows

    def begin(self) -> None:
        """Set bounds and order from the pipeline; a current stage that the pipeline has is kept."""
        config, envelope = self.config, self.envelope
        envelope.stage_order = config.stage_order
        envelope.max_iterations = config.max_iterations
        envelope.max_llm_calls = config.max_llm_calls
        envelope.max_agent_hops = config.max_agent_hops
        if config.max_input_tokens is not None:  # else the envelope's own bound holds
            envelope.max_input_tokens = config.max_input_tokens
        if config.max_output_tokens is not None:
            envelope.max_output_tokens = config.max_output_tokens
        envelope.parallel_mode = self.session.parallel
        if envelope.terminated:
            return
        if envelope.interrupt_pending:  # the envelope came with an open question
            ask(self.session, dict(envelope.interrupt or {}))
        if self.session.parallel:
            self._release()
            return
        first = envelope.current_stage
        if config.stage(first) is None and first not in ("end", "clarification", "confirmation"):
            first = config.agents[0].name
        envelope.current_stage = first
        self._arrive(self._make(""), first)

    def start(self, token_id: int) -> None:
        """Start a run of the token's stage: one hop."""
        token = self.session.token(token_id)
        assert token is not None, token_id
        assert token.state == "ready", token_id
        stage = self._stage(token.stage)
        self._begin_run(token, stage)
        over = self.session.over_context(stage, token)
        if over:
            message = f"its context is {over} tokens, and may be {stage.max_context_tokens}"
            self._fail_stage(token, stage, {}, f"context_overflow: {message}")

    def _begin_run(self, token: Token, stage: AgentConfig) -> None:
        self.session.runs += 1
        token.run = self.session.runs
        token.state = "running"
        token.began_at = self.now
        if self.session.parallel:
            token.sees = list(self.envelope.outputs)
            self.envelope.current_stage = token.stage
        self.envelope.start_stage(token.stage, now=self.now, agent=stage.agent_name)
        self.tell("stage_started", token.stage, run_id=token.run, agent=stage.agent_name)

    def report(self, token_id: int, result: Mapping[str, Any]) -> None:
        token = self.session.token(token_id)
        assert token is not None, token_id
        stage = self._stage(token.stage)
        if token.state == "ready":  # a worker ran it without get_next_instruction
            self._begin_run(token, stage)
        elif token.state == "waiting":  # its worker was silent, and it was in doubt
            drop_questions(self.session, token)
        token.state, token.worker, token.lease_s = "running", "", 0.0
        self._count(result.get("metrics") or {})
        output: dict[str, Any] = dict(result.get("output") or {})
        wrong = stage.wrong_with(output) if result["success"] else None
        if wrong is not None:
            self._fail_stage(token, stage, result, f"the output of {stage.name} {wrong}")
        elif result["success"]:
            self._went_well(token, stage, result, output)
        else:
            self._fail_stage(token, stage, result, str(result.get("error") or f"{stage.name} failed"))
        if not self.envelope.terminated:
            self.tell("checkpoint_created", stage.name)

    def lease(self, token_id: int, worker: str, lease_s: float) -> None:
        """Give the run of a token to a worker."""
        token = self.session.token(token_id)
        assert token is not None, token_id
        token.worker, token.lease_s = worker, lease_s

    def lose_lease(self, token_id: int, *, in_doubt: bool) -> None:
        """Take a run away from its worker: the stage is to be run again, or it is in doubt whether it was."""
        token = self.session.token(token_id)
        assert token is not None, token_id
        if not in_doubt:
            self._run_again(token)
            return
        token.state = "waiting"
        interrupt = {
            "kind": IN_DOUBT,
            "question": f"Was stage {token.stage} performed? retry, skip or fail",
            "message": f"worker {token.worker} has run {token.run} of it and was silent for {token.lease_s:g} s",
        }
        ask(self.session, interrupt, token=token.id, stage=token.stage, now=self.now)

    def _run_again(self, token: Token) -> None:
        self.envelope.skip_stage(token.stage, now=self.now, agent=self._stage(token.stage).agent_name)
        token.state, token.run, token.worker, token.lease_s = "ready", 0, "", 0.0

    def _settle_doubt(self, token: Token, response: Mapping[str, Any] | None, unanswered: str) -> None:
        """Do as a person decided about a run in doubt; without an answer it has failed."""
        stage, decision = self._stage(token.stage), str((response or {}).get("decision") or "fail")
        if decision == "retry":
            self._run_again(token)
            return
        token.state, token.worker, token.lease_s = "running", "", 0.0
        data = (response or {}).get("data")
        output: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {}
        wrong = stage.wrong_with(output) if decision == "skip" else None
        if decision == "skip" and wrong is None:
            self._went_well(token, stage, {}, output)
        else:
            error = f"the output of {stage.name} {wrong}" if wrong is not None else unanswered
            error = error or f"{stage.name} may or may not have been performed"
            self._fail_stage(token, stage, {"error_code": "effect_in_doubt"}, error)

    def wait(self, interrupt: Mapping[str, Any], number: int | None) -> None:
        """Add a question from outside (number 0), which holds the session up, or set the kernel's id of its own
        question. Listeners are told of a question when it has its id: they answer it by that."""
        question = find_question(self.session, interrupt, number)
        if question is None:
            ask(self.session, dict(interrupt), interrupt_id=str(interrupt.get("id") or ""), now=self.now)
            self.tell("interrupt_raised", self.envelope.current_stage, interrupt=dict(interrupt))
            return
        was_unknown, question.id = not question.id, str(interrupt.get("id") or "")
        question.interrupt = {**question.interrupt, **interrupt}
        show(self.session)
        if was_unknown and question.id:
            self.tell("interrupt_raised", question.stage, interrupt=dict(question.interrupt))

    def resume(
        self,
        interrupt: Mapping[str, Any],
        response: Mapping[str, Any] | None,
        number: int | None,
        unanswered: str = "",
        *,
        ends: bool = False,
    ) -> None:
        """End a question: answered, or (response None) expired or cancelled, with the reason in `unanswered`; one about
        the whole session `ends` it where it is a confirmation that no person gave in time."""
        known = find_question(self.session, interrupt, number)
        question = known if known is not None else Question(0, 0, "", "", {})
        kind = str(interrupt.get("kind") or question.kind)
        held = (
            OpenQuestion(interrupt) or OpenQuestion(question.interrupt) or OpenQuestion(self.envelope.interrupt or {})
        )
        asked = OpenQuestion({**held, "response": dict(response)}) if response is not None else held
        self.session.waiting = [other for other in self.session.waiting if other is not question]
        self.envelope.interrupt = asked
        if kind == IN_DOUBT and (doubted := self.session.token(question.token)) is not None:
            self._settle_doubt(doubted, response, unanswered)
            show(self.session)
            return
        if not question.token and question.asked_at:  # the time of runs stood still meanwhile
            for running in self.session.tokens:
                if running.state == "running":
                    running.began_at += max(0.0, self.now - max(question.asked_at, running.began_at))
        if response is not None and kind == "confirmation" and response.get("approved") is not True:
            self.terminate(TerminalReason.USER_CANCELLED, DENIED)
            return
        if unanswered and (question.token or ends) and kind == "confirmation":  # no consent was given
            self.terminate(TerminalReason.USER_CANCELLED, unanswered)
            return
        resume_stage = str(getattr(self.config, f"{kind}_resume_stage", "")) if response is not None else ""
        token = self.session.token(question.token)
        for waiting in self.session.tokens if token is None else [token]:
            waiting.asked = asked
        if token is not None:
            self._resume_token(token, question.stage, kind, resume_stage, own=question.own)
        elif resume_stage and not self.session.parallel:
            self._jump(resume_stage)
        show(self.session)

    def terminate(self, reason: TerminalReason | str, message: str = "") -> None:
        """End the pipeline; only the first reason counts."""
        if self.envelope.terminated:
            return
        for token in self.session.tokens:
            self._skip(token)
        self.session.tokens = []
        self.session.forks = []
        self.session.waiting = []
        show(self.session)
        self.envelope.terminate(reason, now=self.now, message=message)
        assert self.envelope.terminal_reason is not None
        if self.envelope.terminal_reason is TerminalReason.COMPLETED:
            self.envelope.current_stage = "end"
        facts = {"reason": self.envelope.terminal_reason.value, "message": self.envelope.termination_reason}
        if self.envelope.terminal_reason.outcome() == "bounds_exceeded":
            self.tell("bounds_exceeded", self.envelope.current_stage, **facts)
        self.tell("pipeline_completed", self.envelope.current_stage, **facts)

    # ------------------------------------------------------------------ the end of a run

    def _count(self, metrics: Mapping[str, Any]) -> None:
        self.envelope.tool_call_count += int(metrics.get("tool_calls") or 0)
        self.envelope.tokens_in += int(metrics.get("tokens_in") or 0)
        self.envelope.tokens_out += int(metrics.get("tokens_out") or 0)

    def _went_well(self, token: Token, stage: AgentConfig, result: Mapping[str, Any], output: dict[str, Any]) -> None:
        names, agent = self.config.output_names[stage.name], stage.agent_name
        self.envelope.complete_stage(
            stage.name, output, now=self.now, agent=agent, names=names, **_select_metrics(result.get("metrics"))
        )
        if token.sees is not None:
            token.sees += [name for name in names if name not in token.sees]
        token.last = stage.name
        if self.config.state_schema:
            for key, value in gather_state(self.session, stage, output):
                metadata = self.envelope.metadata
                state = metadata.get("state", {})
                merged = {**state, key: _merge(self.config.state_schema[key], state.get(key), value)}
                self.envelope.metadata = {**metadata, "state": merged}
        self.tell("stage_completed", stage.name, run_id=token.run, output=output)
        if result.get("break_loop"):
            # End the branch or the pipeline of an agent that asked to stop.
            if token.fork:
                self._branch_done(token)
            else:
                self.terminate(TerminalReason.BREAK_REQUESTED)
        elif result.get("interrupt"):
            self._ask(token, dict(result["interrupt"]), stage.name, own=True)
        elif self.session.parallel:
            self._drop(token)
            self._release()
        else:
            self._route(token, stage)

    def _fail_stage(self, token: Token, stage: AgentConfig, result: Mapping[str, Any], error: str) -> None:
        self.session.error_code = str(result.get("error_code") or "")
        measured = _select_metrics(result.get("metrics"))
        self.envelope.fail_stage(stage.name, error, now=self.now, agent=stage.agent_name, **measured)
        self.tell("stage_failed", stage.name, run_id=token.run, error=error)
        if result.get("retry") and stage.retry is not None and token.tries < stage.retry.max_attempts - 1:
            token.tries += 1
            token.state, token.run = "ready", 0
        else:
            self._after_failure(token, stage, error)

    def _after_failure(self, token: Token, stage: AgentConfig, error: str) -> None:
        if stage.error_next and not self.session.parallel:
            self._go(token, stage.name, stage.error_next, "error_next")
        else:
            self._branch_failed(token, f"{stage.name}: {error}")

    # ------------------------------------------------------------------ moving

    def _route(self, token: Token, stage: AgentConfig) -> None:
        if stage.routing_rules:
            target, why = evaluate_routing(stage, self.session.facts(token))
        else:
            target, why = follows(stage)
        self._go(token, stage.name, target, why)

    def _go(self, token: Token, source: str, target: str, why: str) -> None:
        """Take an edge: it is counted, and counts as an iteration if the target is an earlier stage."""
        self.tell("routing_decision", source, target=target, reason=why)
        fork = self._fork(token.fork) if token.fork else None
        if fork is not None and target == self._stage(fork.stage).default_next:
            target = "end"  # the branches join there
        if target != "end" and not self._edge(source, target):
            return
        self._arrive(token, target)

    def _edge(self, source: str, target: str) -> bool:
        key = f"{source}->{target}"
        taken = self.session.edge_traversals[key] = self.session.edge_traversals.get(key, 0) + 1
        places = self.config.places
        if target in places and source in places and places[target] < places[source]:
            self.envelope.iteration += 1
        limit = self.config.most_taken.get((source, target))
        if limit is not None and taken > limit:
            message = f"{source} led to {target} more than {limit} times"
            self.terminate(_LIMITED[target in places and places[target] <= places.get(source, -1)], message)
            return False
        return True

    def _arrive(self, token: Token, target: str) -> None:
        """Move a token to a target: gates are passed, forks opened, and an agent becomes ready to run."""
        if target == "end":
            self._branch_done(token)
            return
        if target in ("clarification", "confirmation"):
            self._ask(token, {"kind": target, **self._question(token)}, token.stage, own=False)
            return
        stage = self._stage(target)
        if not self._may_visit(stage):
            return
        token.stage, token.state, token.run, token.tries = target, "ready", 0, 0
        if token.fork == 0:
            self.envelope.current_stage = target
        if stage.node_kind is NodeKind.AGENT:
            return
        self.steps += 1
        if self.steps > self.config.step_limit:
            self.terminate(TerminalReason.MAX_LOOP_EXCEEDED, f"more than {self.config.step_limit} gates in a row")
        elif stage.node_kind is NodeKind.GATE:
            self._route(token, stage)
        else:
            self._open(token, stage)

    def _may_visit(self, stage: AgentConfig) -> bool:
        visits = self.session.stage_visits[stage.name] = self.session.stage_visits.get(stage.name, 0) + 1
        if stage.max_visits is not None and visits > stage.max_visits:
            message = f"{stage.name} was entered more than {stage.max_visits} times"
            self.terminate(TerminalReason.MAX_STAGE_VISITS_EXCEEDED, message)
            return False
        return True

    def _jump(self, target: str) -> None:
        """Continue at a stage after an answer; everything else that runs is cancelled."""
        root = next((token for token in self.session.tokens if token.fork == 0), None)
        if root is None:
            return
        for fork in [fork for fork in self.session.forks if fork.token == root.id]:
            self._cancel(fork)
        self._skip(root)
        drop_questions(self.session, root)
        self._arrive(root, target)

    # ------------------------------------------------------------------ forks

    def _open(self, token: Token, stage: AgentConfig) -> None:
        facts = self.session.facts(token)
        targets = list(stage.branches)
        for rule in stage.routing_rules:
            met = (
                holds(rule.expr, facts)
                if rule.expr is not None
                else condition_holds(rule.condition, rule.value, facts.current)
            )
            if met and rule.target not in targets:
                targets.append(rule.target)
        if not targets:
            self._go(token, stage.name, stage.default_next or "end", "no branch")
            return
        token.state = "forked"
        sees = list(self.envelope.outputs) if token.sees is None else list(token.sees)
        fork = Fork(self._id(), stage.name, token.id)
        self.session.forks.append(fork)
        branches = []
        for target in targets:
            branch = self._make(stage.name, fork=fork.id, last=token.last, sees=list(sees), asked=token.asked)
            fork.live.append(branch.id)
            branches.append((branch, target))
        for branch, target in branches:
            if branch in self.session.tokens:  # else an earlier branch has ended the fork, or the pipeline
                self._go(branch, stage.name, target, "fork")

    def _branch_done(self, token: Token) -> None:
        """End a token: its branch is done, or the pipeline is."""
        fork = self._fork(token.fork)
        if fork is None:
            if self.session.parallel:
                self._drop(token)
                self._release()
            else:
                self.terminate(TerminalReason.COMPLETED)
            return
        self._drop(token)
        fork.live.remove(token.id)
        fork.done += 1
        fork.sees += [name for name in token.sees or () if name not in fork.sees]
        if not fork.live or self._stage(fork.stage).join_strategy is JoinStrategy.ANY:
            self._join(fork, token.last, token.asked)

    def _join(self, fork: Fork, last: str, asked: dict[str, Any] | None) -> None:
        parent = self.session.token(fork.token)
        assert parent is not None, fork.token
        self._cancel(fork)
        parent.last = last
        parent.asked = asked
        if parent.sees is not None:
            parent.sees += [name for name in fork.sees if name not in parent.sees]
        self._go(parent, fork.stage, self._stage(fork.stage).default_next or "end", "joined")

    def _branch_failed(self, token: Token, error: str) -> None:
        fork = self._fork(token.fork)
        if fork is None:
            self.terminate(_FATAL.get(self.session.error_code, TerminalReason.TOOL_FAILED_FATALLY), error)
            return
        self._drop(token)
        fork.live.remove(token.id)
        fork.failed.append(error)
        stage = self._stage(fork.stage)
        if stage.join_strategy is JoinStrategy.ANY and fork.live:
            return
        parent = self.session.token(fork.token)
        assert parent is not None, fork.token
        self._cancel(fork)
        self._after_failure(parent, stage, "; ".join(fork.failed))

    def _cancel(self, fork: Fork) -> None:
        """End a fork: remaining branches are removed, with the forks inside them."""
        if fork in self.session.forks:
            self.session.forks.remove(fork)
        for token in [token for token in self.session.tokens if token.id in fork.live]:
            for inner in [inner for inner in self.session.forks if inner.token == token.id]:
                self._cancel(inner)
            self._skip(token)
            self._drop(token)

    # ------------------------------------------------------------------ parallel mode

    def _release(self, asked: dict[str, Any] | None = None) -> None:
        """Make a token for each stage whose requirements are met; end the pipeline when none is left."""
        session = self.session
        while not self.envelope.terminated:
            here = {token.stage for token in session.tokens}
            ready = [stage for stage in self.config.agents if stage.name not in here and self._is_due(stage)]
            for stage in ready:
                if not self._may_visit(stage):
                    return
                if stage.node_kind is NodeKind.AGENT:
                    self._make(stage.name, asked=asked)
                else:  # a gate or a fork only joins requirements, and runs nothing
                    self.envelope.completed_stage_set = {**self.envelope.completed_stage_set, stage.name: True}
            if not any(stage.node_kind is not NodeKind.AGENT for stage in ready):
                break
        if session.tokens or self.envelope.terminated:
            return
        done = self.envelope.completed_stage_set
        left = [stage.name for stage in self.config.agents if not done.get(stage.name)]
        if left:
            message = f"these stages wait for one another: {', '.join(left)}"
            self.terminate(TerminalReason.TOOL_FAILED_FATALLY, message)
        else:
            self.terminate(TerminalReason.COMPLETED)

    def _is_due(self, stage: AgentConfig) -> bool:
        done = self.envelope.completed_stage_set
        if done.get(stage.name):
            return False
        asks = [
            question.stage for question in self.session.waiting if question.token
        ]  # these stages are done once their questions are answered
        met = [bool(done.get(name)) and name not in asks for name in stage.requires]
        enough = any(met) if stage.join_strategy is JoinStrategy.ANY and met else all(met)
        return enough and all(done.get(name) and name not in asks for name in stage.after)

    # ------------------------------------------------------------------ questions

    def _question(self, token: Token) -> dict[str, Any]:
        output = self.envelope.outputs.get(token.last, {})
        texts = {key: output[key] for key in ("question", "message") if isinstance(output.get(key), str)}
        return {"question": f"{token.stage or self.config.name} asks", **texts}

    def _ask(self, token: Token, interrupt: dict[str, Any], source: str, *, own: bool) -> None:
        kind = str(interrupt.get("kind") or "clarification")
        interrupt["kind"] = kind
        token.state = "waiting"
        if token.fork == 0 and not own:
            self.envelope.current_stage = kind
        ask(self.session, interrupt, token=token.id, stage=source, own=own)

    def _resume_token(self, token: Token, source: str, kind: str, resume_stage: str, *, own: bool) -> None:
        """Continue at the pipeline's resume stage for this kind; without one, at or after the stage that asked."""
        stage = self.config.stage(source)
        if resume_stage:
            self._arrive(token, resume_stage)
        elif stage is None:
            self._arrive(token, self.config.agents[0].name)
        elif own:
            if self.session.parallel:
                self._drop(token)
                self._release(token.asked)
            else:
                self._route(token, stage)
        elif kind == "confirmation":
            follows = stage.default_next
            self._arrive(token, follows if follows not in ("", "confirmation", "clarification") else "end")
        else:
            self._arrive(token, source)

    # ------------------------------------------------------------------ helpers

    def _id(self) -> int:
        self.session.made += 1
        return self.session.made

    def _make(
        self,
        stage: str,
        *,
        fork: int = 0,
        last: str = "",
        sees: list[str] | None = None,
        asked: dict[str, Any] | None = None,
    ) -> Token:
        token = Token(self._id(), stage, fork=fork, last=last, sees=sees, asked=asked)
        self.session.tokens.append(token)
        return token

    def _drop(self, token: Token) -> None:
        drop_questions(self.session, token)
        self.session.tokens = [other for other in self.session.tokens if other is not token]

    def _skip(self, token: Token) -> None:
        """Record that the result of a running token is no longer needed."""
        if token.state != "running":
            return
        self.envelope.skip_stage(token.stage, now=self.now, agent=self._stage(token.stage).agent_name)

    def _fork(self, fork_id: int) -> Fork | None:
        for fork in self.session.forks:
            if fork.id == fork_id:
                return fork
        return None

    def _stage(self, name: str) -> AgentConfig:
        return self.config.by_name[name]


def _merge(strategy: MergeStrategy, held: Any, value: Any) -> Any:
    if strategy is MergeStrategy.APPEND:
        more = value if isinstance(value, list) else [value]
        return [*(held if isinstance(held, list) else [] if held is None else [held]), *more]
    if strategy is MergeStrategy.MERGE_DICT and isinstance(held, Mapping) and isinstance(value, Mapping):
        return {**held, **value}
    return value


def _select_metrics(metrics: Mapping[str, Any] | None) -> dict[str, int]:
    """Return what the record of a run has of its metrics."""
    counted = metrics or {}
    return {name: int(counted.get(name) or 0) for name in ("llm_calls", "duration_ms")}
