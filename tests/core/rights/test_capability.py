"""Capabilities are read in every spelling; Grants allow no more than they say, and narrowing never adds."""

from __future__ import annotations

import contextlib
import time
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.limits import CAPABILITY_LENGTH_MAX, GRANT_CACHE_MAX, GRANT_LAYERS_MAX, GRANT_RULES_MAX, RULE_LENGTH_MAX
from lyra.core.rights.capability import VERBS, Capability, Grant, GrantDecision
from lyra.core.rights.scope import SEPARATORS
from lyra.errors import CapabilityDenied, ConfigError
from tests.cases import cases, each
from tests.limits import within

quick = settings(derandomize=True, deadline=None, max_examples=cases(150))
thorough = settings(derandomize=True, deadline=None, max_examples=cases(400))

# ---------------------------------------------------------------- generators
path_part = st.sampled_from(["a", "b", "ab", "*", "**", "a*", "?"])
path_scopes = st.lists(path_part, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
host_scopes = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=3).map(".".join)
ported = st.tuples(host_scopes, st.sampled_from(["", ":80", ":443"])).map("".join)
words = st.lists(st.sampled_from(["git", "log", "rm", "-f", "*", "l*"]), min_size=1, max_size=3).map(" ".join)
lines = st.lists(words, min_size=1, max_size=2).map(" && ".join)
capabilities = st.one_of(
    st.builds(Capability, st.sampled_from(["fs.read", "fs.write", "fs.stat"]), path_scopes),
    st.builds(Capability, st.just("net.http"), ported),
    st.builds(Capability, st.just("process.exec"), lines),
    st.builds(
        Capability, st.sampled_from(["secrets.read", "db.write", "own.verb"]), st.sampled_from(["a", "b.c", "a*"])
    ),
    st.sampled_from([Capability("*"), Capability("fs.*"), Capability("fs.read"), Capability("process.exec")]),
)
grants = st.builds(Grant, st.lists(capabilities, max_size=4), st.lists(capabilities, max_size=2))


# ---------------------------------------------------------------- reading
@each(
    [
        ("fs.read:/project/**", "fs.read:/project/**"),
        ("fs::read", "fs.read"),
        ("fs::read:/x", "fs.read:/x"),
        ("fs:read", "fs.read"),
        ("fs:read:/x", "fs.read:/x"),
        ("filesystem.write", "fs.write"),
        ("filesystem.write:/tmp/x", "fs.write:/tmp/x"),
        ("process::exec", "process.exec"),
        ("process:exec", "process.exec"),
        ("exec.shell_command", "process.exec"),
        ("exec.shell_command:ls", "process.exec:ls"),
        ("database.write.transactions", "db.write:transactions"),
        ("db.write:transactions", "db.write:transactions"),
        ("network.http_client.stripe.com", "net.http:stripe.com"),
        ("net.http:Stripe.COM.", "net.http:stripe.com"),
        ("net.http:[::1]:443", "net.http:[::1]:443"),
        ("net.http:host:", "net.http:host"),
        ("network.http_server", "net.listen"),
        ("secrets.read.stripe_api_key", "secrets.read:stripe_api_key"),
        ("secrets::read:stripe_api_key", "secrets.read:stripe_api_key"),
        ("events.publish.order.created", "events.publish:order.created"),
        ("fs.read:**", "fs.read"),
        ("fs.read://a//b/./c/", "fs.read:/a/b/c"),
        ("fs.read:/", "fs.read:/"),
        ("fs.read:**/x", "fs.read:/**/x"),
        ("process.exec:git   log\t-1", "process.exec:git log -1"),
        ("*", "*"),
        ("fs.*", "fs.*"),
        ("filesystem.*", "fs.*"),
        ("stripe.refund:cus_1", "stripe.refund:cus_1"),
        ("s3.read:bucket/*", "s3.read:bucket/*"),
    ]
)
def test_every_spelling_has_one_meaning(spelling, canonical):
    """All accepted spellings come out as the same capability."""
    assert str(Capability.parse(spelling)) == canonical
    assert Capability.of(spelling) == Capability.parse(canonical)


