"""What users of other trainers have reported, and where it is seen to that it does not happen here.

Each of the 25 reports has a test of its name: it tries the thing itself, or names the tests that do.
"""

import ast
import json
import signal
from pathlib import Path

import pytest
from safetensors import safe_open

from marin.errors import ConfigurationError, RunInterrupted
from marin.execution.lazy import ArtifactStep
from marin.experiment.models import llama_nano
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import evaluate
from marin.training.data import validation_batches
from marin.training.hf.export import export_hf
from marin.training.optimizers import AdamConfig, LionConfig, SgdConfig
from marin.training.train import train_lm
from marin.training.trainer import train
from tests.training.caches import cycle, make_cache
from tests.training.hf.models import MODELS, lively_params
from tests.training.runs import train_config

TESTS = Path(__file__).parents[1]

REPORTED = (
    "going_on_repeats_or_reorders_data",
    "going_on_spends_hours_skipping_batches",
    "the_learning_rate_begins_anew_after_going_on",
    "gradient_accumulation_is_normalized_wrongly",
    "the_last_partial_window_of_an_accumulation_is_wrong",
    "numbers_that_are_not_finite_go_on_and_overwrite_good_checkpoints",
    "a_half_written_checkpoint_is_gone_on_with",
    "stale_temporary_checkpoints_pile_up",
    "the_disk_is_full_at_a_save_after_hours",
    "the_save_at_sigterm_never_happens",
    "an_interruption_drops_the_evaluation_of_its_step",
    "going_on_with_a_finished_run_is_an_error",
    "validation_overlaps_training",
    "a_dataset_is_smaller_than_a_batch",
    "the_learning_rate_is_off_by_one",
    "norms_and_biases_decay",
    "an_outage_of_a_tracker_ends_the_run",
    "vocabularies_of_model_tokenizer_and_cache_differ",
    "rotary_settings_are_lost_at_export",
    "tied_embeddings_are_exported_wrongly",
    "the_type_of_an_export_is_not_what_was_asked_for",
    "tokens_per_second_are_inflated_after_going_on_or_by_evaluations",
    "a_seed_gives_another_run_on_another_mesh",
    "running_out_of_memory_tells_nothing",
    "a_run_on_a_cpu_is_refused",
)


def test_each_of_the_25_reports_has_a_test():
    assert len(set(REPORTED)) == 25
    here = [name.removeprefix("test_") for name in globals() if name.startswith("test_")]
    assert [name for name in here if name in REPORTED] == list(REPORTED)


def conditions(decorators):
    """The marks by which a test may be left out."""
    marks = {node.attr for each in decorators for node in ast.walk(each) if isinstance(node, ast.Attribute)}
    return marks & {"skip", "skipif", "xfail", "heavy"}


def held_by(*tests):
    """Each of ``tests``, "file::name", is there and is run by make test; or else it is told which is not."""
    for test in tests:
        file, name = test.split("::")
        module = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        marks = [ast.dump(node.value) for node in module.body if isinstance(node, ast.Assign)]
        assert not any("'pytestmark'" in mark and "'heavy'" in mark for mark in marks)
        found = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
        assert len(found) == 1, f"{test} is not there any more: name the test that holds this now"
        assert not conditions(found[0].decorator_list), f"{test} is left out by make test"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caches") / "toy"
    return make_cache(folder, cycle(32, 5000), cycle(32, 500), vocab_size=32)


def rows(output):
    return [json.loads(line) for line in (Path(output) / "metrics.jsonl").read_text().splitlines()]


def described(**changes):
    tokens = ArtifactStep(name="tokenized/poems", version="2026.07.01", run="my:f", artifact_type=TokenizedCache)
    return train_lm(**{"name": "checkpoints/poet", "model": llama_nano, "datasets": {tokens: 1.0}, **changes})


def exported(name, folder):
    """The config of a model in Hugging Face's files."""
    export_hf(lively_params(MODELS[name]), MODELS[name], str(folder / name))
    return json.loads((folder / name / "config.json").read_text())


def test_going_on_repeats_or_reorders_data():
    held_by(
        "processing/mixture/test_batches.py::test_a_restart_at_any_step_on_any_number_of_hosts_gives_the_same_batches",
        "training/test_exactness.py::test_gone_on_with_it_asks_for_no_batch_that_it_has_trained_on",
    )


def test_going_on_spends_hours_skipping_batches():
    held_by(
        "training/test_exactness.py::test_a_batch_far_off_is_as_little_work_as_the_first",
        "training/test_exactness.py::test_no_more_of_the_cache_is_read_for_a_batch_far_off",
    )


