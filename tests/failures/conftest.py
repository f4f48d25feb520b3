from tests.execution.conftest import built as built
from tests.execution.conftest import options as options
from tests.execution.conftest import told as told