@thorough
@given(capabilities)
def test_reading_what_was_written_gives_the_same(cap):
    """parse ∘ str is the identity."""
    assert Capability.parse(str(cap)) == cap
    assert Capability.of(cap) is cap


@quick
@given(st.sampled_from(sorted(VERBS)), st.text(min_size=1, max_size=12))
def test_any_scope_text_is_read_or_refused_and_reading_is_stable(name, scope):
    """A scope from anywhere gives a capability that reads back as itself, or a ConfigError; nothing else."""
    try:
        cap = Capability(name, scope)
    except ConfigError:
        return
    assert Capability.parse(str(cap)) == cap
    assert Grant.all().allows(cap) in (True, False)


@quick
@given(st.text(max_size=30))
def test_any_text_is_a_capability_or_a_config_error(text):
    """Hostile text never raises anything else."""
    with contextlib.suppress(ConfigError):
        assert Capability.parse(text).name


@pytest.mark.parametrize(
    ("wrong", "position", "hint"),
    [
        ("", 0, "write it like"),
        ("Fs.read", 0, "fs.read"),
        ("fs", 2, "write it like"),
        ("fs-read", 2, "did you mean 'fs.read'?"),
        ("fs.", 3, "write it like"),
        ("fs.Read", 3, "did you mean 'fs.read'?"),
        ("fs.read/x", 7, "did you mean 'fs.read'?"),
        ("fs.read:", 8, "did you mean 'fs.read'?"),
        ("fs.*:/x", 3, "write it like"),
    ],
)
def test_unreadable_text_is_an_error_with_a_position_and_a_hint(wrong, position, hint):
    """The error names the text, the place in it, and what may have been meant."""
    with pytest.raises(ConfigError) as caught:
        Capability.parse(wrong)
    assert caught.value.fields["position"] == position
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("fs.raed", "fs.read"),
        ("fs.writ:/x", "fs.write"),
        ("sf.read", "fs.read"),
        ("proces.exec:ls", "process.exec"),
        ("net.https:a.b", "net.http"),
        ("secret.read:x", "secrets.read"),
        ("event.publish.x", "events.publish"),
        ("databse.write", None),
    ],
)
def test_a_slip_of_the_finger_is_an_error_and_a_new_verb_is_not(slip, meant):
    """Near misses of known verbs are refused with a did-you-mean; words of one's own are accepted."""
    if meant is None:
        assert Capability.parse(slip).name == "databse.write"
        return
    with pytest.raises(ConfigError) as caught:
        Capability.parse(slip)
    assert caught.value.hint == f"did you mean {meant!r}?"


@pytest.mark.parametrize("name", ["", "fs", "fs.", ".read", "fs.read.x", "FS.read", "1a.b", "a.*b", "*.read", "a b.c"])
def test_names_are_two_words(name):
    """A Capability made in code obeys the same grammar."""
    with pytest.raises(ConfigError):
        Capability(name, "x")


@pytest.mark.parametrize("arguments", [("fs.read", ""), ("process.exec", "   "), ("fs.*", "/x"), ("*", "x")])
def test_an_empty_or_impossible_scope_is_an_error(arguments):
    """An empty variable never turns into "everything"."""
    with pytest.raises(ConfigError):
        Capability(*arguments)


@pytest.mark.parametrize("wrong", [None, 3, b"fs.read", ["fs.read"]])
def test_only_text_is_parsed(wrong):
    """A capability is text, or an error that says so."""
    with pytest.raises(ConfigError):
        Capability.parse(wrong)


def test_a_scope_is_bounded():
    """A request has at most CAPABILITY_LENGTH_MAX characters, a rule at most RULE_LENGTH_MAX."""
    Capability("fs.read", "/" + "x" * (CAPABILITY_LENGTH_MAX - 1))
    with pytest.raises(ConfigError):
        Capability("fs.read", "/" + "x" * CAPABILITY_LENGTH_MAX)
    with pytest.raises(ConfigError):
        Grant([Capability("fs.read", "/" + "x" * RULE_LENGTH_MAX)])


