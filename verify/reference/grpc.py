"""`grpc.md`: the services, messages and enums of the gRPC server, read from the contract and its comments.

The contract lies in the package as `server/generated/engine.proto`, beside the classes made from it; neither grpcio nor
protobuf is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from lyra.core.limits import SERVER_LOGIN_FAILURES
from lyra.errors import CODES

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]

_PAGE: Final = """\
# gRPC

{written}

`lyra serve --grpc HOST:PORT` serves these services in the package `lyra.engine.v1`. How to call them from another
language is in [Call Lyra from another language](../how-to/call-from-another-language.md).

## Who calls

A call carries the metadata `authorization: Bearer TOKEN`. It acts for a user: the one that its token is bound to, else
the one that a field `user_id` of the request or the metadata `user_id` names. A token that is not bound and names no
user is the operator's, who sees and may do everything. A token that is bound to one user is PERMISSION_DENIED for
another that the request names. Processes, envelopes and questions belong to the user who made them: those of another
user are NOT_FOUND, in the words for what does not exist, whatever the RPC. A pid that is taken cannot be chosen for
something new (PERMISSION_DENIED). Every user sees the services, but for those that only workers of other users serve,
and changes their own. Messages of the bus are the user's who sends them. The
session of what is made comes from the field or the metadata `session_id` in the same way.

Of tokens that are not known, one address may try {guesses} different ones a minute, over gRPC and HTTP together; then a
token that is new from there is RESOURCE_EXHAUSTED until the minute is over.

`grpc.health.v1.Health/Check` needs no token; `Watch` and reflection (`grpc.reflection.v1` and `v1alpha`) do.

## How a call ends

A call that changes something is answered when the change is in the store. One that fails has a status code of the
table below and one sentence. The trailing metadata `lyra-error-bin` has the error as JSON: `code`, `message`, `hint`
and its `fields`. An error that Lyra did not expect is INTERNAL without a sentence, and is in the log of the server.

A deadline that passes, or a call that is cancelled, ends what the call waits for: a query, a dispatch, the run of an
agent. The run of a pipeline is durable and goes on.

{codes}

A server that stops is NOT_SERVING to health checks. Calls in flight finish. Calls that finish something
(`ReportAgentResult`, `CompleteWork`, `RecordUsage`, answers to questions) and those that only read are taken; others
are UNAVAILABLE, and subscriptions end with that.

## Limits

A request larger than `[server] message_bytes_max` is RESOURCE_EXHAUSTED, unread. Connections beyond `[server]
connections_max` are closed. A connection that does not complete its handshake, does not answer pings, or has no call
for ten minutes is closed, and so is one that pings more often than every ten seconds.

{services}
## Messages

Fields by their numbers. Times are milliseconds since 1970 (0: not yet); fields of type `bytes` are JSON texts.

{messages}

## Enums

0 is `…_UNSPECIFIED` in each: not given.

{enums}
"""


class _Block(NamedTuple):
    """A service, message or enum: its name, the comment above it and its lines."""

    kind: str
    name: str
    comment: str
    lines: list[tuple[str, str]]  # the comment above a line, and the line


def pages(written: str, table: Table) -> dict[str, str]:
    """The page, by file name."""
    text = files("lyra.server.generated").joinpath("engine.proto").read_text(encoding="utf-8")
    blocks = list(_blocks(text))
    kinds = {kind: [block for block in blocks if block.kind == kind] for kind in ("service", "message", "enum")}
    page = _PAGE.format(
        written=written,
        guesses=SERVER_LOGIN_FAILURES,
        codes=table(("status", "codes of Lyra's errors"), _codes()),
        services="\n".join(_service(block, table) for block in kinds["service"]),
        messages=table(("message", "fields"), [_message(block) for block in kinds["message"]]),
        enums=table(("enum", "values"), [_enum(block) for block in kinds["enum"]]),
    )
    return {"grpc.md": page}


def _codes() -> list[tuple[str, str]]:
    statuses: dict[str, list[str]] = {}
    for code, surface in CODES.items():
        statuses.setdefault(surface.grpc, []).append(f"`{code}`")
    return [(status, ", ".join(codes)) for status, codes in sorted(statuses.items())]


def _blocks(text: str) -> Iterator[_Block]:
    """The top-level blocks of a contract; it has no nested ones."""
    comment: list[str] = []
    block: _Block | None = None
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        opened = re.match(r"(service|message|enum) (\w+) \{(\})?$", line)
        if opened is not None:
            block = _Block(opened[1], opened[2], " ".join(comment), [])
        elif block is not None and line not in ("", "}"):
            block.lines.append((" ".join(comment), line.rstrip(";")))
        if block is not None and line.endswith("}"):
            yield block
            block = None
        comment = []


def _service(block: _Block, table: Table) -> str:
    rows = []
    for comment, line in block.lines:
        rpc = re.fullmatch(r"rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\)", line)
        assert rpc is not None, line
        rows.append((f"`{rpc[1]}`", rpc[2], f"{rpc[3] or ''}{rpc[4]}", comment))
    return f"## {block.name}\n\n{block.comment}\n\n{table(('RPC', 'request', 'answer', ''), rows)}\n"


def _message(block: _Block) -> tuple[str, str]:
    fields = []
    for _comment, line in block.lines:
        field = re.fullmatch(r"(.+) (\w+) = (\d+)", line)
        assert field is not None, line
        fields.append(f"{field[3]} `{field[2]}` {field[1].removeprefix('optional ')}")
    told = f"{block.comment} " if block.comment and "----" not in block.comment else ""
    return f"`{block.name}`", told + ("; ".join(fields) or "none")


def _enum(block: _Block) -> tuple[str, str]:
    values = [line.partition(" = ") for _comment, line in block.lines]
    return f"`{block.name}`", ", ".join(f"{number} {name}" for name, _equals, number in values if number != "0")
