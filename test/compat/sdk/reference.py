"""The reference for the SDK's answers: transformers on the same directory, and torch."""

import tinker
import torch
from transformers import AutoModelForCausalLM


class Reference:
    """The base model as transformers computes it, on the CPU in float32."""

    def __init__(self, directory):
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()

    def logprobs(self, tokens, temperature=1.0, model=None):
        """[N] logprobs of tokens[1:], each given all before it."""
        with torch.no_grad():
            logits = (model or self.model)(torch.tensor([tokens[:-1]])).logits[0]
        picked = torch.log_softmax(logits / temperature, dim=-1)
        return picked[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]

    def distributions(self, tokens):
        """[N, V] logprobs of every token in the place of tokens[1:], each given all before it."""
        with torch.no_grad():
            return torch.log_softmax(self.model(torch.tensor([tokens[:-1]])).logits[0], dim=-1)

    def next_token(self, prompt):
        """[V] probabilities of what follows the prompt."""
        with torch.no_grad():
            return torch.softmax(self.model(torch.tensor([prompt])).logits[0, -1], dim=-1)

    def greedy(self, prompt, max_tokens):
        out = self.model.generate(
            torch.tensor([prompt]), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
        )
        return out[0, len(prompt) :].tolist()


def datum(tokens, **inputs):
    """Trains on tokens[1:]; `inputs` are arrays as long as that, by their names in the loss."""
    target = {"target_tokens": torch.tensor(tokens[1:])}
    arrays = target | {name: torch.as_tensor(array) for name, array in inputs.items()}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            name: tinker.TensorData.from_torch(array) for name, array in arrays.items()
        },
    )


def imitation(tokens):
    return datum(tokens, weights=torch.ones(len(tokens) - 1))


def logprobs_of(result):
    return [output["logprobs"].to_torch() for output in result.loss_fn_outputs]


def losses(config):
    """Each a function of one datum's current logprobs: five as TuFT defines them, and GSPO in its token form, whose
    ratio is that of the marked tokens together."""
    low, high = config.get("clip_low_threshold", 0.9), config.get("clip_high_threshold", 1.1)
    beta = config.get("beta", 0.01)

    def ratio(logprobs, data):
        return torch.exp(logprobs - data["logprobs"])

    def gspo(logprobs, data):
        marked = data["sequence_ratio_mask"] != 0
        ratio = torch.exp((logprobs.detach() - data["logprobs"])[marked].mean())
        each = ratio * torch.exp(logprobs - logprobs.detach())
        lowest = config.get("clip_low_threshold", 0.9997)
        highest = config.get("clip_high_threshold", 1.0004)
        clipped = each.clamp(lowest, highest)
        return -torch.minimum(each * data["advantages"], clipped * data["advantages"]).sum()

    return {
        "gspo": gspo,
        "cross_entropy": lambda l, d: -(l * d["weights"]).sum(),
        "importance_sampling": lambda l, d: -(ratio(l, d) * d["advantages"]).sum(),
        "ppo": lambda l, d: (
            -torch.minimum(
                ratio(l, d) * d["advantages"], ratio(l, d).clamp(low, high) * d["advantages"]
            ).sum()
        ),
        "cispo": lambda l, d: -(ratio(l, d).clamp(low, high).detach() * l * d["advantages"]).sum(),
        "dro": lambda l, d: -(l * d["advantages"] - 0.5 * beta * (l - d["logprobs"]) ** 2).sum(),
    }
