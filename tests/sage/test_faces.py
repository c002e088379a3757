"""What must not stop the work, by face: in a real terminal, with `sage -p`, in an editor. Each cell names its tests.

A cell is empty where the face has nothing of the kind: `sage -p` has no drafts, and an editor keeps its own.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TERMINAL, PRINT, EDITOR = "sage/terminal/test_", "cli/sage/test_", "sage/acp/test_"
FACES = {
    "polling ends no turn": {
        TERMINAL: ["unstopped::polling_goes_on"],
        PRINT: ["unstopped::polling_does_not_end_the_run"],
        EDITOR: ["real_models::polling_does_not_end_the_prompt"],
    },
    "a cut answer goes on, a cut call is told to the model": {
        TERMINAL: [
            "unstopped::a_cut_answer_is_one_answer_on_the_screen",
            "unstopped::a_cut_call_is_shown_as_failed_and_the_turn_goes_on",
        ],
        PRINT: [
            "cut_answers::a_cut_answer_goes_on",
            "unstopped::a_cut_call_is_told_to_the_model_and_the_run_goes_on",
        ],
        EDITOR: [
            "real_models::a_cut_answer_is_told",
            "real_models::a_call_that_cannot_be_read_does_not_end_the_prompt",
        ],
    },
    "commits are asked about, and an undo takes them back": {
        TERMINAL: ["rules_chosen::a_commit_is_asked_about_and_undone"],
        PRINT: ["commands_in_print::a_commit_is_made_by_a_rule_alone"],
        EDITOR: ["real_models::a_commit_is_asked_about_and_undone"],
    },
    "rules last, and reading asks nothing": {
        TERMINAL: ["rules_chosen::always_is_chosen_by_a_number_and_enter_decides_nothing"],
        PRINT: [
            "commands_in_print::commands_that_only_read_need_no_rule",
            "commands_in_print::the_mode_sandboxed_runs_commands_and_asks_about_the_rest",
        ],
        EDITOR: ["sessions::an_editor_is_offered_the_wider_rules"],
    },
    "a no is about one file, and what waits for trust says so": {
        TERMINAL: [
            "rules_chosen::a_no_about_one_new_file_refuses_that_file_alone",
            "rules_chosen::a_command_of_the_project_that_waits_for_trust_says_so",
        ],
        PRINT: [
            "print::a_denied_call_does_not_end_the_run",
            "print::rules_of_an_untrusted_folder_are_told_to_be_passed_over",
        ],
        EDITOR: ["real_models::a_no_about_one_new_file_refuses_that_file_alone"],
    },
    "files are attached": {
        TERMINAL: ["interactive::a_file_is_attached_with_its_size"],
        PRINT: ["print::a_file_that_the_task_names_is_attached"],
        EDITOR: ["slash::a_file_that_a_prompt_names_is_attached"],
    },
    "the developer's tools are there, and folders can be added": {
        TERMINAL: ["rules_chosen::the_developers_tools_and_a_folder_that_is_added"],
        PRINT: ["unstopped::the_developers_tools_are_there"],
        EDITOR: [
            "real_models::a_read_outside_is_asked_about_and_a_folder_can_be_added",
            "options::files_and_folders",
        ],
    },
    "waits are seen, long, and end at once": {
        TERMINAL: [
            "unstopped::a_wait_is_counted_down_and_esc_ends_it",
            "unstopped::a_wait_of_a_sub_agent_is_counted_down_below_its_call",
            "unstopped::the_last_error_is_on_the_screen",
            "unstopped::a_wait_of_compact_is_counted_down_and_esc_ends_it",
            "unstopped::a_wait_of_an_automatic_compaction_is_counted_down",
        ],
        PRINT: [
            "unstopped::waits_are_lines_of_the_stream_and_told_on_stderr",
            "unstopped::a_failure_says_all_that_programs_need",
        ],
        EDITOR: ["real_models::a_wait_for_the_provider_is_told", "real_models::a_wait_of_compact_is_told"],
    },
    "silent servers and summaries hold nothing up": {
        TERMINAL: [
            "unstopped::a_silent_server_does_not_hold_up_the_prompt",
            "unstopped::compact_tells_why_it_failed",
            "unstopped::automatic_compaction_says_one_line",
        ],
        PRINT: [
            "unstopped::a_silent_server_does_not_hold_up_the_answer",
            "unstopped::automatic_compaction_is_one_line",
        ],
        EDITOR: [
            "real_models::a_silent_server_does_not_hold_up_the_session",
            "real_models::compact_tells_why_it_failed",
        ],
    },
    "what was typed is never lost": {
        TERMINAL: [
            "interactive::waiting_messages_come_back_to_the_prompt_when_it_is_interrupted",
            "interactive::what_was_typed_survives_a_crash_and_a_closed_terminal",
        ],
        PRINT: [],
        EDITOR: [],
    },
    "messages reach a turn under way, and reading commands are answered at once": {
        TERMINAL: [
            "interactive::a_message_reaches_the_model_at_the_next_tool_boundary",
            "interactive::a_command_that_only_reads_is_answered_at_once",
        ],
        PRINT: ["requests::a_message_steers_the_turn_that_is_under_way"],
        EDITOR: [
            "real_models::a_prompt_beside_another_reaches_the_model_after_its_calls",
            "real_models::a_prompt_that_comes_too_late_for_a_turn_is_the_next_one",
            "real_models::a_cancelled_turn_cancels_the_prompts_beside_it",
        ],
    },
    "thinking is chosen, shown folded and priced": {
        TERMINAL: [
            "unstopped::effort_is_toggled_shown_and_sent",
            "interactive::thinking_is_folded_and_ctrl_o_shows_it",
        ],
        PRINT: ["unstopped::effort_is_an_option"],
        EDITOR: [
            "real_models::effort_and_mode_are_settings_of_the_session",
            "real_models::an_editor_gets_the_answer_and_its_figures",
        ],
    },
}
EMPTY = {("what was typed is never lost", PRINT), ("what was typed is never lost", EDITOR)}


@lru_cache
def list_tests(file: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, functions)}


@pytest.mark.parametrize("face", [TERMINAL, PRINT, EDITOR])
def test_each_face_has_its_tests(face: str) -> None:
    """Each promise has a test there, and each test that is named exists."""
    assert {(promise, face) for promise, cells in FACES.items() if not cells[face]} == {
        cell for cell in EMPTY if cell[1] == face
    }
    for name in (name for cells in FACES.values() for name in cells[face]):
        module, _, test = name.partition("::")
        assert f"test_{test}" in list_tests(TESTS / f"{face}{module}.py"), name
