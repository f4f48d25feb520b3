"""The table before step 0."""

from marin.processing.mixture.budget import budget_text
from tests.processing.mixture.streams import data


def text(training_data, num_steps):
    return budget_text(
        training_data.budget(num_steps), stage_steps=[stage.start_step for stage in training_data.stages]
    )


def test_the_table_tells_what_each_component_holds_and_gives():
    assert text(data(400, 50, weights=[3, 1]), 1000) == "\n".join(
        [
            "component  tokens  share  trained on  epochs",
            "set 0       1,601  75.0%       8,928    5.58",
            "set 1         201  25.0%       3,072   15.36",
            "all         1,802             12,000",
        ]
    )


def test_stages_have_a_column_each():
    table = text(data(400, 50, weights=[(3, 1), (1, 1)], at=[1500]), 3000)
    assert table.splitlines()[0] == "component  tokens  from step 0  from step 1,500  trained on  epochs"
    assert table.splitlines()[2].split()[:5] == ["set", "1", "201", "25.0%", "50.0%"]


def test_of_many_stages_the_first_and_the_last_are_shown():
    many = data(400, 50, weights=[(1, each) for each in range(1, 9)], at=range(10, 80, 10))
    lines = text(many, 100).splitlines()
    assert lines[0] == "component  tokens  from step 0  from step 70  trained on  epochs"
    assert lines[-1] == "8 stages; shown are the first and the last"


def test_a_weight_that_is_rounded_away_and_a_stage_that_is_never_reached_are_told():
    lines = text(data(400, 50, weights=[(1, 1e-9), (1, 1)], at=[50]), 50).splitlines()
    assert lines[-2:] == [
        "set 1 gives nothing in the stages from step 0: its weight there is too small",
        "the training ends before set 1 gives anything",
    ]


def test_a_stage_that_leaves_a_component_out_is_nothing_to_tell():
    lines = text(data(400, 50, weights=[(1, 0), (1, 1)], at=[50]), 100).splitlines()
    assert lines[-1].startswith("all ")
