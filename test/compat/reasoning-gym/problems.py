"""Writes Countdown problems of reasoning-gym, and answers to them with its own verdicts.

problems.py COUNT OUT OURS: one line of JSON for each problem, with its numbers, its target and a list of
[answer, whether reasoning-gym gives it the full score]. Of each problem there are its own solution and
another answer, in turn of one of the kinds of `altered`. The problems of OURS follow, with their solutions.
"""

import json
import multiprocessing
import os
import random
import sys
from importlib.metadata import distribution
from types import ModuleType

# Without these, their __init__ would import all tasks, and with them packages that no index has as wheels.
for name in ("reasoning_gym", "reasoning_gym.games"):
    sys.modules[name] = ModuleType(name)
    folder = distribution("reasoning_gym").locate_file(name.replace(".", "/"))
    sys.modules[name].__path__ = [str(folder)]

from reasoning_gym.games.countdown import CountdownConfig, CountdownDataset  # noqa: E402

COUNT, OUT, OURS = int(sys.argv[1]), sys.argv[2], sys.argv[3]
PART = 500
judge = CountdownDataset(CountdownConfig(size=1, seed=0))


def joined(numbers, operators):
    return "".join(f"{number}{operator}" for number, operator in zip(numbers, operators, strict=True))


def drawn(numbers, rng):
    """The numbers in any order with any operators, some of it in parentheses: any value."""
    shuffled = rng.sample(numbers, len(numbers))
    operators = [rng.choice("+-*/") for _ in shuffled[1:]]
    cut = rng.randint(1, len(shuffled) - 1)
    left = joined(shuffled[:cut], [*operators[: cut - 1], ""])
    right = joined(shuffled[cut:], [*operators[cut:], ""])
    return f"({left}){operators[cut - 1]}({right})"


def altered(index, solution, numbers, target, rng):
    kinds = [
        lambda: drawn(numbers, rng),
        lambda: joined(numbers[1:], ["+"] * (len(numbers) - 2) + [""]),
        lambda: f"({solution})+{numbers[0]}-{numbers[0]}",
        lambda: f"-(-({solution}))",
        lambda: f" ( {solution} ) ",
        lambda: solution.replace("*", "**", 1),
        lambda: f"{solution}+0.0",
        lambda: f"{solution} = {target}",
        lambda: f"({solution})!",
        lambda: f"{solution})",
        lambda: solution.replace("*", "×").replace("/", "÷"),
        lambda: f"{target}",
    ]
    return kinds[index % len(kinds)]()


def part(start):
    count = min(PART, COUNT - start)
    config = CountdownConfig(min_numbers=3, max_numbers=4, min_target=1, size=count, seed=start)
    dataset = CountdownDataset(config)
    lines = []
    for i in range(count):
        try:
            entry = dataset[i]
        except ValueError:  # it has found no problem for this seed
            continue
        numbers, target = entry["metadata"]["numbers"], entry["metadata"]["target"]
        rng = random.Random(start + i)
        answers = [entry["answer"], altered(start + i, entry["answer"], numbers, target, rng)]
        lines.append(judged(numbers, target, answers))
    return "\n".join(lines)


def judged(numbers, target, answers):
    entry = {"metadata": {"numbers": numbers, "target": target}}
    verdicts = [[answer, judge.score_answer(answer, entry) == 1.0] for answer in answers]
    return json.dumps({"numbers": numbers, "target": target, "answers": verdicts})


def ours(line):
    problem = json.loads(line)
    return judged(problem["numbers"], problem["target"], [problem["solution"]])


if __name__ == "__main__":
    with multiprocessing.Pool(os.cpu_count()) as pool, open(OUT, "w", encoding="utf-8") as out:
        for lines in pool.imap(part, range(0, COUNT, PART)):
            print(lines, file=out)
        with open(OURS, encoding="utf-8") as problems:
            for line in pool.imap(ours, problems, PART):
                print(line, file=out)
