"""Which tests are slow by their nature (servers, sandboxes, whole programs by the dozen), long, or take the time.

`long` tests try the same promise once more, at length: all kills, all files, all modes, checkers of other makers.
`make verify` runs them; of each suite that is listed here `make test` keeps the quick part. Of a slow test with several
parameters it keeps as many combinations as have every value of each.

`timed` tests run alone, after the others, and a limit that is missed (`tests.limits`) is measured again: whatever else
a machine does only ever adds to a time, so that one within its limit is shown, and one beyond it only when it always
is. No other failure is tried again.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings, strategies
from hypothesis.internal import constants_ast
from hypothesis.internal.conjecture import providers

from tests import warm
from tests.cases import cases
from tests.limits import LimitMissed
from verify.home import use_own_home
from verify.served import ServedProcess

_HERE = Path(__file__).parent

use_own_home()
ServedProcess.start_lyra = staticmethod(warm.start_lyra)

pytest_plugins = [
    "tests.memory_folders",
    "tests.own_stores",
    "tests.forked",
    "tests.endless",
    "tests.log_handlers",
    "tests.real_models",
    "tests.shared_certificates",
]

# A shell that starts the tests in the background ignores these signals, and so would the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Reading the tests makes objects that stay: a garbage collection would go through them again and again for nothing.
gc.disable()

_MEASURED = 3  # times, at most

# How long an example takes beside other tests says nothing; what takes the time is marked so.
settings.register_profile("lyra", deadline=None, max_examples=cases(100))
settings.load_profile("lyra")

# It would look for constants to try in every module of Lyra, for twelve seconds in each worker, and what a test tries
# would depend on the modules that the tests before it imported.
providers._get_local_constants = constants_ast.Constants

# Files and folders below tests/; `make check` leaves them out, `make test` runs them all.
_SLOW = (
    "a2a/",
    "agents/",
    "browser/",
    "cli/",
    "kept_stores/",
    "kernel/effects/test_cut_off.py",
    "kernel/effects/test_keys.py",
    "kernel/journal/test_hostile_rows.py",
    "kernel/journal/test_postgres_kernel.py",
    "kernel/programs/test_fixed_names.py",
    "kernel/services/test_registry.py",
    "kernel/supervision/test_supervisor.py",
    "kernel/workers/test_lifecycle.py",
    "kernel/workers/test_usage.py",
    "language/",
    "mcp/",
    "models/",
    "observe/otel/test_environment.py",
    "sage/acp/",
    "sage/agent/",
    "sage/extensions/hooks/test_effects.py",
    "sage/extensions/hooks/test_hook_command.py",
    "sage/extensions/test_custom_commands.py",
    "sage/project/diagnostics/",
    "sage/project/repo_map/",
    "sage/project/test_rules.py",
    "sage/sdk/",
    "sage/session/",
    "sage/terminal/test_interactive.py",
    "sage/terminal/test_pickers.py",
    "sage/terminal/test_question_desk.py",
    "sage/terminal/test_real_models.py",
    "sage/terminal/test_rules_chosen.py",
    "sage/terminal/test_settings.py",
    "sage/terminal/test_terminals.py",
    "sage/terminal/test_unstopped.py",
    "sage/terminal/text/test_random_text.py",
    "sandbox/",
    "server/gateway/",
    "server/grpc/test_serve_process.py",
    "server/http/test_face.py",
    "server/http/test_openapi_requests.py",
    "server/protocols/agui/",
    "server/test_telemetry.py",
    "server/work/",
    "store/test_conformance.py",
    "store/test_model.py",
    "store/test_postgres.py",
    "test_agent_examples.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_examples.py",
    "test_forked.py",
    "test_limits.py",
    "test_public_names.py",
    "test_skips.py",
    "test_surface.py",
    "test_work_budgets.py",
    "testing/",
    "tools/builtin/",
    "tools/permissions/test_bash.py",
    "tools/permissions/test_fuzz.py",
    "type_checkers/",
    "vega/",
    "verify/",
    "vesper/check/test_bounds.py",
    "vesper/effects/test_database_rights.py",
    "vesper/effects/test_transactions.py",
    "vesper/evidence/",
    "vesper/expressions/test_parser.py",
    "vesper/format/test_formatter.py",
    "vesper/language/",
    "vesper/lsp/test_fuzz.py",
    "vesper/lsp/test_schema.py",
    "vesper/lsp/test_server.py",
    "vesper/prove/test_functions.py",
    "vesper/prove/test_prove.py",
    "vesper/python/test_generated_files.py",
    "vesper/python/test_random_programs.py",
    "vesper/reference/test_random_programs.py",
    "vesper/repository/",
    "vesper/runtime/",
    "vesper/sql/test_against_sqlite.py",
    "vesper/test_charges.py",
)
_QUICK = (
    "agents/session/test_execution.py",
    "agents/test_teams.py",
    "agents/declaration/test_input.py",
    "models/wire/test_faults.py",
    "models/wire/test_sse.py",
    "models/test_names.py",
    "models/test_pricing.py",
    "models/test_script.py",
    "models/test_sim.py",
    "models/test_tokens.py",
    "vega/checker/",
    "vega/syntax/test_lexer.py",
    "vega/syntax/test_parser.py",
    "vega/values/test_values.py",
    "vega/machine/test_vm.py",
)
# Left to `make verify`, by how their ids begin below tests/; they are slow too. A single case is marked in its test.
LONG = (
    "browser/",
    *(f"cli/demo/test_demo.py::test_other_seeds[{seed}]" for seed in range(3, 8)),
    "kernel/effects/test_keys.py::test_a_restored_backup_reuses_no_key[stopped]",
    "kernel/journal/test_paused_owner.py::test_a_paused_owner_performs_nothing_when_it_wakes[postgres]",
    "kernel/journal/test_postgres_kernel.py::test_a_server_that_restarts_is_survived[longer than the lease]",
    "mcp/client/test_dead.py::test_one_that_does_not_read_is_killed[closes-",
    "mcp/client/test_trim.py::test_large_results_do_not_hold_up_the_loop",
    "mcp/test_conformance.py::test_scenario[auth/",
    "models/test_aimock.py",
    "sage/terminal/test_speed.py",
    "server/grpc/test_speed.py",
    "server/http/test_openapi_requests.py",
    "test_again.py",
    "test_benchmarks.py::test_each_subject_runs",
    "test_limits.py::test_only_a_missed_limit_is_measured_again",
    "test_surface.py::test_entries_that_are_switched_off_are_missed",
    "type_checkers/test_checkers.py",
    "vega/durable/test_prefixes.py::test_every_beginning_of_a_journal_goes_on[False]",
    "vega/durable/test_resume.py::test_a_call_is_expected_to_cost_what_it_was[calls]",
    "vega/durable/test_resume.py::test_a_rate_limit_counts_the_calls_of_earlier_lives[under way]",
    "vega/durable/test_resume.py::test_a_session_is_charged_for_every_call_that_was_under_way[1]",
    "vega/durable/test_resume.py::test_a_session_is_charged_for_every_call_that_was_under_way[3]",
    "vega/durable/test_resume.py::test_a_session_is_charged_for_every_call_that_was_under_way[4]",
    "vega/durable/test_resume.py::test_a_session_keeps_what_was_spent_in_it[calls]",
    "vega/durable/test_resume.py::test_a_stream_between_two_pieces_is_found_at_once[calls]",
    "vega/lsp/test_extension.py::test_it_becomes_a_vsix_with_all_it_needs",
    "vega/lsp/test_extension.py::test_npm_packs_it",
    "vega/machine/test_snapshot.py::test_programs_do_not_notice_being_saved[limit/",
    "vega/migrate/test_migration.py::test_every_edit_behind_every_row[True]",
    "verify/attacks/test_injection.py::test_without_",
    "verify/attacks/test_obeyed.py",
    "verify/attacks/test_sage.py::test_a_printed_question_allows_nothing",
    "verify/attacks/test_sage.py::test_no_path_leads_outside",
    "verify/attacks/test_sage.py::test_without_the_rules_commands_run",
    "verify/attacks/test_server.py::test_hostile_clients_are_refused_and_hold_nobody_up",
    "verify/attacks/test_server.py::test_no_key_of_the_gateway_shows_on_any_surface",
    "verify/attacks/test_single_calls.py::test_no_attempt_of_an_mcp_server_has_an_effect",
    "verify/attacks/test_single_calls.py::test_no_attempt_with_a_known_key_has_an_effect",
    "verify/attacks/test_single_calls.py::test_where_",
    "verify/attacks/test_single_calls.py::test_without_",
    "verify/crash/test_crash.py::test_a_kill_at_every_named_point_first_middle_and_last",
    "verify/crash/test_gateway.py::test_no_number_of_streams_overruns_a_budget",
    "verify/crash/test_gateway.py::test_spending_is_right_after_a_kill[postgresql]",
    "verify/crash/test_pipelines.py::test_a_kill_at_every_named_point_of_supervisors_and_subsystems",
    "verify/crash/test_pipelines.py::test_pipelines_that_wait_survive_kills_and_come_to_the_same_end",
    "verify/crash/test_server.py::test_nothing_acknowledged_is_lost_when_the_server_is_killed[postgresql]",
    "verify/crash/test_vega_edits.py::test_random_edits_are_refused_or_go_on_as_the_oracle_says",
    "verify/fuzz/test_grpc_fuzz.py::test_json_that_is_not_checked_is_noticed",
    "verify/load/",
    "verify/mutants/test_mutations.py::test_a_change_is_made_where_the_tests_run_and_undone",
    "verify/mutants/test_mutations.py::test_a_test_that_fails_without_the_change_too_kills_nothing",
    "verify/mutants/test_mutations.py::test_the_sample_is_fixed_and_another_is_another",
    "verify/otp/test_otp.py::test_the_same_with_",
    "verify/screenshots/test_scenes.py::test_the_kept_pictures_are_those_of_the_program",
    "verify/simulation/test_histories.py::test_a_kept_history_opens_at_every_tenth_row",
    "verify/simulation/test_histories.py::test_a_mutated_program_is_caught",
    "verify/surface/test_taps.py",
    "verify/tasks/test_tasks.py::test_the_script_solves_the_task",
    "verify/test_vesper_nodes.py::test_both_paths_agree_on_accepted_inputs[loyalty",
    "verify/test_vesper_nodes.py::test_both_paths_agree_on_accepted_inputs[order",
    "vesper/evidence/test_properties.py::test_a_bug_that_only_accepted_payments_have_is_found",
    "vesper/evidence/test_properties.py::test_some_inputs_of_every_example_are_accepted[False-payment_handler]",
    "vesper/python/test_generated_files.py::test_every_file_passes_the_type_checker",
    "vesper/reference/test_random_programs.py::test_random_programs_end_at_the_same_step[3]",
    "vesper/reference/test_random_programs.py::test_random_programs_end_at_the_same_step[8]",
    "vesper/runtime/test_crash.py",
)
NOT_LONG = (
    "browser/test_chat.py::test_an_answer_streams_with_its_tool_calls_and_its_cost",
    "browser/test_chat.py::test_stop_stops_the_answer_on_the_server",
    "browser/test_every_page.py::test_every_page_has_its_data_without_a_script",
    "browser/test_every_page.py::test_no_page_has_a_script_or_a_style_in_it",
    "browser/test_hostile_text.py",
    "browser/test_inbox.py::test_a_question_is_answered_without_a_script",
    "browser/test_inbox.py::test_a_question_that_comes_up_is_shown_and_approved",
    "browser/test_inbox.py::test_a_viewer_answers_nothing",
    "browser/test_kept_place.py::test_a_form_is_sent_once",
    "browser/test_layout_shift.py::test_a_list_stays_while_a_person_points_at_its_rows",
    "browser/test_live.py::test_a_stream_that_is_lost_is_told_and_found_again",
    "browser/test_nodes.py::test_a_node_is_promoted_under_the_persons_name",
    "browser/test_people.py::test_a_crash_and_its_restart_are_watched",
    "browser/test_people.py::test_a_process_is_restarted_and_stopped_in_its_page",
    "browser/test_people.py::test_a_user_sees_only_their_own",
    "browser/test_plots.py::test_a_click_on_a_bar_narrows_and_the_page_follows_new_calls",
    "browser/test_plots.py::test_a_plot_is_drawn_from_its_table_without_moving_anything",
    "browser/test_time_travel.py::test_a_fork_is_made_and_watched_beside_the_run",
    "browser/test_time_travel.py::test_a_run_is_scrubbed_by_the_handle_and_the_keyboard",
    "browser/test_vega_run.py::test_a_vega_run_is_scrubbed_with_its_variables",
    "mcp/test_conformance.py::test_scenario[auth/metadata-default]",
    "models/test_aimock.py::test_tools_there_and_back",
    *(
        f"test_benchmarks.py::test_each_subject_runs[{subject}]"
        for subject in ("durable", "health", "recovery", "search", "spawn", "startup", "vega_parallel", "vesper_python")
    ),
    "verify/attacks/test_obeyed.py::test_no_attempt_has_an_effect[repositories-",
    "verify/attacks/test_obeyed.py::test_without_setting_aside_attempts_succeed",
    "verify/attacks/test_single_calls.py::test_without_the_tables_attempts_on_command_rules_succeed",
    "verify/simulation/test_histories.py::test_a_kept_history_opens_at_every_tenth_row[seed-20596]",
    *(f"verify/tasks/test_tasks.py::test_the_script_solves_the_task[{number}-" for number in ("01", "37", "43")),
    "vesper/runtime/test_crash.py::test_a_killed_payment_is_charged_once[charging-dual_verify]",
    "vesper/runtime/test_crash.py::test_a_killed_payment_is_charged_once[charged-direct_only]",
    "vesper/runtime/test_crash.py::test_duplicates_after_a_kill_share_the_unfinished_execution[python_only]",
)
_LONG_FILES = tuple(name for name in LONG if "::" not in name and not any(kept.startswith(name) for kept in NOT_LONG))
# Tests that take the longest, by how their ids begin; they run first, so that no worker is left alone with one of them.
_FIRST = (
    "tests/verify/tasks/test_tasks.py::test_the_script_solves_the_task[48-",  # waits for a minute
    "tests/verify/simulation/test_sim.py",
    "tests/verify/crash/",
    "tests/agents/parallel/test_parallel.py::test_random",
    "tests/agents/test_start_and_memory.py",
    "tests/vega/plan/test_parallel_random.py",
    "tests/vega/machine/test_pure_code.py",
    "tests/vega/bytecode/test_file_fuzz.py",
    "tests/verify/attacks/",
    "tests/vesper/python/test_generated_files.py::test_every_",
    "tests/vesper/runtime/test_crash.py",
    "tests/test_surface.py",
    "tests/type_checkers/",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each processor, since many tests wait for a server, a kill or a clock."""
    return (os.cpu_count() or 1) * 2


