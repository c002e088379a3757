"""Imported nodes in a run: as functions and as tools of agents, with the rights of the process that calls."""

from __future__ import annotations

from typing import Any

import pytest

from lyra import vega
from lyra.core.imported_node import ImportedNode, NodeAnswer, NodeFile, NodeInputKind, NodeValueKind
from lyra.core.rights.capability import Grant
from lyra.errors import LyraError, VegaError
from lyra.vesper import ImportableNodes, Runtime, load
from tests.vega.runtime.agents.test_tools import Caller, _in_real_time

NODE = """\
node_id: twice_v1
type: function
intent: Double a number
inputs: {n: integer}
outputs: {twice: integer}
contracts: {preconditions: ["n >= 0"]}
flow:
  - {step: double, operation: arithmetic, expression: n * 2, output: twice}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "twice.vsp").write_text(NODE)
    return tmp_path


def test_a_node_from_python(folder):
    """`main` gives what the node gave, as Python."""
    with ImportableNodes() as nodes:
        source = 'import node "twice.vsp" as twice; fn main() { return twice(21); }'
        assert vega.run(source, name=str(folder / "main.vega"), nodes=nodes) == {"twice": 42}
        with pytest.raises(VegaError) as caught:
            vega.run(source.replace("21", "-1"), name=str(folder / "main.vega"), nodes=nodes)
    assert caught.value.fields["name"] == "precondition_failed"


def test_a_node_is_a_tool_of_an_agent(folder):
    """The model sees its inputs as a schema, its outputs, and the code of its error."""
    source = f"""import node "{folder}/twice.vsp" as twice;
    agent G {{ model "sim/script" tools [twice] }}
    let g = spawn G; g <- "go";"""
    caller = Caller(("twice", {"n": 4}), ("twice", {"n": -1}), ("twice", {"n": "x"}))
    with ImportableNodes() as nodes:
        _in_real_time(source, caller, nodes=nodes)
    assert caller.offered == ["twice"]
    assert "8" in caller.results[0]
    assert caller.results[1].startswith("! ")
    assert "precondition_failed" in caller.results[1]
    assert caller.results[2].startswith("! ")


def test_modes_in_a_store_of_another_user_do_not_count(folder, monkeypatch):
    """The call is refused: the maker of the store would choose how this user's nodes are executed."""
    store, file = folder / "modes.db", folder / "twice.vsp"
    source = 'import node "twice.vsp" as twice; fn main() { return twice(21); }'
    with Runtime(str(store)) as runtime:
        runtime.set_mode(load(file), "shadow_direct")
    with ImportableNodes(modes_of=store) as nodes:
        assert vega.run(source, name=str(folder / "main.vega"), nodes=nodes) == {"twice": 42}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "other"))
    with ImportableNodes(modes_of=store) as nodes, pytest.raises(LyraError, match="another user or machine"):
        vega.run(source, name=str(folder / "main.vega"), nodes=nodes)


class Recording:
    """A host of one node, which keeps what it is asked."""

    def __init__(self, *capabilities: str) -> None:
        self.calls: list[tuple[dict[str, Any], str]] = []
        self.grants: list[Grant] = []
        inputs = (NodeInputKind("n", NodeValueKind("int"), is_required=True),)
        self.node = ImportedNode("x_v1", "", inputs, NodeValueKind("any"), capabilities, is_pure=False, schema={})

    def read(self, file, text):
        return NodeFile(file, text, self.node)

    async def call(self, file, text, inputs, *, key, grant):
        self.calls.append((dict(inputs), key))
        self.grants.append(grant)
        return NodeAnswer({"ok": True})


def test_each_call_has_a_key_and_the_grant_of_its_process(folder):
    host = Recording()
    source = 'import node "twice.vsp" as x; x(1); x(1);'
    vega.run(source, name=str(folder / "main.vega"), nodes=host, grant=["fs.read:/nowhere/**"])
    (first, one_key), (second, other_key) = host.calls
    assert first == second == {"n": 1}
    assert one_key != other_key
    assert not host.grants[0].allows("fs.write:/tmp/x")


def test_the_door_refuses_before_the_host_is_asked(folder):
    host = Recording("database.write.log")
    source = 'import node "twice.vsp" as x; try { x(1); } catch CapabilityDenied { print("refused"); }'
    lines: list[str] = []
    vega.run(source, name=str(folder / "main.vega"), nodes=host, stdout=lines.append)
    assert lines == ["refused"]
    assert host.calls == []
