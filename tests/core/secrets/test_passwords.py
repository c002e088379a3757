"""Passwords in the words of a command line are blotted out, and nothing else is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.secrets.redact import redact_command, without_passwords
from tests.limits import within


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("mysql -pS3CRET -u root db", "mysql -p*** -u root db"),
        ("sudo /usr/bin/mysqldump --single-transaction -p'S3 CRET' db > x", None),
        ("docker exec db mariadb -pS3CRET", "docker exec db mariadb -p***"),
        ("curl -u ada:S3CRET https://x.org", "curl -u ada:*** https://x.org"),
        ("curl -uada:S3CRET https://x.org", "curl -uada:*** https://x.org"),
        ("curl --user 'ada:S3CRET' https://x.org", None),
        ("curl --proxy-user=ada:S3CRET https://x.org", "curl --proxy-user=ada:*** https://x.org"),
        ("git clone https://ada:S3CRET@x.org/y.git", "git clone https://ada:***@x.org/y.git"),
        ("tool --password S3CRET run", "tool --password *** run"),
        ("tool --password=S3CRET run", "tool --password=*** run"),
        ('tool --db-password "S3CRET words" run', "tool --db-password *** run"),
        ("tool --passphrase S3CRET --token S3CRET --api-key=S3CRET x", None),
        ("keytool -storepassword x -password S3CRET", None),
        ("PGPASSWORD=S3CRET psql -h x", "PGPASSWORD=*** psql -h x"),
        ("export GITHUB_TOKEN='S3CRET'; ls", "export GITHUB_TOKEN=***; ls"),
        ("MYSQL_PWD=S3CRET mysql", "MYSQL_PWD=*** mysql"),
        ("sshpass -p S3CRET ssh x", "sshpass -p *** ssh x"),
        ("sshpass -pS3CRET ssh x", "sshpass -p*** ssh x"),
        ("redis-cli -a S3CRET ping", "redis-cli -a *** ping"),
        ("docker login -u ada -p S3CRET x.org", "docker login -u ada -p *** x.org"),
        ("openssl enc -k x -pass pass:S3CRET", "openssl enc -k x -pass pass:***"),
        ("7z x -pS3CRET a.7z", "7z x -p*** a.7z"),
        ("zip -P S3CRET a.zip b", "zip -P *** a.zip b"),
        ("echo a && mysql -pS3CRET; ls", "echo a && mysql -p***; ls"),
    ],
)
def test_a_password_in_a_command_is_blotted_out(line, shown):
    """What is around it stays, and a second time changes nothing."""
    once = redact_command(line)
    assert "S3CRET" not in once
    assert shown is None or once == shown
    assert redact_command(once) == once


@pytest.mark.parametrize(
    "line",
    [
        "mysql -p -u root db",
        "mysql --port 3306 -P 3306 db",
        "mkdir -p a/b && cp -p x y && ps -p 1",
        "docker run -p 8080:80 -u 1000:1000 nginx",
        "curl -u ada https://x.org",
        "curl -o x -L https://x.org/a:b@c",
        'git commit -m "Add the option --password to curl -u a:b"',
        "docker login --password-stdin < file",
        "tool --password-file /run/secret --max-tokens 500 --token-count 3",
        'tool --password "$PASSWORD" --token $TOKEN',
        "tool --password --host x",
        "export TOKEN=$(cat file)",
        "TOKEN= PASSWORD='' make",
        "PWD=/tmp OLDPWD=/ ls",
        "grep -rn 'password' src | sort -u",
        "python -c 'password = getpass()'",
        "unzip -p a.zip b",
        "ls passwords tokens secrets",
    ],
)
def test_a_harmless_line_stays_as_it_is(line):
    assert without_passwords(line) == line
    assert redact_command(line) == line


# Words of lines that give nothing away, also those that options and programs of passwords look like.
_WORDS = st.sampled_from(
    [
        *("ls", "git", "mysql", "curl", "docker", "zip", "7z", "tar", "echo", "redis-cli", "sshpass", "python"),
        *("-l", "-v", "-r", "-x", "-o", "-L", "--all", "--port", "3306", "8080:80", "--password-file", "--passwords"),
        *(
            "a/b.txt",
            "'a b'",
            '"--password x"',
            "x=1",
            "$HOME",
            "$(date)",
            "README.md",
            "ada@x.org",
            "https://x.org/a:b",
        ),
        *("|", "&&", ";", ">", "\n", "  ", "'", '"', "\\ ", "token", "password", "login.txt", "é"),
    ]
)


@given(st.lists(_WORDS, max_size=12).map(" ".join))
def test_lines_without_a_password_stay_as_they_are(line):
    """Whatever they are put together of."""
    assert without_passwords(line) == line


@given(st.text(alphabet="ab -p:='\"\\$;|\n", max_size=40), st.text(alphabet="xyz019", min_size=4, max_size=12))
def test_no_command_disappears_behind_a_password(before, command):
    """What follows an operator is shown, whatever stands before it."""
    for operator in (";", "|", "&&", "\n"):
        line = f"mysql --password {before}{operator}{command}"
        assert command in without_passwords(line)


@pytest.mark.timed
@pytest.mark.parametrize("piece", ["--password ", "mysql -p", "'", '"\\', "--a-", "curl -u a:", "TOKEN=", "a\\"])
def test_long_lines_take_no_time(piece):
    began = time.process_time()
    without_passwords("password " + piece * (200_000 // len(piece)))
    within(time.process_time() - began, 1.0)
