"""Transactions of nodes: the steps of a path run over one open transaction, and what is kept of them.

A transaction is one act. Its request has the values that the steps read; its response is a record: whether it was
committed, and each statement with its answer. The path that is live runs its steps in the thread that holds the
database (`Database.transact`), again where another transaction was in the way, each time on variables of its own. The
other path, a replay and an execution that goes on after a crash run their steps over the record, in which each
statement is compared: the record is the log of `replay`, and lies in the database under the key of the act, too.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from lyra.core.naming import give_name
from lyra.errors import CapabilityDenied
from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.database import Database, OpenTransaction
from lyra.vesper.effects.replay import EffectLog
from lyra.vesper.effects.request import EffectError, EffectRequest, TransactionBody, TransactionEnd
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.plain import is_larger

Check = Callable[[EffectRequest], None]  # CapabilityDenied where the node may not do what a request asks for


@give_name("lyra:vesper.PathBroke")
class PathBroke(Exception):
    """A path raised in the steps of a transaction what no path may raise."""


class Transactions:
    """Performs the transactions of one execution."""

    def __init__(self, database: Database, memory_mb: int, check: Check) -> None:
        self._database = database
        self._memory = memory_mb * 1024 * 1024
        self._check = check
        self.seal: Callable[[Any], str] = lambda record: json.dumps(to_json(record))
        self.open: Callable[[str], Any] = lambda text: from_json(json.loads(text))

    async def perform(self, key: str, body: TransactionBody) -> tuple[dict[str, Any], TransactionEnd | None]:
        """Return the record, and the end of the steps if they were run now."""
        last: list[tuple[dict[str, Any], TransactionEnd]] = []
        abandoned = threading.Event()

        def attempt(opened: OpenTransaction) -> str | None:
            statements = _Statements(opened, self._check)
            end = self._run(body, statements)
            record = statements.log.to_record(committed=end.commits)
            if is_larger(record, self._memory):
                raise EffectError("resource_limit", "the answers of the transaction take more memory than the node may")
            last[:] = [(record, end)]
            return self.seal(record) if end.commits else None

        try:
            text = await asyncio.to_thread(self._database.transact, key, attempt, abandoned)
        except asyncio.CancelledError:
            abandoned.set()
            raise
        if last and (not text or text == self.seal(last[0][0])):
            return last[0]
        return self.open(text), None

    def _run(self, body: TransactionBody, statements: _Statements) -> TransactionEnd:
        try:
            return drive(_await_body(body, statements))
        except (RecursionError, MemoryError):
            raise EffectError("resource_limit", "a value is nested too deeply or too large") from None
        except Exception as error:
            raise PathBroke(f"{type(error).__name__}: {error}") from error


async def _await_body(body: TransactionBody, statements: _Statements) -> TransactionEnd:
    return await body(statements)


class _Statements:
    """The effects that the steps of one attempt are given."""

    def __init__(self, opened: OpenTransaction, check: Check) -> None:
        self._opened = opened
        self._check = check
        self.log = EffectLog()

    async def perform(self, request: EffectRequest) -> Any:
        try:
            self._check(request)
            response = self._opened.perform(request.kind, request.payload)
        except CapabilityDenied as error:
            failure = EffectError("capability_denied", error.message)
        except EffectError as error:
            failure = error
        else:
            self.log.add(request, response=response)
            return response
        self.log.add(request, error=failure)
        raise failure
