"""Speed is that of training alone, and utilization is told only where the device's peak is known."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.device_peaks import peak_flops
from marin.training.progress_note import log_line, training_note, validation_note
from marin.training.throughput import Throughput, arithmetic, compiled_programs, devices_peak


class Clock:
    now = 0.0
    programs = 0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def throughput(clock, **changes):
    return Throughput(tokens_per_step=100, clock=clock, compiled=lambda: clock.programs, **changes)


def steps(measured, clock, seconds, count=1):
    for _ in range(count):
        clock.now += seconds
        measured.step_done()


def test_the_first_step_is_not_measured_as_it_is_compiled(clock):
    measured = throughput(clock)
    steps(measured, clock, 60.0)
    assert measured.tokens_per_second is None
    assert measured.seconds_left(10) is None
    steps(measured, clock, 2.0)
    assert measured.tokens_per_second == 50.0


def test_a_step_that_was_compiled_anew_is_not_measured(clock):
    measured = throughput(clock)
    steps(measured, clock, 2.0, count=3)
    clock.programs += 1  # such as the first batch with a loss mask
    steps(measured, clock, 40.0)
    steps(measured, clock, 2.0)
    assert measured.tokens_per_second == 50.0


def test_validating_and_saving_change_the_time_left_and_not_the_speed(clock):
    measured = throughput(clock)
    steps(measured, clock, 2.0, count=3)
    with measured.paused():
        clock.now += 6.0
        clock.programs += 1  # the program of validation
    steps(measured, clock, 2.0)
    assert measured.tokens_per_second == 50.0
    assert measured.seconds_left(9) == 9 * (3 * 2.0 + 6.0) / 3


def test_the_validation_before_the_first_step_is_not_expected_again(clock):
    measured = throughput(clock)
    with measured.paused():
        clock.now += 60.0
    steps(measured, clock, 2.0, count=2)
    assert measured.seconds_left(9) == 18.0


def test_the_speed_is_known_also_when_every_step_is_validated(clock):
    measured = throughput(clock)
    for _ in range(4):
        steps(measured, clock, 2.0)
        with measured.paused():
            clock.now += 30.0
    assert measured.tokens_per_second == 50.0


def test_a_validation_that_is_interrupted_is_left_out_too(clock):
    measured = throughput(clock)
    steps(measured, clock, 2.0)

    def interrupted():
        with measured.paused():
            clock.now += 30.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    steps(measured, clock, 2.0)
    assert measured.tokens_per_second == 50.0


def test_utilization_is_what_the_model_needs_against_the_peak(clock):
    measured = throughput(clock, flops_per_token=6.0, peak=1000.0)
    steps(measured, clock, 1.0, count=2)
    assert measured.mfu == pytest.approx(0.6)
    assert training_note(4.041, measured) == "loss 4.04 · 100 tok/s · MFU 60%"


def test_without_a_known_peak_there_is_no_utilization(clock):
    measured = throughput(clock, flops_per_token=6.0, peak=None)
    steps(measured, clock, 1.0, count=2)
    assert measured.mfu is None
    assert training_note(4.041, measured) == "loss 4.04 · 100 tok/s"


def test_programs_that_jax_compiles_are_counted():
    compiled = compiled_programs()

    @jax.jit
    def double(x):
        return x * 2 + 0.123

    x = jnp.asarray(np.ones(3, np.float32))
    before = compiled()
    double(x)
    after_first = compiled()
    double(x)
    assert before < after_first == compiled()


def devices(*kinds):
    return [SimpleNamespace(device_kind=kind) for kind in kinds]


def test_peaks_of_several_devices_add_up():
    assert devices_peak(devices("TPU v4", "TPU v4"), "bfloat16") == 550e12


@pytest.mark.parametrize(
    "kind", ["cpu", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA H100", "a100"]
)
def test_a_device_that_is_not_in_the_table_has_no_peak_and_no_similar_one_is_taken(kind):
    assert devices_peak(devices(kind), "bfloat16") is None
    assert devices_peak(devices("TPU v4", kind), "bfloat16") is None


def test_this_cpu_has_no_peak():
    assert devices_peak(jax.devices("cpu"), "float32") is None


def test_float32_is_measured_against_the_way_it_is_computed():
    assert arithmetic("float32") == "tensorfloat32"
    with jax.default_matmul_precision("highest"):
        assert arithmetic("float32") == "float32"
        assert arithmetic("bfloat16") == "bfloat16"
    assert peak_flops("NVIDIA A100-SXM4-40GB", "tensorfloat32") == 156e12
    assert peak_flops("NVIDIA A100-SXM4-40GB", "float32") == 19.5e12
    assert peak_flops("Tesla T4", "tensorfloat32") == peak_flops("Tesla T4", "float32") == 8.1e12
    assert peak_flops("Tesla T4", "bfloat16") is None
    assert peak_flops("TPU v6 lite", "float32") is None


def test_lines_of_the_log_are_plain_and_end_with_the_time_left():
    assert log_line(1, 30, "loss 3.40") == "step 1/30  loss 3.40"
    assert log_line(750, 80_000, "loss 3.40", 75) == "step 750/80,000  loss 3.40 · 1 min 15 s left"
    assert log_line(30, 30, "loss 3.40", 0.0) == "step 30/30  loss 3.40"


def test_a_validation_whose_bytes_are_not_known_tells_its_loss_alone():
    scored = SimpleNamespace(loss=2.5, bits_per_byte=None, tokens=3)
    assert validation_note(scored) == "validation loss 2.50"
    scored.bits_per_byte = 1.25
    assert validation_note(scored) == "validation loss 2.50, 1.250 bits per byte"
