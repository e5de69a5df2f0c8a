"""The cookbook's asynchronous RL loop for a time, on problems of a file; prints a line for each step.

Arguments: a JSON object of the settings below. TINKER_BASE_URL and TINKER_API_KEY say where the server is.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

from tinker_cookbook.rl import train

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/cookbook"))
import countdown
from countdown import (
    CountdownEnv,
    CountdownGroup,
    RLDataset,
    RLDatasetBuilder,
    Settings,
    StepResult,
    chz,
    get_tokenizer,
    read_lines,
    reward_of,
    steps_in,
    tinker,
)


def main(problems, minutes, bound, groups, group_size, learning_rate, lora_rank, loss, bounds):
    logging.disable(logging.WARNING)
    settings = Settings(groups=groups, group_size=group_size, learning_rate=learning_rate, lora_rank=lora_rank)
    with tempfile.TemporaryDirectory() as folder:
        config = countdown.configuration(
            settings,
            folder,
            dataset_builder=FromFile(settings=settings, problems=problems),
            remove_constant_reward_groups=True,
            ttl_seconds=None,
            loss_fn_config=bounds,
            async_config=train.AsyncConfig(
                max_steps_off_policy=bound, groups_per_batch=groups, loss_fn=loss
            ),
        )
        asyncio.run(train_for(60 * minutes, config, folder))


async def train_for(seconds, config, folder):
    training = asyncio.create_task(train.main(config))
    printed, since = 0, time.monotonic()
    while not training.done() and (now := time.monotonic() - since) < seconds:
        await asyncio.wait([training], timeout=0.05)
        for row in steps_in(folder)[printed:]:
            printed += 1
            step = {"step": printed, "seconds": round(now, 2), "staleness": row.get("async/staleness_mean", 0)}
            print(json.dumps(step | {"right": sum(outcomes), "answers": len(outcomes)}), flush=True)
            outcomes.clear()
    if training.done():
        await training  # it failed, or the problems were too few
        sys.exit("the problems were used up before the time")
    os._exit(0)  # without waiting for the answers that are being sampled


outcomes = []  # of the answers since the last step, also of those whose group is not trained on


class BinaryEnv(CountdownEnv):
    """1 for the target, else 0."""

    async def step(self, action, *, extra=None):
        answer = self.tokenizer.decode(action, skip_special_tokens=True)
        is_right = reward_of(self.problem, answer) == 1.0
        outcomes.append(is_right)
        return StepResult(
            reward=float(is_right),
            episode_done=True,
            next_observation=tinker.ModelInput.from_ints([]),
            next_stop_condition=[],
            metrics={"solved": float(is_right)},
        )


class BinaryGroup(CountdownGroup):
    async def make_envs(self):
        return [BinaryEnv(self.problem, self.tokenizer) for _ in range(self.size)]


@chz.chz
class FromFile(RLDatasetBuilder):
    settings: Settings
    problems: str

    async def __call__(self):
        return Problems(self.settings, read_lines(self.problems)), None


class Problems(RLDataset):
    def __init__(self, settings, problems):
        self.settings = settings
        self.tokenizer = get_tokenizer(settings.model)
        self.problems = [{"numbers": each["nums"], "target": each["target"]} for each in problems]

    def get_batch(self, index):
        groups, size = self.settings.groups, self.settings.group_size
        chosen = self.problems[index * groups : (index + 1) * groups]
        return [BinaryGroup(each, self.tokenizer, size) for each in chosen]

    def __len__(self):
        return len(self.problems) // self.settings.groups


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
