"""What SDKs after 0.25 added and the local backend serves. An older SDK runs only the checks of what it has."""

import json
import os
import threading
import time
import urllib.request
from collections import Counter

import tinker
import torch
from tinker._base_client import AsyncAPIClient
from tinker.lib.internal_client_holder import InternalClientHolder
from tinker.resources.futures import AsyncFuturesResource

from checks import at_most, client_of, holds, offers, same
from reference import imitation, logprobs_of
from sampling import sample


def check_additions(world):
    if offers(tinker.TrainingClient.save_weights_and_get_sampling_client, "kind"):
        check_inflight(world)
    if offers(tinker.SamplingClient.compute_logprobs, "prompt_logprobs_last_n"):
        check_last_logprobs(world)
    if hasattr(tinker.SamplingClient, "from_sampler_handle"):
        sampler = world.sampler()
        copy = tinker.SamplingClient.from_sampler_handle(sampler.get_sampler_handle())
        same("a client of a sampler handle samples", len(sample(copy, world.prompts[0], 2)), 2)
    if hasattr(AsyncFuturesResource, "retrieve_multi"):
        check_polls(world)
    if hasattr(InternalClientHolder, "enqueue_cancel"):
        check_cancelling(world)
    if hasattr(tinker.ServiceClient, "create_custom_loss"):
        check_custom_loss(world)
    if hasattr(tinker.ServiceClient, "close"):
        check_closing(world)


def check_inflight(world):
    """An inflight sampler has the newest weights saved as such; a snapshot keeps its own."""
    client, data = world.client(rank=8, seed=4), [imitation(text) for text in world.texts]
    kinds = ("snapshot", "inflight")
    snapshot, inflight = [
        client_of(client.save_weights_and_get_sampling_client(kind=kind)) for kind in kinds
    ]
    before = logprobs_of(client.forward(data, "cross_entropy").result())
    client.forward_backward(data, "cross_entropy").result()
    client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    later = client_of(client.save_weights_and_get_sampling_client(kind="inflight"))
    after = logprobs_of(client.forward(data, "cross_entropy").result())

    def apart(sampler, expected):
        found = [
            torch.tensor(sampler.compute_logprobs(tinker.ModelInput.from_ints(text)).result()[1:])
            for text in world.texts
        ]
        return max((a - b).abs().max() for a, b in zip(found, expected, strict=True))

    moved = max((a - b).abs().max() for a, b in zip(before, after, strict=True))
    holds("inflight: the step changes the logprobs", moved > 0.01, f"by {moved:.2g}")
    at_most("a snapshot sampler: the weights before the step", apart(snapshot, before), 1e-4)
    at_most("an inflight sampler: the weights after the step", apart(inflight, after), 1e-4)
    at_most("a later inflight sampler: the same weights", apart(later, after), 1e-4)


def check_last_logprobs(world):
    sampler, text = world.sampler(), world.texts[0]
    prompt = tinker.ModelInput.from_ints(text)
    found = sampler.compute_logprobs(prompt, prompt_logprobs_last_n=3).result()
    same("prompt_logprobs_last_n=3: none before", found[:-3], [None] * (len(text) - 3))
    expected = world.reference.logprobs(text)[-3:]
    at_most(
        "prompt_logprobs_last_n=3: the others against transformers",
        (torch.tensor(found[-3:]) - expected).abs().max(),
        1e-4,
    )


def check_polls(world):
    """The samples of a client wait for one poll together, and each is fetched once."""
    calls = Counter()
    original = AsyncAPIClient.request

    async def counted(self, cast_to, options, **rest):
        calls[options.url.rsplit("/", 1)[-1]] += 1
        return await original(self, cast_to, options, **rest)

    AsyncAPIClient.request = counted
    try:
        sampler, prompt = world.sampler(), tinker.ModelInput.from_ints(world.prompts[0])
        asked = [sampler.sample(prompt, 1, tinker.SamplingParams(max_tokens=20)) for _ in range(64)]
        same("64 requests: answered", sum(len(each.result().sequences) for each in asked), 64)
    finally:
        AsyncAPIClient.request = original
    same("64 requests: fetched once each", calls["retrieve_future"], 64)
    polls = calls["retrieve_futures"]
    holds("64 requests: polled together", 1 <= polls <= 64, f"{polls} polls")


