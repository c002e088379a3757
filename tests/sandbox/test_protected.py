"""Protected paths stay where they are and what they are: they cannot be moved, buried or made."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from lyra.sandbox import Profile
from lyra.sandbox.protected import find
from lyra.sandbox.protection.forbidden_names import placeholders, set_aside
from lyra.sandbox.protection.obeyed import find_obeyed_part
from tests.limits import within


@pytest.fixture
def do(sandbox, tmp_path):
    """Runs one command after another in the same workspace."""
    profile = Profile(str(tmp_path))
    return lambda script: asyncio.run(sandbox.run(["sh", "-c", script], profile))


def make(root, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("away", "there"),
    [
        ("mkdir -p build; mv backend build/b", "build/b"),
        ("mkdir -p node_modules; mv backend node_modules/b", "node_modules/b"),
        ("mkdir -p a/b/c/d; mv backend a/b/c/d/e", "a/b/c/d/e"),
        ("mkdir -p build; mv backend/app build/b", "build/b"),
    ],
)
def test_what_is_around_a_protected_path_does_not_move(do, tmp_path, away, there):
    """Two commands, the first of which would carry keys and hooks to where the second is not kept from them."""
    make(tmp_path, {"backend/app/.env": "KEY=hunter2", "backend/app/.git/hooks/old": "ours", "backend/plain": "x"})
    do(away)
    done = do(
        f"cat {there}/.env {there}/app/.env; for f in {there}/.git {there}/app/.git; do echo x > $f/hooks/new; done"
    )
    assert "hunter2" not in done.output.text
    assert (tmp_path / "backend/app/.env").read_text() == "KEY=hunter2"
    assert not list(tmp_path.rglob("hooks/new"))


def test_work_around_a_protected_path_goes_on(sandbox, tmp_path):
    """Folders on the way to one can be written in as before."""
    make(tmp_path, {"backend/.env": "KEY=1", "backend/plain": "x"})
    script = "echo y > backend/new && mv backend/plain backend/other && mkdir backend/sub && mv backend/sub backend/s2"
    result = asyncio.run(sandbox.run(["sh", "-c", f"{script}; rm backend/other; ls backend"], Profile(str(tmp_path))))
    assert result.output.text.split() == ["new", "s2"], result.output.text


@pytest.mark.parametrize("place", ["build", "dist", "target", "a/b/c/d/e/f"])
def test_keys_are_found_wherever_they_lie(do, tmp_path, place):
    make(tmp_path, {f"{place}/.env": "KEY=hunter2"})
    assert "hunter2" not in do(f"cat {place}/.env").output.text


def test_a_heap_of_files_hides_nothing(tmp_path, monkeypatch):
    """What was found once stays protected when a later search ends early, and a heap waits for other folders."""
    monkeypatch.setattr("lyra.sandbox.protected.SANDBOX_SCAN_ENTRIES_MAX", 60)
    monkeypatch.setattr("lyra.sandbox.protected._AT_ONCE", 10)
    make(tmp_path, {"z/.env": "KEY=1", **{f"a/{number}": "" for number in range(100)}})
    assert find(Profile(str(tmp_path))).hidden == ("z/.env",)
    make(tmp_path, {f"b{number}/x": "" for number in range(100)})
    assert find(Profile(str(tmp_path))).hidden == ("z/.env",)
    (tmp_path / "z/.env").unlink()
    assert find(Profile(str(tmp_path))).hidden == ()


def test_what_a_link_led_to_stays_hidden_without_the_link(tmp_path):
    make(tmp_path, {"real/env": "KEY=1"})
    (tmp_path / ".env").symlink_to("real/env")
    assert find(Profile(str(tmp_path))).hidden == ("real/env",)
    (tmp_path / ".env").unlink()
    assert find(Profile(str(tmp_path))).hidden == ("real/env",)
    assert find(Profile(str(tmp_path), hidden=("x",))).hidden == ()  # another profile knows of no link


_GONE = {
    "removed": "rm .env",
    "moved": "mv .env elsewhere",
    "turned": "ln -sfn plain .env",
    "overwritten": "rm .env; echo KEY=0 > .env",
    "a folder": "rm .env; mkdir -p .env/sub",
    "on the way": "rm way",
    "turned on the way": "ln -sfn plain way",
}


@pytest.mark.parametrize("how", list(_GONE))
def test_a_protected_link_does_not_vanish(do, tmp_path, monkeypatch, how):
    """What it leads to is hidden from the next command, also when another Lyra starts that one."""
    make(tmp_path, {"real/env": "KEY=hunter2", "plain": "x"})
    (tmp_path / "way").symlink_to("real/env")
    (tmp_path / ".env").symlink_to("way")
    result = do(_GONE[how])
    monkeypatch.setattr("lyra.sandbox.protected._known", {})  # another process knows of nothing
    assert "hunter2" not in do("cat real/env .env elsewhere way").output.text
    assert os.path.realpath(tmp_path / ".env") == str(tmp_path / "real/env")
    if result.tier == "bubblewrap" or "on the way" in how:  # the other one refuses to change the link itself
        assert result.put_back == (".env",)
        assert os.readlink(tmp_path / ".env") == ("real/env" if "on the way" in how else "way")
        assert len(result.set_aside) == (how in ("turned", "overwritten", "a folder") or "on the way" in how)


def test_a_folder_with_a_protected_link_stays_where_it_is(do, tmp_path, monkeypatch):
    make(tmp_path, {"real/env": "KEY=hunter2"})
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/.env").symlink_to("../../real/env")
    do("mv a/b c; rm -rf c; mv a d; rm -rf a d")
    monkeypatch.setattr("lyra.sandbox.protected._known", {})
    assert "hunter2" not in do("cat real/env").output.text
    assert os.readlink(tmp_path / "a/b/.env") == "../../real/env"


def test_what_one_command_makes_is_not_put_back_for_another(sandbox, tmp_path):
    """Of several at once the links count that were there before the first; a person may change them in between."""
    make(tmp_path, {"real/toml": "ours", "evil": "theirs"})
    profile = Profile(str(tmp_path))

    async def main():
        first = await sandbox.start(["sh", "-c", "ln -s evil lyra.toml; echo made; sleep 60"], profile)
        while not first.output.total_bytes:
            await asyncio.sleep(0.01)
        second = await sandbox.start(["sleep", "60"], profile)
        for job in (first, second):
            job.kill()
            await job.wait()

    asyncio.run(main())
    assert not os.path.lexists(tmp_path / "lyra.toml")
    (tmp_path / "lyra.toml").symlink_to("real/toml")
    assert asyncio.run(sandbox.run(["true"], profile)).put_back == ()
    (tmp_path / "lyra.toml").unlink()
    assert asyncio.run(sandbox.run(["true"], profile)).put_back == ()
    assert not os.path.lexists(tmp_path / "lyra.toml")


def test_what_programs_act_on_cannot_be_made(do, tmp_path):
    """Neither in the root nor further down; the result says what became of it."""
    do("mkdir -p .lyra .git/hooks; echo x > .lyra/permissions.toml; echo x > .git/hooks/pre-commit")
    result = do(
        "echo evil > lyra.toml; echo evil > .envrc; ln -s lyra.toml .mcp.json; mkdir -p s/.vscode s/.git/hooks; "
        "echo x > s/.git/hooks/pre-commit; echo x > .env; echo fine > plain"
    )
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert not left & {"lyra.toml", ".envrc", ".mcp.json", "s/.vscode", "s/.git", ".lyra", ".git", ".vscode"}
    assert {"plain", ".env", "s"} <= left
    assert {name.partition(".held-")[0] for name in result.set_aside} >= {"lyra.toml", ".envrc", ".mcp.json", "s/.git"}
    assert all(os.path.lexists(tmp_path / name) for name in result.set_aside)
    assert {"lyra.toml", ".env", "s/.git"} <= set(result.appeared)
    assert do("true").appeared == ()


def test_a_person_is_told_of_what_was_renamed(do, caplog):
    """It may be theirs, and the result is for the one who ran the command."""
    do("echo x > .envrc")
    (message,) = caplog.messages
    assert "renamed" in message
    assert ".envrc.held-" in message
    caplog.clear()
    do("echo x > plain")
    assert not caplog.messages


@pytest.mark.parametrize("name", [".git", ".lyra", ".vscode"])
def test_some_folders_cannot_even_be_made_for_a_moment(do, tmp_path, name):
    """While the command runs there is an empty folder."""
    result = do(f"echo x > {name}/config; mkdir -p {name}/hooks; ls {name}; echo end")
    if result.tier == "bubblewrap":
        assert result.output.text.count("Read-only file system") == 2
        assert (result.appeared, result.set_aside) == ((), ())
    assert not (tmp_path / name).exists()


def test_what_was_there_before_stays(do, tmp_path):
    make(tmp_path, {"lyra.toml": "ours", "s/.git/config": "ours", ".vscode/tasks.json": "ours"})
    result = do("touch x; echo y > lyra.toml; rm -rf .vscode")
    assert (result.set_aside, (tmp_path / "lyra.toml").read_text()) == ((), "ours")
    assert (tmp_path / "s/.git/config").exists()
    assert (tmp_path / ".vscode/tasks.json").exists()


def test_placeholders_are_shared_and_leave_no_trace(tmp_path):
    """Of two commands at once the last one removes them, except a folder that is in use."""
    first, second = placeholders(str(tmp_path)), placeholders(str(tmp_path))
    first()
    assert sorted(os.listdir(tmp_path)) == [".git", ".lyra", ".vscode"]
    (tmp_path / ".lyra/lyra.db").write_text("")
    second()
    assert os.listdir(tmp_path) == [".lyra"]
    placeholders(str(tmp_path))()
    assert os.listdir(tmp_path) == [".lyra"]


def test_setting_aside_follows_no_link(tmp_path):
    make(tmp_path, {"outside/lyra.toml": "theirs"})
    (tmp_path / "work").mkdir()
    (tmp_path / "work/link").symlink_to(tmp_path / "outside")
    assert set_aside(str(tmp_path / "work"), ["link/lyra.toml", "gone/x", "gone"]) == ()
    assert os.listdir(tmp_path / "outside") == ["lyra.toml"]


@pytest.mark.parametrize(
    "name", [".ssh/authorized_keys", ".aws/config", ".kube/config", ".netrc", ".config/gh/config.yml"]
)
def test_new_files_with_keys_that_programs_obey_are_set_aside(do, tmp_path, name):
    result = do(f"mkdir -p $(dirname {name}); echo x > {name}")
    assert len(result.set_aside) == 1
    assert not (tmp_path / name).exists()


def test_new_files_that_are_only_keys_stay(do, tmp_path):
    assert do("echo x > .env; echo x > a.pem").set_aside == ()
    assert (tmp_path / ".env").exists()


@pytest.mark.parametrize("there", ["scripts/env.sh", "scripts/deep/env.sh"])
def test_the_target_of_a_dangling_protected_link_is_set_aside(do, tmp_path, there):
    (tmp_path / ".envrc").symlink_to(there)
    result = do(f"mkdir -p $(dirname {there}); echo x > {there}")
    assert [name.partition(".held-")[0] for name in result.set_aside] == [there]


@pytest.mark.parametrize("target", ["/etc/hostname", "missing"])
def test_a_protected_link_that_leads_nowhere_inside_is_restored(do, tmp_path, target):
    (tmp_path / ".envrc").symlink_to(target)
    do("echo x > evil; ln -sfn evil .envrc; rm .envrc; ln -s evil .envrc")
    assert os.readlink(tmp_path / ".envrc") == target


@pytest.mark.parametrize(
    "link", [".vscode/tasks.json", ".idea/runner.xml", ".husky/pre-commit", ".husky/_/h", ".devcontainer/setup.sh"]
)
def test_the_target_of_a_link_in_a_protected_folder_stays(do, tmp_path, link):
    """It is obeyed by way of the link; a target that did not exist is set aside."""
    make(tmp_path, {"conf/x": "ours"})
    (tmp_path / link).parent.mkdir(parents=True)
    (tmp_path / link).symlink_to("../" * link.count("/") + "conf/x")
    (tmp_path / f"{link}.new").symlink_to("../" * link.count("/") + "conf/new")
    result = do("echo evil > conf/x; echo evil > conf/new; echo fine > conf/other")
    assert (tmp_path / "conf/x").read_text() == "ours"
    assert (tmp_path / "conf/other").exists()
    assert [name.partition(".held-")[0] for name in result.set_aside] == ["conf/new"]


HOOK = ".husky/pre-commit"
# Files and links (`-> target`), the command, the path that a program reads, and the file that a tool would write.
BY_LINKS = {
    "a chain": ({"s/c": "ours", "a": "-> s/c", HOOK: "-> ../a"}, "rm a; echo evil > a", HOOK, "s/c"),
    "a chain out of a name": ({"s/c": "ours", "a": "-> s/c", ".envrc": "-> a"}, "rm a; echo evil > a", ".envrc", "s/c"),
    "a link in the middle": (
        {"real/c": "ours", "s": "-> real", HOOK: "-> ../s/c"},
        "rm s; mkdir s; echo evil > s/c",
        HOOK,
        "real/c",
    ),
    "a linked folder": (
        {"s/c": "ours", "t/husky/pre-commit": "-> ../../s/c", ".husky": "-> t/husky"},
        "echo evil > s/c",
        HOOK,
        "s/c",
    ),
    "a linked folder of keys": (
        {"s/c": "ours", "t/ssh/config": "-> ../../s/c", ".ssh": "-> t/ssh"},
        "echo evil > s/c",
        ".ssh/config",
        "s/c",
    ),
    "a folder of keys": ({"s/c": "ours", ".ssh/config": "-> ../s/c"}, "echo evil > s/c", ".ssh/config", "s/c"),
    "a folder with links": (
        {"c": "ours", "d/e/x": "-> ../../c", ".husky/d": "-> ../d"},
        "echo evil > c",
        ".husky/d/e/x",
        "c",
    ),
    "the name of an environment": (
        {"tools/x": "ours", ".vscode/venv": "-> ../tools"},
        "echo evil > tools/x",
        ".vscode/venv/x",
        "tools/x",
    ),
    "the name of packages": (
        {"tools/x": "ours", ".vscode/node_modules": "-> ../tools"},
        "echo evil > tools/x",
        ".vscode/node_modules/x",
        "tools/x",
    ),
    "a link in a linked folder of settings": (
        {"real": "ours", "m": "-> real", "c/config.toml": "-> ../m", ".cargo": "-> c"},
        "rm m; echo evil > m",
        ".cargo/config.toml",
        "real",
    ),
}


def make_links(root, files: dict[str, str]) -> None:
    make(root, {name: text for name, text in files.items() if text[:3] != "-> "})
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if text[:3] == "-> ":
            (root / name).symlink_to(text[3:])


@pytest.mark.parametrize("case", BY_LINKS)
def test_what_is_obeyed_by_way_of_several_links_stays(do, tmp_path, case):
    """The last target is not written, and the links on the way are put back."""
    files, script, obeyed, target = BY_LINKS[case]
    make_links(tmp_path, files)
    do(script)
    assert (tmp_path / obeyed).read_text() == "ours"
    assert find_obeyed_part(f"{tmp_path}/{target}", [str(tmp_path)])


def test_a_chain_that_leads_outside(do, tmp_path, tmp_path_factory):
    """The link in the middle lies in the workspace."""
    outside = tmp_path_factory.mktemp("outside")
    make(outside, {"env": "ours"})
    make_links(tmp_path, {"a": f"-> {outside}/env", ".envrc": "-> a"})
    do("rm a; echo evil > a")
    assert (tmp_path / ".envrc").read_text() == "ours"


def test_a_folder_outside_with_links_into_the_workspace(do, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    make_links(outside, {"pre-commit": f"-> {tmp_path}/check.sh"})
    make_links(tmp_path, {"check.sh": "ours", ".husky": f"-> {outside}"})
    do("echo evil > check.sh")
    assert (tmp_path / "check.sh").read_text() == "ours"


@pytest.mark.parametrize("link", ["-> other", "-> ./other/"])
def test_a_missing_target_by_a_new_link_is_set_aside(do, tmp_path, link):
    make_links(tmp_path, {HOOK: "-> ../scripts/check.sh"})
    result = do(f"mkdir other; echo evil > other/check.sh; ln -s {link[3:]} scripts")
    assert not (tmp_path / HOOK).exists()
    assert [name.partition(".held-")[0] for name in result.set_aside] == ["scripts"]


def test_links_that_protect_nothing(do, tmp_path):
    """To the workspace, in a circle, to the root of the disk, and to installed packages of the same name."""
    links = {".vscode/root": "-> ..", ".vscode/a": "-> ../a", "a": "-> a", ".vscode/all": "-> /", ".envrc": "-> a"}
    make_links(tmp_path, {**links, ".husky/node_modules": "-> ../node_modules", "node_modules/x": "", "real": "x"})
    make_links(tmp_path, {"plain": "-> real"})
    result = do("echo fine > new; echo fine > node_modules/y; rm plain; cat new node_modules/y")
    assert result.output.text.split() == ["fine", "fine"]
    assert result.set_aside == result.put_back == ()
    assert not (tmp_path / "plain").is_symlink()
    assert find_obeyed_part(f"{tmp_path}/node_modules/y", [str(tmp_path)]) is None


def test_commands_do_not_write_what_editors_and_agents_obey(sandbox, tmp_path):
    """Settings of checkers and instructions for agents stay; a new one is set aside. Settings of builds are written."""
    for name in ("AGENTS.md", ".flake8", "eslint.config.js"):
        (tmp_path / name).write_text("kept")
    script = (
        "echo x > AGENTS.md; rm -f .flake8; mv eslint.config.js e.js; mkdir lib; echo x > lib/CLAUDE.md;"
        " echo x > lib/eslint.config.mjs; echo x > lib/.prettierrc.js; echo x > mypy.ini;"
        " echo fine > pyproject.toml; echo fine > Makefile; true"
    )
    result = asyncio.run(sandbox.run(["bash", "-c", script], Profile(str(tmp_path))))
    assert [(tmp_path / name).read_text() for name in ("AGENTS.md", ".flake8", "eslint.config.js")] == ["kept"] * 3
    new = ["lib/.prettierrc.js", "lib/CLAUDE.md", "lib/eslint.config.mjs", "mypy.ini"]
    assert sorted(name.rpartition(".held-")[0] for name in result.set_aside) == new  # each is renamed once
    assert (tmp_path / "pyproject.toml").read_text() == (tmp_path / "Makefile").read_text() == "fine\n"


# ---------------------------------------------------------------- folders that are not listed again


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Folders count as settled at once; gives those that were listed since it was last cleared."""
    paths: list[str] = []
    scan = os.scandir
    monkeypatch.setattr("lyra.sandbox.paths._SETTLED_S", 0.0)

    def scan_told(path):
        paths.append(os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_told)
    return paths


