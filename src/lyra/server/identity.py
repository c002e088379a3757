"""Who calls: tokens, the people and roles that they represent, and what belongs to whom.

A request carries a token. A token of the role `user` acts for its user alone; one of the role `operator` sees all and
acts for the user that the request names; one of the role `viewer` sees all and changes nothing (`ROLES`). A process,
session or question belongs to one user; `Caller.require_owner` is the one check of that: another user's is answered as
one that does not exist. `Caller.require_change` is the one check of the role. Tokens are kept as hashes, so that
neither an error nor a dump shows one.

`record_act` makes a row and an Event of each act that may change something, with the person, the endpoint or RPC, its
target and its outcome. HTTP calls it for every such request, gRPC for the calls of `grpc.guard.ACTS`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from lyra.config.files import alone, write_private
from lyra.core.checking.check import one_of
from lyra.core.ids import Entropy
from lyra.core.limits import NAME_LENGTH_MAX, SERVER_ID_CHARS_MAX, SERVER_TOKEN_CHARS_MIN, SERVER_TOKENS_MAX
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, Denied, LyraError, Unauthenticated

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


TOKEN_VARIABLE: Final = "LYRA_TOKEN"  # noqa: S105 (a name)
DEFAULT_TOKEN_FILE: Final = "server-token"  # noqa: S105 (a name, in the user's data folder)
_BEARER: Final = "bearer "
_ROLE_PREFIX: Final = "role="

OPERATOR: Final = "operator"
USER: Final = "user"
VIEWER: Final = "viewer"
ROLES: Final[dict[str, str]] = {
    OPERATOR: "sees everything and may change everything",
    USER: "sees and changes what belongs to this user",
    VIEWER: "sees everything and changes nothing",
}
_CHANGING_ROLES: Final = frozenset({OPERATOR, USER})  # a role that is not listed changes nothing


class TokenHolder(NamedTuple):
    """The person that a token represents ("" for an operator without a name), and the role."""

    person: str = ""
    role: str = OPERATOR

    @classmethod
    def for_person(cls, person: str) -> Self:
        """Return the holder of a token for which only a user is named: bound to that user, or the operator."""
        return cls(person, USER if person else OPERATOR)


class Caller(NamedTuple):
    """Who makes a request. `user_id` is "" where neither the token nor the request names a user; `person` is the name
    for the audit log."""

    user_id: str = ""
    session_id: str = ""
    is_bound: bool = False
    person: str = ""
    role: str = OPERATOR

    @classmethod
    def for_user(cls, user_id: str, session_id: str = "") -> Self:
        """Return a caller that is one user and no other."""
        return cls(user_id, session_id, is_bound=True, person=user_id, role=USER)

    @classmethod
    def for_holder(cls, holder: TokenHolder, session_id: str = "") -> Self:
        """Return the caller that a token stands for."""
        if holder.role == USER:
            return cls.for_user(holder.person, session_id)
        return cls("", session_id, person=holder.person, role=holder.role)

    @property
    def name(self) -> str:
        """The person in words: the name, else the role."""
        return self.person or self.user_id or self.role

    @property
    def may_change(self) -> bool:
        return self.role in _CHANGING_ROLES

    def require_change(self) -> None:
        """Denied for a caller whose role only reads."""
        if not self.may_change:
            raise Denied(f"the role {self.role} changes nothing", hint="use a token of the role operator or user")

    @property
    def is_operator(self) -> bool:
        """Whether it acts for no user: it sees everything."""
        return not self.is_bound and not self.user_id

    def require_user(self) -> str:
        if not self.user_id:
            raise Unauthenticated("user_id is required", hint="name it in the request or in the metadata `user_id`")
        return self.user_id

    def owns(self, user_id: str | None) -> bool:
        """Return whether something of this user is the caller's; the operator may see all."""
        return self.is_operator or (bool(user_id) and user_id == self.user_id)

    def require_owner(self, user_id: str | None, missing: Callable[..., LyraError], *args: Any) -> None:
        """Raise `missing(*args)`, the error for what does not exist, where something is another user's: the answer does
        not tell that it exists. The cause of the error does, for the audit log."""
        if not self.owns(user_id):
            raise missing(*args) from Denied("it belongs to another user")

    def acting_for(self, user_id: str) -> Self:
        """Return the caller with the user that a request's body names; a bound token takes no other."""
        if not user_id or user_id == self.user_id:
            return self
        if self.is_bound:
            raise Denied("the token is bound to another user")
        return self._replace(user_id=_check_id(user_id, "user_id"))

    def in_session(self, session_id: str) -> str:
        """Return the session that a request's body names, else the caller's own."""
        return _check_id(session_id, "session_id") or self.session_id


