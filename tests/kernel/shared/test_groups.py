"""Process groups: members, broadcasts and a shared blackboard, across crashes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.core import codec
from lyra.errors import (
    ConfigError,
    InvalidTransition,
    LimitExceeded,
    NameTaken,
    NoSuchGroup,
    NoSuchProcess,
    Overloaded,
    ProcessError,
)
from lyra.kernel import Kernel
from lyra.kernel.shared.groups import GroupState
from tests.kernel.conftest import Crash, run, settle


async def listens(ctx, count=1):
    return [await ctx.receive() for _ in range(count)]


def test_processes_join_and_leave(target):
    """Joining and leaving say whether anything changed; members are in order; callbacks hear of both."""

    async def main():
        async with Kernel(target) as kernel:
            groups, heard = kernel.groups, []
            groups.on_join(lambda group, pid: heard.append(("joined", group, pid)))
            stop = groups.on_leave(lambda group, pid: heard.append(("left", group, pid)), group="red")
            await groups.create("red")
            groups.create("blue")
            first, second = kernel.spawn(listens, name="one"), kernel.spawn(listens)
            assert [groups.join("red", second), groups.join("red", "one"), groups.join("red", first.pid)] == [
                True,
                True,
                False,
            ]
            groups.join("blue", first)
            assert groups.members("red") == [second.pid, first.pid]
            assert groups.groups_of(first) == groups.groups_of("one") == ["red", "blue"]
            assert groups.get("red").members == (second.pid, first.pid)
            assert [groups.leave("red", second), groups.leave("red", second), groups.leave("blue", first)] == [
                True,
                False,
                True,
            ]
            assert groups.groups_of(second) == []
            assert groups.names() == ["red", "blue"]
            stop()
            stop()
            groups.leave("red", "one")
            assert heard == [
                ("joined", "red", second.pid),
                ("joined", "red", first.pid),
                ("joined", "blue", first.pid),
                ("left", "red", second.pid),
            ]

    run(main())


def test_the_end_of_a_process_leaves_its_groups(target):
    """However it ends, it is in no group afterwards, and an Event says why it left."""

    async def main():
        async with Kernel(target) as kernel:
            reasons = []
            kernel.on_event(lambda e: reasons.append((e.pid, e.data["reason"])) if e.kind == "group.left" else None)
            for name in ("a", "b"):
                kernel.groups.create(name)
            first, second = kernel.spawn(listens), kernel.spawn(listens)
            for name in ("a", "b"):
                kernel.groups.join(name, first)
            kernel.groups.join("a", second)
            await kernel.send(first, "done")
            await first.wait()
            assert kernel.groups.members("a") == [second.pid]
            kernel.kill(second)
            await second.wait()
            await settle(kernel)
            assert kernel.groups.members("a") == kernel.groups.members("b") == []
            assert kernel.groups.groups_of(first) == []
            assert reasons == [(first.pid, "ended"), (first.pid, "ended"), (second.pid, "ended")]
            with pytest.raises(NoSuchProcess, match="ended"):
                kernel.groups.join("a", first)

    run(main())


def test_a_broadcast_reaches_every_member(target):
    """One message in each mailbox; what goes wrong for one member is said for that one alone."""

    async def main():
        async with Kernel(target, mailbox_messages_max=1) as kernel:
            kernel.groups.create("team")
            handles = [kernel.spawn(listens, 2) for _ in range(3)]
            for handle in handles:
                kernel.groups.join("team", handle)
            assert kernel.groups.broadcast("team", {"n": 1}) == {handle.pid: None for handle in handles}
            outcome = kernel.groups.broadcast("team", "two", exclude=[handles[1].pid])
            assert list(outcome) == [handles[0].pid, handles[2].pid]
            assert (await handles[0].wait()).result == [{"n": 1}, "two"]
            assert (await handles[2].wait()).result == [{"n": 1}, "two"]
            assert kernel.groups.broadcast("team", "three", exclude=handles[1].pid) == {}
            kernel.groups.broadcast("team", "three")
            assert (await handles[1].wait()).result == [{"n": 1}, "three"]
            assert kernel.groups.broadcast("team", "missing") == {}

    run(main())


def test_a_broadcast_tells_whose_mailbox_takes_no_more(target, monkeypatch):
    """A full mailbox with a full line is that member's error; the others have the message."""

    async def main():
        monkeypatch.setattr("lyra.kernel.process.mailbox.WAITING_SENDERS_MAX", 0)

        async def deaf(ctx):
            await ctx.do(asyncio.Event().wait)

        async with Kernel(target, mailbox_messages_max=1) as kernel:
            kernel.groups.create("team")
            busy, free = kernel.spawn(deaf), kernel.spawn(listens)
            kernel.groups.join("team", busy)
            await settle(kernel)
            kernel.send(busy, "fills it")
            kernel.groups.join("team", free)
            outcome = kernel.groups.broadcast("team", "hello")
            assert isinstance(outcome[busy.pid], Overloaded)
            assert outcome[free.pid] is None
            assert (await free.wait()).result == ["hello"]
            await kernel.close(drain_s=0)

    run(main())


