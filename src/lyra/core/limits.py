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
    "timeout_s": 300,  # then an Event reports it and inference for the process ends; waiting for a human does not count
    "soft_timeout_s": 240,  # the process is warned
}

INFERENCE_REQUESTS_MAX: Final = 100  # requests to inference services
INFERENCE_INPUT_CHARS_MAX: Final = 100_000  # characters sent to them, summed
QUOTA_WARN_PERCENT: Final = 80  # of a quota; a warning is an Event
COUNTED_MAX: Final = 2**53  # any one counter: every reader of JSON holds it exactly

# ---------------------------------------------------------------- rates of kernel requests, for each user and endpoint
RATE_DEFAULTS: Final[dict[str, int]] = {
    "requests_per_minute": 60,
    "requests_per_hour": 1_000,
    "requests_per_day": 10_000,
    "burst_size": 10,  # in RATE_BURST_S
}
RATE_BURST_S: Final = 10.0
RATE_BUCKETS: Final = 10  # parts of a sliding window
RATE_KEYS_MAX: Final = 100_000  # pairs of user and endpoint remembered; the longest unused goes first
RATE_OVERRIDES_MAX: Final = 100_000  # users and endpoints with limits of their own
USERS_KEPT: Final = 100_000  # users whose totals are remembered; the longest inactive goes first

# ---------------------------------------------------------------- cleaning up
CLEANUP_INTERVAL_S: Final = 300.0  # between two rounds, where rounds are asked for
CLEANUP_PROCESSES_S: Final = 24 * 3600.0  # ended entries of the lifecycle are forgotten after this
CLEANUP_INTERRUPTS_S: Final = 3600.0  # ended questions
CLEANUP_SESSIONS_S: Final = 3600.0  # pipelines without activity
CLEANUP_ENVELOPES_S: Final = 24 * 3600.0  # envelopes without a pipeline that were not changed

# ---------------------------------------------------------------- bounds of one envelope in a pipeline
ENVELOPE_ITERATIONS_MAX: Final = 3  # reached means stop (`>=`), unlike a quota (`>`)
ENVELOPE_LLM_CALLS_MAX: Final = 10
ENVELOPE_AGENT_HOPS_MAX: Final = 21
ENVELOPES_MAX: Final = 100_000  # envelopes without a pipeline that are kept at a time
ENVELOPE_STAGES_MAX: Final = 5  # stages a goal-driven envelope may go through

# ---------------------------------------------------------------- pipelines
PIPELINE_STEPS_MAX: Final = 100  # gates and forks passed in a row without running an agent
PIPELINE_EXPRESSION_DEPTH_MAX: Final = 16  # expressions inside one another in a routing rule
SCHEMA_DEPTH_MAX: Final = 16  # schemas inside one another in a JSON Schema
PIPELINE_STAGES_MAX: Final = 1_000  # stages of one pipeline
PIPELINE_STAGE_TIMEOUT_S: Final = 300.0  # one run of a stage that says nothing else
PIPELINE_FILE_BYTES_MAX: Final = 1024 * 1024  # one declaration file
WORKER_LEASE_S: Final = 30.0  # how long a worker that is silent keeps a stage, unless it asks for another time
WORKER_LEASE_S_MAX: Final = 86_400.0
BLOCKING_CALLS_MAX: Final = 64  # threads for stage functions that are not async; they mostly wait
PIPELINE_EVENTS_UNREAD_MAX: Final = 10_000  # of one listener; a slower one is told to begin anew
PIPELINE_SESSION_IDLE_S: Final = 3600.0  # a session without activity for this long is stale

