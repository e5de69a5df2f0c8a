"""Countdown for the Tinker cookbook's RL loop, on the model that ships with Offbeat.

    npx offbeat local-backend --api-key tml-local --model-dir DIR --model-name DIR
    TINKER_BASE_URL=http://127.0.0.1:10610 TINKER_API_KEY=tml-local python tools/cookbook/countdown.py

Three or four numbers up to 50 make a target up to 100, as in the model's pre-training. `--help` lists the settings, as
in `steps=40`. docs/backends.md has the output. It trains on any server of the Tinker API that serves the model.
"""

import asyncio
import json
import logging
import operator
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TQDM_DISABLE", "1")  # a bar for each batch; read as tqdm is imported

import chz
import tinker
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
from tinker_cookbook.tokenizer_utils import get_tokenizer

EMBEDDED_MODEL = str(Path(__file__).resolve().parents[2] / "shared/model/base")
MAX_TOKENS = 20
OPERATIONS = (operator.add, operator.sub, operator.mul)


@chz.chz
class Settings:
    model: str = EMBEDDED_MODEL  # its directory: the SDK reads the tokenizer there
    steps: int = 20
    groups: int = 16
    group_size: int = 16
    held_out: int = 128  # problems, of which each is answered 4 times before and after
    learning_rate: float = 2e-3
    lora_rank: int = 32
    seed: int = 0  # of the problems
    log_path: str | None = None  # a temporary folder; one that has checkpoints is resumed


def main(settings: Settings) -> None:
    logging.disable(logging.WARNING)  # of the cookbook: a table of a hundred lines a step
    with tempfile.TemporaryDirectory() as folder:
        path = settings.log_path or folder
        service = tinker.ServiceClient()
        base = client_of(service.create_sampling_client(base_model=settings.model))
        print(f"held-out problems solved before: {solved(base, settings):.1%}", flush=True)
        asyncio.run(train_and_report(configuration(settings, path), path))
        weights = read_lines(f"{path}/checkpoints.jsonl")[-1]["sampler_path"]
        trained = client_of(service.create_sampling_client(weights))
        print(f"held-out problems solved after: {solved(trained, settings):.1%}", flush=True)


def configuration(settings: Settings, log_path: str, **others) -> train.Config:
    """The cookbook's synchronous loop; `others` replace or extend its settings."""
    return train.Config(
        **{
            "model_name": settings.model,
            "recipe_name": "countdown",
            "dataset_builder": CountdownDatasetBuilder(settings=settings),
            "learning_rate": settings.learning_rate,
            "lora_rank": settings.lora_rank,
            "max_tokens": MAX_TOKENS,
            "log_path": log_path,
            "eval_every": 0,
            "save_every": 0,
        }
        | others
    )


async def train_and_report(config: train.Config, path: str) -> None:
    """Trains, and prints a line for each step as soon as the cookbook has logged it."""
    training = asyncio.create_task(train.main(config))
    printed, since = 0, time.monotonic()
    while True:
        await asyncio.wait([training], timeout=0.2)
        for row in steps_in(path)[printed:]:
            printed += 1
            reward, share = row["env/all/reward/total"], row["env/all/solved"]
            seconds = time.monotonic() - since
            print(f"step {printed:3}  {seconds:5.1f} s  reward {reward:.3f}  solved {share:.1%}", flush=True)
        if training.done():
            return await training


def steps_in(path: str) -> list[dict]:
    file = Path(path, "metrics.jsonl")
    rows = read_lines(file) if file.exists() else []
    return [row for row in rows if "env/all/solved" in row]