def test_with_scopes_reads_the_lists_of_a_tool():
    """`capabilities [fs::read] allowed_paths [...]` becomes one capability a path, and commands go with exec."""
    read = Capability.with_scopes("fs::read", allowed_paths=["/project/**", "/data/*.json"], allowed_commands=["ls"])
    assert [str(cap) for cap in read] == ["fs.read:/project/**", "fs.read:/data/*.json"]
    run = Capability.with_scopes("process::exec", allowed_commands=["npm test", "pytest"])
    assert [str(cap) for cap in run] == ["process.exec:npm test", "process.exec:pytest"]
    assert Capability.with_scopes("secrets:read") == [Capability("secrets.read")]
    with pytest.raises(ConfigError):
        Capability.with_scopes("fs.read:/x", allowed_paths=["/y"])


def test_every_verb_has_a_kind_and_a_sentence():
    """The table is the reference: each verb says how its scope is read and what it allows."""
    for name, verb in VERBS.items():
        assert Capability.parse(name).name == name
        assert verb.kind in SEPARATORS
        assert verb.sentence[0].islower()
        assert not verb.sentence.endswith(".")


# ---------------------------------------------------------------- matching
@each(
    [
        # paths
        ("fs.read:/project/**", "fs.read:/project/a/b.py", True),
        ("fs.read:/project/**", "fs.read:/project", True),
        ("fs.read:/project/**", "fs.read:/project/", True),
        ("fs.read:/project/**", "fs.read:/projectile", False),
        ("fs.read:/project/**", "fs.write:/project/a", False),
        ("fs.read:/project/**", "fs.read:/project/../etc/passwd", False),
        ("fs.read:/project/**", "fs.read:/project/a\0b", False),
        ("fs.read:/project/**", "fs.read:project/a", False),
        ("fs.read", "fs.read:../x", False),
        ("*", "fs.read:/a/../b", False),
        ("fs.read:/project/**", "fs.read:/project/a..b", True),
        ("fs.read:/data/*.json", "fs.read:/data/x.json", True),
        ("fs.read:/data/*.json", "fs.read:/data/x/y.json", False),
        ("fs.read:/a/**/z", "fs.read:/a/z", True),
        ("fs.read:/a/**/z", "fs.read:/a/b/c/z", True),
        ("fs.read:/a?", "fs.read:/ab", True),
        ("fs.read:/a?", "fs.read:/a/", False),
        ("fs.stat:/project/**", "fs.stat:/project/../x", False),
        # hosts
        ("net.http:api.stripe.com", "net.http:API.Stripe.com", True),
        ("net.http:api.stripe.com", "net.http:api.stripe.com:8443", True),
        ("net.http:api.stripe.com:443", "net.http:api.stripe.com:443", True),
        ("net.http:api.stripe.com:443", "net.http:api.stripe.com:80", False),
        ("net.http:api.stripe.com:443", "net.http:api.stripe.com", False),
        ("net.http:*.stripe.com", "net.http:api.stripe.com", True),
        ("net.http:*.stripe.com", "net.http:a.b.stripe.com", False),
        ("net.http:*.stripe.com", "net.http:stripe.com", False),
        ("net.http:**.stripe.com", "net.http:a.b.stripe.com", True),
        ("net.http:**.stripe.com", "net.http:evilstripe.com", False),
        ("net.http:stripe.com", "net.http:stripe.com.evil.org", False),
        ("net.http:**", "net.http:user@evil.org", False),
        ("net.http:**", "net.http:a/b", False),
        ("net.http:**", "net.http:stri\u212ae.com", False),
        ("net.http:**", "net.http:::1", False),
        ("net.http:[::1]", "net.http:[::1]:80", True),
        # commands
        ("process.exec:pytest", "process.exec:pytest", True),
        ("process.exec:pytest", "process.exec:pytest -q tests", True),
        ("process.exec:pytest", "process.exec:pytest-evil", False),
        ("process.exec:pytest", "process.exec:/tmp/pytest", False),
        ("process.exec:pytest", "process.exec:X=1 pytest", False),
        ("process.exec:npm test", "process.exec:npm test", True),
        ("process.exec:npm test", "process.exec:npm  test", True),
        ("process.exec:npm test", "process.exec:npm test --force", False),
        ("process.exec:git *", "process.exec:git log -1", True),
        ("process.exec:git *", "process.exec:git", True),
        ("process.exec:git *", "process.exec:gitk", False),
        ("process.exec:git log *", "process.exec:git push", False),
        ("process.exec:git *", "process.exec:git log; rm -rf /", False),
        ("process.exec:git *", "process.exec:git log $(rm x)", False),
        ("process.exec:git *", "process.exec:git log\nrm x", False),
        ("process.exec:git *", "process.exec:git log > /etc/passwd", False),
        ("process.exec:make && make test", "process.exec:make && make test", True),
        ("process.exec:make && make test", "process.exec:make && make evil", False),
        ("process.exec", "process.exec:a | b", True),
        ("process.*", "process.exec:a | b", True),
        # others
        ("secrets.read:stripe_*", "secrets.read:stripe_api_key", True),
        ("secrets.read:stripe_*", "secrets.read:aws", False),
        ("events.publish:order.*", "events.publish:order.created", True),
        ("events.publish:order.*", "events.publish:order.item.added", False),
        ("events.publish:order.**", "events.publish:order.item.added", True),
        ("*", "own.verb:x", True),
        ("own.*", "own.verb:x", True),
        ("own.*", "owner.verb:x", False),
        # requests with wildcards
        ("fs.read:/project/**", "fs.read:/project/src/**", True),
        ("fs.read:/project/*", "fs.read:/project/**", False),
        ("fs.read:/project/**", "fs.read", False),
        ("fs.read", "fs.read", True),
        ("fs.*", "fs.*", True),
        ("fs.read", "fs.*", False),
        ("*", "*", True),
        ("fs.*", "*", False),
        ("process.exec:git *", "process.exec:git log *", True),
        ("process.exec:ls", "process.exec:ls *.py", True),
    ]
)
def test_an_allow_rule_allows_what_it_says(rule, asked, allowed):
    """One rule, one request, one answer: the examples of the reference."""
    grant = Grant([rule])
    assert grant.allows(asked) is allowed
    assert grant.allows(asked) is allowed  # and again, from the cache


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("fs.read:/project/secret/**", "fs.read:/project/secret/key"),
        ("fs.read:/project/secret/**", "fs.read:/project/**"),
        ("fs.read:/project/secret/**", "fs.read"),
        ("fs.*", "fs.write:/x"),
        ("fs.write", "fs.*"),
        ("fs.write:/x", "*"),
        ("*", "own.verb"),
        ("process.exec:rm", "process.exec:rm -rf /"),
        ("process.exec:rm", "process.exec:ls; rm -rf /"),
        ("process.exec:rm", "process.exec:ls $(rm x)"),
        ("process.exec:rm", "process.exec:ls && 'r'm x"),
        ("process.exec:rm", "process.exec:/bin/rm x"),
        ("process.exec:rm", "process.exec:A=1 rm x"),
        ("process.exec:rm", "process.exec:\\rm x"),
        ("process.exec:curl * | sh", "process.exec:curl http://x | sh"),
        ("process.exec:git push *", "process.exec:git *"),
        ("process.exec:git push *", "process.exec"),
        ("process.exec:never", "process.exec:" + ";".join(f"a{n}" for n in range(300))),
        ("process.exec:never", "process.exec:a * " + "b" * 2000),
        ("fs.read:/never", "fs.read:/*" + "b" * 2000),
        ("net.http:evil.org", "net.http:evil.org:80"),
        ("net.http:evil.org:80", "net.http:evil.org"),
    ],
)
def test_a_deny_rule_denies_whatever_it_may_touch(rule, asked):
    """Deny wins over an allow of everything, also inside chains, and where it can only not be ruled out."""
    grant = Grant(["*"], [rule])
    decision = grant.explain(asked)
    assert decision == GrantDecision(False, str(Capability.parse(rule)), "a deny rule touches it")


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("fs.read:/project/secret/**", "fs.read:/project/src/**"),
        ("fs.*", "db.read"),
        ("process.exec:rm", "process.exec:ls | grep rm"),
        ("process.exec:git push", "process.exec:git log"),
        ("fs.write", "fs.read:/x"),
    ],
)
def test_a_deny_rule_leaves_the_rest(rule, asked):
    """What a deny cannot touch stays allowed."""
    assert Grant(["*"], [rule]).allows(asked)


