"""Sampling: from the right distribution, with its logprobs, as often and as long as asked for."""

import asyncio
import pickle
from collections import Counter

import tinker
import torch

from checks import at_most, holds, offers, same


def check_sampling(world):
    sampler = world.sampler()
    check_samples(world, sampler)
    check_distribution(world, sampler)
    check_ends(world, sampler)
    check_prompt_logprobs(world, sampler)
    check_most_probable(world, sampler)
    asyncio.run(check_asynchronous(world, sampler))
    copy = pickle.loads(pickle.dumps(sampler))
    same("a pickled client samples", len(sample(copy, world.prompts[0], 2)), 2)
    same("get_base_model", sampler.get_base_model(), world.model)
    same("get_tokenizer", sampler.get_tokenizer().encode("1+2"), world.tokenizer.encode("1+2"))


def sample(client, prompt, count=1, **params):
    params = {"max_tokens": 20, **params}
    answer = client.sample(
        tinker.ModelInput.from_ints(prompt), count, tinker.SamplingParams(**params)
    )
    return answer.result().sequences


def check_samples(world, sampler):
    for temperature in (1.0, 0.5):
        sequences = sample(sampler, world.prompts[0], 16, seed=1, temperature=temperature)
        same(f"num_samples=16 at temperature {temperature}", len(sequences), 16)
        worst = 0.0
        for each in sequences:
            text = world.prompts[0] + list(each.tokens)
            expected = world.reference.logprobs(text, temperature)[-len(each.tokens) :]
            worst = max(worst, (torch.tensor(each.logprobs) - expected).abs().max())
        at_most(f"their logprobs against transformers, {temperature}", worst, 1e-4)
    ends = {
        (each.stop_reason, each.tokens[-1] == world.eos, len(each.tokens)) for each in sequences
    }
    holds(
        "stop_reason is stop where the end token came, else length",
        all((reason == "stop") == is_eos and (is_eos or n == 20) for reason, is_eos, n in ends),
        Counter(each.stop_reason for each in sequences),
    )

    def tokens(**params):
        return [list(each.tokens) for each in sample(sampler, world.prompts[0], 8, **params)]

    same("the same seed, the same answers", tokens(seed=5), tokens(seed=5))
    holds("another seed, other answers", tokens(seed=5) != tokens(seed=6))
    holds("no seed, other answers each time", tokens() != tokens())
    greedy = list(sample(sampler, world.prompts[1], temperature=0)[0].tokens)
    same("temperature 0 against generate()", greedy, world.reference.greedy(world.prompts[1], 20))


def check_distribution(world, sampler):
    """First tokens of 2,000 answers against the probabilities that transformers gives."""
    count = 2_000
    firsts = Counter(
        each.tokens[0] for each in sample(sampler, world.prompts[0], count, seed=9, max_tokens=1)
    )
    expected = world.reference.next_token(world.prompts[0])
    distance = sum(abs(firsts[t] / count - float(p)) for t, p in enumerate(expected)) / 2
    at_most("2,000 first tokens: total variation from softmax", distance, 0.05)


def check_ends(world, sampler):
    prompt, greedy = world.prompts[0], {"temperature": 0}
    whole = list(sample(sampler, prompt, **greedy)[0].tokens)
    middle = whole[2]
    upto = whole[: whole.index(middle) + 1]
    cut = sample(sampler, prompt, stop=[middle], **greedy)[0]
    same("stop by token id", (list(cut.tokens), cut.stop_reason), (upto, "stop"))
    word = world.tokenizer.decode(whole[1:3])
    cut = sample(sampler, prompt, stop=[word], **greedy)[0]
    same("stop by a text of two tokens", (list(cut.tokens), cut.stop_reason), (whole[:3], "stop"))
    cut = sample(sampler, prompt, stop=word, **greedy)[0]
    same("stop as a plain string", list(cut.tokens), whole[:3])
    cut = sample(sampler, prompt, max_tokens=3, **greedy)[0]
    same("max_tokens=3", (list(cut.tokens), cut.stop_reason), (whole[:3], "length"))
    same(
        "no max_tokens: at most 16",
        len(sample(sampler, prompt, max_tokens=None)[0].tokens) <= 16,
        True,
    )
    same("a seed of 64 bits", len(sample(sampler, prompt, seed=2**63 + 11)), 1)