# ---------------------------------------------------------------- processes
PROCESSES_MAX: Final = 1_000_000  # live at once; a process at rest costs a few hundred bytes
RECOVERY_ATTEMPTS: Final = 10  # how often a call that crashes cut off is made again, before its process stops
SPAWN_DEPTH_MAX: Final = 1_000  # parents above a process: a runaway recursion ends here, not in memory
NAME_LENGTH_MAX: Final = 200  # characters of a process, tool or service name
MAILBOX_MESSAGES_MAX: Final = 1_000  # waiting in one mailbox; a sender of more gets an error
WAITING_SENDERS_MAX: Final = 10_000  # messages in line for room in one mailbox, awaited or not
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # one message, encoded
HOST_HELD_UP_S: Final = 30.0  # a program that computes may hold its host up so long; then other hosts take its shards
SHARD_RETRY_S_MAX: Final = 30.0  # between two tries to open a shard whose store cannot be opened
POSTS_AT_ONCE: Final = 200  # from one shard to another in one call
POSTS_BYTES_AT_ONCE: Final = 4 * 1024 * 1024  # in one call; a larger post travels alone, and no call is far above it
POST_CLIENTS_KEPT: Final = 10_000  # clients of a cluster whose last post a shard remembers
ANSWERS_KEPT: Final = 1_000  # of a shard's agents to clients, who may ask again for one whose call was cut off
MESSAGES_ON_TRUST: Final = 64  # that a shard sends to one mailbox of another before it must have asked for room
BUDGETS_SHARED_MAX: Final = 10_000  # budgets of the whole cluster with one home shard: each is in its every snapshot
BUDGET_UNUSED_S: Final = 86_400.0  # a connection's budget that nothing spends from is over: its client was killed
EARLY_RECEIVERS_MAX: Final = 10_000  # processes on their way to a shard for which it puts posts aside
POSTS_WAITING_MAX: Final = 100_000  # for one shard that does not take them; the next is Overloaded
EVENTS_AT_ONCE: Final = 2_000  # rows of a shard that one call for its Events looks at: the store is read meanwhile
EVENTS_BYTES_AT_ONCE: Final = 4 * 1024 * 1024  # and that its answer has, one row more or less
SCHEDULES_MAX: Final = 10_000  # of one shard: each is looked at when one is due
SCHEDULE_EVERY_S_MIN: Final = 1.0  # a commit for each firing: a shorter interval is a loop in a program
SCHEDULE_LATE_S: Final = 10.0  # a firing later than this was missed; a shard is taken over in half of it
SCHEDULE_MISSED_MAX: Final = 1_000  # firings that are made up for at once; of more the oldest are passed over
EFFECT_VALUE_BYTES_MAX: Final = 64 * 1024 * 1024  # one effect's result, encoded
DOUBT_WAIT_S: Final = 10.0  # that a question to an agent waits behind an effect in doubt, unless waiting is asked for
ENDED_INTERRUPTS_KEPT: Final = 10_000  # answered questions that can still be looked up
ENDED_PROCESSES_KEPT: Final = 10_000  # whose results can be asked for; older ones are only in the store
PROGRAMS_KEPT: Final = 4_096  # programs whose names the registry remembers
EFFECTS_KEPT: Final = 4_096  # declarations remembered by function; more than that are made for each call
TICK_S: Final = 0.005  # how long the kernel gathers journal rows into one commit

# ---------------------------------------------------------------- services, bus, groups, health
SERVICES_MAX: Final = 10_000  # registered at once
SERVICE_CONCURRENT_DEFAULT: Final = 10  # requests at once in a service that says nothing else
SERVICE_HEALTH_CHECK_S: Final = 30.0  # between two health checks
BUS_SUBSCRIBERS_MAX: Final = 100_000  # of one message type
BUS_STREAM_MESSAGES_MAX: Final = 100  # unread in one stream; then the oldest goes
BUS_QUERY_TIMEOUT_S: Final = 30.0  # for the answer to a query
GROUPS_MAX: Final = 100_000  # at once
BLACKBOARD_KEYS_MAX: Final = 10_000  # on the blackboard of one group
MEMORY_ITEMS_MAX: Final = 10_000  # in one scope; then the oldest goes
MEMORY_TEXT_MAX: Final = 4_000  # characters of one item: a sentence or two, not a document
HEALTH_INTERVAL_S: Final = 30.0  # between two looks at all processes

