"""Ways in which a line says one thing and runs another: joined lines, braces, globs, options that run, variables."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from lyra.core.commands.programs import reaches
from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.core.rights.capability import Grant
from lyra.tools.permissions import Permissions, Rule, subject_of
from lyra.tools.shell.command_line import read_line
from lyra.tools.shell.text_glob import TextGlob
from tests.cases import each
from tests.limits import within
from tests.tools.permissions.hostile import HOSTILE

RM = TextGlob("rm *")
OFTEN = "git ls find cat tar grep echo sort awk sed env xargs bash sh ssh scp sftp make npm python3 perl node vim vi ex"
MORE = "ed rsync man split zip gcc wget apt-get install sqlite3 export declare"
PROGRAMS = [*OFTEN.split(), *MORE.split()]

# What a wildcard must not swallow, though no other program is named in it.
ASKED = [
    "git --git-dir=e status",
    "git --git-dir e status",
    "git -C e status",
    "git --work-tree=/ checkout .",
    "git --bare status",
    "git diff --output=/etc/x",
    "git diff --outp=/etc/x",
    "git log --output /etc/x",
    "git format-patch -o /tmp/z HEAD~1",
    "git archive -o x HEAD",
    "git init --template=evil",
    "git clone --templ=evil a b",
    "git clone -c core.fsmonitor=x a b",
    "git config core.editor vim",
    "git config -f x a.b",
    "git push ./e HEAD",
    "git push /srv/e HEAD",
    "git remote add e ./e",
    "git send-email --to=a@b HEAD~1",
    "git credential fill",
    "git maintenance start",
    "git bundle create /tmp/z HEAD",
    "git apply --unsafe-paths p",
    "git add *.py",
    "git log -- {a,b}",
    "git {log,-p}",
    "git -[c] a=b x",
    "git submodule f*",
    "find . -delete",
    "find . -fprintf /etc/x y",
    "find . -exe[c] rm x \\;",
    "find * -name x",
    "tar cf x -T list",
    "tar xPf x",
    "sed -i s/a/b/ f",
    "sed -f script f",
    "sed 's/a/b/w out' f",
    "sed 'w out' f",
    "sed 'r /etc/passwd' f",
    "sed --in-pl s/a/b/ f",
    "sed -ne '1e ls' f",
    "awk -f script f",
    "awk '{print > \"out\"}' f",
    'awk \'/"/{print "ls" | "sh"}\' f',
    "sort -o /etc/x f",
    "sort -uo/etc/x f",
    "curl -o x https://h",
    "curl -sKf https://h",
    "wget -O /etc/x https://h",
    "make -f other",
    "make SHELL=/tmp/x",
    "make test ARGS='; ls'",
    "npm --prefix evil test",
    "npm exec -c ls",
    "npm test --script-shell=/tmp/x",
    "python -c 'print(1)'",
    "perl -ne 'print'",
    "node -e 1",
    "vim -c q f",
    "vim +q f",
    "docker run -v /:/h x",
    "docker -H tcp://h ps",
    "ssh -F f h",
    "scp -oProxyCommand=ls a h:b",
]

# What people and models write all day, with the rule that is meant for it.
BENIGN = [
    ("git *", "git status"),
    ("git *", "git status -sb"),
    ("git *", "git log --oneline -5"),
    ("git *", "git log --oneline --graph --all -n 20"),
    ("git *", "git diff HEAD~1 -- src/a.py"),
    ("git *", "git diff --stat --cached"),
    ("git *", "git --no-pager log -p"),
    ("git *", "git show HEAD:src/a.py"),
    ("git *", "git add -A"),
    ("git *", "git add -u"),
    ("git *", "git add src/*.py"),
    ("git *", "git add -- *.py"),
    ("git *", "git commit -m 'a message (with) more; of it'"),
    ("git *", 'git commit -am "a message"'),
    ("git *", "git commit -c HEAD"),
    ("git *", "git push -u origin main"),
    ("git *", "git push origin HEAD"),
    ("git *", "git pull --rebase"),
    ("git *", "git fetch origin --prune"),
    ("git *", "git switch -c feature/x"),
    ("git *", "git checkout -b x"),
    ("git *", "git cherry-pick -x abc"),
    ("git *", "git clean -fdx"),
    ("git *", "git diff -C -M"),
    ("git *", "git rebase main"),
    ("git *", "git stash push -m wip"),
    ("git *", "git grep -n foo src"),
    ("git *", "git rev-parse --git-dir"),
    ("git *", "git ls-files -o --exclude-standard"),
    ("git *", "git config --get user.name"),
    ("git *", "git config user.name"),
    ("git *", "git clone https://github.com/a/b.git"),
    ("git *", "git blame -L 1,5 src/a.py"),
    ("git *", "git remote -v"),
    ("git *", "git log \\\n  --oneline \\\n  -5"),
    ("git *", "git commit \\\n  -m 'it is \\\n so'"),
    ("npm test", "npm test"),
    ("npm *", "npm test"),
    ("npm run *", "npm run build -- --watch=false"),
    ("npm *", "npm install --save-dev x"),
    ("npm *", "npm ci"),
    ("ls *", "ls -la src"),
    ("ls *", "ls *.py"),
    ("cat *", "cat src/*.py"),
    ("cat *", "cat README.md"),
    ("pytest *", 'pytest -q tests/x.py::test_y -k "a and b"'),
    ("pytest *", "pytest -x --lf tests/test_*.py"),
    ("python *", "python -m pytest"),
    ("python -m pytest *", "python -m pytest -q -c pytest.ini"),
    ("python *", "python script.py -c x"),
    ("cargo *", "cargo build --release"),
    ("cargo *", "cargo test -- --nocapture"),
    ("go *", "go test ./..."),
    ("grep *", 'grep -rn "foo bar" src'),
    ("grep *", "grep -E 'a|b' src/*.py"),
    ("rg *", "rg -n 'a(b|c)' src"),
    ("make *", "make test"),
    ("make *", "make -C docs html"),
    ("make *", "make -j4 test V=1"),
    ("find *", "find . -name '*.py' -type f -print"),
    ("find *", "find src/* -maxdepth 1"),
    ("sed *", "sed -n '1,20p' f"),
    ("sed *", "sed 's/a/b/g; s|c|d|' f"),
    ("sed *", "sed -E '/^#/d;$!p' f"),
    ("sed *", "sed -e 's/a/b/' -e '3q' f"),
    ("awk *", "awk '{ print $1, $NF }' f"),
    ("awk *", "awk -F: '$3 > 5 || /x/ {print $1}' f"),
    ("awk *", "awk -F'|' '{print $2}' f"),
    ("tar *", "tar czf out.tgz src"),
    ("tar *", "tar -xzf a.tgz -C dir --strip-components=1"),
    ("sort *", "sort -k2,2n -u f"),
    ("curl *", "curl -sSL -H 'A: b' https://h/x"),
    ("docker *", "docker ps -a"),
    ("docker *", "docker compose up -d"),
    ("sed -i *", "sed -i s/a/b/ f"),
    ("git -C sub *", "git -C sub status"),
    ("timeout 60 pytest *", "timeout 60 pytest -q"),
]

# What a deny of `rm` has no reason to be in the way of.
LEFT_ALONE = [
    'git commit -m "$MSG"',
    "git pull $X",
    'docker run \\\n  -v "$(pwd)":/x \\\n  image',
    "cat <<'EOF' > f\nRUN a && \\\n  b\nEOF\nls",
    "cat <<EOF > f\na \\\n b\nEOF",
    "i=0; echo $((i + 1))",
    "i=$(wc -l < f); echo $((i + 1))",
    "x='rm y'; echo ${x:0:2}",
    "for i in 1 2; do echo $((i * 2)); done",
    "PYTHONPATH=src pytest",
    "GIT_AUTHOR_NAME=rm git commit",
    "export PATH=$PATH:/x; ls",
    "env -i ls rm",
    "env - ls rm",
    "python <<'EOF'\nprint('rm x')\nEOF",
    "python -c 'print(\"rm x\")'",
    "sed 's/a/rm x/' f",
    "xargs -I{} echo {} < f",
    "x=1; python manage.py $x",
    "x=1; git log -- $x",
    "x=1; curl $x",
    "ls | xargs grep rm",
    "echo ${x:-rm y}",
    "[ -f f ] && ls",
    "tar c . | ssh host 'tar x'",
    "tar c . | ssh -C -p 22 host tar x",
    "ls | parallel -j4 gzip",
    "ls | head; ssh host uptime | cat",
    "if [ \"$x\" -eq 1 ]; then echo '${y}'; fi",
    "cat f | python3 -m json.tool",
    "cat f | python3 -c 'import sys; print(sys.stdin.read())'",
    "cat f | perl -lane 'print $F[0]' | sort",
    "ls | head; sqlite3 f.db 'select 1'",
    "ls | head; psql -c 'select 1'",
    "ls | head; make test | tail -5",
    "ls | head; crontab -l",
    "python3 --version | head -1",
    "bash --version | head -1",
    "command -v bash | head -1",
    "echo 1 + 1 | bc",
    "echo hello | mail -s x a@b",
    "mail -s x a@b <<< hello",
    "cat <<'EOF' > run.sh\nls\nEOF\nbash run.sh",
    'while read -r x; do bash run.sh "$x"; done <<< "$list"',
    "bash <<'EOF'\nls\nEOF",
    "m[key]=1; echo ${m[key]}",
    "find . -name '*.rm'",
    "awk '{ rm = $1; print rm }' f",
]

# Orders from an input that the program itself does not name.
INPUTS = [
    "{ bash; } <<< 'rm x'",
    "( bash ) <<< 'rm x'",
    "( bash ) <<E\nrm x\nE",
    "if bash; then :; fi <<< 'rm x'",
    "while bash; do break; done <<< 'rm x'",
    "until bash; do :; done <<< 'rm x'",
    "for i in 1; do bash; done <<< 'rm x'",
    "case a in a) bash;; esac <<< 'rm x'",
    "f() { bash; }; f <<< 'rm x'",
    "f() { bash; } <<< 'rm x'; f",
    "f() { bash; }; eval \"f <<< 'rm x'\"",
    "bash -c bash <<< 'rm x'",
    "exec <<< 'rm x'; bash",
    "exec 3<<< 'rm x'; bash <&3",
    "exec 3<<< 'rm x'; bash < /dev/fd/3",
    "exec 3<<< 'rm x'; bash /dev/fd/3 <<< ls",
    "exec 3<<< 'rm x'; . /dev/fd/3",
    "exec 4< <(echo rm x); bash <&4",
    "{ bash 3<<< ls; } <<< 'rm x'",
    "echo rm x > >(bash); sleep 0.2",
    "{ perl; } <<< 'system(\"rm x\")'",
    "exec <<< 'system(\"rm x\")'; perl",
    "while perl; do break; done <<< 'system(\"rm x\")'",
    "echo 'system(\"rm x\")' | perl",
    "echo 'system(\"rm x\")' | perl -w -",
    "f() { perl; }; echo 'system(\"rm x\")' | f",
    "echo 'system(\"rm x\")' | { ls; perl; }",
]

# Values that a shell calculates with, or that say what a name stands for.
EVALUATED = [
    "BASH_ALIASES[q]='rm x'; shopt -s expand_aliases\nq",
    "shopt -s expand_aliases; BASH_ALIASES=([q]='rm x')\nq",
    "BASH_CMDS[q]=$(type -p rm); q x",
    "read -r 'BASH_ALIASES[q]' <<< 'rm x'; shopt -s expand_aliases\nq",
    "declare -n r=BASH_ALIASES; r[q]='rm x'; shopt -s expand_aliases\nq",
    "for PS4 in '$(rm x)'; do set -x; ls; done",
    "RANDOM='a[$(rm x)]'",
    "OPTIND='a[$(rm x)]'",
    "x='a[$(rm x)]'; RANDOM=$x",
    "for RANDOM in 'a[$(rm x)]'; do :; done",
    "x='a[$(rm x)]'; echo ${!x}",
    "x='a[$(rm x)]'; y[x]=1",
    "x='a[$(rm x)]'; y=([x]=1)",
    "x='a[$(rm x)]'; test -v \"$x\"",
    "x='a[$(rm x)]'; [ -v \"$x\" ]",
    "x='a[$(rm x)]'; printf -v \"$x\" y",
    "x='a[$(rm x)]'; read -r \"$x\" <<< 1",
    "echo ${f[x='a[$(rm x)]',x]}",
    "x=$(printf 'a[\\x24(rm x)]'); echo $((x))",
]


@each(HOSTILE)
def test_a_deny_sees_what_was_seen_to_run(line: str):
    assert read_line(line).is_touched_by(RM)


@each([*HOSTILE, *ASKED])
def test_no_wildcard_swallows_it(line: str):
    """Neither a rule for its own program, whatever that is, nor a Grant for it."""
    read = read_line(line)
    own = line.split(maxsplit=1)[0]
    for program in {*PROGRAMS, own} if own.isalnum() and own != "rm" else PROGRAMS:
        assert not read.is_allowed_by(TextGlob(f"{program} *")), program


@each(ASKED)
def test_no_grant_with_a_wildcard_covers_it(line: str):
    """`process.exec:git *` and `allowed_commands=["git *"]` are read with the same care."""
    program = line.split(maxsplit=1)[0]
    for rule in (f"process.exec:{program} *", f"process.exec:{program}"):
        assert not Grant([rule]).allows(f"process.exec:{line}")
    assert Grant(["process.exec"]).allows(f"process.exec:{line}")


@each([line for line in HOSTILE if len(line.split()) > 1 and line.split()[0] not in ("rm", "/???/rm")])
def test_no_grant_covers_what_runs_something_else(line: str):
    program = line.split(maxsplit=1)[0]
    if program.isalnum():
        assert not Grant([f"process.exec:{program} *"]).allows(f"process.exec:{line}")


@each(BENIGN)
def test_the_usual_lines_need_no_question(rule: str, line: str):
    read = read_line(line)
    assert read.is_allowed_by(TextGlob(rule)), (read.single, read.inside, read.unsure)


@each([case for case in BENIGN if not set(case[1]) & set(";|&$`><()\n")])
def test_a_grant_covers_the_usual_lines(rule: str, line: str):
    assert Grant([f"process.exec:{rule}"]).allows(f"process.exec:{line}")


@each(LEFT_ALONE)
def test_a_deny_is_not_in_the_way(line: str):
    read = read_line(line)
    assert not read.is_touched_by(RM), (read.unsure, read.commands)


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ("git \\\nstatus", "git status"),
        ("git st\\\natus", "git status"),
        ("git 'a\\\nb'", "git 'a\\\nb'"),
        ('git "a\\\nb"', 'git "ab"'),
        ("git \\\\\nls", None),
    ],
)
def test_joined_lines_are_read_as_one(line: str, joined: str | None):
    """A backslash at the end of a line is gone before anything is read; not in single quotes, nor after another."""
    assert read_line(line).single == joined


def test_an_exact_rule_and_a_bare_one_are_as_before():
    for line in ("git -c core.pager=less log", "git {a,b}", "sed -i s/a/b/ f", "find . -delete"):
        assert read_line(line).is_allowed_by(TextGlob(line))
        assert read_line(line).is_allowed_by(TextGlob("*"))
        assert Grant([f"process.exec:{line}"]).allows(f"process.exec:{line}")


@pytest.mark.parametrize(
    "line",
    [
        'echo "$\\\n(rm x)"',
        "echo ${x:-<(rm x)}",
        "x='a[$(rm x)]'; echo $((x))",
        "cat <<EOF\nE\\\nOF\nrm x\nEOF",
        'env - PATH="$PATH" MARK="$MARK" rm x',
        "env --split='rm x'",
        "sed -n '1e rm x' f",
        "xargs env <<< 'rm x'",
        "bash //dev/stdin <<< 'rm x'",
        "time x=1 rm x",
        "time -p -- 2>e x=1 rm x",
        "time function g { rm x; }; g",
        "time coproc rm x; wait",
        "shopt -s expand_aliases\nalias q='env '\nq rm x",
        "shopt -s expand_aliases\nalias q='echo a;'\nq rm x",
        "shopt -s expand_aliases; : ${BASH_ALIASES[q]:=env }\nq rm x",
        "set -o history\n: rm x\nfc -s :=",
        "set -o history -o histexpand\n: rm\n!:1",
        "touch -- -exec; find . -exe[c] rm x \\;",
        *INPUTS,
        *EVALUATED,
    ],
)
def test_bash_does_run_them(tmp_path: Path, line: str):
    """The tables are about a real shell: here a `rm` that only leaves a mark is run by it, and the deny sees that."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "rm").write_text('#!/bin/sh\necho ran >> "$MARK"\n')
    (tools / "rm").chmod(0o755)
    (tmp_path / "f").write_text("a\n")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "MARK": str(tmp_path / "mark")}
    subprocess.run(
        ["/bin/bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, timeout=20, check=False
    )
    assert (tmp_path / "mark").exists()
    assert read_line(line).is_touched_by(RM)


@pytest.mark.timed
@pytest.mark.parametrize(
    "line",
    [
        "a \\\n" * 20_000,
        '"$\\\n(' * 8_000,
        "'\\\n" * 20_001,
        "<<E\\\n\n" * 9_000,
        "git " + "{a,b}" * 10_000,
        "git " + "--exec=x " * 7_000,
        "sed '" + "s/a/b/;" * 8_000 + "'",
        "sed '" + "{" * 60_000 + "'",
        "awk '" + '"' * 60_001 + "'",
        "xargs " * 10_000,
        "env - " * 10_000,
        "# \\\n" * 16_000,
    ],
)
def test_long_lines_are_quick(line: str):
    began = time.process_time()
    read_line(line)
    Grant(["process.exec:git *"]).allows(f"process.exec:{line[:60_000]}")
    within(time.process_time() - began, 1.5)


@pytest.mark.timed
@pytest.mark.parametrize(
    "line", ["a;" * 32_767, "`" * 65_534, "`a`" * 20_000, "f() " * 16_383, "$(a)" * 16_000, "x=$(a) " * 9_000]
)
def test_what_is_beyond_doubt_is_not_read_further(line: str):
    """The longest lines that there are take the loop no longer than it can spare."""
    began = time.process_time()
    assert read_line(line).unsure is not None
    within(time.process_time() - began, 0.1)


_LONGEST = CAPABILITY_LENGTH_MAX - 1
_SHAPES = [
    *(("echo '", piece) for piece in ("[", "a[", "[[ ", "$[", "x[0]=1 ", "${", "$(", "`", "{")),
    *(("perl -e '", piece) for piece in ("$[", "-x", "(")),
    *(("find . ", piece) for piece in ("-exec a ';' ", "-x", "$a ")),
    *(("npm exec ", piece) for piece in ("- ", "-a ", "a ")),
    *(("foo ", piece) for piece in ("touch ", "=touch ", "$a ", "${a/b/c} ", "<<A ", "'$(' ", "{", "(")),
    *(("sed ", piece) for piece in ("-e p ", "s/a/b/;")),
    *(("make ", piece) for piece in ("<<<a ", "a=b ")),
    *(("", piece) for piece in ("[", "[[ ", "$a ", "a=(", "a;", "\\\n", "x=1 ", "touch ")),
    ('"', "\\\\\n"),
    ("${x:", "::"),
    ("a=(", "("),
]


@pytest.mark.timed
@pytest.mark.parametrize(("start", "piece"), _SHAPES)
def test_no_line_stalls_a_decision(start: str, piece: str):
    """Of the longest lines that are read, none takes 60 ms."""
    line = (start + piece * _LONGEST)[:_LONGEST] + ("'" if "'" in start else "")
    permissions = Permissions([Rule("Bash(git *)", "allow"), Rule("Bash(touch *)", "deny")])
    subject_of("Bash", {"command": f"{start}{piece}"})  # compiles what is compiled at its first use
    began = time.process_time()
    permissions.decide(subject_of("Bash", {"command": line}))
    within(time.process_time() - began, 0.06)


@pytest.mark.timed
@pytest.mark.parametrize("piece", ["a ", "'", "[", "a;", "\\\n", "$(", "git "])
def test_a_line_that_is_too_long_is_not_read(piece: str):
    """Every deny matches it, and of the allows only that of the whole tool."""
    line = "git " + piece * 2_000_000
    began = time.process_time()
    subject = subject_of("Bash", {"command": line})
    denied = Permissions([Rule("Bash", "allow"), Rule("Bash(touch *)", "deny")]).decide(subject)
    asked = Permissions([Rule("Bash(git *)", "allow")]).decide(subject)
    allowed = Permissions([Rule("Bash", "allow")]).decide(subject)
    within(time.process_time() - began, 0.06)
    assert (denied.decision, asked.decision, allowed.decision) == ("deny", "ask", "allow")


@pytest.mark.parametrize("line", ["echo " + "a " * 5_000, "echo " + "'a' " * 5_000, "echo " + "a$b " * 5_000])
def test_a_line_of_too_many_words_is_a_doubt(line: str):
    assert read_line(line).unsure == "it has more than 4096 words"
    assert read_line("echo " + "a " * 4_000).unsure is None


def test_what_is_reached_is_counted_in_words():
    assert reaches(["ls", "-la"]) == []
    assert [reach.through for reach in reaches(["git", "-C", "sub", "status"])] == [3]