def check_prompt_logprobs(world, sampler):
    for text in world.texts:
        first, *rest = sampler.compute_logprobs(tinker.ModelInput.from_ints(text)).result()
        worst = (torch.tensor(rest) - world.reference.logprobs(text)).abs().max()
        if first is not None or worst > 1e-4:
            break
    same("compute_logprobs: none for the first token", first, None)
    at_most("compute_logprobs against transformers", worst, 1e-4)

    prompt = tinker.ModelInput.from_ints(world.prompts[0])
    params = tinker.SamplingParams(max_tokens=20, seed=2)
    answer = sampler.sample(prompt, 1, params, include_prompt_logprobs=True).result()
    text = world.prompts[0] + list(answer.sequences[0].tokens)
    both = answer.prompt_logprobs[1:] + list(answer.sequences[0].logprobs)
    scored = sampler.compute_logprobs(tinker.ModelInput.from_ints(text)).result()[1:]
    apart = (torch.tensor(both) - torch.tensor(scored)).abs().max()
    at_most("sampled and prompt logprobs against compute_logprobs", apart, 1e-4)


def check_most_probable(world, sampler):
    """The most probable tokens at each position, of the prompt and, with SDKs that ask for them, of the sample."""
    few, prompt = 5, world.prompts[0]
    samples_too = offers(tinker.SamplingClient.sample, "topk_sample_logprobs")
    answer = sampler.sample(
        tinker.ModelInput.from_ints(prompt),
        1,
        tinker.SamplingParams(max_tokens=20, seed=3),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=few,
        **({"topk_sample_logprobs": few} if samples_too else {}),
    ).result()
    sequence = answer.sequences[0]
    expected = world.reference.distributions(prompt + list(sequence.tokens)).topk(few)
    tokens, logprobs = expected.indices.tolist(), expected.values
    places = len(prompt) - 1

    def compare(label, found, tokens, logprobs):
        same(f"{label}: the tokens", [[t for t, _ in each] for each in found], tokens)
        apart = (torch.tensor([[l for _, l in each] for each in found]) - logprobs).abs().max()
        at_most(f"{label}: logprobs against transformers", apart, 1e-4)

    first, *rest = answer.topk_prompt_logprobs
    same(f"topk_prompt_logprobs={few}: none for the first token", first, None)
    compare(f"topk_prompt_logprobs={few}", rest, tokens[:places], logprobs[:places])
    if samples_too:
        found = sequence.topk_logprobs
        compare(f"topk_sample_logprobs={few}", found, tokens[places:], logprobs[places:])


async def check_asynchronous(world, sampler):
    """Samples like the cookbook: one request per rollout, all at once."""
    prompt = tinker.ModelInput.from_ints(world.prompts[0])
    params = tinker.SamplingParams(max_tokens=20)
    asked = [sampler.sample_async(prompt, 1, params) for _ in range(128)]
    answers = [each.sequences[0] for each in await asyncio.gather(*asked)]
    same("128 requests at once: answered", len(answers), 128)
    kinds = {tuple(each.tokens) for each in answers}
    holds("128 requests at once: each its own chance", len(kinds) > 8, f"{len(kinds)} answers")
    worst = 0.0
    for each in answers[:16]:
        expected = world.reference.logprobs(world.prompts[0] + list(each.tokens))
        found = torch.tensor(each.logprobs)
        worst = max(worst, (found - expected[-len(found) :]).abs().max())
    at_most("128 requests at once: logprobs against transformers", worst, 1e-4)