# ---------------------------------------------------------------- store
SNAPSHOT_EVERY_EVENTS: Final = 50_000  # rows folded at most when a kernel opens its store
LEASE_S: Final = 3.0  # a dead owner's store opens after this
STORE_RECONNECT_S: Final = 60.0  # a database server that restarts is waited for; nothing is lost meanwhile
LEASE_WAIT_S: Final = 10.0  # how long a kernel waits, by default, for a lease whose owner may be dead
RETENTION_S: Final = 7 * 24 * 3600.0  # journal rows that a snapshot covers are kept this long
KNOWN_STORES_MAX: Final = 1_000  # records of signed stores that are kept, whether their files are still there or not
KNOWN_STORES_GONE_S: Final = 7 * 24 * 3600.0  # beyond that number, records of files gone this long are dropped
BLOB_INLINE_BYTES_MAX: Final = 65_536  # larger values go to the blob table, stored once

# ---------------------------------------------------------------- values
MONEY_MICRO_USD_MAX: Final = 2**63 - 1  # what a database column and msgpack hold: nine trillion dollars
VALUE_DEPTH_MAX: Final = 200  # lists and mappings inside one another, in what a caller hands in as plain data

# ---------------------------------------------------------------- capabilities and grants
CAPABILITY_LENGTH_MAX: Final = 65_536  # characters asked for: a shell command may carry a whole script
RULE_LENGTH_MAX: Final = 1_024  # characters of one rule, or of a request with wildcards
GRANT_RULES_MAX: Final = 1_000  # rules in one grant, all layers together
GRANT_LAYERS_MAX: Final = 64  # times a grant was narrowed by something it did not already contain
GRANT_CACHE_MAX: Final = 1_024  # decisions cached by one grant
GRANT_COMPARISONS_MAX: Final = 64  # pairs of rules compared when looking for a layer that adds nothing
COMMANDS_MAX: Final = 256  # commands checked in one shell line; every deny rule matches a longer chain
WORDS_MAX: Final = 4_096  # words checked in one shell line; every deny rule matches a line with more
PATTERN_STEPS_MAX: Final = 10_000  # of comparing two patterns, then the safe answer is given

# ---------------------------------------------------------------- one command in a sandbox
SANDBOX_WALL_S: Final = 600.0  # then everything it started is killed
SANDBOX_CPU_S: Final = 600  # of each process
SANDBOX_MEMORY_BYTES_MAX: Final = 4 * 2**30
SANDBOX_FILE_BYTES_MAX: Final = 2**30  # one file it writes; also the size of its private /tmp
SANDBOX_PROCESSES_MAX: Final = 512  # processes and threads
SANDBOX_OPEN_FILES_MAX: Final = 4_096
SANDBOX_OUTPUT_BYTES_MAX: Final = 64 * 2**20  # a command that prints more is killed
SANDBOX_OUTPUT_KEPT_BYTES: Final = 65_536  # in memory, half head and half tail; the rest is in a file
SANDBOX_SCAN_ENTRIES_MAX: Final = 200_000  # checked for protected names; in a larger workspace no command runs
SANDBOX_SCAN_AFTER_MAX: Final = 2_000_000  # checked after a command, which may have made many; the result tells of more
EGRESS_HEAD_BYTES_MAX: Final = 16_384  # of a request to the proxy
EGRESS_CONNECTIONS_MAX: Final = 64  # open at once through one proxy
EGRESS_CONNECT_S: Final = 10.0  # to reach the host, and to read a request
EGRESS_LOG_MAX: Final = 1_000  # decisions remembered by one proxy

# ---------------------------------------------------------------- retries
RETRY_AFTER_S_MAX: Final = 600.0  # a longer pause that a server asks for is cut to this
RETRY_ATTEMPTS_MAX: Final = 1_000  # calls one retry policy may make

# ---------------------------------------------------------------- Vega sources
VEGA_SOURCE_CHARS_MAX: Final = 16 * 1024 * 1024  # characters of one file
VEGA_NESTING_MAX: Final = 200  # expressions and blocks inside one another; Python stops at about 1 000 frames
VEGA_PROBLEMS_MAX: Final = 50  # mistakes reported in one run; the rest usually follow from these

