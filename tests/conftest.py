import pytest
from hypothesis import settings

# On a busy machine a slow example is no fault.
settings.register_profile("marin", deadline=None, print_blob=True)
settings.load_profile("marin")

pytest.register_assert_rewrite("tests.executors.contract", "tests.storage.contract")