def read_lines(path: str | Path) -> list[dict]:
    """Leaves out a line that is still being written."""
    text = Path(path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def client_of(created):
    """The created client itself: SDK 0.38 returns a future of it."""
    return created.result() if hasattr(created, "result") else created


def solved(sampler, settings: Settings) -> float:
    """The share of 4 answers to each held-out problem that are right."""
    tokenizer = get_tokenizer(settings.model)
    params = tinker.SamplingParams(max_tokens=MAX_TOKENS, stop=[tokenizer.eos_token_id], seed=1)
    problems = held_out(settings)
    asked = [
        sampler.sample(tinker.ModelInput.from_ints(tokenizer.encode(prompt_of(each))), 4, params)
        for each in problems
    ]
    rewards = [
        reward_of(problem, tokenizer.decode(sequence.tokens, skip_special_tokens=True))
        for problem, answer in zip(problems, asked, strict=True)
        for sequence in answer.result().sequences
    ]
    return rewards.count(1.0) / len(rewards)


def problems(seed: int) -> Iterator[dict]:
    """Different solvable problems without end, the same for the same seed."""
    draw, seen = random.Random(seed), set()
    while True:
        numbers = [draw.randint(1, 50) for _ in range(draw.choice((3, 4)))]
        target = numbers[0]
        for number in numbers[1:]:
            target = draw.choice(OPERATIONS)(target, number)
        draw.shuffle(numbers)
        key = (*sorted(numbers), target)
        if 1 <= target <= 100 and key not in seen:
            seen.add(key)
            yield {"numbers": numbers, "target": target}


def held_out(settings: Settings) -> list[dict]:
    drawn = problems(settings.seed)
    return [next(drawn) for _ in range(settings.held_out)]


def prompt_of(problem: dict) -> str:
    """As the embedded model knows it: `3 17 21=72:` means `17*3+21`."""
    return f"{' '.join(map(str, problem['numbers']))}={problem['target']}:"


def reward_of(problem: dict, answer: str) -> float:
    """1 for the target, 0.1 for another value of all the numbers, else 0."""
    if re.fullmatch(r"[-0-9+*/()]+", answer) is None or re.search(r"\*\*|//", answer):
        return 0.0  # a power of powers may not end
    if sorted(map(int, re.findall(r"\d+", answer))) != sorted(problem["numbers"]):
        return 0.0
    try:
        value = eval(answer, {"__builtins__": None})
    except (SyntaxError, TypeError, ZeroDivisionError):
        return 0.0
    return 1.0 if abs(value - problem["target"]) < 1e-6 else 0.1


class CountdownEnv(Env):
    def __init__(self, problem, tokenizer):
        self.problem = problem
        self.tokenizer = tokenizer

    async def initial_observation(self):
        prompt = self.tokenizer.encode(prompt_of(self.problem))
        return tinker.ModelInput.from_ints(prompt), [self.tokenizer.eos_token_id]

    async def step(self, action, *, extra=None):
        reward = reward_of(self.problem, self.tokenizer.decode(action, skip_special_tokens=True))
        return StepResult(
            reward=reward,
            episode_done=True,
            next_observation=tinker.ModelInput.from_ints([]),
            next_stop_condition=[],
            metrics={"solved": float(reward == 1.0)},
        )


class CountdownGroup(EnvGroupBuilder):
    def __init__(self, problem, tokenizer, size):
        self.problem = problem
        self.tokenizer = tokenizer
        self.size = size

    async def make_envs(self):
        return [CountdownEnv(self.problem, self.tokenizer) for _ in range(self.size)]


class CountdownDataset(RLDataset):
    """The problems that follow the held-out ones, a batch a step."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.tokenizer = get_tokenizer(settings.model)
        drawn = problems(settings.seed)
        for _ in range(settings.held_out):
            next(drawn)
        self.problems = [next(drawn) for _ in range(settings.steps * settings.groups)]

    def get_batch(self, index):
        groups, size = self.settings.groups, self.settings.group_size
        chosen = self.problems[index * groups : (index + 1) * groups]
        return [CountdownGroup(each, self.tokenizer, size) for each in chosen]

    def __len__(self):
        return self.settings.steps


@chz.chz
class CountdownDatasetBuilder(RLDatasetBuilder):
    settings: Settings

    async def __call__(self):
        return CountdownDataset(self.settings), None


if __name__ == "__main__":
    chz.nested_entrypoint(main)
