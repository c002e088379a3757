"""Redacting keys in texts that are printed, journaled, recorded or shown to a model.

`redact(text, secrets)` masks the secrets that this process knows (`known_keys` finds them) and everything in the form
of a well-known key (the table `FORMS`). `redact_data` does the same for every text in plain data, and for the values of
fields with a name like a key's; `redact_command` for a shell line, whose commands all stay visible, and for passwords
in its words (`without_passwords`). It finds common cases and is no guarantee: an unknown key in a form that is not
listed stays. Texts without keys cost little: only words as long as keys are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.secret import MASK, Secret

_WORD_LEAST: Final = 12  # characters without a space in between; no form of key has less


class Form(NamedTuple):
    """The form of one kind of key. A text without any of the `marks` (in lower case) is not searched for it.

    A mark is part of the key's word, or `apart` from it. The match of the pattern's first group stays in the text.
    """

    what: str
    marks: tuple[str, ...]
    pattern: str  # compiled at its first use: compiling all would cost milliseconds at start-up
    apart: bool = False


def _form(what: str, marks: str, pattern: str, *, apart: bool = False) -> Form:
    return Form(what, tuple(marks.split()), pattern, apart)


_START: Final = r"(?<![A-Za-z0-9])"
_AFTER_NAME: Final = r"[\"']?\s*[:=]\s*[\"']?"  # between the name of a field and its value

FORMS: Final = (
    _form("OpenAI, Anthropic and many others", "sk-", _START + r"()sk-[A-Za-z0-9_-]{16,}"),
    _form("Google", "aiza", r"()AIza[A-Za-z0-9_-]{30,}"),
    _form("Google OAuth", "ya29.", r"()ya29\.[A-Za-z0-9_.-]{20,}"),
    _form("AWS key id", "akia asia aroa aida abia", _START + r"()(?:AKIA|ASIA|AROA|AIDA|ABIA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _form(
        "AWS signature",
        "credential=",
        r"(Credential=)[^,\s\"']+(?:,\s*SignedHeaders=[^,\s]+,\s*Signature=[0-9a-f]+)?",
    ),
    _form(
        "AWS secret",
        "secret_access_key session_token",
        rf"(?i)(aws_(?:secret_access_key|session_token){_AFTER_NAME})[A-Za-z0-9/+=]{{16,}}",
    ),
    _form("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", _START + r"()gh[pousr]_[A-Za-z0-9]{30,}"),
    _form("GitHub, fine-grained", "github_pat_", r"()github_pat_[A-Za-z0-9_]{30,}"),
    _form("GitLab", "glpat-", _START + r"()glpat-[A-Za-z0-9_-]{16,}"),
    _form("Slack", "xox", _START + r"()xox[abeprs]-[A-Za-z0-9-]{10,}"),
    _form("Stripe", "k_live_ k_test_", _START + r"()[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _form("Hugging Face", "hf_", _START + r"()hf_[A-Za-z0-9]{30,}"),
    _form("Groq, xAI, Perplexity", "gsk_ xai- pplx-", _START + r"()(?:gsk_|xai-|pplx-)[A-Za-z0-9]{30,}"),
    _form("npm, PyPI", "npm_ pypi-", _START + r"()(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{40,})"),
    _form("JSON web token", "eyj", _START + r"()eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _form(
        "private key",
        "key-----",
        r"(?s)()-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)",
        apart=True,
    ),
    _form(
        "authorization header",
        "authorization",
        rf"(?i)(\b(?:proxy-)?authorization{_AFTER_NAME}(?:(?:bearer|basic|token|digest)\s+)?)"
        r"(?!\*\*\*|(?:bearer|basic|token|digest|AWS4\S*)\s)[^\s\"',;]{6,}",
        apart=True,
    ),
    _form("bearer token", "bearer", r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{16,}", apart=True),
    _form(
        "key header",
        "api-key",
        rf"(?i)(\b(?:x-api-key|api-key|x-goog-api-key){_AFTER_NAME})(?!\*\*\*)[^\s\"',;&]{{6,}}",
        apart=True,
    ),
    _form(
        "key in a URL",
        "key= token= sig= signature=",
        r"(?i)([?&](?:api_?key|key|(?:access_)?token|sig|signature)=)(?!\*\*\*)[^\s&\"'#]{12,}",
    ),
    _form("password in a URL", "://", r"(://[^:/@?#\s]*:)[^\s@/]+(?=@)"),
)
# Names of fields whose value is a key, whatever its form.
_FIELDS: Final = (
    r"(?i)(?:.*[_-])?(?:api[_-]?key|secret(?:[_-](?:access[_-])?key)?|(?:session|access|refresh)[_-]token|authorization"
    r"|password|passwd|private[_-]key|(?:set-)?cookie)\Z"
)


def redact(text: str, secrets: Iterable[str | Secret] = (), *, forms: bool = True) -> str:
    """`text` with `***` in place of the secrets and, with `forms`, of everything that has the form of a key."""
    return _clean(text, _prepare(secrets), forms)


def redact_data(value: Any, secrets: Iterable[str | Secret] = (), *, fields: bool = True) -> Any:
    """Plain data with every text in it redacted, keys of mappings too; with `fields`, also by the names of fields."""
    return _walk(value, _prepare(secrets), fields)


_BEFORE_OPERATOR: Final = r"(?=[;|&<>(){}`\n])"
_KEY_EDGE: Final = r"-----(BEGIN|END) [A-Z ]*PRIVATE KEY-----"
_KEY_LINE: Final = r"()(?:[A-Za-z0-9+/=]|\\n){24,}"


def redact_command(line: str, secrets: Iterable[str | Secret] = ()) -> str:
    """Redact a shell line between its operators: a key ends where a command could begin. The rest of a password that
    contains an operator stays visible."""
    pieces: list[str] = []
    in_key = False
    for piece in _compile(_BEFORE_OPERATOR).split(_prepare(secrets).mask(line)):
        edges: list[str] = _compile(_KEY_EDGE).findall(piece)
        if in_key or edges:
            pieces.append(_compile(_KEY_LINE).sub(_mask, piece))
            in_key = edges[-1] == "BEGIN" if edges else in_key
        else:
            pieces.append(_without_forms(piece))
    return without_passwords("".join(pieces))


def _clean(text: str, known: KnownKeys, forms: bool) -> str:
    text = known.mask(text)
    return _without_forms(text) if forms else text


def _without_forms(text: str) -> str:
    """Return the text with `***` in place of everything in the form of a key."""
    if len(text) < _WORD_LEAST:
        return text
    words = [word for word in text.split() if len(word) >= _WORD_LEAST]
    if not words:
        return text
    low = " ".join(words).lower()
    whole = ""
    for form in FORMS:
        if form.apart:
            whole = whole or text.lower()
        searched = whole if form.apart else low
        for mark in form.marks:
            if mark in searched:
                text = _compile(form.pattern).sub(_mask, text)
                break
    return text


@lru_cache(maxsize=64)
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: compiling all of them would cost milliseconds at start-up."""
    return re.compile(pattern)


