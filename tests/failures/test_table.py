"""Each fault that such systems are known for, and the tests that hold it with ours.

A row has a key that stays, the fault, and the tests that would fail if we had it. What is not held yet says why.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Row:
    """``tests``: ``file::test``, below ``tests/``. ``open``: what of it is not held, and why."""

    fault: str
    tests: tuple[str, ...]
    open: str | None = None


LOCKS = "failures/test_locks_and_leases.py"
RUNNERS = "failures/test_runners.py"
PROCESSES = "execution/test_processes.py"

LOCKS_AND_LEASES = {
    "worker-id-shared": Row(
        "worker id = host name and thread: two forked processes share it, and both acquire",
        (
            f"{LOCKS}::test_two_forks_of_one_process_are_two_workers",
            "storage/test_owner.py::test_a_forked_child_is_itself",
        ),
    ),
    "lock-file-unlinked": Row(
        "unlinking the lock file lets two workers hold it, one of them on a deleted inode",
        (
            f"{LOCKS}::test_deleting_what_is_held_lets_one_publish_and_not_both",
            "storage/test_local_locks.py::test_a_swap_counts_in_the_folder_that_replaced_the_opened_one",
            "storage/test_local_locks.py::test_a_swap_of_a_record_that_was_removed_under_it_fails",
        ),
    ),
    "lock-record-torn": Row(
        "a torn lock record makes every later acquire raise: wedged for ever",
        (
            f"{LOCKS}::test_a_record_torn_at_any_byte_wedges_nobody",
            "execution/test_runner.py::test_a_torn_record_is_taken_over",
            "execution/test_record.py::test_a_torn_record_is_always_noticed",
        ),
    ),
    "clocks-compared": Row(
        "wall clocks of hosts are compared: a slow clock is robbed at once, a fast dead one blocks for a day",
        (
            f"{LOCKS}::test_a_holder_whose_clock_is_months_off_is_not_robbed",
            f"{LOCKS}::test_a_dead_holder_is_replaced_after_its_lease_whatever_its_clock_said",
            "storage/test_owner.py::test_silence_counts_from_the_first_look",
        ),
    ),
    "heartbeat-dies": Row(
        "one transient store error ends the heartbeat thread silently; the lease lapses and two builders both succeed",
        (
            f"{LOCKS}::test_a_store_that_fails_now_and_then_does_not_end_the_heartbeat",
            "execution/test_held_record.py::test_a_moment_in_which_the_store_fails_costs_no_lease",
            "execution/test_held_record.py::test_a_renewal_that_was_written_counts_whatever_the_store_answers",
            "execution/test_held_record.py::test_who_was_replaced_changes_nothing",
        ),
    ),
    "zombie-overwrites": Row(
        "a holder paused past its lease wakes up and overwrites its successor's data and status",
        (
            f"{PROCESSES}::test_a_builder_that_was_stopped_past_its_lease_cannot_publish",
            f"{PROCESSES}::test_a_steps_process_ends_itself_when_its_runner_is_stopped_past_the_lease",
            "chaos/test_chaos.py::test_nothing_is_lost_or_damaged_whatever_happens_to_the_runners",
        ),
    ),
    "wait-after-kill": Row(
        "waiting after a SIGKILL took 86 s",
        (
            f"{LOCKS}::test_a_process_that_was_killed_is_not_waited_for",
            f"{PROCESSES}::test_a_killed_builder_is_replaced_at_once",
            f"{PROCESSES}::test_one_that_waits_takes_over_when_the_builder_is_killed",
        ),
    ),
    "own-release-is-loss": Row(
        "releasing one's own lock was reported as a lost lease",
        (f"{LOCKS}::test_the_end_of_a_build_is_not_a_lost_lease",),
    ),
    "ranks-deadlock": Row(
        "ranks of one job deadlock, waiting for each other",
        (
            f"{LOCKS}::test_ranks_of_one_job_that_run_the_same_pipeline_do_not_wait_for_each_other_for_ever",
            f"{PROCESSES}::test_a_step_that_runs_itself_is_told_so",
        ),
    ),
}

RUNNER_FAULTS = {
    "half-written-served": Row(
        "half-written output is served as good",
        (
            f"{PROCESSES}::test_the_half_built_is_never_served",
            f"{PROCESSES}::test_a_builder_killed_half_way_through_publishing_is_recovered",
            f"{RUNNERS}::test_what_a_step_wrote_before_it_failed_is_served_to_nobody",
            "storage/test_local_kills.py::test_a_publisher_killed_at_any_moment_loses_and_mixes_nothing",
        ),
    ),
    "built-twice": Row(
        "two runs build one step at once, or report success over the other's half file",
        (
            f"{PROCESSES}::test_two_processes_build_it_once_and_both_get_it",
            "execution/test_runner.py::test_two_threads_that_run_the_same_step_build_it_once",
        ),
    ),
    "stale-lock": Row(
        "a stale lock after a kill; users delete state by hand",
        (
            f"{PROCESSES}::test_a_killed_builder_is_replaced_at_once",
            f"{LOCKS}::test_a_process_that_was_killed_is_not_waited_for",
        ),
    ),
    "orphan-shell": Row(
        "a killed run's orphan shell later changed the finished artifact",
        (
            f"{RUNNERS}::test_a_shell_that_outlives_its_killed_run_can_not_change_the_finished_artifact",
            f"{PROCESSES}::test_a_steps_processes_end_with_a_killed_runner",
            "executors/test_local.py::test_when_run_and_guard_are_killed_together_the_job_ends",
            f"{PROCESSES}::test_nobody_writes_into_partial_work_that_was_taken_over",
        ),
        open="what a step had started lives until it is taken over if its run and its guard are killed together",
    ),
    "running-for-ever": Row(
        'runs stay "running" for ever',
        (
            f"{RUNNERS}::test_after_kill_9_no_command_says_that_it_still_runs",
            "execution/test_catalog.py::test_the_condition_follows_from_the_record_and_from_who_lives",
            f"{PROCESSES}::test_the_plan_after_a_kill_does_not_speak_of_waiting",
        ),
    ),
    "ctrl-c-hangs": Row(
        "Ctrl-C hangs or leaves children",
        (
            f"{PROCESSES}::test_an_interrupted_run_ends_its_steps_and_says_so",
            f"{PROCESSES}::test_a_second_signal_kills_a_step_that_does_not_listen",
        ),
    ),
    "no-output": Row(
        'a step "succeeds" without its output',
        (
            "execution/test_runner.py::test_an_artifact_that_can_not_be_read_back_is_not_published",
            "execution/test_step_body.py::test_a_build_that_its_reader_refuses_is_refused",
            "execution/test_step_body.py::test_none_will_not_do_where_fields_are_to_be_filled",
        ),
    ),
    "no-cause-shown": Row(
        'only "N steps failed" is shown; the error message itself crashes',
        (
            "execution/test_runner.py::test_a_failure_names_the_step_the_users_frame_and_the_log",
            "execution/test_failure.py::test_any_exception_can_be_told",
            f"{PROCESSES}::test_a_dying_process_is_a_readable_failure_of_that_step_alone",
        ),
    ),
    "helper-changed": Row(
        "a stale cache is served although a helper changed",
        (
            "execution/test_code_changes.py::test_a_changed_definition_is_named_with_its_file",
            "execution/test_code_changes.py::test_a_plan_tells_in_one_line_what_changed_and_serves_all_the_same",
        ),
    ),
    "rebuilt-for-nothing": Row(
        "rebuilds for a comment, a temporary path, an upgrade",
        (
            "execution/test_runner.py::test_runtime_arguments_region_and_prefix_are_no_drift",
            "execution/test_recipe.py::test_what_comes_from_the_context_does_not_count",
            "execution/test_recipe.py::test_these_do_not_count",
            "execution/test_code_changes.py::test_an_upgraded_package_is_no_change_of_code_and_can_be_asked_for",
        ),
    ),
    "fingerprint-unstable": Row(
        "fingerprints change across restarts (sets, order of dicts, paths on 3.13, lambdas)",
        (
            "execution/test_fingerprint.py::test_every_python_and_hash_seed_takes_the_recorded_fingerprints",
            "execution/test_fingerprint.py::test_recorded_fingerprints_still_hold",
            "execution/test_recipe.py::test_a_lambda_as_step_function_is_refused",
        ),
    ),
    "values-alike": Row(
        'different values fingerprint alike: 1 and "1", tuple and list, an enum and its value, a path and its text',
        (
            "execution/test_fingerprint.py::test_values_encode_alike_exactly_if_type_and_value_are_the_same",
            "execution/test_fingerprint.py::test_these_stay_apart",
            "execution/test_fingerprint.py::test_leaves_inside_containers_stay_apart",
        ),
    ),
    "key-incomputable": Row(
        "a key can't be computed, so a wrong hit or silently no cache",
        (
            "execution/test_fingerprint.py::test_what_has_no_stable_encoding_is_refused_with_path_and_remedy",
            "execution/test_recipe.py::test_a_value_without_encoding_is_named_with_step_and_path",
        ),
    ),
    "closure-unpicklable": Row(
        "a closure can't be pickled, and the error does not name it",
        (
            "execution/test_remote_call.py::test_what_cannot_travel_is_named_before_anything_starts",
            "execution/test_remote_call.py::test_a_config_that_cannot_travel_is_named",
        ),
    ),
    "quadratic": Row(
        "quadratic planning, RecursionError on long chains",
        (
            "execution/test_graph.py::test_a_chain_of_a_hundred_thousand_lowers",
            "execution/test_graph.py::test_the_work_to_fingerprint_grows_with_the_number_of_dependencies_and_not_with_its_square",
        ),
    ),
    "odd-paths": Row(
        "paths with spaces, quotes, unicode, 255 bytes",
        (
            "execution/test_runner.py::test_the_prefix_may_have_spaces_and_letters_of_any_script",
            "storage/contract.py::test_names_may_hold_spaces_quotes_and_any_letters",
            "executors/contract.py::test_names_with_spaces_and_quotes_arrive_as_they_are",
            "execution/test_identity.py::test_a_bad_name_is_refused_with_its_fault_and_an_example",
        ),
    ),
    "old-listings": Row(
        "a network disk or an object store shows old listings",
        (f"{RUNNERS}::test_what_is_built_is_found_without_any_listing",),
    ),
    "clock-skew": Row(
        "clock skew, times of files",
        (
            f"{RUNNERS}::test_times_of_files_decide_nothing",
            f"{LOCKS}::test_a_holder_whose_clock_is_months_off_is_not_robbed",
        ),
    ),
    "disk-full": Row(
        "the disk fills; the cache grows without bound",
        (
            f"{RUNNERS}::test_a_disk_that_is_really_full_is_said_with_the_path_and_leaves_the_store_usable",
            f"{RUNNERS}::test_a_file_that_may_not_grow_further_is_told_as_a_full_store",
            "execution/test_runner.py::test_a_full_disk_is_said_with_the_path",
            "storage/test_local_faults.py::test_a_full_disk_is_named_and_leaves_the_record_as_it_was",
        ),
        open="there is no `marin gc` yet: nothing removes old versions but `marin rm`, one by one",
    ),
    "shared-store": Row(
        "a shared store: umask, group, other users; dangling links",
        (
            "storage/test_local.py::test_new_files_follow_the_umask_and_the_group_of_their_folder",
            f"{PROCESSES}::test_a_read_only_store_still_serves",
            f"{RUNNERS}::test_a_folder_without_permission_is_said_and_what_is_built_is_still_served",
            "execution/test_runner.py::test_a_dangling_link_in_place_of_a_record_counts_as_no_record",
            "storage/test_local_faults.py::test_a_link_to_nothing_is_absent_and_can_be_replaced",
        ),
    ),
    "resumed-with-other-settings": Row(
        "resuming with changed settings keeps old results",
        (f"{PROCESSES}::test_partial_work_of_another_recipe_is_not_taken_over",),
    ),
    "central-database": Row(
        "a central database is locked, or grows",
        (f"{RUNNERS}::test_a_run_needs_no_database_and_no_server",),
    ),
    "secrets": Row(
        "secrets in records and logs",
        (
            "execution/test_runner.py::test_secrets_are_neither_recorded_nor_shown",
            "execution/test_runner.py::test_secrets_in_an_error_are_not_shown",
            "execution/test_acquire.py::test_the_log_that_a_failure_leaves_has_no_secrets",
        ),
    ),
    "silent-place": Row(
        "a silent default place of the store",
        (
            "execution/test_console.py::test_a_run_says_once_where_its_store_is_and_why",
            "storage/test_prefix.py::test_a_store_in_a_folder_above_is_pointed_out",
        ),
    ),
    "ancestors-rebuilt": Row(
        "ancestors are rebuilt although the result is there",
        (
            "execution/test_runner.py::test_what_lies_upstream_of_something_served_is_not_built",
            "execution/test_console.py::test_what_is_not_needed_is_told_apart_from_what_is_cached",
        ),
    ),
    "wrong-version": Row(
        "hours of work under a wrong version or user",
        (
            "execution/test_version_codex.py::test_an_override_that_nothing_used_asks_what_was_meant",
            "cli/test_run.py::test_an_override_that_nothing_uses_is_refused_before_anything_runs",
        ),
    ),
}

ROWS = {**LOCKS_AND_LEASES, **RUNNER_FAULTS}


def named_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("key", ROWS)
def test_each_fault_is_held_by_tests_that_are_there(key: str):
    assert ROWS[key].tests
    for name in ROWS[key].tests:
        file, _, test = name.partition("::")
        assert test in named_in(file), f"{key}: there is no {name}"


def test_no_fault_is_left_out():
    """Nine of locks and leases, twenty-six of runners: who drops a row, or renames a key, changes this as well."""
    assert (len(LOCKS_AND_LEASES), len(RUNNER_FAULTS), len(ROWS)) == (9, 26, 35)


def test_no_test_of_faults_is_missing_in_the_table():
    named = {name for row in ROWS.values() for name in row.tests}
    for file in (LOCKS, RUNNERS):
        assert {f"{file}::{test}" for test in named_in(file)} <= named
