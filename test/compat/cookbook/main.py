"""The cookbook's RL loop in its asynchronous mode against a running local backend.

Arguments: the model's directory, a file of problems to train on, one of held-out problems, and how
many steps to train: in a few, no progress is expected.
TINKER_BASE_URL and TINKER_API_KEY say where the backend is.
"""

import asyncio
import inspect
import json
import logging
import sys
import tempfile

import tinker
from tinker_cookbook.rl import train
from tinker_cookbook.tokenizer_utils import get_tokenizer

from problems import CountdownDatasetBuilder, prompt_of, read_lines, reward_of

# From 0.6 on, an asynchronous run has a loss of its own, discards no group, and logs its costs in a last row.
IS_PACED = "loss_fn" in inspect.signature(train.AsyncConfig).parameters
MANY = 12  # steps, after which more problems must be solved
GROUPS = 16
STALENESS = 3


def main(model, training, held_out, steps_asked):
    asked = int(steps_asked)
    service = tinker.ServiceClient()
    before = solved(client_of(service.create_sampling_client(base_model=model)), model, held_out)
    with tempfile.TemporaryDirectory() as folder:
        logging.disable(logging.WARNING)
        asyncio.run(train.main(configuration(model, training, folder, asked)))
        steps = steps_in(folder)
        path = read_lines(f"{folder}/checkpoints.jsonl")[-1]["sampler_path"]
        # The log folder makes it resume: weights and optimizer come from the last checkpoint.
        asyncio.run(train.main(configuration(model, training, folder, asked + 2)))
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
    after = solved(client_of(service.create_sampling_client(path)), model, held_out)
    report("held-out problems solved, before", before, "> 0.2", before > 0.2)
    gain = 0.03 if asked >= MANY else -0.1
    report("held-out problems solved, after", after, f"> before {gain:+}", after > before + gain)


def client_of(created):
    """The created client itself: SDK 0.38 returns a future of it."""
    return created.result() if hasattr(created, "result") else created


def steps_in(folder):
    return [row for row in read_lines(f"{folder}/metrics.jsonl") if "training_client/step" in row]


def configuration(model, training, folder, batches):
    return train.Config(
        model_name=model,
        recipe_name="countdown",
        dataset_builder=CountdownDatasetBuilder(
            path=training, model=model, batches=batches, groups=GROUPS, group_size=16
        ),
        learning_rate=1e-3,
        lora_rank=16,
        max_tokens=20,
        log_path=folder,
        eval_every=0,
        save_every=6,
        rolling_save_every=4,
        async_config=train.AsyncConfig(
            max_steps_off_policy=STALENESS,
            groups_per_batch=GROUPS,
            # Its default, stable_reinforce, needs a server that records the sampler's states.
            **({"loss_fn": "importance_sampling"} if IS_PACED else {}),
        ),
    )


def solved(sampler, model, path):
    """The share of 4 answers to each held-out problem that are right."""
    tokenizer = get_tokenizer(model)
    params = tinker.SamplingParams(max_tokens=20, stop=[tokenizer.eos_token_id], seed=1)
    problems = read_lines(path)
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


def report(check, value, bound, passed):
    print(json.dumps({"check": check, "value": value, "bound": bound, "passed": bool(passed)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