def _mask(match: re.Match[str]) -> str:
    return match[1] + MASK


def _walk(value: Any, known: KnownKeys, fields: bool) -> Any:
    if isinstance(value, str):
        return _clean(value, known, forms=True)
    if isinstance(value, dict):
        return {_walk(key, known, fields): _field(key, item, known, fields) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, known, fields) for item in value]
    return MASK if isinstance(value, Secret) else value


def _field(key: Any, value: Any, known: KnownKeys, fields: bool) -> Any:
    if fields and value and isinstance(key, str) and isinstance(value, str) and _compile(_FIELDS).match(key):
        return MASK
    return _walk(value, known, fields)


def _prepare(secrets: Iterable[str | Secret]) -> KnownKeys:
    return KnownKeys.prepare(secret.reveal() if isinstance(secret, Secret) else secret for secret in secrets)


# ---------------------------------------------------------------- passwords
# Passwords in the words of a command line: `mysql -pX`, `curl -u ada:X`, `--password X`, `PGPASSWORD=X`.

_WORD: Final = r"(?:'[^']*'?|\"(?:[^\"\\]|\\.)*\"?|\\.|[^\s'\"\\])+"
_CALLED: Final = r"(?:password|passwd|passphrase|token|api[-_]?key|secret[-_]key|client[-_]secret)"
_NAMED: Final = rf"--?(?:[a-z0-9]+[-_])*{_CALLED}(=|\Z)"  # an option of any program
_VARIABLE: Final = r"[A-Z0-9_]*(?:PASSWORD|PASSWD|_PWD|TOKEN|SECRET|API_KEY|SECRET_KEY)="
# Values that are no password: another option, a variable, a masked one, an empty one.
_NOTHING: Final = r"['\"]{0,2}(?:[-$]|\*\*\*|\Z)"
# A line without any of these, in lower case, has no password; most lines have none of them.
_MARKS: Final = r"pass|pwd|token|secret|api|mysql|mariadb|curl|redis|login|7z|zip"


