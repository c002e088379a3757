"""`lyra config`: what is in force, where from, and every key."""

from __future__ import annotations

import json

from lyra.cli.commands.config import show_value
from lyra.config import KEYS, TABLES


def test_show_json_is_nested(lyra):
    """Sections and their settings, as in the file."""
    (lyra.folder / "lyra.toml").write_text('[kernel]\nlease_s = 2\n[budget]\nusd = "$1.50"\n')
    data = lyra.json("config", "show", "--trust-folder")
    assert data["kernel"]["lease_s"] == 2.0
    assert data["budget"] == {"usd": "$1.50", "seconds": None, "on_exceed": "block"}
    assert data["grant"] == {"allow": ["*"], "deny": []}
    assert {f"{section}.{key}" for section in data for key in data[section]} == {*KEYS, "mcp.servers"}


def test_show_origin(lyra):
    """Each value with its source and place, as JSON and as a table."""
    (lyra.folder / "lyra.toml").write_text("kernel.lease_s = 2\n")
    data = lyra.json("config", "show", "--origin", "--trust-folder", LYRA_KERNEL_PROCESSES_MAX="7")
    assert data["kernel"]["lease_s"] == {"value": 2.0, "origin": "project", "place": "lyra.toml:1"}
    assert data["kernel"]["processes_max"] == {
        "value": 7,
        "origin": "env",
        "place": "LYRA_KERNEL_PROCESSES_MAX",
    }
    assert data["kernel"]["store"] == {"value": ".lyra/lyra.db", "origin": "default", "place": None}
    lines = lyra("config", "show", "--origin", "--trust-folder").stdout.splitlines()
    assert lines[0].split() == ["key", "value", "origin", "place"]
    assert ["kernel.lease_s", "2", "project", "lyra.toml:1"] in [line.split() for line in lines]
    assert "origin" not in lyra("config", "show").stdout


def test_show_never_prints_a_password(lyra):
    """Neither in the table nor in JSON nor in an error."""
    secret = "kernel.store=postgresql://u:hunter2@127.0.0.1:1/db"
    for args in (["config", "show"], ["config", "show", "--json", "--origin"], ["--debug", "store", "info"]):
        done = lyra(*args, "--set", secret)
        assert "hunter2" not in done.stdout + done.stderr
        assert done.stderr == "" or "Traceback" in done.stderr
    assert "postgresql://u:***@127.0.0.1:1/db" in lyra("config", "show", "--set", secret).stdout


def test_what_a_project_could_not_do_is_noted(lyra):
    """On stderr, beside the result."""
    (lyra.folder / "lyra.toml").write_text('budget.on_exceed = "allow"\n')
    done = lyra("config", "show", "--json")
    assert (
        done.stderr == "note: lyra.toml:1: a project can only tighten budget.on_exceed; your block holds, not allow\n"
    )
    assert done.stdout.startswith("{")


def test_keys_is_the_whole_table(lyra):
    """Every key with type, default, variable and meaning; then every setting under a free name."""
    rows = lyra.json("config", "keys")
    free = [f"{table.section}.{table.name}.{field}" for table in TABLES.values() for field in table.columns]
    assert [row["key"] for row in rows] == [*KEYS, *free]
    assert all(row["meaning"] and row["type"] for row in rows)
    assert all(row["variable"].startswith("LYRA_") for row in rows[: len(KEYS)])
    text = lyra("config", "keys").stdout
    assert all(key.sentence in text for key in KEYS.values())
    assert all(name in text for name in free)


def test_path_lists_the_files_in_force(lyra):
    """Weakest first; none is said on stderr."""
    done = lyra("config", "path")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no settings file" in done.stderr
    (lyra.folder / "lyra.toml").write_text("")
    assert lyra("config", "path").stdout == f"{lyra.folder}/lyra.toml\n"
    assert lyra.json("config", "path") == [{"kind": "project", "path": f"{lyra.folder}/lyra.toml"}]


def test_values_as_a_person_writes_them():
    """Absent, lists, and lists that must agree."""
    assert show_value(None) == "none"
    assert show_value(()) == "(none)"
    assert show_value(["a", "b"]) == "a, b"
    assert show_value([["a"], ["b", "c"]]) == "(a), (b, c)"
    assert show_value(0.5) == "0.5"
    assert show_value(604800.0) == "604800"


def test_a_link_to_nowhere_is_no_settings_file(lyra):
    """A dangling `lyra.toml` is told by every command that reads settings; doctor goes on and names it."""
    (lyra.folder / "lyra.toml").symlink_to("gone.toml")
    for command in (("config", "show"), ("config", "path"), ("store", "info")):
        done = lyra(*command)
        assert done.returncode == 2
        assert "error[config]: it is a link to a file that is not there\n  at lyra.toml\n  hint: mend" in done.stderr
        assert done.stdout == ""
    done = lyra("doctor", "--json")
    assert done.returncode == 1
    rows = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    assert (rows["config"]["state"], rows["lyra"]["state"]) == ("problem", "ok")
    assert "a link to a file that is not there" in rows["config"]["detail"]


def test_tables_are_shown_with_their_keys_masked(lyra):
    """Nested like the file; a literal key is never printed, a reference is."""
    key = "sk-planted-0123456789abcdef"
    sets = ["--set", f"providers.here.api_key={key}", "--set", "providers.here.base_url=http://localhost:1/v1"]
    (lyra.folder / "lyra.toml").write_text('[limits."a/b"]\nrequests_per_minute = 5\n')
    data = lyra.json("config", "show", *sets)
    assert data["providers"] == {"here": {"api_key": "***", "base_url": "http://localhost:1/v1"}}
    assert data["limits"] == {"a/b": {"requests_per_minute": 5}}
    shown = lyra("config", "show", "--origin", *sets)
    assert key not in shown.stdout + shown.stderr
    assert ["limits.a/b.requests_per_minute", "5", "project", "lyra.toml:2"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    origins = lyra.json("config", "show", "--origin", *sets)
    assert origins["limits"]["a/b"]["requests_per_minute"]["place"] == "lyra.toml:2"


def test_a_projects_price_below_the_published_one_is_noted(lyra):
    """It is not used, and that is said."""
    cheap = "input_usd_per_mtok = 0.01\noutput_usd_per_mtok = 0.01\n"
    (lyra.folder / "lyra.toml").write_text(f'[prices."openai/gpt-4o"]\n{cheap}[prices."here/x"]\n{cheap}')
    done = lyra("config", "show", "--json")
    assert (
        done.stderr == "note: lyra.toml:2: a project can only raise prices.openai/gpt-4o; the published price holds\n"
    )


def test_values_of_tables_as_a_person_writes_them():
    assert show_value({"first_s": 1.5, "idle_s": 20.0}) == "first_s = 1.5, idle_s = 20"
    assert show_value(True) == "true"
