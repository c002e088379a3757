"""A campaign: clients call through the gateway, the server is killed at random moments and started again on its store.

After each restart every key is judged by its ledger (`ledger`): no call is charged twice, none that reached the
provider is free, and keys, budgets and revocations are as they were acknowledged. In the end the server is stopped by
SIGTERM, and its log and the files of its store are searched for the keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from verify.crash.gateway.bill import BilledProvider
from verify.crash.gateway.gateway_server import PROVIDER_KEY, GatewayServer
from verify.crash.gateway.ledger import RestlessLedger, SteadyLedger
from verify.served import OPERATOR
from verify.servers import PostgresServer

__all__ = ["STORES", "GatewayKills", "run"]

STORES: Final = ("sqlite", "postgresql")
_LIFE_PIECES: Final = 500  # of the provider, at most, until the next kill
_LIFE_S: Final = 15.0
_STEADY: Final = 6  # clients of the key with a large budget
_RESTLESS: Final = 8  # of the key with a small one
_SMALL_MICRO_USD: Final = 600
_FAILURES_MAX: Final = 20
_HOLD_S: Final = 60.0
_MODES: Final = ("stream", "whole", "fail", "limit", "cut", "silent")


class GatewayKills(NamedTuple):
    """What came of some kills."""

    kills: int
    calls: int  # that clients asked for
    answered: int  # that clients have seen whole
    in_doubt: int  # that were cut off and charged what was reserved
    over_budget: int  # that were refused
    revoked: int
    failures: list[str]


def run(
    kills: int,
    seed: int = 1,
    *,
    store: str = "sqlite",
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> GatewayKills:
    """Kill a gateway so many times."""
    with tempfile.TemporaryDirectory(prefix="lyra-gateway-crash-") as name, _store(store, Path(name)) as db:
        return asyncio.run(_Campaign(Path(name), db, make_random(seed)).run(kills, progress))


@contextlib.contextmanager
def _store(store: str, folder: Path) -> Iterator[str]:
    if store == "sqlite":
        yield str(folder / "gateway.db")
        return
    with PostgresServer(fsync=False) as database:
        yield database.url


class _Campaign:
    def __init__(self, folder: Path, db: str, rng: ProcessRandom) -> None:
        self._folder = folder
        self._db = db
        self._rng = rng
        self._steady: SteadyLedger | None = None
        self._restless: dict[str, RestlessLedger] = {}
        self._revoked: dict[str, str] = {}  # name → the key's text
        self._settings: dict[str, dict[str, Any]] = {}  # name → how the key is listed, without its spending
        self._secrets: list[str] = []
        self._failures: list[str] = []

    async def run(self, kills: int, progress: Callable[[int, int], None]) -> GatewayKills:
        done = 0
        async with BilledProvider() as provider:
            self._provider = provider
            self._server = GatewayServer(self._folder, self._db, provider)
            try:
                await self._server.process.start()
                await self._begin()
                while done < kills and len(self._failures) < _FAILURES_MAX:
                    await self._life()
                    done += 1
                    await self._server.process.start()
                    await self._judge()
                    progress(done, kills)
                code = await self._server.process.stop()
                self._expect(code == 0, f"SIGTERM ended the server with {code}")
                self._search()
            except Exception as error:  # noqa: BLE001 - what a client was not prepared for is a failure, too
                self._failures.append("".join(traceback.format_exception(error)[-4:]))
            finally:
                await self._server.close()
        ledgers = [*([self._steady] if self._steady else []), *self._restless.values()]
        return GatewayKills(
            done,
            sum(ledger.attempts for ledger in ledgers),
            sum(ledger.whole for ledger in ledgers),
            self._steady.in_doubt if self._steady else 0,
            sum(ledger.refused for ledger in self._restless.values()),
            len(self._revoked),
            self._failures,
        )

    def _expect(self, condition: bool, failure: str) -> None:
        if not condition:
            self._failures.append(failure)

    # ------------------------------------------------------------------ the keys

    async def _create(self, name: str, budget: str) -> str | None:
        """The text of a new key; None where the server was killed before it had answered."""
        body = {"name": name, "budget": budget, "models": ["openai/gpt-4o*"], "requests_per_minute": 1_000_000}
        status, made = await self._server.operate("POST", "/api/keys", json=body)
        if not status:
            return None
        assert status == 201, made
        self._secrets.append(made["key"])
        self._settings[name] = {"id": made["id"], "name": name, **{key: body[key] for key in ("models",)}}
        self._settings[name]["requests_per_minute"] = 1_000_000
        return str(made["key"])

    async def _begin(self) -> None:
        """Make the steady key, and learn what is reserved for one of its calls."""
        secret = await self._create("steady", "$1000")
        assert secret is not None
        steady = self._steady = SteadyLedger("steady", secret, 1_000_000_000)
        # As long as the other requests: `hold` has two letters less than `stream`.
        held = asyncio.create_task(self._server.ask(secret, f"{steady.next_id()}..", "hold"))
        async with asyncio.timeout(_HOLD_S):
            while not steady.reserved:
                steady.reserved = (await self._server.keys())["steady"]["reserved_micro_usd"]
                await asyncio.sleep(0.01)
        self._provider.release()
        steady.note(await held)

    # ------------------------------------------------------------------ a life

    async def _life(self) -> None:
        """Clients work until the server is killed."""
        number = len(self._restless)
        tasks: list[asyncio.Task[Any]] = []
        steady = self._steady
        assert steady is not None
        secret = await self._create(f"small{number}", f"${_SMALL_MICRO_USD / 1e6:.6f}")
        passing = await self._create(f"passing{number}", "$1")
        assert secret is not None
        assert passing is not None
        restless = self._restless[f"small{number}"] = RestlessLedger(f"small{number}", secret, _SMALL_MICRO_USD)
        tasks += [asyncio.create_task(self._ask_steadily(steady)) for _ in range(_STEADY)]
        tasks += [asyncio.create_task(self._ask_restlessly(restless)) for _ in range(_RESTLESS)]
        tasks.append(asyncio.create_task(self._watch(restless)))
        tasks.append(asyncio.create_task(self._revoke(f"passing{number}", passing)))
        await self._work(self._rng.randrange(_LIFE_PIECES))
        self._server.process.kill()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._failures.append("".join(traceback.format_exception(outcome)[-4:]))
        for ledger in (steady, restless):
            self._failures += ledger.problems
            ledger.problems.clear()

    async def _work(self, pieces: int) -> None:
        """Wait until the provider has written so many pieces more: a busy machine has a longer life, not an emptier."""
        last = self._provider.pieces + pieces
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LIFE_S):
                while self._provider.pieces < last:  # noqa: ASYNC110 - the provider knows of no kill
                    await asyncio.sleep(0.002)

    async def _ask_steadily(self, steady: SteadyLedger) -> None:
        while self._server.is_alive:
            steady.note(await self._server.ask(steady.secret, steady.next_id()))

    async def _ask_restlessly(self, restless: RestlessLedger) -> None:
        while self._server.is_alive:
            mode = _MODES[self._rng.randrange(len(_MODES))]
            leave_after = self._rng.randrange(6) if self._rng.randrange(3) == 0 else None
            outcome = await self._server.ask(restless.secret, restless.next_id(), mode, leave_after=leave_after)
            restless.note(outcome)

    async def _watch(self, restless: RestlessLedger) -> None:
        while self._server.is_alive:
            status, view = await self._server.operate("GET", f"/api/keys/{restless.name}")
            if status:
                restless.watch(view)

    async def _revoke(self, name: str, secret: str) -> None:
        """Use a key, and revoke it while its stream is on its way."""
        stream = asyncio.create_task(self._server.ask(secret, f"{name}-00001"))
        await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        status, _ = await self._server.operate("DELETE", f"/api/keys/{name}")
        if status:
            self._expect(status == 200, f"{name}: revoking is answered {status}")
            self._revoked[name] = secret
            refused = await self._server.ask(secret, f"{name}-00002")
            self._expect(refused.status in (0, 401), f"{name}: revoked, and answered {refused.status}")
        self._settings.pop(name)  # known no more, or in doubt
        await stream

    # ------------------------------------------------------------------ the judgement

    async def _judge(self) -> None:
        """Hold what the restarted server tells against what clients and provider know."""
        keys = await self._server.keys()
        steady = self._steady
        assert steady is not None
        for ledger in (steady, *self._restless.values()):
            view = keys.get(ledger.name)
            if view is None:
                self._failures.append(f"{ledger.name}: the key is gone")
            else:
                self._failures += ledger.failures(view, self._provider)
        for name, settings in self._settings.items():
            listed = {field: keys.get(name, {}).get(field) for field in settings}
            self._expect(listed == settings, f"{name}: {listed} is listed, {settings} was made")
        for name, secret in self._revoked.items():
            self._expect(name not in keys, f"{name}: revoked, and listed")
            refused = await self._server.ask(secret, f"{name}-00003")
            self._expect(refused.status == 401, f"{name}: revoked, and answered {refused.status} after a restart")
        answer = await self._server.ask(steady.secret, steady.next_id())
        steady.note(answer)
        self._expect(answer.is_whole, f"the steady key does not work after a restart: {answer}")

    def _search(self) -> None:
        """No key in the log or in the files of the store, and no traceback in the log."""
        log = self._server.process.errors
        self._expect("Traceback" not in log, f"the log has a traceback: {log[-1_500:]}")
        files = [path for path in self._folder.rglob("*") if path.is_file() and path.name != "tokens"]
        texts = {path.name: path.read_bytes() for path in files}
        for secret in (PROVIDER_KEY, OPERATOR, *self._secrets):
            shown = [name for name, data in texts.items() if secret.encode() in data]
            self._expect(not shown, f"a key is in {shown}")