def test_the_learning_rate_begins_anew_after_going_on():
    for config in (AdamConfig(lr=1e-2), LionConfig(lr=1e-3), SgdConfig(lr=0.1)):
        in_order = [config.learning_rate(step, 30) for step in range(30)]
        assert [config.learning_rate(step, 30) for step in reversed(range(30))] == in_order[::-1]
    # The rates are in the metrics that are compared there.
    held_by("training/test_exactness.py::test_killed_and_gone_on_with_in_another_process_it_gives_the_same_bits")


def test_gradient_accumulation_is_normalized_wrongly():
    held_by(
        "training/test_gradients.py::test_pieces_of_which_unequal_parts_are_learned_add_up_to_the_whole_batch",
        "training/test_placement.py::test_the_losses_are_those_of_one_device",
    )


def test_the_last_partial_window_of_an_accumulation_is_wrong():
    """There is none: a batch is cut into equal pieces, or refused. What is masked in a piece is not counted."""
    with pytest.raises(ConfigurationError, match=r"batch_size=6 can't be cut into grad_accumulation=4 equal pieces"):
        described(batch_size=6, grad_accumulation=4)
    held_by("training/test_gradients.py::test_pieces_of_which_unequal_parts_are_learned_add_up_to_the_whole_batch")


def test_numbers_that_are_not_finite_go_on_and_overwrite_good_checkpoints():
    held_by(
        "training/test_update.py::test_a_number_that_is_not_finite_leaves_the_state_as_it_was",
        "training/test_trainer.py::test_a_loss_that_is_not_finite_stops_the_training_with_step_and_remedy",
        "training/test_trainer.py::test_a_bad_batch_can_be_skipped_so_many_times",
        "training/test_rolling.py::test_numbers_that_are_not_finite_are_never_saved",
    )


def test_a_half_written_checkpoint_is_gone_on_with():
    held_by(
        "training/test_saves_that_fail.py"
        "::test_killed_at_any_line_a_save_leaves_the_one_before_or_itself_and_the_next_process_tidies_up",
        "training/test_rolling.py::test_a_damaged_one_is_skipped_by_name_and_the_one_before_is_used",
        "training/test_rolling.py::test_if_none_is_whole_the_training_does_not_begin_anew_by_itself",
    )


def test_stale_temporary_checkpoints_pile_up():
    held_by("training/test_rolling.py::test_what_an_interrupted_save_left_is_removed_and_named")


def test_the_disk_is_full_at_a_save_after_hours():
    held_by(
        "training/test_disk_need.py::test_both_numbers_and_the_knobs_are_named",
        "training/test_rolling.py::test_a_full_disk_keeps_the_old_one_and_leaves_nothing_half_done",
    )


def test_the_save_at_sigterm_never_happens():
    held_by(
        "training/test_trainer.py::test_sigterm_saves_and_the_next_run_goes_on",
        "training/test_checkpoint_writer.py::test_told_to_stop_it_saves_even_if_the_save_before_failed",
    )


def test_an_interruption_drops_the_evaluation_of_its_step(cache, tmp_path, monkeypatch):
    """The export cannot be dropped: the training is not done before it lies there."""
    evaluations = 0

    def interrupted(stream, **shape):
        nonlocal evaluations
        evaluations += 1
        for number, batch in enumerate(validation_batches(stream, **shape)):
            if (evaluations, number) == (2, 1):  # in the middle of that after step 10
                signal.raise_signal(signal.SIGTERM)
            yield batch

    monkeypatch.setattr(evaluate, "BATCH_TOKENS", 64)
    monkeypatch.setattr(evaluate, "validation_batches", interrupted)
    config = train_config(tmp_path / "out", cache)
    with pytest.raises(RunInterrupted, match=r"SIGTERM after step 10 of 30; saved .*step-000000010"):
        train(config)
    assert [row["step"] for row in rows(tmp_path / "out") if "validation_loss" in row] == [0]
    whole, gone_on_with = train(train_config(tmp_path / "whole", cache)), train(config)
    validated = [row for row in rows(tmp_path / "out") if "validation_loss" in row]
    assert [row["step"] for row in validated] == [0, 10, 20, 30]
    assert validated == [row for row in rows(tmp_path / "whole") if "validation_loss" in row]
    assert gone_on_with.validation == whole.validation
    assert gone_on_with.params_sha256 == whole.params_sha256


def test_going_on_with_a_finished_run_is_an_error():
    held_by(
        "training/test_trainer.py::test_a_finished_training_is_not_done_again",
        "training/test_trainer.py"
        "::test_killed_while_it_tidies_up_the_next_run_leaves_no_rolling_checkpoint_in_the_artifact",
    )