class _Option(NamedTuple):
    """Options that take a password: in their own word or (`apart`) in the next; `after`: it follows this separator."""

    words: tuple[str, ...]
    apart: bool = True
    after: str = ""


_MYSQL: Final = _Option(("-p",), apart=False)  # `-p NAME` prompts for a password, and NAME is a database
_CURL: Final = _Option(("-u", "--user", "-U", "--proxy-user"), after=":")
_OF: Final[dict[str, _Option]] = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump"), _MYSQL),
    **dict.fromkeys(("7z", "7za", "7zr"), _Option(("-p",), apart=False)),
    **dict.fromkeys(("zip", "unzip"), _Option(("-P",))),
    "curl": _CURL,
    "sshpass": _Option(("-p",)),
    "redis-cli": _Option(("-a",)),
    "login": _Option(("-p",)),  # docker login, helm registry login
    "openssl": _Option(("pass:",), apart=False),
}


def without_passwords(line: str) -> str:
    """Return the line with `***` in place of each password; a line without one is unchanged."""
    if not _compile(_MARKS).search(line.lower()):
        return line
    return "".join(_hide_passwords(command) for command in _compile(_BEFORE_OPERATOR).split(line))


def _hide_passwords(command: str) -> str:
    pieces, end = [], 0
    for start, stop in _passwords(command):
        pieces += [command[end:start], MASK]
        end = stop
    return "".join([*pieces, command[end:]])


def _passwords(command: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each password."""
    own: _Option | None = None  # the option of the program named last
    awaited: _Option | None = None  # the option in the word before, whose value this word is
    for word in _compile(_WORD).finditer(command):
        text, start = word[0], word.start()
        option, awaited = awaited, None
        if option is None:
            option, length = _option(text, own)
            if option is not None and length == len(text):
                awaited = option if option.apart else None
                continue
            start += length
        if option is None:
            own = _OF.get(text.rpartition("/")[2], own)
            continue
        start = _after(command, start, word.end(), option)
        if start < word.end() and not _compile(_NOTHING).match(command, start, word.end()):
            yield start, word.end()


def _option(word: str, own: _Option | None) -> tuple[_Option | None, int]:
    """Return the password option in this word, if it is one, and how many characters come before the value."""
    named = _compile(_NAMED).match(word) or _compile(_VARIABLE).match(word)
    if named is not None:
        return _Option((), apart=not named[0].endswith("=")), named.end()
    for name in own.words if own is not None else ():
        if word == name or (word.startswith(name) and not name.startswith("--")):
            return own, len(name)
        if word.startswith(f"{name}="):
            return own, len(name) + 1
    return None, 0


def _after(command: str, start: int, stop: int, option: _Option) -> int:
    """Return the index after the user's name; `stop` where there is a name and no password."""
    if not option.after:
        return start
    separator = command.find(option.after, start, stop)
    return stop if separator < 0 else separator + 1
