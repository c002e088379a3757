"""The long tests from the command line: `python -m verify sim --n 10000 --seed 1`.

Each command prints its progress on stderr and its figures on stdout. The last line says what ran, how many times, from
which seed, and how many failures there were (`sim: 10000 seeds from 1, 0 failures`). Each failure is printed before
that line, with the command that repeats it. The exit code is 1 if there was a failure. `sage-tasks` has tasks in place
of seeds. `structure` measures the source tree, `screenshots` takes pictures of sage, `reference` writes pages of the
reference, and `surface` lists what has no test instead; they never fail.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from verify.home import use_own_home

__all__ = ["main"]

_SHOWN_MAX: Final = 20
_INPUTS_A_KERNEL: Final = 100  # a kernel that is opened twice takes as long as so many inputs of a reader
_INPUTS_AN_RPC: Final = 350  # of the fuzz, for each message to every RPC


def _sim(options: argparse.Namespace) -> int:
    from verify.simulation.sim import run_many, run_seed

    seeds = range(options.seed, options.seed + options.n)
    verbose_reports = (run_seed(seed, verbose=True) for seed in seeds)
    reports = verbose_reports if options.verbose else run_many(seeds, jobs=options.jobs)
    failed = rows = lives = acts = 0
    for done, report in enumerate(reports, start=1):
        rows, lives, acts = rows + report.rows, lives + report.lives, acts + report.acts
        if report.violations:
            failed += 1
            if failed <= _SHOWN_MAX:
                for name, detail in report.violations:
                    print(f"seed {report.seed}: {name}: {detail}")
                print(f"  again: python -m verify sim --seed {report.seed} --n 1 --verbose")
        _progress(done, options.n)
    print(f"sim: {rows} journal rows, {lives} kernel lives, {acts} acts")
    return _verdict(f"sim: {options.n} seeds from {options.seed}", failed)


def _scale(options: argparse.Namespace) -> int:
    from verify.simulation import scale

    result = scale.run(options.n, options.n * 10_000, seed=options.seed)
    print(f"scale: {result.hosts} hosts, {result.shards} shards, {result.processes} processes")
    for row in result.figures:
        print(
            f"  {row.event}: {row.shards_moved} shards moved, {row.most_moves_of_a_shard} times at most, settled after"
            f" {row.seconds} s, closed for {row.most_without_owner_s} s at most, {row.rows_read_a_second:.0f} rows a"
            f" second, {row.plans_a_host} plans a host"
        )
    _show(result.faults, f"python -m verify scale --seed {options.seed} --n {options.n}")
    return _verdict(f"scale: {options.n} hosts from seed {options.seed}", len(result.faults))


def _cluster(options: argparse.Namespace) -> int:
    from verify.simulation.cluster.sim import run_many, run_seed

    seeds = range(options.seed, options.seed + options.n)
    verbose_reports = (run_seed(seed, verbose=True) for seed in seeds)
    failed = rows = hosts = acts = posts = calls = lost = repeated = 0
    troubles: dict[str, int] = {}
    shared: dict[str, int] = {}
    reports = verbose_reports if options.verbose else run_many(seeds, jobs=options.jobs)
    for done, report in enumerate(reports, start=1):
        rows, hosts, acts, posts = rows + report.rows, hosts + report.hosts, acts + report.acts, posts + report.posts
        calls, lost, repeated = calls + report.calls, lost + report.lost, repeated + report.repeated
        for total, counts in ((troubles, report.troubles), (shared, report.shared)):
            for word, count in counts.items():
                total[word] = total.get(word, 0) + count
        if report.violations:
            failed += 1
            if failed <= _SHOWN_MAX:
                for name, detail in report.violations:
                    print(f"seed {report.seed}: {name}: {detail}")
                print(f"  again: python -m verify sim-cluster --seed {report.seed} --n 1 --verbose")
        _progress(done, options.n)
    print(f"sim-cluster: {hosts} starts of hosts, {rows} journal rows, {acts} acts, {posts} posts")
    print(f"sim-cluster: {calls} calls, {lost} lost and {repeated} repeated; {_count_words(troubles)}")
    print(f"sim-cluster: {_count_words(shared)}")
    return _verdict(f"sim-cluster: {options.n} seeds from {options.seed}", failed)


def _count_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))


def _partitions(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from verify.partitions.namespaces import partitions_missing
    from verify.partitions.run import run

    missing = partitions_missing()
    if missing is not None:
        print(f"partitions: skipped: {missing}")
        return 0
    with TemporaryDirectory() as folder:
        outcome = run(Path(folder), seed=options.seed, troubles=options.n)
    _show(outcome.failures, f"python -m verify partitions --seed {options.seed} --n {options.n}")
    print(
        f"partitions: {len(outcome.questions)} questions, {len(outcome.messages)} messages, {outcome.unknown} unknown;"
        f" {len(outcome.fired)} firings, {outcome.payments} payments, {outcome.doubts} in doubt"
    )
    print(f"partitions: {'; '.join(outcome.troubles)}")
    return _verdict(f"partitions: {options.n} troubles from seed {options.seed}", len(outcome.failures))


def _crash(options: argparse.Namespace) -> int:
    from verify.crash import crash
    from verify.crash import pipeline as crash_pipeline
    from verify.crash import tree as crash_tree

    points = crash.point_kills(progress=_progress)
    result = crash.random_kills(options.n, options.seed, progress=_progress)
    trees = crash_tree.run(max(10, options.n // 10), options.seed)
    stages = crash_pipeline.point_kills()
    flows = crash_pipeline.run(max(10, options.n // 2), options.seed)
    failures = [*points.failures, *result.failures, *trees.failures, *stages.failures, *flows.failures]
    _show(failures, f"python -m verify crash --seed {options.seed} --n {options.n}")
    slowest = max(points.open_s_max, result.open_s_max)
    print(f"crash: {points.kills} kills at named points, {result.workloads} workloads, slowest opening {slowest:.3f} s")
    print(f"crash: {trees.kills} kills of supervised trees, {trees.lives} lives, {trees.acts} acts")
    print(
        f"crash: {flows.kills} kills of pipelines that wait for an answer, {flows.lives} lives, {flows.acts} acts; "
        f"{stages.kills} at named points of theirs"
    )
    return _verdict(f"crash: {result.kills} kills from seed {options.seed}", len(failures))


def _damage(options: argparse.Namespace) -> int:
    from verify.fuzz import damage

    failures: list[str] = []
    counts: dict[str, int] = {}
    try:
        counts = dict(damage.run(options.n, options.seed))
    except AssertionError as error:
        failures.append(str(error))
    _show(failures, f"python -m verify damage --seed {options.seed} --n {options.n}")
    print("damage: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return _verdict(f"damage: {options.n} damaged stores from seed {options.seed}", len(failures))


def _security(options: argparse.Namespace) -> int:
    from verify.attacks import (
        command_rules,
        egress,
        keys,
        leaving_data,
        mcp_text,
        obeyed,
        project_files,
        stores,
        swaps,
        terminal_text,
    )
    from verify.attacks.injection import attacks, benign, run
    from verify.attacks.sage import exposed_keys, injected_commands, paths, screens
    from verify.attacks.server import exposed_secrets, gateway_secrets, hostile_clients

    again = f"python -m verify security --seed {options.seed} --n {options.n}"
    swapped = swaps.run(options.n, options.seed)
    _show(swapped.failures, again)
    print(f"security: {swapped.opened} paths opened inside, {swapped.refused} escapes refused, {swapped.swaps} swaps")
    written = obeyed.run()
    _show(written.failures, again)
    print(f"security: {written.attempts} attempts on what programs obey, {len(written.failures)} failures")
    injected = run(attacks(options.attacks, options.seed), _progress)
    failures = [*injected.failures, *(f"{attack}: it never reached the model" for attack in injected.unheard)]
    _show(failures, again)
    print(f"security: {injected.attacks} injection attacks, {injected.tries} calls tried, {len(failures)} failures")
    theirs = project_files.run()
    _show(theirs.failures, again)
    print(
        f"security: {theirs.attempts} attempts of repositories by their own files, {len(theirs.failures)} failures; "
        f"{theirs.agreed} take effect once they are trusted"
    )
    sent = egress.run()
    _show(sent.failures, again)
    print(
        f"security: {sent.attempts} commands for hosts that no rule names, in {' and '.join(sent.tiers)}, "
        f"{len(sent.failures)} failures"
    )
    tasks = benign.run()
    _show(tasks.failures, again)
    print(f"security: {tasks.tasks} harmless tasks, {tasks.questions} questions, {len(tasks.failures)} failures")
    edited = stores.run()
    _show(edited.failures, again)
    print(
        f"security: {edited.tried} changes of store files, {edited.refused} refused, "
        f"{edited.without_effect} without effect, {len(edited.failures)} failures"
    )
    suites = (swapped, written, theirs, sent, tasks, edited)
    failure_count = len(failures) + sum(len(suite.failures) for suite in suites)
    for what, suite in (
        ("with a known key", keys),
        ("to send data out", leaving_data),
        ("on command rules", command_rules),
        ("of an MCP server", mcp_text),
        ("to act on the terminal by text", terminal_text),
        ("to run commands through Sage", injected_commands),
        ("to leave the project through Sage", paths),
        ("to have Sage keep or show a key", exposed_keys),
        ("to act on the screens of Sage", screens),
        ("to have the server show a secret", exposed_secrets),
        ("to have the gateway show a key", gateway_secrets),
        ("of hostile clients on the server", hostile_clients),
    ):
        tried = suite.run()
        _show(tried.effects, again)
        print(f"security: {tried.attempts} attempts {what}, {len(tried.effects)} effects")
        failure_count += len(tried.effects)
    return _verdict(f"security: {options.n} symlink races from seed {options.seed}", failure_count)


def _races(options: argparse.Namespace) -> int:
    from verify.load import races

    result = races.run(options.n, options.seed)
    _show(result.failures, f"python -m verify races --seed {options.seed} --n {options.n}")
    return _verdict(f"races: {options.n} schedules from seed {options.seed}", len(result.failures))


def _otp(options: argparse.Namespace) -> int:
    from verify.compare import otp

    missing = otp.erlang_missing()
    if missing:
        print(missing)
        return 1
    differences = otp.compare(options.n, options.seed, progress=_progress)
    _show(
        [str(difference) for difference in differences], f"python -m verify otp --seed {options.seed} --n {options.n}"
    )
    return _verdict(f"otp: {options.n} traces from seed {options.seed}", len(differences))


def _soak(options: argparse.Namespace) -> int:
    from verify.load import soak

    result = soak.run(options.n, options.seconds, options.seed)
    _show(result.failures, f"python -m verify soak --seed {options.seed} --n {options.n}")
    print(
        f"soak: {result.seconds:g} s, {result.crashes} crashes, {result.restarts} restarts, {result.effects} effects, "
        f"{result.memory_mb:.0f} MB, {result.growth_mb_a_minute:+.2f} MB/min, loop lag p99 {result.lag_p99_ms:.1f} ms"
    )
    return _verdict(f"soak: {options.n} processes from seed {options.seed}", len(result.failures))


def _cluster_soak(options: argparse.Namespace) -> int:
    from verify.cluster import soak
    from verify.servers import postgres_missing

    missing = postgres_missing()
    if missing:
        print(missing)
        return 1
    result = soak.run(options.seconds, options.seconds / max(1, options.n), options.seed)
    _show(result.failures, f"python -m verify cluster-soak --seed {options.seed} --n {options.n}")
    print(
        f"cluster-soak: {result.seconds:g} s, {result.shoppers} programs, {result.repeated} charges repeated"
        f" under their keys, a killed host's shards open again after {result.slowest_s:.1f} s at most"
    )
    return _verdict(f"cluster-soak: {result.kills} kills from seed {options.seed}", len(result.failures))


def _ended(options: argparse.Namespace) -> int:
    from verify.load import ended

    result = ended.run(options.n, progress=_progress)
    _show(result.failures, f"python -m verify ended --n {options.n}")
    print(
        f"ended: {result.seconds:.0f} s, longest step of the loop {result.longest_step_ms:.1f} ms of processor time, "
        f"{result.memory_mb:.0f} MB at the start, {result.growth_mb:+.1f} MB at the end, "
        f"opened again in {result.reopened_s:.2f} s"
    )
    return _verdict(f"ended: {options.n} processes", len(result.failures))


def _recovery(options: argparse.Namespace) -> int:
    from verify.load.recovery_time import RECOVERY_S_MAX, recovery

    times = recovery(events=options.n)
    print(
        f"recovery: {times.events} events, {times.processes} live processes: open in {times.opened_s:.2f} s "
        f"(at most {RECOVERY_S_MAX:g}), all replayed in {times.replayed_s:.2f} s"
    )
    return _verdict("recovery: 1 opening", 0 if times.ok else 1)


def _vega_faults(options: argparse.Namespace) -> int:
    from verify.compare import vega_faults

    result = vega_faults.run(options.n, options.seed, progress=_progress)
    _show(result.failures, f"python -m verify vega-faults --seed {options.seed} --n {options.n}")
    print(f"vega-faults: {result.calls} model calls; scenes: {', '.join(vega_faults.SCENES)}")
    return _verdict(f"vega-faults: {result.seeds} seeds from {options.seed}", len(result.failures))


def _vega_tiers(options: argparse.Namespace) -> int:
    from verify.compare import vega_tiers

    result = vega_tiers.run(options.n, options.seed, progress=_progress)
    _show(result.failures, f"python -m verify vega-tiers --seed {options.seed} --n {options.n}")
    print(
        f"vega-tiers: {result.programs} programs, {result.calls} calls: {result.taken} made by generated code, "
        f"{result.given_up} given up, {result.unfit} of functions that are not pure; {result.native} as machine code"
    )
    return _verdict(f"vega-tiers: {result.functions} functions from seed {options.seed}", len(result.failures))


def _vesper_nodes(options: argparse.Namespace) -> int:
    from verify.compare import vesper_nodes

    comparisons = []
    for row in vesper_nodes.run(options.n, options.seed, with_tests=options.all):
        comparisons.append(row)
        print(
            f"vesper-nodes: {row.node}: {row.compared} compared, {row.accepted} accepted, {row.successes} succeeded, "
            f"{row.divergences} divergences, {row.cpu_s:.1f} s of CPU time, {row.per_second:.0f} accepted a second",
            flush=True,
        )
    failures = [f"{row.node}: {row.problem}" for row in comparisons if row.problem]
    compared, accepted = sum(row.compared for row in comparisons), sum(row.accepted for row in comparisons)
    cpu_s = sum(row.cpu_s for row in comparisons)
    print(f"vesper-nodes: {compared} compared in all, {accepted} accepted, {cpu_s:.0f} s of CPU time")
    _show(failures, f"python -m verify vesper-nodes --seed {options.seed} --n {options.n}")
    return _verdict(
        f"vesper-nodes: {len(comparisons)} nodes, {options.n} accepted inputs each, seed {options.seed}", len(failures)
    )


def _parallel_python(options: argparse.Namespace) -> int:
    from verify.compare import python_parallel

    failures: list[str] = []
    for done, seed in enumerate(range(options.seed, options.seed + options.n), start=1):
        failures += [f"seed {seed}: {difference}" for difference in python_parallel.check(seed)]
        _progress(done, options.n)
    _show(failures, "python -m verify parallel-python --seed SEED --n 1")
    return _verdict(f"parallel-python: {options.n} functions from seed {options.seed}", len(failures))


def _vega_crash(options: argparse.Namespace) -> int:
    from verify.crash import vega as vega_crash

    result = vega_crash.run(options.n, options.seed, progress=_progress)
    _show(result.failures, f"python -m verify vega-crash --seed {options.seed} --n {options.n}")
    print(
        f"vega-crash: {result.runs} runs, {result.calls} model calls, {result.again} made again under their key; "
        f"scenes: {', '.join(vega_crash.SCENES)}"
    )
    return _verdict(f"vega-crash: {result.kills} kills from seed {options.seed}", len(result.failures))


def _server_crash(options: argparse.Namespace) -> int:
    from verify.crash import server
    from verify.servers import postgres_missing

    missing = postgres_missing()
    if missing:
        print(missing)
        return 1
    failures: list[str] = []
    kills = 0
    for store in server.STORES:
        count = max(1, options.n // len(server.STORES))
        result = server.run(count, options.seed, store=store, clients=options.clients, progress=_progress)
        failures += [f"{store}: {failure}" for failure in result.failures]
        kills += result.kills
        print(
            f"server-crash: {store}: {result.kills} kills, {result.acknowledged} answers, {result.units} units, "
            f"{result.acts} acts, {result.doubts} in doubt, slowest start {result.start_s_max:.1f} s of CPU"
        )
    _show(failures, f"python -m verify server-crash --seed {options.seed} --n {options.n}")
    return _verdict(f"server-crash: {kills} kills from seed {options.seed}", len(failures))


def _gateway_crash(options: argparse.Namespace) -> int:
    from verify.crash import gateway
    from verify.crash.gateway import overrun
    from verify.servers import postgres_missing

    missing = postgres_missing()
    if missing:
        print(missing)
        return 1
    rounds = max(1, options.n // 10)
    attacked = overrun.run(rounds, options.seed, progress=_progress)
    failures = [f"overrun: {failure}" for failure in attacked.failures]
    print(
        f"gateway-crash: {attacked.rounds} budgets attacked by {attacked.streams} streams, {attacked.answered} "
        f"answered, {attacked.over_budget} refused, {attacked.revoked} keys revoked meanwhile, {len(failures)} failures"
    )
    kills = 0
    for store in gateway.STORES:
        result = gateway.run(max(1, options.n // len(gateway.STORES)), options.seed, store=store, progress=_progress)
        failures += [f"{store}: {failure}" for failure in result.failures]
        kills += result.kills
        print(
            f"gateway-crash: {store}: {result.kills} kills, {result.calls} calls, {result.answered} answered, "
            f"{result.in_doubt} in doubt, {result.over_budget} refused over budget, {result.revoked} keys revoked"
        )
    _show(failures, f"python -m verify gateway-crash --seed {options.seed} --n {options.n}")
    return _verdict(f"gateway-crash: {kills} kills from seed {options.seed}", len(failures))


def _fuzz(options: argparse.Namespace) -> int:
    from verify.fuzz import fuzz, grpc_fuzz, kernel_calls

    result = fuzz.run(options.n, options.seed, progress=_progress)
    calls = kernel_calls.run(max(1, options.n // _INPUTS_A_KERNEL), options.seed)
    rpcs = grpc_fuzz.run(max(1, options.n // _INPUTS_AN_RPC), options.seed)
    failures = [*result.failures, *calls.failures, *rpcs.failures]
    _show(failures, f"python -m verify fuzz --seed {options.seed} --n {options.n}")
    print(
        f"fuzz: {result.refused} refused, slowest {1000 * result.slowest_s:.0f} ms, memory {result.grown_mb:+.0f} MB; "
        f"targets: {', '.join(fuzz.TARGETS)}"
    )
    print(f"fuzz: {calls.calls} calls of {calls.methods} methods in {calls.worlds} kernels, {calls.refused} refused")
    codes = ", ".join(f"{count} {code}" for code, count in rpcs.codes.most_common())
    print(f"fuzz: {rpcs.calls} gRPC calls of {rpcs.methods} RPCs: {codes}")
    return _verdict(f"fuzz: {result.inputs} inputs from seed {options.seed}", len(failures))


def _vega_edits(options: argparse.Namespace) -> int:
    from verify.crash.vega import edits

    result = edits.run(options.n, options.seed, progress=_progress)
    _show(result.failures, f"python -m verify vega-edits --seed {options.seed} --n {options.n}")
    print(
        f"vega-edits: {result.kills} kills, {result.accepted} edits accepted, {result.refused} refused, "
        f"{result.again} calls made again under their key"
    )
    return _verdict(f"vega-edits: {result.runs} programs from seed {options.seed}", len(result.failures))


def _vega_parallel(options: argparse.Namespace) -> int:
    from verify.compare.vega_parallel import compare_many

    failed = quicker = 0
    sequential_s = parallel_s = 0.0
    seeds = range(options.seed, options.seed + options.n)
    for done, comparison in enumerate(compare_many(seeds, jobs=options.jobs), start=1):
        quicker += comparison.parallel_s < comparison.sequential_s
        sequential_s, parallel_s = sequential_s + comparison.sequential_s, parallel_s + comparison.parallel_s
        if comparison.problems:
            failed += 1
            if failed <= _SHOWN_MAX:
                print(*(f"seed {comparison.seed}: {problem}" for problem in comparison.problems), sep="\n")
                print(f"  again: python -m verify vega-parallel --seed {comparison.seed} --n 1")
        _progress(done, options.n)
    print(f"vega-parallel: {quicker} quicker, {sequential_s:.0f} s line by line, {parallel_s:.0f} s with overlap")
    return _verdict(f"vega-parallel: {options.n} programs from seed {options.seed}", failed)


def _sage_tasks(options: argparse.Namespace) -> int:
    from verify.tasks.harness import run_tasks
    from verify.tasks.task import load_tasks

    tasks = load_tasks()
    unknown = set(options.only) - {task.name for task in tasks}
    if unknown:
        print(f"sage-tasks: there is no task {', '.join(sorted(unknown))}; there are", *(task.name for task in tasks))
        return 1
    chosen = [task for task in tasks if not options.only or task.name in options.only]
    outcomes = run_tasks(chosen, jobs=options.jobs, model=options.model, budget_usd=f"{options.budget:g}")
    failed, cost_usd = 0, 0.0
    again = f"python -m verify sage-tasks{f' --model {options.model}' if options.model else ''} --only"
    for done, outcome in enumerate(outcomes, start=1):
        failed += bool(outcome.problems)
        cost_usd += outcome.cost_usd
        _show([f"{outcome.name}: {problem}" for problem in outcome.problems], f"{again} {outcome.name}")
        if options.model and not outcome.problems:
            print(f"{outcome.name}: solved, {outcome.turns} turns, ${outcome.cost_usd:.4f}", flush=True)
        _progress(done, len(chosen))
    if options.model:
        print(f"sage-tasks: {len(chosen) - failed} of {len(chosen)} solved by {options.model}, ${cost_usd:.4f}")
    return _verdict(f"sage-tasks: {len(chosen)} tasks", failed)


def _structure(options: argparse.Namespace) -> int:
    from verify.structure import figures, picture
    from verify.structure.source_tree import SourceTree

    if options.svg:
        print(picture.write())
    else:
        print(*figures.report(figures.measure(SourceTree()), details=options.details), sep="\n")
    return 0


def _screenshots(options: argparse.Namespace) -> int:
    from verify.screenshots import scenes, web_pages

    print(*(web_pages.write(options.names) if options.web else scenes.write()), sep="\n")
    return 0


def _reference(options: argparse.Namespace) -> int:
    from verify.reference.pages import write

    print(*write(options.folder), sep="\n")
    return 0


def _surface(options: argparse.Namespace) -> int:
    from verify.surface import page

    failed = _try_surface(options) if options.uses or options.again else 0
    surface = page.read()
    print(page.write(surface))
    without = surface.without()
    print(*(entry.id for entry in without), *surface.faults(), sep="\n")
    print(f"surface: {len(surface.entries)} entries, {len(without)} without a test that shows them")
    return 1 if failed else 0


def _try_surface(options: argparse.Namespace) -> int:
    """Switch entries off, one after the other; how many that were shown are no longer."""
    from verify.recorder import read_uses
    from verify.surface import page, trials
    from verify.surface.entries import entries
    from verify.surface.taps import has_tap

    known = trials.shown()
    uses = read_uses(Path(options.uses)) if options.uses else {}
    judged = [entry for entry in entries() if entry.id in known] if options.again else page.read().without()
    chosen = [entry for entry in judged if has_tap(entry)]
    chosen = trials.part_of(chosen, options.n) if options.n else chosen
    lost = []
    for done, outcome in enumerate(trials.try_all(chosen, uses, jobs=options.jobs, progress=_progress)):
        if done % 100 == 99:
            trials.write_shown(known)
        if not outcome.test:
            lost += [outcome.entry] if options.again else []
            known.pop(outcome.entry, None)
        else:
            known[outcome.entry] = outcome.test
    trials.write_shown(known)
    print(*(f"{entry}: no test fails without it any more" for entry in lost), sep="\n")
    return len(lost)


def _mutants(options: argparse.Namespace) -> int:
    from verify.mutants import trial
    from verify.mutants.sample import sample
    from verify.recorder import read_uses

    uses = read_uses(Path(options.uses))
    equal = trial.equivalent()
    chosen = [mutation for mutation in sample(skip=options.skip) if mutation.key[:12] not in equal][: options.n]
    survivors = []
    for done, outcome in enumerate(trial.try_all(chosen, uses, jobs=options.jobs), start=1):
        if not outcome.killed_by:
            survivors.append(outcome)
            print(f"survives {outcome.tests} tests: {outcome.mutation} [{outcome.mutation.key[:12]}]", flush=True)
        _progress(done, len(chosen))
    killed = len(chosen) - len(survivors)
    print(
        f"mutants: {killed} of {len(chosen)} killed, {100 * killed / max(1, len(chosen)):.1f} %; {len(equal)} left out"
    )
    return 0 if killed >= 0.95 * len(chosen) else 1


class _LongTest(NamedTuple):
    run: Callable[[argparse.Namespace], int]
    repeats: int  # how many of what it repeats, by default
    unit: str  # what it repeats
    help: str


_LONG_TESTS: Final[dict[str, _LongTest]] = {
    "sim": _LongTest(_sim, 10_000, "worlds", "run seeded worlds in virtual time, with faults, crashes and take-overs"),
    "sim-cluster": _LongTest(
        _cluster, 1_000, "worlds", "run seeded clusters in virtual time: partitions, pauses, crashes, take-overs"
    ),
    "partitions": _LongTest(
        _partitions, 20, "troubles", "part real hosts in network namespaces, kill and freeze them, and check histories"
    ),
    "crash": _LongTest(_crash, 1_000, "kills", "kill real processes with SIGKILL and resume their stores"),
    "damage": _LongTest(_damage, 5_000, "stores", "damage store files and open them again"),
    "races": _LongTest(_races, 10_000, "schedules", "let many processes spend from nested budgets and rate limits"),
    "security": _LongTest(
        _security,
        10_000,
        "races",
        "attack: symlink races, prompt injection, files of repositories, egress; and harmless tasks",
    ),
    "otp": _LongTest(_otp, 1_000, "traces", "compare supervisors with Erlang's on random traces"),
    "soak": _LongTest(_soak, 10_000, "processes", "run supervised processes for minutes; memory must not grow"),
    "cluster-soak": _LongTest(
        _cluster_soak, 30, "kills", "kill hosts of a cluster for minutes; nothing is lost or twice, money is exact"
    ),
    "scale": _LongTest(
        _scale, 1_000, "hosts", "play a large cluster in virtual time: deaths, joins, drains; bounds hold"
    ),
    "ended": _LongTest(
        _ended, 1_000_000, "processes", "end processes by the million; no step of the loop and no memory may grow"
    ),
    "fuzz": _LongTest(_fuzz, 700_000, "inputs", "give bad input to every reader; only a LyraError may come of it"),
    "recovery": _LongTest(_recovery, 100_000, "events", "measure the time to open a large journal"),
    "parallel-python": _LongTest(
        _parallel_python, 5_000, "functions", "compare random functions with and without @lyra.parallel"
    ),
    "vega-parallel": _LongTest(
        _vega_parallel, 5_000, "programs", "compare random Vega programs with and without overlapping calls"
    ),
    "vega-tiers": _LongTest(
        _vega_tiers, 100_000, "functions", "compare pure Vega functions interpreted and as generated code"
    ),
    "vesper-nodes": _LongTest(
        _vesper_nodes, 110_000, "inputs", "compare the two paths of each example node on inputs that it accepts"
    ),
    "vega-faults": _LongTest(
        _vega_faults, 1_000, "seeds", "run Vega programs on a model that crashes, refuses and hangs"
    ),
    "vega-crash": _LongTest(_vega_crash, 1_000, "kills", "kill `vega run` with SIGKILL and go on with `vega resume`"),
    "server-crash": _LongTest(
        _server_crash, 200, "kills", "kill `lyra serve` with SIGKILL under load, on SQLite and PostgreSQL"
    ),
    "gateway-crash": _LongTest(
        _gateway_crash, 100, "kills", "attack budgets of the gateway, and kill it with SIGKILL in the middle of calls"
    ),
    "vega-edits": _LongTest(_vega_edits, 100, "programs", "the same, with random edits of the program in between"),
}


def _verdict(what: str, failures: int) -> int:
    print(f"{what}, {failures} failures")
    return 1 if failures else 0


def _show(failures: list[str], again: str) -> None:
    for failure in failures[:_SHOWN_MAX]:
        print(failure)
    if failures:
        print(f"  again: {again}")


def _progress(done: int, of: int) -> None:
    if done == of or done % max(1, of // 20) == 0:
        print(f"  {done} of {of}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verify",
        description="Lyra's long tests, and the figures of its source tree.",
        epilog="Each test repeats from a seed; a failure is printed with the command that repeats it.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, test in _LONG_TESTS.items():
        command = commands.add_parser(name, help=test.help, description=f"{test.help[0].upper()}{test.help[1:]}.")
        command.set_defaults(run=test.run)
        command.add_argument("--n", type=int, default=test.repeats, help=f"how many {test.unit} ({test.repeats})")
        command.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
        if name == "security":
            command.add_argument("--attacks", type=int, help="injection attacks (default: each goal by each way in)")
        if name == "server-crash":
            command.add_argument("--clients", type=int, default=1, help="clients of each kind (1)")
        if name == "vesper-nodes":
            command.add_argument("--all", action="store_true", help="also the nodes of tests and how-to guides")
        if name in ("soak", "cluster-soak"):
            command.add_argument("--seconds", type=float, default=600.0, help="how long (default 600)")
        if name in ("sim", "sim-cluster", "vega-parallel"):
            jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            command.add_argument("--jobs", type=int, default=jobs, help=f"processes to use (default {jobs})")
        if name in ("sim", "sim-cluster"):
            command.add_argument("--verbose", action="store_true", help="print what happens in each world")

    def add(name: str, run: Callable[[argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what, description=f"{what.capitalize()}.")
        command.set_defaults(run=run)
        return command

    tasks = add(
        "sage-tasks", _sage_tasks, "solve tasks in small repositories with `sage -p`: by a script, or with a model"
    )
    tasks.add_argument("--model", metavar="PROVIDER/MODEL", default="", help="a real model; it costs money")
    tasks.add_argument("--only", metavar="NAME", action="append", default=[], help="this task; may be repeated")
    tasks.add_argument("--budget", metavar="USD", type=float, default=0.5, help="dollars for each task (0.50)")
    tasks.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    structure = add("structure", _structure, "measure the source tree: files, circles, layers, names")
    structure.add_argument("--details", action="store_true", help="list what each figure counts")
    structure.add_argument("--svg", action="store_true", help="draw docs/images/architecture.svg anew")
    screenshots = add("screenshots", _screenshots, "write docs/images/sage-*.svg anew: sessions of sage in a terminal")
    screenshots.add_argument("--web", action="store_true", help="write docs/images/web-*.png instead: the dashboard")
    screenshots.add_argument("names", nargs="*", help="with --web: only these, such as web-inbox")
    reference = add("reference", _reference, "write the generated pages of docs/reference anew")
    reference.add_argument("folder", nargs="?", default=os.path.join("docs", "reference"), help="(docs/reference)")
    surface = add("surface", _surface, "write build/surface.md, and list what has no test")
    surface.add_argument("--uses", metavar="FOLDER", help="try the entries without a test, with tests that use them")
    surface.add_argument("--again", action="store_true", help="try the entries that have a test again")
    surface.add_argument("--n", type=int, default=0, help="how many of them (all)")
    surface.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    mutants = add("mutants", _mutants, "change one small thing in the source at a time, and look whether a test fails")
    mutants.add_argument("--uses", metavar="FOLDER", required=True, help="what a run with verify.recorder wrote")
    mutants.add_argument("--n", type=int, default=200, help="how many changes (200)")
    mutants.add_argument("--skip", type=int, default=0, help="leave out the first so many: another sample (0)")
    mutants.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options: Any = _parser().parse_args(arguments)
    use_own_home()
    exit_code: int = options.run(options)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