def test_validation_overlaps_training():
    held_by(
        "processing/tokenize/test_build.py::test_held_out_documents_are_chosen_by_their_text_and_nothing_is_in_both",
        "training/test_trainer.py::test_a_copy_of_the_training_data_is_no_validation",
        "training/test_adopted_caches.py::test_training_text_that_is_also_validation_text_is_noticed",
        "training/test_overlap.py::test_a_cache_of_the_same_documents_and_others_is_no_validation",
    )


def test_a_dataset_is_smaller_than_a_batch():
    held_by(
        "processing/mixture/test_batches.py::test_too_little_data_is_told_with_both_numbers",
        "training/test_trainer.py::test_what_can_not_be_trained_is_told_before_the_first_step",
    )


def test_the_learning_rate_is_off_by_one():
    rates = [AdamConfig(lr=1.0, warmup=10, min_lr_ratio=0.1).learning_rate(step, 100) for step in range(100)]
    assert rates[0] > 0
    assert max(rates) == rates[10] == 1.0
    assert rates[9] < 1.0
    assert rates[99] == pytest.approx(0.1)
    held_by("training/test_schedules.py::test_the_table_of_rates")


def test_norms_and_biases_decay():
    held_by(
        "training/test_optimizer_rules.py::test_matrices_decay_and_vectors_do_not",
        "training/test_optimizer_rules.py::test_embeddings_are_a_choice",
        "training/test_optimizer_rules.py::test_stacked_layers_decay_as_the_layers_do",
        "training/test_optimizer_rules.py::test_what_decays_is_counted",
    )


def test_an_outage_of_a_tracker_ends_the_run():
    held_by(
        "training/test_trainer.py::test_metrics_go_to_trackers_whatever_others_of_them_do",
        "training/trackers/test_background.py::test_a_tracker_that_hangs_is_waited_for_so_long_and_no_longer",
        "training/trackers/test_running.py::test_a_process_ends_though_its_tracker_hangs_for_ever",
    )


def test_vocabularies_of_model_tokenizer_and_cache_differ():
    held_by(
        "training/test_trainer.py::test_ids_that_the_vocabulary_lacks_are_told_before_the_first_step",
        "training/test_trainer.py::test_data_sets_of_two_tokenizers_are_told_before_the_first_step",
        "training/test_trainer.py::test_a_start_that_does_not_fit_is_told",
    )


def test_rotary_settings_are_lost_at_export(tmp_path):
    """That transformers computes the same with them, make test-all sees: ``hf/test_transformers.py``."""
    written = exported("llama3 rope", tmp_path)
    assert written["rope_parameters"]["rope_theta"] == written["rope_theta"] == 500.0  # newer readers, older readers
    assert written["rope_parameters"]["factor"] == written["rope_scaling"]["factor"] == 8.0
    held_by("training/hf/test_config_json.py::test_what_is_written_is_read_back_with_either_name_of_the_rotary_keys")


def test_tied_embeddings_are_exported_wrongly(tmp_path):
    for name, is_tied in (("tied", True), ("grouped-query", False)):
        assert exported(name, tmp_path)["tie_word_embeddings"] is is_tied
        with safe_open(tmp_path / name / "model.safetensors", "numpy") as tensors:
            assert ("lm_head.weight" in tensors.keys()) is not is_tied  # noqa: SIM118  # no mapping
    held_by("training/hf/test_round_trip.py::test_a_model_comes_back_bit_by_bit")


def test_the_type_of_an_export_is_not_what_was_asked_for():
    held_by("training/hf/test_round_trip.py::test_the_type_that_was_asked_for_is_in_the_tensors_and_in_the_config")


def test_tokens_per_second_are_inflated_after_going_on_or_by_evaluations():
    held_by(
        "training/test_throughput.py::test_the_first_step_is_not_measured_as_it_is_compiled",
        "training/test_throughput.py::test_validating_and_saving_change_the_time_left_and_not_the_speed",
        "training/test_throughput.py::test_a_validation_that_is_interrupted_is_left_out_too",
    )


def test_a_seed_gives_another_run_on_another_mesh():
    held_by(
        "training/test_placement.py::test_the_first_parameters_are_the_same_bits_on_any_mesh",
        "training/test_exactness.py::test_on_another_number_of_devices_it_is_the_same_to_rounding",
    )


def test_running_out_of_memory_tells_nothing():
    held_by(
        "training/test_memory_report.py::test_the_message_names_fault_buffers_and_settings_the_most_useful_first",
        "training/test_memory_report.py::test_a_computation_that_really_runs_out_of_memory_is_told_so",
    )


def test_a_run_on_a_cpu_is_refused(cache, tmp_path):
    assert str(described().run.resources.device) == "cpu"  # unless its author says otherwise
    config = train_config(tmp_path / "out", cache, device=str(described().run.resources.device), num_train_steps=1)
    assert train(config).steps == 1
