"""Countdown as the embedded model knows it, for the cookbook: `3 17 21=72:` means `17*3+21`."""

import json
import re

import chz
import tinker
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
from tinker_cookbook.tokenizer_utils import get_tokenizer


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def prompt_of(problem):
    return f"{' '.join(map(str, problem['numbers']))}={problem['target']}:"


def reward_of(problem, answer):
    """1 for the target, 0.1 for another value of all the numbers, else 0."""
    if re.fullmatch(r"[-0-9+*/()]+", answer) is None:
        return 0.0
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
    def __init__(self, problems, tokenizer, batches, groups, group_size):
        self.problems = problems
        self.tokenizer = tokenizer
        self.batches = batches
        self.groups = groups
        self.group_size = group_size

    def get_batch(self, index):
        chosen = self.problems[index * self.groups : (index + 1) * self.groups]
        return [CountdownGroup(each, self.tokenizer, self.group_size) for each in chosen]

    def __len__(self):
        return self.batches


@chz.chz
class CountdownDatasetBuilder(RLDatasetBuilder):
    path: str  # of a file with a problem a line
    model: str  # whose tokenizer is used
    batches: int
    groups: int
    group_size: int

    async def __call__(self):
        problems = read_lines(self.path)
        tokenizer = get_tokenizer(self.model)
        train = CountdownDataset(problems, tokenizer, self.batches, self.groups, self.group_size)
        return train, None