def test_the_blackboard_is_shared_by_copies(target):
    """What is written is kept as it was then; what is read is the reader's own."""

    async def main():
        async with Kernel(target) as kernel:
            groups = kernel.groups
            groups.create("g")
            value = {"list": [1, 2]}
            await groups.bb_set("g", "k", value)
            value["list"].append(3)
            groups.bb_get("g", "k")["list"].append(4)
            snapshot = groups.bb_snapshot("g")
            snapshot["k"]["list"].append(5)
            snapshot["other"] = 1
            assert groups.bb_get("g", "k") == {"list": [1, 2]}
            assert groups.bb_snapshot("g") == {"k": {"list": [1, 2]}}
            groups.bb_set("g", "none", None)
            assert groups.bb_get("g", "none", 7) is None
            assert groups.bb_get("g", "nothing", 7) == 7
            assert groups.bb_keys("g") == ["k", "none"]
            assert groups.get("g").keys == ("k", "none")
            assert [groups.bb_delete("g", "k"), groups.bb_delete("g", "k")] == [True, False]
            assert groups.bb_keys("g") == ["none"]

    run(main())


def test_wrong_use_is_named_and_changes_nothing(target, monkeypatch):
    """Unknown groups and processes, duplicates, members left, values without a form, limits."""

    async def main():
        kernel = Kernel(target)
        with pytest.raises(ProcessError):
            kernel.groups.create("early")
        async with kernel:
            groups = kernel.groups
            groups.create("g")
            handle = kernel.spawn(listens)
            for call in (
                lambda: groups.get("x"),
                lambda: groups.join("x", handle),
                lambda: groups.leave("x", handle),
                lambda: groups.members("x"),
                lambda: groups.broadcast("x", 1),
                lambda: groups.delete_group("x"),
                lambda: groups.bb_set("x", "k", 1),
                lambda: groups.bb_get("x", "k"),
                lambda: groups.bb_delete("x", "k"),
                lambda: groups.bb_keys("x"),
                lambda: groups.bb_snapshot("x"),
            ):
                with pytest.raises(NoSuchGroup):
                    call()
            with pytest.raises(NoSuchProcess):
                groups.join("g", "missing")
            with pytest.raises(NoSuchProcess):
                groups.leave("g", "missing")
            with pytest.raises(NameTaken):
                groups.create("g")
            await groups.create("g", exist_ok=True)
            for wrong in ("", 3, "x" * 201, "a\nb"):
                with pytest.raises(ConfigError):
                    groups.create(wrong)  # type: ignore[arg-type]
                with pytest.raises(ConfigError):
                    groups.bb_set("g", wrong, 1)  # type: ignore[arg-type]
            with pytest.raises(ConfigError):
                groups.bb_set("g", "k", object())
            with pytest.raises(ConfigError):
                groups.on_join("fn")  # type: ignore[arg-type]
            groups.join("g", handle)
            with pytest.raises(InvalidTransition):
                groups.delete_group("g")
            monkeypatch.setattr("lyra.kernel.shared.groups.MESSAGE_BYTES_MAX", 10)
            with pytest.raises(LimitExceeded):
                groups.bb_set("g", "k", "x" * 20)
            monkeypatch.setattr("lyra.kernel.shared.groups.BLACKBOARD_KEYS_MAX", 1)
            groups.bb_set("g", "k", 1)
            groups.bb_set("g", "k", 2)
            with pytest.raises(LimitExceeded):
                groups.bb_set("g", "l", 1)
            monkeypatch.setattr("lyra.kernel.shared.groups.GROUPS_MAX", 1)
            with pytest.raises(Overloaded):
                groups.create("h")
            assert groups.bb_snapshot("g") == {"k": 2}
            assert groups.names() == ["g"]
            groups.leave("g", handle)
            await groups.delete_group("g")
            assert groups.names() == []

    run(main())