def test_a_long_request_with_wildcards_is_allowed_only_by_everything():
    """What is too long to compare is allowed by `fs.read` itself, not by a pattern."""
    asked = "fs.read:/project/*" + "b" * RULE_LENGTH_MAX
    assert not Grant(["fs.read:/project/**"]).allows(asked)
    assert Grant(["fs.read"]).allows(asked)


# ---------------------------------------------------------------- grants
@thorough
@given(grants, grants, st.lists(capabilities, min_size=1, max_size=8))
def test_narrowing_allows_exactly_what_both_allow(left, right, asked):
    """narrow(a, b) allows x exactly if a and b do, so a child can never do what its parent cannot."""
    both = left.narrow(right)
    for cap in asked:
        assert both.allows(cap) == (left.allows(cap) and right.allows(cap))
    assert both.narrow(left) == both
    assert both.is_narrower_than(left)
    assert both.is_narrower_than(right)


@thorough
@given(grants, st.lists(capabilities, min_size=1, max_size=5))
def test_deny_wins(grant, asked):
    """Adding a deny for x makes x denied, whatever is allowed."""
    for cap in asked:
        assert not grant.narrow({"allow": ["*"], "deny": [str(cap)]}).allows(cap)


@thorough
@given(grants, grants, st.lists(capabilities, min_size=1, max_size=8))
def test_covering_is_sound(wide, narrow, asked):
    """If one grant covers another, everything the other allows is allowed by it."""
    if wide.covers(narrow):
        for cap in asked:
            assert wide.allows(cap) or not narrow.allows(cap)


