"""The session of one pipeline: its declaration, its envelope and its tokens, all plain data.

A token is at a stage: `ready` (may be run), `running` (a worker runs it), `forked` (its branches are in progress) or
`waiting` (for an answer). Sequential pipelines have one token, a fork makes one for each branch, a parallel pipeline
has one for each stage whose requirements are met. A token that asks waits for its own question, and the others
continue; a question about the whole session holds all of them up. This module reads a session; `moves` changes one,
`state` keeps all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core import codec
from lyra.core.envelope import Envelope, OpenQuestion, TerminalReason
from lyra.errors import ConfigError
from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.routing import ContextOverflow, Facts, MergeStrategy, RunMode, condition_holds, holds

IN_DOUBT: Final = "in_doubt"  # the kind of the question what became of a run
_TOKEN_CHARACTERS: Final = 4  # characters of text for one token, on average


class Token(msgspec.Struct):
    """A position of the pipeline's work. `run` numbers the run in progress; `sees` are the outputs its agent gets
    (None: all); `asked` is the last question on its path, with its answer (None: the envelope's); `tries` counts the
    failures of this stage that were retried, `began_at` is when its run began. `worker` has the run, for `lease_s` at a
    time; it is kept while the run is in doubt."""

    id: int
    stage: str = ""
    state: str = "ready"
    run: int = 0
    fork: int = 0
    last: str = ""
    sees: list[str] | None = None
    asked: dict[str, Any] | None = None
    tries: int = 0
    began_at: float = 0.0
    worker: str = ""
    lease_s: float = 0.0


class Question(msgspec.Struct):
    """An open question: the token that waits for it (0: the whole session), the stage that asked, and the question.

    `id` is the kernel's, where the kernel has it. `own`: the agent asked, and its route is chosen with the answer.
    `asked_at` is 0 where an earlier version asked."""

    number: int
    token: int
    stage: str
    kind: str
    interrupt: dict[str, Any]
    id: str = ""
    own: bool = False
    asked_at: float = 0.0


class Fork(msgspec.Struct):
    """An open fork: the token that waits for it, the branches in progress, and how the others ended."""

    id: int
    stage: str
    token: int
    live: list[int] = []
    done: int = 0
    failed: list[str] = []
    sees: list[str] = []


class Session(msgspec.Struct, kw_only=True):
    """One pipeline in progress. Everything in it is plain data, so a snapshot is the encoded object."""

    process_id: str
    pipeline_config: PipelineConfig
    envelope: Envelope
    edge_traversals: dict[str, int] = {}
    stage_visits: dict[str, int] = {}
    tokens: list[Token] = []
    forks: list[Fork] = []
    runs: int = 0
    made: int = 0  # tokens and forks so far; gives their ids
    asks: int = 0  # questions so far; gives their numbers
    waiting: list[Question] = []  # oldest first; the envelope shows the first
    created_at: float = 0.0
    last_activity_at: float = 0.0
    error_code: str = ""  # of the last run that failed; "" where its report had none

    @property
    def terminated(self) -> bool:
        return self.envelope.terminated

    @property
    def terminal_reason(self) -> TerminalReason | None:
        return self.envelope.terminal_reason

    @property
    def parallel(self) -> bool:
        return self.pipeline_config.default_run_mode is RunMode.PARALLEL

    @property
    def held_up(self) -> bool:
        """A question about the whole session is open."""
        return any(question.token == 0 for question in self.waiting)

    def question(self, number: int) -> Question | None:
        return next((question for question in self.waiting if question.number == number), None)

    def token(self, token_id: int) -> Token | None:
        for token in self.tokens:
            if token.id == token_id:
                return token
        return None

    def first(self, state: str) -> Token | None:
        for token in self.tokens:
            if token.state == state:
                return token
        return None

    def running(self, *, run: int = 0, agent: str = "") -> Token | None:
        """Return the token of a run, by its number or by the agent (or stage) that runs."""
        for token in self.tokens:
            if token.state in ("running", "ready") and (token.run == run if run else self._is(token, agent)):
                return token
        return None

    def running_for(self, worker: str) -> Token | None:
        """Return the run that a worker has, else the first that no worker has; "" is a worker without a name."""
        running = [token for token in self.tokens if token.state == "running"]
        own = [token for token in running if token.worker and token.worker == worker]
        free = [token for token in running if not token.worker]
        return next(iter(own or free), None)

    def in_doubt(self, *, run: int = 0, agent: str = "") -> Token | None:
        """Return the token of a run that a worker was silent about, by its number or by the agent (or stage)."""
        doubted = [question.token for question in self.waiting if question.kind == IN_DOUBT]
        for token in self.tokens:
            if token.id in doubted and (token.run == run if run else self._is(token, agent)):
                return token
        return None

    def _is(self, token: Token, agent: str) -> bool:
        stage = self.pipeline_config.stage(token.stage)
        return token.stage == agent or (stage is not None and stage.agent_name == agent)

    def ran_before(self, agent: str) -> bool:
        stage = self.pipeline_config.stage(agent)
        name = stage.agent_name if stage is not None else agent
        return any(record.agent == name for record in self.envelope.processing_history)

    def view(self, token: Token) -> Envelope:
        """Return a copy of the envelope for the token's agent, with the outputs of its own branch."""
        copy = self.envelope.copy()
        if token.sees is not None:
            copy.outputs = {name: output for name, output in copy.outputs.items() if name in token.sees}
        most = self.pipeline_config.by_name[token.stage].max_context_tokens if token.stage else None
        if most is not None:
            drop_outputs_until_it_fits(copy, most, self._own_names)
        copy.current_stage = token.stage or copy.current_stage
        copy.interrupt_pending = self.held_up
        if token.asked is not None and token.asked is not self.envelope.interrupt:
            copy.interrupt = OpenQuestion(codec.decode(codec.encode(token.asked)))
        return copy

    def over_context(self, stage: AgentConfig, token: Token) -> int:
        """Return the size of its context in tokens, if that is more than the stage allows; else 0."""
        most = stage.max_context_tokens
        if most is None:
            return 0
        outputs = self.envelope.outputs
        if stage.context_overflow is ContextOverflow.TRUNCATE_OLDEST:
            shown: list[Any] = []  # all of them may be left out
        else:
            seen = {name: output for name, output in outputs.items() if token.sees is None or name in token.sees}
            shown = list(_once(seen, self._own_names).values())
        tokens = context_tokens(self.envelope.raw_input, shown)
        return tokens if tokens > most else 0

    @property
    def _own_names(self) -> Container[str]:
        return self.pipeline_config.by_name

    def facts(self, token: Token | None) -> Facts:
        envelope = self.envelope
        outputs = envelope.outputs
        if token is not None and token.sees is not None:
            outputs = {name: output for name, output in outputs.items() if name in token.sees}
        asked = token.asked if token is not None and token.asked is not None else envelope.interrupt
        answered = (asked or {}).get("response")
        return Facts(
            current=outputs.get(token.last, {}) if token is not None else {},
            outputs=outputs,
            meta=envelope.metadata,
            interrupt=answered if isinstance(answered, Mapping) else {},
            state=envelope.metadata.get("state", {}),
        )


def context_tokens(raw_input: str, outputs: Iterable[Any]) -> int:
    """Return the tokens of input and outputs in a model's context, estimated with four characters a token."""
    return -(-(len(raw_input) + sum(map(_characters, outputs))) // _TOKEN_CHARACTERS)


def _characters(output: Any) -> int:
    return len(msgspec.json.encode(output).decode())


def _once(outputs: dict[str, dict[str, Any]], own: Container[str]) -> dict[str, dict[str, Any]]:
    """Each output under one name: its stage's name, where it has that."""
    stages = [output for name, output in outputs.items() if name in own]
    return {name: output for name, output in outputs.items() if name in own or output not in stages}


def drop_outputs_until_it_fits(envelope: Envelope, most: int, own: Container[str]) -> None:
    """Remove outputs, the oldest first, until the rest fits."""
    room = most * _TOKEN_CHARACTERS - len(envelope.raw_input)
    kept: dict[str, dict[str, Any]] = {}
    for name, output in reversed(_once(envelope.outputs, own).items()):
        room -= _characters(output)
        if room < 0:
            break
        kept[name] = output
    left = list(kept.values())
    envelope.outputs = {
        name: output
        for name, output in envelope.outputs.items()
        if name in kept or (name not in own and output in left)
    }


def evaluate_routing(stage: AgentConfig, facts: Facts) -> tuple[str, str]:
    """Return the target after a successful stage, and why: its first rule that holds, its default, or the end."""
    for index, rule in enumerate(stage.routing_rules):
        if (
            holds(rule.expr, facts)
            if rule.expr is not None
            else condition_holds(rule.condition, rule.value, facts.current)
        ):
            return rule.target, f"rule {index + 1}"
    return follows(stage)


def follows(stage: AgentConfig) -> tuple[str, str]:
    """Return the target when no rule holds, and why."""
    if stage.default_next:
        return stage.default_next, "default_next"
    return "end", "nothing follows"


def gather_state(session: Session, stage: AgentConfig, output: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what an output adds to the pipeline's state: the keys of state_schema, or all of it where a key names the
    stage."""
    whole = stage.output_key or stage.agent_name
    for key in session.pipeline_config.state_schema:
        if key in output:
            yield key, output[key]
        elif key == whole:
            yield key, output


def unmergeable(session: Session, token: Token, output: Mapping[str, Any]) -> str | None:
    """Return why an output cannot be merged into the state, since merge_dict needs mappings; None if it can."""
    stage = session.pipeline_config.by_name[token.stage]
    state = session.envelope.metadata.get("state", {})
    for key, value in gather_state(session, stage, output):
        if session.pipeline_config.state_schema[key] is MergeStrategy.MERGE_DICT:
            for what, mapping in ((f"what {stage.name} gives", value), ("what the state holds", state.get(key, {}))):
                if not isinstance(mapping, Mapping):
                    return f"state key {key!r} is merged by merge_dict, and {what} is {type(mapping).__name__}"
    return None


def session_data(session: Session) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(session, builtin_types=(bytes,))
    return data


def session_of(data: Any) -> Session:
    """Return a session from `session_data`; also of an older version, whose sessions had one question at most."""
    if isinstance(data, Mapping) and not isinstance(data.get("waiting", []), list):
        data = {**data, "asks": 1, "waiting": _one_question(data)}
    return msgspec.convert(data, Session)


def _one_question(data: Mapping[str, Any]) -> list[Any]:
    held, envelope = data["waiting"], data.get("envelope")
    asked = envelope.get("interrupt") if isinstance(envelope, Mapping) else None
    if held is None and not (isinstance(envelope, Mapping) and envelope.get("interrupt_pending")):
        return []
    if held is None:
        held = {}
    elif not isinstance(held, Mapping):
        return [held]  # not a question: the conversion raises
    return [
        {
            "number": 1,
            "token": held.get("token", 0),
            "stage": held.get("from", ""),
            "kind": held.get("kind", ""),
            "interrupt": asked or {},
            "id": held.get("id", ""),
            "own": bool(held.get("own")),
        }
    ]


# A checkpoint: the whole session of a pipeline as plain data, to be kept anywhere and resumed from under any pid.

_VERSION: Final = "1.0"
_BESIDE: Final = ("envelope", "edge_traversals", "stage_visits")  # fields of a session that stand beside it, too


def checkpoint_of(session: Session) -> dict[str, Any]:
    data = session_data(session)
    return {"version": _VERSION, "session": data, **{name: data[name] for name in _BESIDE}}


def check_version(checkpoint: Any) -> None:
    """Raise ConfigError where this is no checkpoint that this version can read."""
    if not isinstance(checkpoint, Mapping) or checkpoint.get("version") != _VERSION:
        raise ConfigError(f"not a checkpoint of version {_VERSION}", key="version")


def session_in(checkpoint: Mapping[str, Any]) -> tuple[Any, Envelope]:
    """Return the data of its session, to be written as a row, and the envelope in it."""
    kept = checkpoint.get("session")
    if isinstance(kept, Mapping):
        kept = {**kept, **{name: checkpoint[name] for name in _BESIDE if name in checkpoint}}
        kept.update({"waiting": _strip_ids(kept["waiting"])} if "waiting" in kept else {})
    try:
        return kept, session_of(kept).envelope
    except msgspec.ValidationError as error:
        raise ConfigError(f"not a checkpoint: {error}", key="session") from None


def _strip_ids(waiting: Any) -> Any:
    """Return the questions of a checkpoint's stages without their ids, so that the kernel asks them again."""
    if not isinstance(waiting, list):
        return waiting
    return [
        {
            **question,
            "id": "",
            "interrupt": {name: part for name, part in question["interrupt"].items() if name != "id"},
        }
        if isinstance(question, Mapping) and question.get("token") and isinstance(question.get("interrupt"), Mapping)
        else question
        for question in waiting
    ]
