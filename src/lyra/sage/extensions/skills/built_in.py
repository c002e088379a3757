"""The skills that come with Sage: testing, debugging, review, git-commit and security.

Short texts on how such work is done well. They name no tool that has to be there and grant nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class SkillText(NamedTuple):
    """The parts of a built-in skill."""

    name: str
    description: str
    when_to_use: str
    body: str


_TESTING: Final = """\
# Writing and running tests

1. Find out how this project tests: its rules file, the CI configuration, the tests nearest to the code. Use the
   same runner, layout, fixtures and naming.
2. Run the tests that exist for the code before you change it. A failure that was there before is not yours: say so.
3. Test behaviour that a user of the code relies on, through the interface they use. One reason to fail for each
   test, and a name that states the promise.
4. Cover the ordinary case, the edges (empty, one, many, largest, wrong type, missing) and every error that is
   raised.
5. Nothing random, no sleeping, no network, no dependence on order or on today's date. Give the clock, the seed and
   the folder to the code instead.
6. See each new test fail once for the right reason: undo the change or break the code on purpose, then put it back.
7. Run the smallest set that shows the change first, then the whole suite if it is quick. Report what you ran and
   what it said, failures word for word.

Never make a test pass by weakening what it checks, skipping it or catching its error. If a test is wrong, say why
before you change it."""

_DEBUGGING: Final = """\
# Finding the cause of a fault

1. Reproduce it. Write down the exact command, input and message. If it cannot be reproduced, collect what differs
   (version, data, environment, order) before anything else.
2. Read the whole message and the whole trace. The first error in time matters more than the last.
3. Make the case smaller until taking away anything more makes the fault vanish.
4. State one suspicion at a time, with what you would see if it were true, and look: a debugger, a print, a test,
   `git log` and `git bisect` for what worked before.
5. Follow the data from where it is right to where it is wrong. The cause is at the border, seldom where it shows.
6. Mend the cause, not the symptom. Ask whether the same mistake stands elsewhere, and search for it.
7. Keep a test that fails without the mend. Take out what you added for looking.

Do not change several things at once, and do not go on after a change that made no difference: take it back first.
If two suspicions were wrong, read the code again from the entry point instead of guessing a third time."""

_REVIEW: Final = """\
# Reviewing a change

1. Read what the change is for, then the whole diff, then the code around it: callers, tests, error paths, the types
   it passes through.
2. Look in this order: does it do what it is for; wrong results and lost data; error handling and clean-up; races
   and re-entry; input from outside, rights, secrets; compatibility of files, interfaces and settings; tests; then
   names and structure.
3. Check each suspicion against the code before you write it down. Say of what you could not confirm that you could
   not.
4. For each finding: file and line, what goes wrong and with which input, how grave it is, and a mend in a sentence.
5. The gravest first. Leave out taste and what a formatter does. If all is well, say what you checked.

Ask for the missing test where behaviour changed without one. A larger change than the purpose needs is a finding,
too."""

_GIT_COMMIT: Final = """\
# Preparing a commit

1. Look at `git status`, `git diff` and `git diff --staged`, and at the last ten messages: follow their form.
2. One change a commit. Leave out files that do not belong to it, generated files, secrets and large data. Stage by
   name, never everything blindly.
3. Run the checks that the project runs before a commit.
4. The subject: what the change does, in the imperative, at most 72 characters, no full stop. A blank line. Then
   why, and what a reader of the history has to know; wrapped at 72. Name the issue where the project does.
5. Commands cannot write git's own files: the user commits. End with the exact lines for it, such as
   `!git add src/a.py && git commit`, and the message. No push, amend or rebase unless the user asked for it."""

_SECURITY: Final = """\
# Looking for weaknesses

1. Draw the borders first: what comes from outside (requests, files, arguments, environment, other services, model
   output), and what it must never reach (commands, queries, paths, templates, logs, other users' data).
2. Follow each input to each use. Look for: commands built from strings; queries without parameters; paths that
   leave their folder (`..`, links, absolute paths); unsafe deserialisation; requests to addresses that a user
   chooses; output without escaping; comparisons of secrets that end early; random numbers for secrets from an
   ordinary generator.
3. Check who may do what at every entry, not only in the interface. Look for objects fetched by an id without asking
   whose they are.
4. Look for secrets in code, history, logs, errors and tests. Name the place, never the value.
5. Check bounds: sizes, counts, depth, time, memory. Check what happens when a service fails: closed is right, open
   is not.
6. Look at the dependencies for known faults with the project's own tool.
7. For each finding: where, how it is used by an attacker, what is lost, how grave, and the mend. Show it with the
   smallest harmless example or a test.

Change nothing on a running system, and try nothing against hosts that are not the user's own."""

BUILT_IN_SKILLS: Final = (
    SkillText("testing", "How to write and run tests that show something", "tests are written or changed", _TESTING),
    SkillText("debugging", "How to find the cause of a fault", "something fails and the cause is unknown", _DEBUGGING),
    SkillText("review", "How to review a change", "code is to be judged before it is merged", _REVIEW),
    SkillText("git-commit", "How to prepare a commit", "changes are to be committed with git", _GIT_COMMIT),
    SkillText("security", "How to look for weaknesses in code", "safety against attackers matters", _SECURITY),
)
