"""What notebooks and a Python prompt show of handles, plans and artifacts."""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

from marin.execution import OUT, Artifact, ArtifactStep, apply, lower, plan, remote, resolve, run
from marin.execution.abbreviation import abbreviated
from tests.execution.pipelines import Poems, poems, report


class Text(HTMLParser):
    """The text of well-formed HTML."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text = [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in ("div", "strong", "table", "tr", "th", "td"), tag
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text(shown):
    return "\n".join(Text(shown._repr_html_()).text)


@dataclass(frozen=True)
class Measured(Artifact):
    losses: list[float]
    api_key: str = ""
    nested: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spoken(Artifact):
    lines: int

    def __repr__(self):
        return "as I like it"


class Broken:
    def __repr__(self):
        raise RuntimeError("no")


# Handles


def test_a_handle_tells_its_recipe(tmp_path):
    shown = text(report(poems(), runtime_args={"device": "cuda:0", "api_key": "very-secret-1"}))
    for part in (
        "reports/words@2026.07.01",
        "ArtifactStep[Report]",
        "reports/words/2026.07.01",
        "pipelines.py:",
        "raw/poems@2026.07.01",
        "tests.execution.pipelines:count_words",
        'config["poems"]',
        "<artifact:raw/poems@2026.07.01>",
        "'cuda:0'",
        "***",
        "1:",
    ):
        assert part in shown, part
    assert "very-secret" not in shown
    assert "in a process of its own" in text(poems(run=remote("a.b:c")))
    assert "/data/x" in text(ArtifactStep(name="x", pin="/data/x"))
    assert "gs://bucket" in text(ArtifactStep.adopt(name="x", source="gs://bucket", kind=Artifact))


def test_what_a_user_writes_is_never_markup():
    shown = apply("x", "a.b:c", note="<script>alert(1)</script>", deep={"<b>": "&amp;"})._repr_html_()
    assert "<script" not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&amp;amp;" in shown


def test_a_handle_that_can_not_be_built_says_why_instead_of_failing():
    impossible = ArtifactStep(name="x", run="a.b:c", build_config=lambda ctx: {"n": ctx.runtime_arg("device")})
    assert "reads the runtime argument 'device', which is not declared" in text(impossible)
    assert "has no stable encoding" in text(apply("x", "a.b:c", broken=object()))


def test_a_large_recipe_is_abbreviated():
    many = [poems(name=f"raw/{number}") for number in range(1000)]
    shown = text(apply("x", "a.b:c", poems=many, text="rose " * 10_000, **{f"key{number}": 1 for number in range(99)}))
    assert "and 990 more" in shown
    assert "71 more keys" in shown
    assert len(shown) < 20_000


def test_secrets_of_a_recipe_are_not_shown():
    shown = text(apply("x", "a.b:c", hf_token="very-secret-1", url="https://anna:very-secret-2@host/"))
    assert "very-secret" not in shown
    assert "***" in shown


def test_a_handle_is_shown_without_a_look_at_the_store():
    script = """
import sys
from marin.execution import apply
import marin.execution.html
handle = apply("x", "a.b:c", n=1)
touched = []
sys.addaudithook(lambda event, args: touched.append(event) if event in ("open", "os.listdir", "os.scandir") else None)
assert handle._repr_html_() and repr(handle)
print(touched)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_describing_a_pipeline_does_not_pay_for_it():
    script = "import sys, marin.execution.lazy, marin.execution.runner; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"marin.execution.html", "marin.execution.abbreviation", "html"} & set(done.stdout.split())


# Plans


def test_a_plan_is_one_line_of_text_and_a_table(options):
    resolve(poems(), options=options)
    planned = plan(report(poems(word="thorn")), options=options)
    assert repr(planned) == str(planned) == "Plan(2 steps: 1 to build, 1 cached; 1 with drift)"
    shown = text(planned)
    assert "2 steps: 1 to build, 1 cached; 1 with drift" in shown
    assert "config[\"word\"]: 'rose' → 'thorn'" in shown
    assert "reports/words@2026.07.01" in shown


def test_a_refused_step_shows_its_error(options):
    pinned = ArtifactStep(name="x", pin="/nowhere/at all")
    assert "/nowhere/at all does not exist" in text(plan(pinned, options=options))


def test_of_a_plan_of_thousands_of_steps_those_that_matter_are_shown(options):
    served = [poems(name=f"raw/{number}") for number in range(40)]
    run(*served, options=options)
    planned = plan(*served, *(poems(name=f"new/{number}", version="dev") for number in range(3_000)), options=options)
    assert repr(planned) == "Plan(3,040 steps: 3,000 to build, 40 cached)"
    shown = text(planned)
    assert len(re.findall("new/", shown)) == 30
    assert "raw/" not in shown
    assert "and 3,010 more" in shown
    assert repr(planned.graph).startswith("StepGraph(3,040 steps for raw/0@2026.07.01, ")
    assert len(repr(planned.steps[served[0].id])) < 200


# Artifacts


def test_an_artifact_shows_its_type_path_and_fields(options):
    made = resolve(poems(), options=options)
    assert repr(made) == f"Poems(path='{made.path}', lines=3)"
    assert text(made).split("\n")[:1] == ["Poems"]
    assert made.path in text(made)
    assert "not in a store" in text(Poems(lines=1))


def test_long_values_are_abbreviated_and_secrets_left_out():
    made = Measured(
        losses=[0.5] * 100_000, api_key="very-secret-1", nested={"hf_token": "very-secret-2", "text": "a" * 5000}
    )
    for shown in (repr(made), text(made)):
        assert "0.5, 0.5" in shown
        assert "very-secret" not in shown
        assert len(shown) < 1000
    assert "\n" not in repr(made)


def test_a_repr_of_ones_own_is_kept():
    assert repr(Spoken(lines=1)) == "as I like it"


@pytest.mark.parametrize("value", [Broken(), [Broken()], {"a": Broken()}, Measured(losses=Broken())])  # type: ignore[arg-type]
def test_nothing_makes_a_repr_fail(value):
    assert "Broken" in abbreviated(value)
    assert repr(Measured(losses=value))
    assert text(Measured(losses=value))


def test_what_can_not_be_shown_as_html_is_left_to_the_plain_text():
    shown = Measured(losses=[])
    object.__setattr__(shown, "path", 7)  # no text, which HTML can't be made of
    assert shown._repr_html_() is None
    assert repr(shown)


def test_out_and_a_graph_are_short():
    assert repr(OUT / "a") == "OUT / 'a'"
    assert repr(lower(poems())) == "StepGraph(1 steps for raw/poems@2026.07.01)"