def test_a_callback_that_fails_harms_no_other():
    """Its error is reported; the process is a member all the same."""

    async def main():
        async with Kernel() as kernel:
            seen = []
            kernel.loop.set_exception_handler(lambda _loop, context: seen.append(str(context["exception"])))

            def fails(group, pid):
                raise ValueError(group)

            kernel.groups.on_join(fails)
            kernel.groups.create("g")
            assert kernel.groups.join("g", kernel.spawn(listens))
            assert seen == ["g"]
            assert len(kernel.groups.members("g")) == 1

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_groups_survive_a_crash(path, snapshot):
    """After kill -9 live members are in their groups, ended ones are not, and the blackboard is as it was."""

    async def before():
        async with Crash(Kernel(path, programs=[listens])) as kernel:
            groups = kernel.groups
            for name in ("a", "b", "gone"):
                groups.create(name)
            for pid in ("one", "two", "three"):
                kernel.spawn(listens, pid=pid)
                groups.join("a", pid)
            groups.join("b", "one")
            groups.bb_set("a", "plan", {"steps": [1, 2]})
            groups.bb_set("a", "old", 1)
            if snapshot:
                await groups.bb_set("a", "more", 3)
                await kernel._snapshots.write()
            groups.leave("a", "two")
            groups.bb_delete("a", "old")
            groups.delete_group("gone")
            kernel.send("three", "end")
            await kernel.process("three").wait()
            groups.bb_set("a", "lost", 1)

    async def after():
        async with Kernel(path, programs=[listens]) as kernel:
            groups = kernel.groups
            assert groups.names() == ["a", "b"]
            assert groups.members("a") == ["one"]
            assert groups.groups_of("one") == ["a", "b"]
            assert groups.groups_of("three") == []
            expected = {"plan": {"steps": [1, 2]}, **({"more": 3} if snapshot else {})}
            assert groups.bb_snapshot("a") == expected
            assert groups.broadcast("a", "hello") == {"one": None}
            assert (await kernel.process("one").wait()).result == ["hello"]
            assert groups.members("a") == groups.members("b") == []

    run(before())
    run(after())


def test_a_member_told_to_end_is_gone_after_a_crash(path):
    """It was being stopped when its kernel died: it does not come back, nor does its membership."""

    async def stubborn(ctx):
        try:
            await ctx.receive()
        except asyncio.CancelledError:
            await ctx.do(asyncio.sleep, 60, idempotent=True)

    async def before():
        async with Crash(Kernel(path, programs=[stubborn])) as kernel:
            kernel.groups.create("g")
            kernel.spawn(stubborn, pid="one")
            kernel.groups.join("g", "one")
            await settle(kernel)
            await kernel.kill("one")

    async def after():
        async with Kernel(path, programs=[stubborn]) as kernel:
            await kernel.process("one").wait()
            assert kernel.groups.members("g") == []

    run(before())
    run(after())


def test_a_program_uses_its_group_in_an_effect(path):
    """A vote on the blackboard is cast once: the replay after a crash meets it in the journal."""
    kernel: Any = None
    casts = []

    async def votes(ctx):
        async def cast(word: str) -> int:
            casts.append(word)
            votes = kernel.groups.bb_get("team", "votes", [])
            await kernel.groups.bb_set("team", "votes", [*votes, word])
            return len(votes) + 1

        number = await ctx.do(cast, "yes")
        await ctx.receive()
        return number

    async def before():
        nonlocal kernel
        async with Crash(Kernel(path, programs=[votes])) as kernel:
            kernel.groups.create("team")
            for pid in ("one", "two"):
                await kernel.spawn(votes, pid=pid)
                kernel.groups.join("team", pid)
            await settle(kernel)

    async def after():
        nonlocal kernel
        async with Kernel(path, programs=[votes]) as kernel:
            kernel.groups.broadcast("team", "go on")
            assert [(await kernel.process(pid).wait()).result for pid in ("one", "two")] == [1, 2]
            assert kernel.groups.bb_get("team", "votes") == casts == ["yes", "yes"]

    run(before())
    run(after())


# ---------------------------------------------------------------------- as a state machine

GROUPS = st.sampled_from(["a", "b"])
PIDS = st.sampled_from(["p", "q", "r"])
KEYS = st.sampled_from(["x", "y"])