# ---------------------------------------------------------------- Vega programs
VEGA_DEPTH_MAX: Final = 10_000  # calls inside one another; deeper is an error that a program can catch
VEGA_STRING_CHARS_MAX: Final = 1 << 28  # characters of one string
VEGA_LIST_ITEMS_MAX: Final = 1 << 26  # items of a list that one step makes
VEGA_SHOWN_PIECES_MAX: Final = 1 << 22  # pieces of a value that is printed: lists may hold each other many times
VEGA_REGISTERS_MAX: Final = 60_000  # variables and temporaries of one function
VEGA_CODE_MAX: Final = 4_000_000  # instructions of one function
VEGA_TREE_DEPTH_MAX: Final = 40  # statements and values inside one another in a function that is generated as Python
VEGA_TREE_NODES_MAX: Final = 20_000  # statements and values of such a function; larger ones are interpreted
VEGA_FUNCTIONS_MAX: Final = 200_000  # functions of one program
VEGA_GLOBALS_MAX: Final = 1_000_000  # globals of one program
VEGA_BYTECODE_BYTES_MAX: Final = 64 * 1024 * 1024  # one `.vgb` file
VEGA_AHEAD_CALLS_MAX: Final = 64  # early calls of one process that run at once
VEGA_AHEAD_DEPTH_MAX: Final = 16  # early function calls inside one another; deeper ones wait for their turn
VEGA_AHEAD_FUNCTIONS_MAX: Final = 256  # early functions that run from inside others
VEGA_AHEAD_SLICES_MAX: Final = 200  # slices of 256 calls and loop turns that one lookahead may take
VEGA_REGEX_PROGRAM_MAX: Final = 5_000  # instructions of one pattern, its repetitions written out
VEGA_REGEX_STEPS_MAX: Final = 5_000_000  # steps of one match: some seconds, in which nothing else runs

# ---------------------------------------------------------------- the cluster
CLUSTER_DRAIN_S: Final = 30.0  # for effects in flight before a shard moves: most model calls end within it
CLUSTER_ANSWER_S: Final = 0.4  # for the answers of hosts to a command: one that is held must not hold the command
CLUSTER_POSTS_LATE_S: Final = 2.0  # a post that waits longer is told: one that moves on takes two commits and a call
CLUSTER_GONE_S: Final = 3600.0  # a host that is gone for longer is no news any more

