"""The real Tinker SDK against a running local backend, by its public API alone (but for additions.py).

Its argument is the model directory, which is also the model's name there. TINKER_BASE_URL and
TINKER_API_KEY say where the backend is.
"""

import logging
import random
import sys
import warnings

import tinker
import torch
from transformers import AutoTokenizer

from additions import check_additions
from checkpoints import check_checkpoints
from checks import client_of
from protocol import check_protocol
from reference import Reference, datum
from refusals import check_refusals
from sampling import check_sampling
from training import check_training

PROBLEMS = [
    ("3 17 21=72:", "17*3+21"),
    ("4 6=24:", "4*6"),
    ("1 9 11=21:", "1+9+11"),
    ("5 5 8=17:", "(5+5)+8-1"),
    ("12 30=18:", "30-12"),
]


class World:
    """The inputs of every check: the service, the model's name, the reference, training texts."""

    def __init__(self, model):
        self.model = model
        self.service = tinker.ServiceClient(user_metadata={"suite": "sdk"})
        self.reference = Reference(model)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        eos = self.reference.model.config.eos_token_id
        self.prompts = [self.tokenizer.encode(prompt) for prompt, _ in PROBLEMS]
        self.texts = [
            prompt + self.tokenizer.encode(answer) + [eos]
            for prompt, (_, answer) in zip(self.prompts, PROBLEMS, strict=True)
        ]
        self.eos = eos

    def client(self, rank=8, seed=3):
        return client_of(
            self.service.create_lora_training_client(self.model, rank=rank, seed=seed)
        )

    def sampler(self, **source):
        source = source or {"base_model": self.model}
        return client_of(self.service.create_sampling_client(**source))

    def rollouts(self):
        """One datum per text with the inputs of every loss, off-policy by up to half a nat per token."""
        chance = random.Random(7)
        data = []
        for text in self.texts:
            current = self.reference.logprobs(text)
            noise = torch.tensor([chance.uniform(-0.5, 0.5) for _ in text[1:]])
            data.append(
                datum(
                    text,
                    weights=torch.ones(len(current)),
                    logprobs=(current + noise).clamp(max=0),
                    advantages=torch.tensor([chance.uniform(-1, 1) for _ in text[1:]]),
                    sequence_ratio_mask=torch.tensor(
                        [float(t % 3 != 1) for t in range(len(current))]
                    ),
                )
            )
        return data


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # what is refused on purpose
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_protocol()
    world = World(sys.argv[1])
    check_training(world)
    check_sampling(world)
    check_checkpoints(world)
    check_refusals(world)
    check_additions(world)
