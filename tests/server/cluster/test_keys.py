"""A key of the gateway lives on one shard, to which its name, its id and its text lead."""

from __future__ import annotations

import pytest

from lyra.errors import Conflict, NameTaken, Unauthenticated
from lyra.server.gateway.keys import KeyTable, find_key_home, hash_key, make_user_key_id
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster


def test_the_name_the_id_and_the_text_of_a_key_lead_to_its_shard() -> None:
    """Also on a host that took the shard over; another shard knows nothing of the key, and makes none of that name."""

    async def main() -> None:
        async with MemoryCluster("a", "b") as world:
            tables = {shard: KeyTable(world.kernel(shard)) for shard in world.stores}
            home_of = world.kernel("s1").core.remote.home_of
            made = {}
            for number in range(12):
                name = f"key-{number}"
                home = home_of(name)
                key_id, text = await tables[home].create(name=name, budget="$1")
                assert home_of(key_id) == home_of(hash_key(text)) == home
                assert find_key_home(text, "", home_of) == home
                other = next(shard for shard in tables if shard != home)
                with pytest.raises(Conflict, match=f"is made on shard {home}"):
                    await tables[other].create(name=name)
                with pytest.raises(Unauthenticated):
                    await tables[other].find(text)
                with pytest.raises(NameTaken):
                    await tables[home].create(name=name)
                made[home] = key_id, text
            assert len(made) > 1
            moved = next(home for home in made if world.host_of(home) == "b")
            await world.kill("b")
            await world.until_open()
            key_id, text = made[moved]
            found = await KeyTable(world.kernel(moved)).find(text)
            assert found is not None
            assert found.settings.id == key_id

    run_cluster(main)


def test_the_user_of_a_token_has_one_key() -> None:
    def home_of(name: str) -> str:
        return f"home of {name}"

    homes = {find_key_home(token, "ada", home_of) for token in ("token-1-0123456789", "token-2-0123456789", "")}
    assert homes == {home_of(make_user_key_id("ada"))}
    assert find_key_home("", "", home_of) == home_of(make_user_key_id(""))