class GroupMachine(RuleBasedStateMachine):
    """Against two dictionaries; the rows, and a dump of what they make, give the same state again."""

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.kernel = Kernel("memory", seed=1)
        self.loop.run_until_complete(self.kernel.start())
        self.groups = self.kernel.groups
        self.again = GroupState()
        self.kernel.on_event(self.hear)
        self.alive = set()
        for pid in ("p", "q", "r"):
            self.kernel.spawn(listens, pid=pid)
            self.alive.add(pid)
        self.members: dict[str, list[str]] = {}
        self.boards: dict[str, dict[str, Any]] = {}

    def hear(self, event):
        if event.kind in GroupState.KINDS:
            self.again.apply(event.kind, event.pid, event.time, dict(event.data))

    @rule(name=GROUPS)
    def create(self, name):
        if name in self.members:
            with pytest.raises(NameTaken):
                self.groups.create(name)
        else:
            self.groups.create(name)
            self.members[name], self.boards[name] = [], {}

    @rule(name=GROUPS)
    def delete(self, name):
        if name not in self.members:
            with pytest.raises(NoSuchGroup):
                self.groups.delete_group(name)
        elif self.members[name]:
            with pytest.raises(InvalidTransition):
                self.groups.delete_group(name)
        else:
            self.groups.delete_group(name)
            del self.members[name], self.boards[name]

    @rule(name=GROUPS, pid=PIDS)
    def join(self, name, pid):
        if name not in self.members:
            with pytest.raises(NoSuchGroup):
                self.groups.join(name, pid)
        elif pid not in self.alive:
            with pytest.raises(NoSuchProcess):
                self.groups.join(name, pid)
        else:
            assert self.groups.join(name, pid) == (pid not in self.members[name])
            if pid not in self.members[name]:
                self.members[name].append(pid)

    @rule(name=GROUPS, pid=PIDS)
    def leave(self, name, pid):
        if name in self.members:
            assert self.groups.leave(name, pid) == (pid in self.members[name])
            if pid in self.members[name]:
                self.members[name].remove(pid)

    @rule(pid=PIDS)
    def kill(self, pid):
        async def to_its_end():
            self.kernel.kill(pid)
            await self.kernel.process(pid).wait()

        self.loop.run_until_complete(to_its_end())
        self.alive.discard(pid)
        for members in self.members.values():
            if pid in members:
                members.remove(pid)

    @rule(name=GROUPS, key=KEYS, value=st.one_of(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=2)))
    def write(self, name, key, value):
        if name in self.boards:
            self.groups.bb_set(name, key, value)
            self.boards[name][key] = value

    @rule(name=GROUPS, key=KEYS)
    def wipe(self, name, key):
        if name in self.boards:
            assert self.groups.bb_delete(name, key) == (key in self.boards[name])
            self.boards[name].pop(key, None)

    @invariant()
    def agrees(self):
        if not hasattr(self, "boards"):
            return
        kept = GroupState()
        kept.load(codec.decode(codec.encode(self.again.dump())))
        for state in (self.groups.state, self.again, kept):
            assert {name: list(group.members) for name, group in state.groups.items()} == self.members
            assert {name: group.board for name, group in state.groups.items()} == self.boards
            of_pid = {pid: {n for n, m in self.members.items() if pid in m} for pid in ("p", "q", "r")}
            assert {pid: set(names) for pid, names in state.of_pid.items()} == {p: n for p, n in of_pid.items() if n}

    def teardown(self):
        if hasattr(self, "kernel"):
            self.loop.run_until_complete(self.kernel.close())
            self.loop.close()


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_a_group_as_it_is_read(target, clock):
    """Its name, its members, the keys of its board and the time when it was made."""

    async def main():
        async with Kernel(target, clock) as kernel:
            clock.advance(3.0)
            await kernel.groups.create("red")
            clock.advance(3.0)
            return kernel.groups.get("red")

    group = run(main())
    assert (group.name, group.members, group.created_at) == ("red", (), 1_003.0)


def test_a_value_is_written_if_it_is_as_expected(target):
    """Of several that compare with one value the first writes; None stands for no value. What is read is up to date."""

    async def main():
        async with Kernel(target) as kernel:
            groups = kernel.groups
            await groups.create("red")
            results = [await groups.bb_compare("red", "n", None, number) for number in (1, 2)]
            assert results == [True, False]
            assert groups.bb_get("red", "n") == 1
            assert await groups.bb_compare("red", "n", 1, [2]) is True
            assert await groups.bb_compare("red", "n", (2,), 3) is True
            assert (await groups.refresh("red")).keys == ("n",)
            assert groups.bb_get("red", "n") == 3
            with pytest.raises(NoSuchGroup):
                await groups.bb_compare("blue", "n", None, 1)
            with pytest.raises(NoSuchGroup):
                await groups.refresh("blue")

    run(main())