def check_cancelling(world):
    """A cancelled request of thousands of samples ends with an error, and the client goes on."""
    ids, has_all = [], threading.Event()
    original = InternalClientHolder.enqueue_cancel

    def noted(self, request_id):
        original(self, request_id)
        ids.append(request_id)
        if len(ids) == 4:
            has_all.set()

    InternalClientHolder.enqueue_cancel = noted
    try:
        sampler, prompt = world.sampler(), tinker.ModelInput.from_ints(world.prompts[0])
        params = tinker.SamplingParams(max_tokens=40, stop=[])
        asked = [sampler.sample(prompt, 4_000, params) for _ in range(4)]
        time.sleep(0.5)  # until they are submitted: the SDK has nothing to cancel before
        for each in asked:
            each.cancel()
        holds("4 cancelled requests: the SDK says so", has_all.wait(10))
    finally:
        InternalClientHolder.enqueue_cancel = original
    outcomes = [outcome_of(each) for each in ids]
    dropped = sum("cancelled" in each.get("error", "") for each in outcomes)
    holds("4 cancelled requests: dropped", dropped >= 3, f"{dropped} of 4")
    same("after cancelling, the client samples", len(sample(sampler, world.prompts[0], 2)), 2)


def check_custom_loss(world):
    """importance_sampling, traced by the SDK and evaluated by the backend: the same loss and the same gradient."""

    def corrected(logprobs, old_logprobs, advantages):
        ratio = torch.exp(logprobs - old_logprobs)
        return -(ratio * advantages).sum(), {"custom/ratio:mean": ratio.mean()}

    ranks = {"logprobs": 1, "old_logprobs": 1, "advantages": 1}
    handle = world.service.create_custom_loss(corrected, input_ranks=ranks).result()
    holds("a traced loss is uploaded", handle.loss_id is not None)

    def inputs(each, old):
        given = each.loss_fn_inputs
        taken = {"target_tokens": given["target_tokens"], "advantages": given["advantages"]}
        return tinker.Datum(
            model_input=each.model_input, loss_fn_inputs=taken | {old: given["logprobs"]}
        )

    def train(name, train_on):
        client = world.client(rank=8, seed=5)
        loss = train_on(client, [inputs(each, name) for each in world.rollouts()]).result()
        step = client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
        return loss.metrics, step.metrics["grad_norm:mean"]

    mine, my_norm = train("old_logprobs", lambda c, d: c.forward_backward_custom(d, handle))
    theirs, norm = train("logprobs", lambda c, d: c.forward_backward(d, "importance_sampling"))
    apart = abs(mine["loss:sum"] - theirs["loss:sum"])
    at_most("a traced importance_sampling: the loss of the built-in one", apart, 1e-4)
    at_most("a traced importance_sampling: its gradient norm", abs(my_norm / norm - 1), 1e-5)
    holds("a traced loss returns its metric", 0.5 < mine["custom/ratio:mean"] < 2)


def check_closing(world):
    """Programs, the cookbook's among them, end their session as they leave `with ServiceClient()`."""
    service = tinker.ServiceClient()
    client_of(service.create_sampling_client(base_model=world.model))
    try:
        service.close("success").result()
        said = "ended"
    except tinker.APIStatusError as error:
        said = str(error)
    same("closing a service client ends its session", said, "ended")


def outcome_of(request_id):
    request = urllib.request.Request(
        f"{os.environ['TINKER_BASE_URL']}/api/v1/retrieve_future",
        json.dumps({"request_id": request_id}).encode(),
        {"Content-Type": "application/json", "X-API-Key": os.environ["TINKER_API_KEY"]},
    )
    while True:
        with urllib.request.urlopen(request, timeout=60) as answer:
            outcome = json.load(answer)
        if outcome.get("type") != "try_again":
            return outcome