def settle(folder) -> None:
    """Wait until the next change in a folder has another time."""
    before = folder.stat().st_ctime_ns
    while (folder / "tick").write_text("") or (folder / "tick").stat().st_ctime_ns <= before + 10_000_000:
        (folder / "tick").unlink()
    (folder / "tick").unlink()


def find_settled(folder, tick):
    """Search until every folder is known."""
    settle(tick)
    return find(Profile(str(folder)))


def test_only_folders_with_news_are_listed_again(tmp_path, listed):
    work = tmp_path / "work"
    make(work, {f"a{number}/b/plain": "" for number in range(20)} | {"a3/.env": "KEY=1"})
    first = find_settled(work, tmp_path)
    listed.clear()
    assert find(Profile(str(work))).hidden == first.hidden == ("a3/.env",)
    assert below(work, listed) == []
    (work / "a7/b/new").write_text("")
    find(Profile(str(work)))
    assert below(work, listed) == ["a7/b"]


def below(folder, listed):
    """Return the names in a folder that were listed; others belong to places that other programs change, too."""
    return [path.removeprefix(f"{folder}/") for path in listed if path.startswith(f"{folder}/")]


@pytest.mark.parametrize(
    ("script", "hidden"),
    [
        ("echo KEY=1 > a/b/.env", "a/b/.env"),
        ("mv a/b/plain a/b/.env", "a/b/.env"),
        ("mv a/b aside; mv other a/b", "a/b/.env"),
        ("mv a/b/plain aside; mkdir a/b/plain; echo KEY=1 > a/b/plain/.env", "a/b/plain/.env"),
        ("touch -r a/b stamp; echo KEY=1 > a/b/.env; touch -r stamp a/b", "a/b/.env"),
    ],
)
def test_what_comes_to_a_known_folder_is_found(tmp_path, listed, script, hidden):
    """Also where the command sets the folder's time back."""
    work = tmp_path / "work"
    make(work, {"a/b/plain": "", "other/.env": "KEY=1", "c/x": ""})
    find_settled(work, tmp_path)
    settle(tmp_path)
    assert os.system(f"cd {work} && {script}") == 0
    assert hidden in find(Profile(str(work))).hidden


