"""A login of the dashboard holds on every shard of a cluster, wherever its requests arrive, and ends on all of them."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import lyra.server
from lyra.core.limits import SERVER_LOGIN_FAILURES
from lyra.server.http.logins import SignedLogins
from lyra.server.identity import OPERATOR, USER, TokenHolder, TokenTable
from lyra.testing import run_in_virtual_time
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until
from tests.kernel.remote.wired import Shards
from tests.server.cluster.support import OPERATOR as OPERATOR_TOKEN
from tests.server.cluster.support import serving
from tests.server.http.support import in_loop
from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.servers import PostgresServer

ADA, BOSS = "ada-token-0123456789", "boss-token-0123456789"
TOKENS = {ADA: TokenHolder("ada", USER), BOSS: TokenHolder("boss", OPERATOR)}
URL = "http://localhost"
SAME_SITE = {"sec-fetch-site": "same-origin"}


class Site:
    """The sites of all shards of a cluster, behind something that sends each request where the test says."""

    def __init__(self, world: MemoryCluster, tokens: dict[str, TokenHolder] = TOKENS) -> None:
        self._world = world
        self._tokens = tokens
        self._apps: dict[Any, Any] = {}
        self.cookies: dict[str, str] = {}

    def _app(self, shard: str) -> Any:
        kernel = self._world.kernel(shard)
        if kernel not in self._apps:
            self._apps[kernel] = lyra.server.app(kernel, tokens=TokenTable(self._tokens), hosts=["localhost"])
        return self._apps[kernel]

    async def ask(self, shard: str, method: str, path: str, **request: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app(shard), client=("10.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=URL, cookies=self.cookies) as client:
            answer = await client.request(method, path, **request)
            for name, value in answer.cookies.items():
                self.cookies[name] = value
            return answer

    async def status(self, shard: str) -> int:
        return (await self.ask(shard, "GET", "/api/processes")).status_code


def test_a_login_holds_on_all_shards_and_ends_on_all() -> None:
    """Also its form token, and on a shard that another host has taken over."""

    async def main() -> None:
        async with MemoryCluster("a", "b") as world:
            site, shards = Site(world), list(world.stores)
            assert [await site.status(shard) for shard in shards] == [401] * 4
            answer = await site.ask("s1", "POST", "/login", data={"token": BOSS}, headers=SAME_SITE)
            assert answer.status_code == 303
            cookie = dict(site.cookies)
            assert BOSS not in str(cookie)
            assert [await site.status(shard) for shard in shards] == [200] * 4
            page = await site.ask("s2", "GET", "/")
            (form_token,) = set(re.findall(r'data-form="([^"]+)"', page.text))
            for shard, token, status in (("s3", form_token, 404), ("s3", form_token[::-1], 403), ("s4", "", 403)):
                headers = {**SAME_SITE, **({"x-lyra-form": token} if token else {})}
                answer = await site.ask(shard, "DELETE", "/api/processes/p99", headers=headers)
                assert answer.status_code == status, (shard, answer.text)
            world.names = ("a",)
            await world.kill("b")
            await world.until_open()
            assert [await site.status(shard) for shard in shards] == [200] * 4
            answer = await site.ask("s3", "POST", "/logout", headers={**SAME_SITE, "x-lyra-form": form_token})
            assert answer.status_code == 303
            site.cookies = cookie  # a browser that kept it
            for shard in shards:
                await until(partial(_is, site, shard, 401))

    run_cluster(main)


async def _is(site: Site, shard: str, status: int) -> bool:
    return await site.status(shard) == status


def test_a_cookie_that_was_changed_is_no_login() -> None:
    async def main() -> None:
        async with MemoryCluster("a", shards=2) as world:
            site = Site(world)
            await site.ask("s1", "POST", "/login", data={"token": ADA}, headers=SAME_SITE)
            ((name, value),) = site.cookies.items()
            login_id, mark, end, signature = value.split(".")
            boss = TokenTable(TOKENS).by_mark(world.kernel("s1").core.remote.revoked.key)
            boss_mark = next(known for known, holder in boss.items() if holder.person == "boss")
            for forged in (
                f"{login_id}.{boss_mark}.{end}.{signature}",
                f"{login_id}.{mark}.{int(end) + 1}.{signature}",
                f"{login_id[::-1]}.{mark}.{end}.{signature}",
                f"{login_id}.{mark}.{end}.{signature[:-1]}",
                f".{signature}",
                "...",
                "x",
            ):
                site.cookies = {name: forged}
                assert await site.status("s2") == 401, forged
            site.cookies = {name: value}
            assert await site.status("s2") == 200
            (form_token,) = set(re.findall(r'data-form="([^"]+)"', (await site.ask("s2", "GET", "/")).text))
            for signed in (f"form {login_id}", f"{login_id}", "of people"):  # what else the key has signed is no login
                site.cookies = {name: f"{signed}.{form_token}"}
                assert await site.status("s2") == 401, signed
            site.cookies = {name: value}
            fewer = Site(world, {BOSS: TOKENS[BOSS]})  # a host whose token file has ada's no more
            fewer.cookies = {name: value}
            assert await fewer.status("s2") == 401

    run_cluster(main)


def test_a_login_ends_after_twelve_hours_by_the_wall_clock() -> None:
    """And what was ended early stays ended, also after a restart of all shards and where clocks are minutes apart."""

    async def main() -> None:
        async with Shards("a", "b", options={"snapshot_every_events": 1}) as shards:
            for kernel in shards.kernels.values():
                kernel.core.remote.revoked.key = b"k" * 32
            logins = {name: SignedLogins(kernel, TokenTable(TOKENS)) for name, kernel in shards.kernels.items()}
            first, second = (logins["a"].begin(ADA)[1] for _ in range(2))
            logins["b"].end(first)
            await shards.kernels["b"].durable()
            while logins["a"].find(first) is not None:
                await asyncio.sleep(0.01)
            for name in ("a", "b"):
                await shards.kernels[name].close(drain_s=0.0)
                kernel = await shards.open(name, apart_s=-300.0)
                kernel.core.remote.revoked.key = b"k" * 32
                logins[name] = SignedLogins(kernel, TokenTable(TOKENS))
                assert logins[name].find(first) is None
                assert logins[name].find(second) is not None
            shards.clock.advance(12 * 3600 - 10)
            third = logins["b"].begin(ADA)[1]
            logins["b"].end(third)  # what is long over is forgotten now, and not what is over soon
            assert logins["b"].find(first) is None
            assert logins["b"].find(second) is not None
            shards.clock.advance(400)
            assert [logins[name].find(second) for name in ("a", "b")] == [None, None]

    run_in_virtual_time(main())


def test_what_an_address_may_guess_is_counted_by_host() -> None:
    """Not by shard: who sends wrong tokens to each shard of a host in turn is stopped as on a single server."""

    async def main() -> None:
        async with MemoryCluster("a", shards=4) as world:
            site = Site(world)
            statuses = []
            for number in range(SERVER_LOGIN_FAILURES + 1):
                headers = {"authorization": f"Bearer wrong-{number}"}
                answer = await site.ask(f"s{number % 4 + 1}", "GET", "/api/processes", headers=headers)
                statuses.append(answer.status_code)
            assert statuses == [401] * SERVER_LOGIN_FAILURES + [429]

    run_cluster(main)


@pytest.mark.long
def test_logins_and_rates_of_real_hosts(tmp_path: Path, postgres_server: PostgresServer) -> None:  # noqa: F811
    """Logged in at one host, known at the other, also after the first was killed; logged out there, known nowhere. What
    one caller may ask in a minute is counted over both."""

    async def main() -> None:
        for name in "abc":
            settings = tmp_path / f"home-{name}" / ".config" / "lyra" / "lyra.toml"
            settings.parent.mkdir(parents=True)
            settings.write_text("[server]\nrequests_per_minute = 60\n")
        async with serving(tmp_path, postgres_server.url, "a", "b", "c") as cluster:
            known: dict[str, str] = {}

            async def ask(name: str, method: str, path: str, **request: Any) -> httpx.Response:
                url = f"{cluster.hosts[name].http}{path}"
                async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                    pairs = {"cookie": "; ".join(f"lyra-{port}={value}" for port, value in known.items())}
                    answer = await client.request(method, url, headers={**SAME_SITE, **pairs}, **request)
                for line in answer.headers.get_list("set-cookie"):
                    value = line.partition(";")[0].partition("=")[2]
                    # Behind a balancer there is one port; here each host has its own, and the cookie is named after it.
                    known.update({each.http.rpartition(":")[2]: value for each in cluster.hosts.values()})
                return answer

            assert (await ask("a", "GET", "/api/processes")).status_code == 401
            assert (await ask("a", "POST", "/login", data={"token": OPERATOR_TOKEN})).status_code == 303
            assert [(await ask(name, "GET", "/api/processes")).status_code for name in "abc"] == [200] * 3
            await cluster.kill("a")
            page = await ask("b", "GET", "/shards/s1/")
            (form_token,) = set(re.findall(r'data-form="([^"]+)"', page.text))
            kept = dict(known)
            assert (await ask("b", "POST", "/logout", data={"form_token": form_token})).status_code == 303
            known.update(kept)  # a browser that kept it
            for name in "bc":
                while (await ask(name, "GET", "/api/processes")).status_code != 401:
                    await asyncio.sleep(0.05)
            clients = [cluster.client(name) for name in "bc"]
            answers = await asyncio.gather(*[clients[number % 2].get("/api/agents") for number in range(80)])
            assert sorted(answer.status_code for answer in answers) == [200] * 60 + [429] * 20
            for client in clients:
                await client.aclose()

    in_loop(main())