def _is_quick_part(config: pytest.Config) -> bool:
    return bool(config.option.markexpr.startswith("not slow"))


@cache
def _place(path: Path) -> str:
    return path.relative_to(_HERE).as_posix() if path.is_relative_to(_HERE) else ""


@cache
def _is_slow(path: Path) -> bool:
    return _place(path).startswith(_SLOW) and not _place(path).startswith(_QUICK)


def _is_long(item: pytest.Item) -> bool:
    name = item.nodeid.removeprefix("tests/")
    return name.startswith(LONG) and not name.startswith(NOT_LONG)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` and `make test` do not read the files that they leave out."""
    if not collection_path.is_file():
        return None
    is_left_out = _is_quick_part(config) and _is_slow(collection_path)
    if "not long" in config.option.markexpr:
        is_left_out = is_left_out or _place(collection_path).startswith(_LONG_FILES)
    return True if is_left_out else None


def _leave_combinations(items: list[pytest.Item]) -> None:
    """Mark combinations of parameters as long where every value of each parameter is in another one that stays.

    Of two that have as many values that are in no other, the one whose values were taken less often is taken: with two
    parameters of which one has many values, those of the other take turns.
    """
    by_test: defaultdict[str, dict[pytest.Item, list[tuple[str, int]]]] = defaultdict(dict)
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if len(parameters) > 1 and _is_slow(item.path) and not (item.get_closest_marker("long") or _is_long(item)):
            alike = by_test[item.nodeid.partition("[")[0]]
            alike[item] = [(name, id(value)) for name, value in parameters.items()]
    for values in by_test.values():
        taken = Counter[tuple[str, int]]()
        missing = {value for of_one in values.values() for value in of_one}
        while missing:
            best = min(
                values, key=lambda item: (-len(missing & {*values[item]}), sum(taken[value] for value in values[item]))
            )
            taken.update(values[best])
            missing -= {*values.pop(best)}
        for item in values:
            item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_combinations(items)
    for item in items:
        if _is_long(item):
            item.add_marker(pytest.mark.long)
        if _is_slow(item.path) or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=_MEASURED - 1, only_rerun=[f"^{LimitMissed.__name__}:"]))
        if item.nodeid.startswith(_FIRST):
            item.add_marker("first")
    if config.option.forks:
        items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fifteen thousand tests are not garbage: no collection need look at them. A worker, which imports more than any
    program of a user does and takes no time, looks at the rest less often: a collection of all takes a quarter of a
    second."""
    gc.collect()
    gc.freeze()
    if session.config.option.forks:
        gc.set_threshold(10_000, 20, 10)
        strategies.text().validate()  # makes its table of all characters, which takes seconds, once for all workers
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped goes to the file of the whole run, where there is one: `tests.skips` reads it."""
    path = os.environ.get("LYRA_TESTS_SKIPS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            for report in terminalreporter.stats.get("skipped", ()):
                reason = report.longrepr[2].removeprefix("Skipped: ")
                file.write(json.dumps([report.nodeid, reason]) + "\n")