@quick
@given(grants, grants, st.lists(capabilities, min_size=1, max_size=5))
def test_a_grant_survives_being_saved(left, right, asked):
    """from_data ∘ to_data is the same grant, with the same answers."""
    grant = left.narrow(right)
    again = Grant.from_data(grant.to_data())
    assert again == grant
    assert hash(again) == hash(grant)
    assert [again.allows(cap) for cap in asked] == [grant.allows(cap) for cap in asked]


def test_all_and_none():
    """Everything readable, and nothing."""
    assert Grant.all().allows("own.verb:x")
    assert Grant.of(None) is Grant.all()
    assert not Grant.none().allows("fs.read:/x")
    assert not Grant().allows("own.verb")
    assert Grant.all().narrow(Grant.none()) == Grant.none()
    assert Grant.none().narrow(["*"]) == Grant.none()
    assert Grant.all().covers(Grant.none())
    assert not Grant.none().covers(Grant.all())
    assert repr(Grant.none()) == "Grant({'allow': []})"
    assert Grant.all() != "all"


def test_check_says_what_was_denied_by_which_rule_and_what_to_do():
    """A denial names the capability, the rule if there was one, and a hint."""
    grant = Grant(["fs.read:/project/**"], ["fs.read:/project/secret/**"])
    grant.check("fs.read:/project/x")
    grant.check("fs.read:/project/x")
    with pytest.raises(CapabilityDenied) as caught:
        grant.check("fs.read:/project/secret/x")
    assert caught.value.fields == {
        "capability": "fs.read:/project/secret/x",
        "rule": "fs.read:/project/secret/**",
    }
    assert "fs.read:/project/secret/**" in str(caught.value.hint)
    with pytest.raises(CapabilityDenied) as caught:
        grant.check(Capability("fs.write", "/x" * 500))
    assert caught.value.fields["rule"] is None
    assert "in the grant" in str(caught.value.hint)
    assert len(caught.value.fields["capability"]) <= 201


