"""Writes Countdown problems of reasoning-gym for reasoning-gym.json, one line of JSON each, the held-out ones first.

python3 docs/experiments/reasoning_gym.py OUT

Needs `pip install reasoning-gym==0.1.25`, or that package with `--no-deps` and numpy, sympy and PyYAML. It takes some minutes. The same
seeds give the same file; it appears under its name when it is complete.
"""

import json
import os
import sys
from importlib.metadata import distribution
from types import ModuleType

# Without these, their __init__ imports all tasks with their packages, and Countdown needs none of them.
for name in ("reasoning_gym", "reasoning_gym.games"):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = [str(distribution("reasoning_gym").locate_file(name.replace(".", "/")))]

from reasoning_gym.games.countdown import CountdownConfig, CountdownDataset  # noqa: E402

HELD_OUT, TRAIN = 1024, 20480
RANGES = {"min_numbers": 3, "max_numbers": 3, "min_value": 1, "max_value": 50, "min_target": 101, "max_target": 200}


def problems(seed, count):
    """`count` problems of a dataset; it has none at an index for which it found no expression."""
    dataset, index = CountdownDataset(CountdownConfig(seed=seed, size=2 * count, **RANGES)), 0
    while count > 0:
        try:
            yield dataset[index]["metadata"]
            count -= 1
        except ValueError:
            pass
        index += 1


partial = f"{sys.argv[1]}.partial"
with open(partial, "w", encoding="utf-8") as out:
    for seed, count in ((1, HELD_OUT), (2, TRAIN)):
        for problem in problems(seed, count):
            print(json.dumps({"nums": problem["numbers"], "target": problem["target"]}), file=out)
os.replace(partial, sys.argv[1])
