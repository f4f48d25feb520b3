import pytest

from marin.errors import InvalidVersionError, UnusedOverrideError
from marin.execution.lazy import ArtifactStep
from marin.execution.version_codex import VersionCodex, ambient_version, build_context, note_written_version


def handle(name: str, version: str | None = None) -> ArtifactStep:
    given = {} if version is None else {"version": version}
    return ArtifactStep(name=name, run="project.steps:make", **given)


def test_outside_a_context_an_open_version_is_dev():
    assert handle("tokens").version == "dev"


def test_an_override_wins_over_the_default_for_its_name_alone():
    with build_context(VersionCodex(default="2026.07.01", overrides={"tokens": "anna-dev"})):
        assert (handle("tokens").version, handle("model").version) == ("anna-dev", "2026.07.01")


def test_a_written_version_wins_over_the_default():
    with build_context(VersionCodex(default="2026.07.01")):
        assert handle("tokens", "2025.01.01").version == "2025.01.01"


def test_an_override_of_a_written_version_is_an_error_that_says_so():
    message = r"tokens=anna-dev has no effect: the script gives tokens the version 2025\.01\.01"
    with pytest.raises(UnusedOverrideError, match=message):
        with build_context(VersionCodex(overrides={"tokens": "anna-dev"})):
            handle("tokens", "2025.01.01")


def test_an_override_that_nothing_used_asks_what_was_meant():
    with pytest.raises(
        UnusedOverrideError, match=r"tokenized/poem=dev matches no handle: did you mean tokenized/poems\?"
    ):
        with build_context(VersionCodex(overrides={"tokenized/poem": "dev"})):
            handle("tokenized/poems")


def test_an_override_that_resembles_nothing_lists_the_open_handles():
    with pytest.raises(UnusedOverrideError, match="handles with an open version are: model, tokens"):
        with build_context(VersionCodex(overrides={"zzz": "dev"})):
            handle("tokens"), handle("model")


def test_the_error_of_the_script_is_not_hidden_by_an_unused_override():
    with pytest.raises(ZeroDivisionError):
        with build_context(VersionCodex(overrides={"tokens": "dev"})):
            raise ZeroDivisionError


def test_the_context_ends_with_its_block():
    with build_context(VersionCodex(default="2026.07.01")):
        pass
    assert ambient_version("tokens") == "dev"


def test_an_inner_context_uses_its_own_versions_and_counts_for_the_outer_one():
    with build_context(VersionCodex(default="2026.07.01", overrides={"tokens": "dev"})):
        with build_context(VersionCodex(default="2026.08.01", overrides={"tokens": "dev"})):
            assert (handle("tokens").version, handle("model").version) == ("dev", "2026.08.01")


def test_a_handle_of_the_outer_context_has_used_the_same_override_of_the_inner_one():
    with build_context(VersionCodex(overrides={"tokens": "anna-dev"})):
        handle("tokens")
        with build_context(VersionCodex(default="2026.08.01", overrides={"tokens": "anna-dev"})):
            handle("model")


def test_an_outer_handle_has_not_used_another_override_of_the_inner_one():
    with build_context(VersionCodex(overrides={"tokens": "anna-dev"})):
        handle("tokens")
        with pytest.raises(UnusedOverrideError, match=r"tokens=2026\.08\.01"):
            with build_context(VersionCodex(overrides={"tokens": "2026.08.01"})):
                handle("model")


def test_a_version_written_inside_explains_an_override_outside():
    def write_it_inside():
        with build_context(VersionCodex(overrides={"tokens": "dev"})), build_context(VersionCodex()):
            note_written_version("tokens", "2025.01.01")

    with pytest.raises(UnusedOverrideError, match="the script gives tokens the version"):
        write_it_inside()


def test_a_codex_checks_its_versions():
    with pytest.raises(InvalidVersionError, match=r"did you mean 2026\.07\.01\?"):
        VersionCodex(default="2026-07-01")
    with pytest.raises(InvalidVersionError):
        VersionCodex(overrides={"tokens": "latest"})
