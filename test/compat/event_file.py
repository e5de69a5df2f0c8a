"""Checks that TensorBoard's own reader reads our event file correctly."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# The values of test/cli/export/export.test.ts, which compares the writer with this file.
golden = Path(__file__).resolve().parents[1] / "cli/export/golden.tfevents"
began_at = 1795255200.0
expected = {
    "env/all/correct": [(1, began_at, 0.25), (2, began_at + 3.5, 0.5)],
    "seconds": [(1, began_at, 3.0)],
    'eval/a"b': [(2, began_at + 3.5, 1.0)],
}

with tempfile.TemporaryDirectory() as folder:
    shutil.copy(golden, Path(folder) / "events.out.tfevents.1795255200.offbeat")
    events = EventAccumulator(folder).Reload()
    tags = events.Tags()["scalars"]
    found = {tag: [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)] for tag in tags}

for tag in sorted(expected | found):
    check = {
        "check": f"scalars of {tag}",
        "value": str(found.get(tag)),
        "bound": str(expected.get(tag)),
        "passed": found.get(tag) == expected.get(tag),
    }
    json.dump(check, sys.stdout)
    print()
