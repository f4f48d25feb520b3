"""What happened, in order, told by every process of the chaos: one line of JSON for each event, outside the store."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

JOURNAL_VARIABLE = "MARIN_CHAOS_JOURNAL"


def tell(event: str, **more: Any) -> None:
    """Append an event. One write each: lines of many processes do not mix, and a killed one leaves no half."""
    # The clock that all processes of a boot share and that nobody sets.
    line = json.dumps({"t": time.monotonic(), "pid": os.getpid(), "event": event, **more}) + "\n"
    file = os.open(os.environ[JOURNAL_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """All events by time."""
    try:
        lines = Path(path).read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted((json.loads(line) for line in lines), key=lambda event: event["t"])