# ---------------------------------------------------------------- the server
SERVER_CONNECTIONS_MAX: Final = 4_000  # connections of one face at once
SERVER_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024  # one request
SERVER_DRAIN_S: Final = 10.0  # for requests in flight when the server stops
SERVER_TOKENS_MAX: Final = 10_000  # lines of a token file
SERVER_TOKEN_CHARS_MIN: Final = 16  # a shorter token can be guessed
SERVER_ID_CHARS_MAX: Final = 256  # a user or a session in a request
SERVER_LOGIN_S: Final = 12 * 3600.0  # a person in a browser shows the token again after this
REVOKED_KEPT: Final = 10_000  # logins that were ended before their time; the one with the least left is dropped first
SERVER_LOGINS_MAX: Final = 10_000  # people who are logged in; the oldest login is dropped for a new one
SERVER_TOKEN_LOGINS_MAX: Final = 100  # with one token: its next login drops its own oldest, not another person's
SERVER_LOGIN_FAILURES: Final = 30  # a minute from one address; then no token is looked at for a while
SERVER_HEAD_BYTES_MAX: Final = 64 * 1024  # the line and the headers of one HTTP request
SERVER_HEAD_S: Final = 15.0  # for the headers of a request, from the first byte or the connection on
SERVER_BODY_S: Final = 30.0  # for the body of a request
SERVER_UNREAD_S: Final = 30.0  # a client that reads nothing of an answer for this long is dropped
SERVER_KEEP_ALIVE_S: Final = 75  # an HTTP connection between two requests
SERVER_HEARTBEAT_S: Final = 15.0  # between two signs of life in a stream
SERVER_PAGE_ITEMS: Final = 100  # of a list, unless the request says
SERVER_PAGE_ITEMS_MAX: Final = 10_000
SERVER_STREAM_EVENTS_MAX: Final = 10_000  # of one chat stream that can be read again
SERVER_STREAM_BYTES_MAX: Final = 4 * 1024 * 1024  # and their size
SERVER_STREAMS_KEPT: Final = 1_000  # chat streams that have ended and can be read again
SERVER_STREAM_KEPT_S: Final = 600.0  # how long such a stream can be read again
SERVER_FEED_EVENTS_MAX: Final = 5_000  # of the feed of all events, which all its readers share
SERVER_FEED_BYTES_MAX: Final = 8 * 1024 * 1024
SERVER_CALLERS_KEPT: Final = 10_000  # callers whose requests are counted at once
SERVER_WEBHOOKS_MAX: Final = 100  # of one user
SERVER_WEBHOOK_WAITING_MAX: Final = 1_000  # events that wait for one webhook; more are dropped
A2A_TASKS_OPEN_MAX: Final = 200  # of one user; another is refused until one has ended
A2A_TASKS_KEPT: Final = 1_000  # ended tasks of one user; the oldest are forgotten
A2A_TASKS_BYTES_MAX: Final = 64 * 2**20  # messages and answers of one user's tasks; the oldest ended ones are forgotten
A2A_PUSH_CONFIGS_MAX: Final = 10  # of one task
A2A_CONTEXT_TURNS_MAX: Final = 50  # earlier tasks of a context that the agent of the next one is told
A2A_CONTEXT_BYTES_MAX: Final = 4 * 2**20  # messages and answers of those tasks; older ones are left out
SERVER_SPANS_KEPT: Final = 10_000  # spans that the traces show
SERVER_HISTORY_EVENTS_KEPT: Final = 20_000  # events of a kernel without a store that can be read again
SERVER_COST_ROWS_MAX: Final = 10_000  # of the sums by agent, model and day
SERVER_CALLS_MAX: Final = 10_000  # gRPC calls in flight, open streams included; more are refused
SERVER_STREAMS_MAX: Final = 250  # gRPC calls in flight on one connection; more wait in the client
SERVER_GRPC_IDLE_S: Final = 600.0  # a gRPC connection without a call is closed after this; clients open another
SERVER_METADATA_BYTES_MAX: Final = 16 * 1024  # headers of one gRPC call
SERVER_HANDSHAKE_S: Final = 20.0  # until a new connection has said hello, and a ping is answered; then it is dropped
SERVER_KEEPALIVE_S: Final = 60.0  # between two pings to a silent gRPC client: one that is gone is noticed
FRONT_WAIT_S: Final = 5.0  # beyond a lease: how long a request waits for a shard that is open on no host
FRONT_ANSWERS_S: Final = 5.0  # that a shard has to answer where all are asked; then its part is missing
SERVER_PING_INTERVAL_S: Final = 10.0  # between two pings of a gRPC client; one that pings more often is dropped
CLIENT_TIMEOUT_S: Final = 60.0  # one call of a client, where the caller says nothing else
CLIENT_RECONNECT_S: Final = 30.0  # a server that restarts is waited for by calls that may be repeated
CLIENT_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # one answer
WORK_WAITING_MAX: Final = 10_000  # pieces of work that no worker has taken yet
WORK_WAITING_PER_NAME_MAX: Final = 1_000  # of these, for one agent or service: one name cannot fill the queue
WORK_WORKERS_MAX: Final = 1_000  # workers of one server
WORK_NAMES_MAX: Final = 100  # agents and services of one worker
WORK_SLOTS_MAX: Final = 1_000  # pieces of work that one worker does at once
WORK_RESULTS_KEPT: Final = 10_000  # results that are recognised when a worker reports them again
WORK_ATTEMPTS_MAX: Final = 5  # a piece of work that lost so many workers is not given to a sixth
WORK_LEASE_S: Final = 15.0  # a worker that stays silent for so long has lost its piece of work
WORK_LEASE_S_MIN: Final = 1.0
WORK_LEASE_S_MAX: Final = 3_600.0
WORK_RETURN_S: Final = 20.0  # after a restart, for workers to come back and say what they have
WORK_CLAIM_WAIT_S_MAX: Final = 30.0  # one claim waits at most so long for work
WORK_PRESENCE_S: Final = 30.0  # a worker that has not asked for so long, and holds nothing, has left
