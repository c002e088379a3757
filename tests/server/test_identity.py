"""TokenTable say who calls, and nothing of a user is another user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lyra.errors import ConfigError, Denied, NoSuchProcess, Unauthenticated, error_to_data
from lyra.server.identity import Caller, TokenHolder, TokenTable, bearer_token, read_kept_token

OPERATOR = "operator-token-0123456789"
ALICE = "alices-token-0123456789"


@pytest.fixture
def tokens() -> TokenTable:
    return TokenTable({OPERATOR: "", ALICE: "alice"})


def test_a_bound_token_acts_for_its_user_alone(tokens: TokenTable) -> None:
    assert tokens.caller(ALICE) == Caller.for_user("alice")
    assert tokens.caller(ALICE, user_id="alice", session_id="s").session_id == "s"
    with pytest.raises(Denied):
        tokens.caller(ALICE, user_id="bob")
    with pytest.raises(Denied):
        tokens.caller(ALICE).acting_for("bob")


def test_an_unbound_token_acts_for_the_user_that_is_named(tokens: TokenTable) -> None:
    assert tokens.caller(OPERATOR).is_operator
    assert tokens.caller(OPERATOR, user_id="bob") == Caller("bob", "", False)
    assert tokens.caller(OPERATOR).acting_for("carol").user_id == "carol"


@pytest.mark.parametrize("token", ["", "operator-token-012345678", "é", OPERATOR + " "])
def test_an_unknown_token_is_refused(tokens: TokenTable, token: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        tokens.caller(token)
    assert OPERATOR not in str(refused.value) + repr(refused.value.fields)


def test_what_belongs_to_another_user_is_answered_as_what_does_not_exist() -> None:
    bob = Caller("bob")
    bob.require_owner("bob", NoSuchProcess, "no process 'p'")
    for owner in ("alice", "", None):
        with pytest.raises(NoSuchProcess) as refused:
            bob.require_owner(owner, NoSuchProcess, "no process 'p'")
        assert error_to_data(refused.value) == error_to_data(NoSuchProcess("no process 'p'"))
        assert isinstance(refused.value.__cause__, Denied)
    Caller().require_owner("alice", NoSuchProcess, "no process 'p'")
    with pytest.raises(Unauthenticated):
        Caller().require_user()


def test_a_user_id_is_short_printable_text(tokens: TokenTable) -> None:
    for user in ("x" * 257, "a\nb", "\x1b[31m"):
        with pytest.raises(ConfigError):
            tokens.caller(OPERATOR, user_id=user)


def test_a_token_file_has_a_line_each_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# operators\n{OPERATOR}\n\n{ALICE} alice # she\n")
    file.chmod(0o600)
    tokens = TokenTable.read(file)
    assert not tokens.warnings
    assert tokens.caller(OPERATOR).is_operator
    assert tokens.caller(ALICE).user_id == "alice"
    with pytest.raises(Unauthenticated):
        tokens.caller("#")


@pytest.mark.parametrize(("text", "expected"), [("a b c\n", ":1"), ("t\nt u\n", ":2"), ("# none\n", "")])
def test_a_mistake_in_a_token_file_has_its_line_and_shows_no_token(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        TokenTable.read(file)
    assert (refused.value.place or "").endswith(expected)


def test_a_file_that_others_can_read_and_a_short_token_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("short\n")
    file.chmod(0o644)
    assert len(TokenTable.read(file).warnings) == 2


def test_tokens_come_from_the_file_the_variable_or_the_users_own_file(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path)}
    assert read_kept_token(env) == ""
    tokens, source = TokenTable.load(None, env)
    assert os.stat(source).st_mode & 0o777 == 0o600
    assert tokens.caller(read_kept_token(env)).is_operator
    assert TokenTable.load(None, env)[0].caller(read_kept_token(env))  # the same one again
    with_variable = {**env, "LYRA_TOKEN": OPERATOR}
    assert TokenTable.load(None, with_variable)[0].caller(OPERATOR).is_operator
    assert read_kept_token(with_variable) == OPERATOR
    file = tmp_path / "f"
    file.write_text(ALICE)
    assert TokenTable.load(str(file), with_variable)[0].caller(ALICE)
    with pytest.raises(Unauthenticated):
        TokenTable.load(str(file), with_variable)[0].caller(OPERATOR)


def test_a_bearer_header_is_read_in_any_case() -> None:
    assert bearer_token(f"Bearer {ALICE}") == bearer_token(f"bearer  {ALICE} ") == ALICE
    assert bearer_token(ALICE) == bearer_token(f"Basic {ALICE}") == bearer_token("") == ""


def test_a_line_of_a_token_file_names_a_role(tmp_path: Path) -> None:
    """An operator with a name sees all under that name, a viewer sees all and changes nothing, a user has their own."""
    file = tmp_path / "tokens"
    lines = ("op-token-0123456789 olga role=operator", "vi-token-0123456789 vera role=viewer")
    more = ("an-token-0123456789 role=viewer", "us-token-0123456789 ada role=user", "ad-token-0123456789 ada")
    file.write_text("\n".join((*lines, *more)) + "\n")
    tokens = TokenTable.read(file)
    olga, vera, any_viewer, ada, plain = [tokens.caller(line.split()[0]) for line in (*lines, *more)]
    assert olga.is_operator
    assert olga.may_change
    assert olga.name == "olga"
    assert not olga.user_id
    assert vera.is_operator
    assert not vera.may_change
    assert vera.name == "vera"
    assert not any_viewer.may_change
    assert any_viewer.name == "viewer"
    assert ada == plain == Caller.for_user("ada")
    assert ada.may_change
    assert not ada.is_operator
    assert TokenHolder("vera", "viewer") in tokens.holders()


@pytest.mark.parametrize(
    "line", ["t role=viewer ada", "t ada role=boss", "t role=user", "t ada role=viewer role=user", "t a b role=viewer"]
)
def test_a_role_that_cannot_be_meant_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(line + "\n")
    with pytest.raises(ConfigError) as refused:
        TokenTable.read(file)
    assert refused.value.place == f"{file}:1"


def test_a_role_that_is_not_known_changes_nothing() -> None:
    """A caller that an application makes with a role of its own fails closed."""
    with pytest.raises(Denied):
        Caller("ada", role="guest").require_change()
    Caller("ada", role="user").require_change()


def test_a_viewer_that_acts_for_a_user_stays_a_viewer() -> None:
    tokens = TokenTable({"vi-token-0123456789": TokenHolder("vera", "viewer")})
    caller = tokens.caller("vi-token-0123456789", user_id="ada")
    assert caller.user_id == "ada"
    assert not caller.may_change
    assert caller.person == "vera"