@pytest.mark.parametrize("way", ["just changed", "other file system"])
def test_folders_whose_times_do_not_tell_are_always_listed(tmp_path, listed, monkeypatch, way):
    if way == "just changed":
        monkeypatch.setattr("lyra.sandbox.paths._SETTLED_S", 2.0)
    else:
        monkeypatch.setattr("lyra.sandbox.paths._EXACT", frozenset())
        monkeypatch.setattr("lyra.sandbox.paths._exact_devices", {})
    make(tmp_path, {f"a{number}/plain": "" for number in range(20)})
    find(Profile(str(tmp_path)))
    listed.clear()
    find(Profile(str(tmp_path)))
    assert len(listed) > 20


@pytest.mark.timed
def test_a_search_costs_less_than_a_walk(tmp_path, listed, monkeypatch):
    """CPU of a search where nothing has changed, against that of a bare walk that only lists, in the same run."""
    work = tmp_path / "work"
    make(work, {f"a{number % 60}/f{number}": "" for number in range(6_000)})
    find_settled(work, tmp_path)
    ratios = []
    for _ in range(9):
        began = time.process_time()
        assert sum(len(files) for _, _, files in os.walk(work)) == 6_000
        walked = time.process_time() - began
        find(Profile(str(work)))
        ratios.append((time.process_time() - began - walked) / walked)
    within(min(ratios), 0.6, ratios)
