"""Every limit and default of Lyra, in one short file.

A number that bounds something lives here with its unit last in its name and its reason beside it; nothing
else does. What a person may change has a key in `lyra.config` whose default is read from here. Nothing here
imports anything.
"""

from __future__ import annotations

from typing import Final

# ---------------------------------------------------------------- quotas of a process that says nothing else
QUOTA_DEFAULTS: Final[dict[str, int]] = {
    "llm_calls": 100,  # model calls
    "tool_calls": 200,  # tool runs; an agent makes about two a model call
    "agent_hops": 21,  # hand-overs between agents or stages
    "iterations": 20,  # loops back to an earlier stage
    "input_tokens": 100_000,  # sent to models, summed
    "output_tokens": 50_000,  # received from models, summed
    "context_tokens": 150_000,  # in one model call
    "timeout_s": 300,  # the process is stopped
    "soft_timeout_s": 240,  # the process is warned
}

# ---------------------------------------------------------------- bounds of one envelope in a pipeline
ENVELOPE_ITERATIONS_MAX: Final = 3  # reached means stop (`>=`), unlike a quota (`>`)
ENVELOPE_LLM_CALLS_MAX: Final = 10
ENVELOPE_AGENT_HOPS_MAX: Final = 21
ENVELOPE_STAGES_MAX: Final = 5  # stages a goal-driven envelope may go through

# ---------------------------------------------------------------- processes
PROCESSES_MAX: Final = 1_000_000  # live at once; a process at rest costs a few hundred bytes
SPAWN_DEPTH_MAX: Final = 1_000  # parents above a process: a runaway recursion ends here, not in memory
NAME_LENGTH_MAX: Final = 200  # characters of a process, tool or service name
MAILBOX_MESSAGES_MAX: Final = 1_000  # waiting in one mailbox; the sender is told
WAITING_SENDERS_MAX: Final = 10_000  # messages in line for room in one mailbox, awaited or not
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # one message, encoded
EFFECT_VALUE_BYTES_MAX: Final = 64 * 1024 * 1024  # one effect's result, encoded
ENDED_INTERRUPTS_KEPT: Final = 10_000  # answered questions that can still be looked up
ENDED_PROCESSES_KEPT: Final = 10_000  # for those who ask how one ended; older ones are only in the store
PROGRAMS_KEPT: Final = 4_096  # the same for programs
EFFECTS_KEPT: Final = 4_096  # declarations remembered by function; more than that are made for each call
TICK_S: Final = 0.005  # how long the kernel gathers journal rows into one commit

# ---------------------------------------------------------------- store
SNAPSHOT_EVERY_EVENTS: Final = 50_000  # rows folded at most when a kernel opens its store
LEASE_S: Final = 3.0  # a dead owner's store opens after this
LEASE_RENEW_S: Final = 1.0  # two renewals may fail before the lease is lost
RETENTION_S: Final = 7 * 24 * 3600.0  # journal rows that a snapshot covers are kept this long
BLOB_INLINE_BYTES_MAX: Final = 65_536  # larger values go to the blob table, stored once

# ---------------------------------------------------------------- values
MONEY_MICRO_USD_MAX: Final = 2**63 - 1  # what a database column and msgpack hold: nine trillion dollars
VALUE_DEPTH_MAX: Final = 200  # lists and mappings inside one another, in what a caller hands in as plain data

# ---------------------------------------------------------------- capabilities and grants
CAPABILITY_LENGTH_MAX: Final = 65_536  # characters asked for: a shell command may carry a whole script
RULE_LENGTH_MAX: Final = 1_024  # characters of one rule, or of a request with wildcards
GRANT_RULES_MAX: Final = 1_000  # rules in one grant, all layers together
GRANT_LAYERS_MAX: Final = 64  # times a grant was narrowed by something it did not already contain
GRANT_CACHE_MAX: Final = 1_024  # decisions remembered by one grant
GRANT_COMPARISONS_MAX: Final = 64  # pairs of rules compared when looking for a layer that adds nothing
COMMANDS_MAX: Final = 256  # commands looked at in one shell line; a longer chain is touched by every deny
PATTERN_STEPS_MAX: Final = 10_000  # spent on "does this pattern cover that one" before the safe answer

# ---------------------------------------------------------------- reactions
RETRY_AFTER_S_MAX: Final = 600.0  # a server that asks for a longer pause is not believed
RETRY_ATTEMPTS_MAX: Final = 1_000  # calls one retry policy may make