class TokenTable:
    """The tokens that a server knows."""

    __slots__ = ("_holders", "warnings")

    def __init__(self, users: Mapping[str, str | TokenHolder]) -> None:
        """Take the user of each token ("" for one that is not bound), or its holder."""
        if not users:
            raise ConfigError("no token: the server would refuse every request")
        for token in users:
            if not token or not token.isascii() or not token.isprintable():
                raise ConfigError("a token is printable ASCII text without spaces")
        self._holders = {
            _hash(token): _check_holder(TokenHolder.for_person(user) if isinstance(user, str) else user)
            for token, user in users.items()
        }
        self.warnings: list[str] = []
        if any(len(token) < SERVER_TOKEN_CHARS_MIN for token in users):
            self.warnings.append(f"a token of fewer than {SERVER_TOKEN_CHARS_MIN} characters can be guessed")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the tokens of a file: a line each, `TOKEN [USER] [role=ROLE]`; empty lines and `#` comments do not
        count."""
        tokens = cls(_parse_tokens(_token_lines(path), str(path)))
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            tokens.warnings.append(f"other users of this machine can read the token file {path}: chmod 600 {path}")
        return tokens

    @classmethod
    def load(cls, path: str | None, env: Mapping[str, str] = os.environ) -> tuple[Self, str]:
        """Return the tokens of the file that is named, else of the variable, else of the user's own file, which is made
        if it does not exist. Gives in words where they come from."""
        if path is not None:
            return cls.read(path), path
        if env.get(TOKEN_VARIABLE):
            return cls({env[TOKEN_VARIABLE].strip(): ""}), f"the variable {TOKEN_VARIABLE}"
        own = _make_own_file(env)
        return cls.read(own), str(own)

    def caller(self, token: str, *, user_id: str = "", session_id: str = "") -> Caller:
        """Who calls with this token for this user; Unauthenticated if the token is not known, Denied if it is another
        user's."""
        session_id = _check_id(session_id, "session_id") if session_id else ""
        caller = Caller.for_holder(self.holder(token), session_id)
        return caller.acting_for(_check_id(user_id, "user_id")) if user_id else caller

    def holder(self, token: str) -> TokenHolder:
        """Return the person and role of a token; Unauthenticated if it is not known."""
        holder = self._holders.get(_hash(token)) if token else None
        if holder is None:
            raise Unauthenticated(
                "the token is missing or not known", hint="send the header `authorization: Bearer TOKEN`"
            )
        return holder

    def holders(self) -> list[TokenHolder]:
        """Return the holders of all tokens, without the tokens."""
        return list(self._holders.values())

    def by_mark(self, key: bytes) -> dict[str, TokenHolder]:
        """Return the holders by the mark of their tokens: who has no key can neither make one nor try tokens on it."""
        return {mark_token(key, hashed): holder for hashed, holder in self._holders.items()}


def bearer_token(header: str) -> str:
    """Return the token of an `authorization` header; "" where it has none."""
    return header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""