@pytest.mark.parametrize(
    "wrong",
    [
        "fs.read",
        5,
        ["fs.raed"],
        {"allow": "fs.read"},
        {"allow": ["*"], "denny": []},
        {"deny": ["fs.write"]},
        {"allow": ["*"], "layers": [["*"]]},
        {"layers": "x"},
        {"layers": [["*"], 3]},
        {"allow": [{"name": "fs.read"}]},
        {"allow": ["fs.read:relative"]},
        {"allow": ["*"], "deny": ["fs.read:/a/../b"]},
        {"allow": ["net.http:a/b"]},
        {"allow": ["own.verb:a\0b"]},
        {"allow": [f"own.verb:{n}" for n in range(GRANT_RULES_MAX + 1)]},
        {"allow": [f"own.verb:{n}" for n in range(600)], "deny": [f"own.verb:{n}" for n in range(600)]},
        {"layers": [[f"own.verb:{n}"] for n in range(GRANT_LAYERS_MAX + 1)]},
    ],
)
def test_a_wrong_grant_is_a_config_error(wrong):
    """A rule that can never match, an unknown key, too many rules: refused where they are written."""
    with pytest.raises(ConfigError):
        Grant.of(wrong)
    with pytest.raises(ConfigError):
        Grant.from_data(wrong)


def test_a_grant_does_not_change():
    """Assigning to a grant does not widen it."""
    with pytest.raises(AttributeError):
        Grant.all().deny = ()


def test_layers_that_add_nothing_are_dropped():
    """Narrowing again by the same, or by something wider, does not make the grant longer."""
    grant = Grant(["fs.read:/a/**"])
    assert grant.narrow(["fs.read:/a/**"]).layers == grant.layers
    assert grant.narrow(["fs.read", "db.read"]).layers == grant.layers
    assert grant.narrow(["fs.read:/a/b/*"]).layers == Grant(["fs.read:/a/b/*"]).layers
    assert len(grant.narrow(["fs.read:/**/x"]).layers) == 2
    many = [f"fs.read:/{n}/**" for n in range(20)]
    assert Grant(many).narrow(many).layers == Grant(many).layers


def test_the_cache_is_bounded_and_fast():
    """Repeated questions cost a dictionary look-up; many different ones do not fill memory."""
    grant = Grant(["fs.read:/project/**"])
    for number in range(GRANT_CACHE_MAX * 2):
        grant.allows(f"fs.read:/project/{number}")
    assert len(grant._cache) <= GRANT_CACHE_MAX
    long = "fs.read:/project/" + "x" * RULE_LENGTH_MAX
    assert grant.allows(long)
    assert long not in grant._cache
    cap = Capability.parse("fs.read:/project/x")
    each_us = min(timeit.repeat(lambda: grant.allows(cap), number=10_000, repeat=5)) * 100
    assert each_us < 5.0  # measured 0.15; the bound only catches a lost cache


@pytest.mark.timed
def test_hostile_requests_are_decided_quickly():
    """Long chains, many stars and long paths take no second."""
    grant = Grant(
        ["fs.read:/**/a*b*/**/c?d*", "process.exec:git *", "process.exec:* --x *"],
        ["fs.read:/**/*secret*/**", "process.exec:* rm *", "process.exec:rm"],
    )
    started = time.process_time()
    for asked in (
        "fs.read:/" + "a/" * 20_000,
        "fs.read:/" + "*a" * 500,
        "process.exec:" + "git;" * 15_000,
        "process.exec:git " + "*" * 1_000,
        "process.exec:git " + "x " * 30_000,
        "fs.read:/" + "secre" * 10_000,
    ):
        grant.allows(asked)
    within(time.process_time() - started, 3.0)
