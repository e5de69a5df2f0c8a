"""The cookbook's RL loop in its asynchronous mode against a running local backend.

Argument: how many steps to train: in a few, no progress is expected.
TINKER_BASE_URL and TINKER_API_KEY say where the backend is.
"""

import asyncio
import inspect
import json
import logging
import sys
import tempfile
from pathlib import Path

import chz
import tinker
from tinker_cookbook.rl import train

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/cookbook"))
import countdown
from countdown import Settings, client_of, read_lines, solved, steps_in

# From 0.6 on, an asynchronous run has a loss of its own, discards no group, and logs its costs in a last row.
IS_PACED = "loss_fn" in inspect.signature(train.AsyncConfig).parameters
MANY = 12  # steps, after which more problems must be solved
STALENESS = 3


def main(steps_asked):
    asked = int(steps_asked)
    settings = Settings(steps=asked, held_out=512)
    service = tinker.ServiceClient()
    before = solved(client_of(service.create_sampling_client(base_model=settings.model)), settings)
    with tempfile.TemporaryDirectory() as folder:
        logging.disable(logging.WARNING)
        asyncio.run(train.main(configuration(settings, folder)))
        steps = steps_in(folder)
        path = read_lines(f"{folder}/checkpoints.jsonl")[-1]["sampler_path"]
        # The log folder makes it resume: weights and optimizer come from the last checkpoint.
        asyncio.run(train.main(configuration(chz.replace(settings, steps=asked + 2), folder)))
        resumed = steps_in(folder)[len(steps) :]
    # Towards the end cookbook 0.5 drops groups that are too stale, and with them whole steps.
    report("steps trained", len(steps), f"{asked // 2} to {asked}", len(steps) >= asked // 2)
    counted = steps[-1]["step:max"]
    report("steps that the backend counted", counted, str(len(steps)), counted == len(steps))
    drift = steps[0]["optim/kl_sample_train_v2"]
    report("KL of sampler and trainer, same weights", drift, "< 1e-6", abs(drift) < 1e-6)
    stalest = max(each["training_client/step"] - each["sampling_client/step_min"] for each in steps)
    most = STALENESS + IS_PACED  # a slow group is trained on, a step later
    report("stalest group, in steps", stalest, f"1 to {most}", 1 <= stalest <= most)
    onward = [each["step:max"] for each in resumed]
    expected = list(range(len(steps) + 1, len(steps) + 1 + len(onward)))
    report("steps counted after resuming", str(onward), "goes on", onward and onward == expected)
    after = solved(client_of(service.create_sampling_client(path)), settings)
    report("held-out problems solved, before", before, "> 0.2", before > 0.2)
    gain = 0.03 if asked >= MANY else -0.1
    report("held-out problems solved, after", after, f"> before {gain:+}", after > before + gain)


def configuration(settings, folder):
    return countdown.configuration(
        settings,
        folder,
        save_every=6,
        rolling_save_every=4,
        async_config=train.AsyncConfig(
            max_steps_off_policy=STALENESS,
            groups_per_batch=settings.groups,
            # Its default, stable_reinforce, needs a server that records the sampler's states.
            **({"loss_fn": "importance_sampling"} if IS_PACED else {}),
        ),
    )


def report(check, value, bound, passed):
    print(json.dumps({"check": check, "value": value, "bound": bound, "passed": bool(passed)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