def read_kept_token(env: Mapping[str, str] = os.environ) -> str:
    """Return the token that clients on this machine use by themselves: the variable's, or the first of the user's own
    file; "" where there is neither."""
    if env.get(TOKEN_VARIABLE):
        return env[TOKEN_VARIABLE].strip()
    path = data_folder(env) / DEFAULT_TOKEN_FILE
    return next(iter(_parse_tokens(_token_lines(path), str(path))), "") if path.is_file() else ""


def operator_token(path: str | os.PathLike[str]) -> str:
    """Return the first token of a file that is an operator's; "" where there is none."""
    holders = _parse_tokens(_token_lines(path), str(path))
    return next((token for token, holder in holders.items() if holder.role == OPERATOR), "")


def mark_token(key: bytes, token: str | bytes) -> str:
    """Return the mark of a token, or of the hash of one."""
    return hmac.digest(key, _hash(token) if isinstance(token, str) else token, "sha256").hex()[:32]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _check_id(text: str, name: str) -> str:
    if len(text) > SERVER_ID_CHARS_MAX or not text.isprintable():
        raise ConfigError(f"{name} is printable text of at most {SERVER_ID_CHARS_MAX} characters")
    return text


def _token_lines(path: str | os.PathLike[str]) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"the token file {path} cannot be read: {reason}") from None


def _parse_tokens(lines: Iterable[str], path: str) -> dict[str, TokenHolder]:
    holders: dict[str, TokenHolder] = {}
    for number, line in enumerate(lines, 1):
        words = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].split()
        if not words:
            continue
        if words[0] in holders:
            raise ConfigError("a token stands twice in the token file", place=f"{path}:{number}")
        holders[words[0]] = _parse_holder(words[1:], f"{path}:{number}")
        if len(holders) > SERVER_TOKENS_MAX:
            raise ConfigError(f"a token file has at most {SERVER_TOKENS_MAX} tokens", place=path)
    return holders


def _parse_holder(words: list[str], place: str) -> TokenHolder:
    """Return the holder that the words behind a token name: `[USER] [role=ROLE]`."""
    roles = [word for word in words if word.startswith(_ROLE_PREFIX)]
    people = [word for word in words if not word.startswith(_ROLE_PREFIX)]
    if len(roles) > 1 or len(people) > 1 or (roles and words[-1] is not roles[0]):
        raise ConfigError("a line of a token file is TOKEN [USER] [role=user|operator|viewer]", place=place)
    person = _check_id("".join(people), "a user")
    if not roles:
        return TokenHolder.for_person(person)
    try:
        return _check_holder(TokenHolder(person, roles[0].removeprefix(_ROLE_PREFIX)))
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, place=place) from None


def _check_holder(holder: TokenHolder) -> TokenHolder:
    one_of(holder.role, ROLES, "a role")
    if holder.role == USER and not holder.person:
        raise ConfigError("a token of the role user names its user", hint="TOKEN USER role=user")
    return holder


def _make_own_file(env: Mapping[str, str]) -> Path:
    """Return the user's own token file; made with a new token if it does not exist."""
    path = data_folder(env) / DEFAULT_TOKEN_FILE
    with alone(path):
        if not path.exists():
            write_private(path, f"{Entropy().token()}\n".encode())
    return path


def outcome_of(error: LyraError) -> str:
    """Return the outcome of an act that raised this: the code of the error, and `denied` where the error hides from the
    caller that there is such a thing of another user's."""
    cause = error.__cause__
    return cause.code if isinstance(cause, Denied) else error.code


def record_act(kernel: Kernel, caller: Caller, act: str, path: Mapping[str, str], outcome: str, more: str = "") -> None:
    """Tell that a person did something, or was refused it; `more` is what it was done to besides the path's values."""
    pid = path.get("pid", "")
    data: dict[str, Any] = {
        "person": caller.name,
        "role": caller.role,
        "act": act,
        "target": " ".join(value[:NAME_LENGTH_MAX] for value in (*path.values(), more) if value),
        "outcome": outcome,
    }
    if caller.user_id:
        data["user_id"] = caller.user_id
    kernel.person_acts.record(pid if pid in kernel.processes else "", data)
