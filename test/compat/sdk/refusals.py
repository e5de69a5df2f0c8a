"""Invalid requests are refused soon, with a reason, and leave the run usable."""

import tinker
import torch
from tinker import types

from checks import at_most, client_of, offers, refused
from reference import datum, imitation
from sampling import sample


def check_refusals(world):
    check_access()
    check_creation(world)
    check_data(world)
    check_sampling_requests(world)


def check_access():
    refused(
        "a key without tml-, by the SDK itself",
        lambda: tinker.ServiceClient(api_key="other").get_server_capabilities(),
        tinker.TinkerError,
        "tml-",
    )
    refused(
        "a wrong key",
        lambda: tinker.ServiceClient(api_key="tml-wrong").get_server_capabilities(),
        tinker.PermissionDeniedError,
        "Invalid API key",
    )


def check_creation(world):
    service = world.service
    for name, call in (
        ("to train", service.create_lora_training_client),
        ("to sample", lambda model: service.create_sampling_client(base_model=model)),
    ):
        refused(
            f"an unknown model {name}",
            lambda: client_of(call("Qwen/None")),
            tinker.NotFoundError,
            f'is not served; use "{world.model}"',
        )
    refused(
        "a rank of 0",
        lambda: world.client(rank=0),
        tinker.UnprocessableEntityError,
        "rank",
    )
    refused(
        "the output head alone",
        lambda: client_of(
            service.create_lora_training_client(
                world.model, rank=4, train_mlp=False, train_attn=False
            )
        ),
        tinker.BadRequestError,
        "train_attn or train_mlp",
    )
    refused(
        "an unknown checkpoint to sample from",
        lambda: world.sampler(model_path="tinker://x/sampler_weights/y"),
        tinker.NotFoundError,
        "not found",
    )
    refused(
        "an unknown checkpoint to train from",
        lambda: client_of(service.create_training_client_from_state("tinker://x/weights/y")),
        tinker.NotFoundError,
        "not found",
    )


def check_data(world):
    client, text = world.client(rank=4), world.texts[0]
    length = len(text) - 1
    failed = tinker.RequestFailedError
    before = client.forward([imitation(text)], "cross_entropy").result().metrics["loss:sum"]

    def passing(data, loss="cross_entropy"):
        return lambda: client.forward_backward([data], loss).result()

    refused(
        "an unknown loss", passing(imitation(text), "reinforce"), failed, "importance_sampling, ppo"
    )
    refused("no weights", passing(datum(text)), failed, f"needs {length} weights")
    refused("no logprobs", passing(imitation(text), "ppo"), failed, f"needs {length} logprobs")
    refused(
        "weights of another length", passing(datum(text, weights=[1.0])), failed, "weights has 1"
    )
    refused(
        "a weight that is NaN", passing(datum(text, weights=[float("nan")] * length)), failed, "NaN"
    )
    refused("a token that is none", passing(imitation([5, 99_999, 7])), failed, "token 99999")
    refused("a text that is too long", passing(imitation([5] * 80)), failed, "79 tokens")
    refused("two targets a position", passing(two_targets()), failed, "not 1-D")
    refused("an image", passing(image()), failed, "expected text")
    refused(
        "a name with a slash", lambda: client.save_state("a/b").result(), failed, "checkpoint name"
    )
    refused("no tinker path", lambda: client.load_state("state").result(), failed, "tinker path")
    state = world.client(rank=8).save_state("larger").result().path
    refused(
        "a state of another rank", lambda: client.load_state(state).result(), failed, "rank is 8"
    )

    after = client.forward_backward([imitation(text)], "cross_entropy").result()
    drift = abs(after.metrics["loss:sum"] / before - 1)
    at_most("the run is as it was after all that, relative", drift, 1e-5)
    refused(
        "a learning rate that is NaN",
        lambda: client.optim_step(types.AdamParams(learning_rate=float("nan"))).result(),
        (ValueError, tinker.UnprocessableEntityError),
        ("JSON", "expected number, received null"),  # by the SDK itself; SDK 0.38 sends null
    )
    step = client.optim_step(types.AdamParams(learning_rate=1e-3)).result(timeout=60)
    at_most("the run goes on behind an operation that never came", step.metrics["step:max"], 1)


def two_targets():
    targets = torch.tensor([[5, 6], [7, 8]])
    inputs = {"target_tokens": targets, "weights": torch.ones(2, 2)}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints([5, 6]),
        loss_fn_inputs={k: tinker.TensorData.from_torch(v) for k, v in inputs.items()},
    )


def image():
    chunk = types.ImageChunk(data=b"png", format="png", expected_tokens=2)
    inputs = {"target_tokens": torch.tensor([5, 6]), "weights": torch.ones(2)}
    return tinker.Datum(
        model_input=tinker.ModelInput(chunks=[chunk]),
        loss_fn_inputs={k: tinker.TensorData.from_torch(v) for k, v in inputs.items()},
    )


def check_sampling_requests(world):
    sampler = world.sampler()

    def asking(tokens=world.prompts[0], questions={}, **params):
        params = tinker.SamplingParams(**{"max_tokens": 4, **params})
        prompt = tinker.ModelInput.from_ints(tokens)
        return lambda: sampler.sample(prompt, 1, params, **questions).result()

    bad = tinker.BadRequestError
    refused("top_k", asking(top_k=3), bad, "top_k is 3")
    refused("top_p", asking(top_p=0.9), bad, "top_p is 0.9")
    refused(
        "topk_prompt_logprobs of more than the vocabulary",
        asking(questions={"topk_prompt_logprobs": 23}),
        bad,
        "topk_prompt_logprobs is 23; at most 22",
    )
    refused("an empty prompt", asking([]), bad, "no tokens")
    refused("a prompt that is too long", asking([5] * 80), bad, "80 tokens")
    refused("a prompt with a token that is none", asking([99_999]), bad, "token 99999")
    refused(
        "a negative temperature",
        asking(temperature=-1),
        tinker.UnprocessableEntityError,
        "temperature",
    )
    target = tinker.TensorData.from_torch(torch.zeros(len(world.prompts[0]) - 1, 1).long())
    for name, value in (("prompt_alt_tokens_k", 2), ("target_prompt_logprobs", target)):
        if offers(tinker.SamplingClient.sample, name):
            refused(name, asking(questions={name: value}), tinker.APIStatusError, f"{name} is")
    if offers(tinker.ServiceClient.create_sampling_client, "record_stability_info"):
        recording = world.sampler(base_model=world.model, record_stability_info=True)
        refused(
            "record_stability_info, which stable_reinforce needs",
            lambda: sample(recording, world.prompts[0]),
            tinker.APIStatusError,
            "record_stability_info is",
        )
