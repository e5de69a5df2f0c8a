"""Forward, forward_backward and optim_step: the numbers are those of transformers and torch."""

import asyncio
from itertools import pairwise

import tinker

from checks import at_most, holds, same
from reference import datum, imitation, logprobs_of, losses

# Without settings, the defaults are TuFT's; those of gspo are the SDK's.
LOSSES = [
    ("cross_entropy", "cross_entropy", {}),
    ("cross_entropy at 0.7", "cross_entropy", {"temperature": 0.7}),
    ("importance_sampling", "importance_sampling", {}),
    ("ppo", "ppo", {}),
    ("ppo 0.8 1.2", "ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    ("cispo", "cispo", {}),
    ("cispo 0 4", "cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}),
    ("dro", "dro", {}),
    ("dro 0.3", "dro", {"beta": 0.3}),
    ("gspo", "gspo", {}),
    ("gspo 0.9 1.1", "gspo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}),
]


def check_training(world):
    check_forward(world)
    for label, name, config in LOSSES:
        check_loss(world, label, name, config)
    check_learning(world)
    check_chunks(world)
    asyncio.run(check_asynchronous(world))


def check_forward(world):
    client = world.client(rank=8)
    result = client.forward([imitation(text) for text in world.texts], "cross_entropy").result()
    expected = [world.reference.logprobs(text) for text in world.texts]
    worst = max((a - b).abs().max() for a, b in zip(logprobs_of(result), expected, strict=True))
    at_most("forward: logprobs against transformers", worst, 1e-4)
    loss = -sum(part.sum() for part in expected)
    at_most("forward: loss:sum, relative", abs(result.metrics["loss:sum"] / loss - 1), 1e-5)


def check_loss(world, label, name, config):
    """Value and gradient of a loss. The gradient is torch's, sent through forward_backward_custom:
    two runs that begin alike must be alike after a step of either."""
    builtin, custom = world.client(seed=11), world.client(seed=11)
    temperature = config.get("temperature", 1.0)
    data = world.rollouts()
    arrays = [{k: v.to_torch() for k, v in each.loss_fn_inputs.items()} for each in data]
    formula = losses(config)[name]

    result = builtin.forward_backward(data, name, config or None).result()
    current = [world.reference.logprobs(text, temperature) for text in world.texts]
    expected = sum(formula(l, d) for l, d in zip(current, arrays, strict=True))
    found = result.metrics["loss:sum"]
    at_most(f"{label}: loss, relative", abs(found - expected) / abs(expected), 1e-4)
    only_forward = builtin.forward(data, name, config or None).result().metrics["loss:sum"]
    at_most(f"{label}: forward alone, relative", abs(only_forward - found) / abs(found), 1e-4)
    if temperature != 1.0:
        return  # forward_backward_custom takes no config

    def torch_loss(_, logprobs):
        total = sum(formula(l, d) for l, d in zip(logprobs, arrays, strict=True))
        return total, {"custom": total.item()}

    bare = [
        datum(each.model_input.to_ints() + [int(a["target_tokens"][-1])])
        for each, a in zip(data, arrays, strict=True)
    ]
    mixed = custom.forward_backward_custom(bare, torch_loss).result()
    at_most(f"{label}: custom loss, relative", abs(mixed.metrics["custom"] / found - 1), 1e-4)
    after = [step_and_score(client, world) for client in (builtin, custom)]
    moved = max((a - b).abs().max() for a, b in zip(after[0], current, strict=True))
    apart = max((a - b).abs().max() for a, b in zip(*after, strict=True))
    holds(f"{label}: a step changes the logprobs", moved > 0.01, f"by {moved:.2g}")
    at_most(f"{label}: after a step along torch's gradient", apart / moved, 1e-3)


def step_and_score(client, world):
    client.optim_step(tinker.AdamParams(learning_rate=1e-3, eps=1e-8)).result()
    texts = [imitation(text) for text in world.texts]
    return logprobs_of(client.forward(texts, "cross_entropy").result())


def check_learning(world):
    """All submitted before any is awaited, as the SDK's guide recommends."""
    client = world.client(rank=8)
    data = [imitation(text) for text in world.texts]
    passes, steps = [], []
    for _ in range(8):
        passes.append(client.forward_backward(data, "cross_entropy"))
        steps.append(client.optim_step(tinker.AdamParams(learning_rate=2e-3)))
    fallen = [each.result().metrics["loss:sum"] for each in passes]
    holds(
        "8 pipelined steps: each loss is below the one before",
        all(b < a for a, b in pairwise(fallen)),
        f"{fallen[0]:.1f} → {fallen[-1]:.1f}",
    )
    same("8 pipelined steps: counted", steps[-1].result().metrics["step:max"], 8.0)


def check_chunks(world):
    """More than the 1,024 that the SDK puts into one request."""
    client = world.client(rank=4)
    data = [imitation(world.texts[i % len(world.texts)]) for i in range(1_100)]
    whole = client.forward_backward(data, "cross_entropy").result()
    same("1,100 datums: an output each", len(whole.loss_fn_outputs), 1_100)
    parts = [world.reference.logprobs(text).sum() for text in world.texts]
    expected = -sum(parts[i % len(parts)] for i in range(1_100))
    at_most(
        "1,100 datums: loss over two requests, relative",
        abs(whole.metrics["loss:sum"] / expected - 1),
        1e-5,
    )
    custom = client.forward_backward_custom(
        [datum(world.texts[i % len(world.texts)]) for i in range(1_100)],
        lambda _, logprobs: (-sum(each.sum() for each in logprobs), {}),
    ).result()
    at_most(
        "1,100 datums: custom loss over two requests, relative",
        abs(custom.metrics["loss:sum"] / expected - 1),
        1e-5,
    )


async def check_asynchronous(world):
    client = await world.service.create_lora_training_client_async(world.model, rank=4, seed=5)
    twin = world.client(rank=4, seed=5)
    data = [imitation(text) for text in world.texts]
    adam = tinker.AdamParams(learning_rate=1e-3)
    pass_ = await client.forward_backward_async(data, "cross_entropy")
    step = await client.optim_step_async(adam)
    await pass_
    await step.result_async()
    twin.forward_backward(data, "cross_entropy").result()
    twin.optim_step(adam).result()
    mine = await (await client.forward_async(data, "cross_entropy"))
    other = twin.forward(data, "cross_entropy").result()
    same(
        "asynchronous calls: the same loss, to the bit",
        mine.metrics["loss:sum"],
        other.metrics["loss:sum"],
    )
    info = await client.get_info_async()
    same("get_info: model and rank", (info.model_data.model_name, info.lora_rank), (world.model, 4))
    capabilities = await world.service.get_server_capabilities_async()
    names = [each.model_name for each in capabilities.supported_models]
    same("get_server_capabilities: the model", names, [world.model])
    tokenizer = client.get_tokenizer()
    same("get_tokenizer: there and back", tokenizer.decode(tokenizer.encode("3*(7+1)")), "3*(7+1)")
