"""Sampling with transformers, in the place of vLLM: slow, but real and on any machine.

One token at a time with a key-value cache, all samples of a request as one batch. Logprobs are those of
the distribution that a token was drawn from, after temperature, top-k and top-p, as TuFT sets vLLM.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from peft import PeftModel
from tinker import types
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from tuft.backends.base_backend import BaseSamplingBackend
from tuft.config import ModelConfig

KEPT_ADAPTERS = 8  # in memory; TuFT never takes one back, so the others are read from disk again


def install() -> None:
    """Makes TuFT use this backend. Call it before the server is created."""
    BaseSamplingBackend.create_backend = classmethod(lambda cls, config, **_: HFSampler(config))


class HFSampler(BaseSamplingBackend):
    """Samples with its own copy of the base model: training holds the other one for seconds."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        base = AutoModelForCausalLM.from_pretrained(config.model_path, dtype="auto")
        self._base = base.eval().to(self._device)
        self._model: torch.nn.Module = self._base
        self._stop_ids = eos_ids(config.model_path)
        self._places: dict[str, Path] = {}
        self._loaded: OrderedDict[str, None] = OrderedDict()  # the last used last
        self._tokenizer: AutoTokenizer | None = None
        self._thread = ThreadPoolExecutor(1)  # one request at a time, off the server's loop

    async def async_init(self) -> None:
        pass

    async def shutdown(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def add_adapter(self, lora_id: str, adapter_path: Path) -> None:
        if not (adapter_path / "adapter_config.json").exists():
            raise FileNotFoundError(f"there is no adapter in {adapter_path}")
        self._places[lora_id] = adapter_path

    async def remove_adapter(self, lora_id: str) -> None:
        self._places.pop(lora_id, None)

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        lora_id: str | None = None,
    ) -> types.SampleResponse:
        def run() -> types.SampleResponse:
            with torch.inference_mode():
                self._adopt(lora_id)
                tokens = prompt.to_ints()
                scores = self._score(tokens, sampling_params, topk_prompt_logprobs)
                return types.SampleResponse(
                    sequences=self._generate(tokens, num_samples, sampling_params),
                    _prompt_logprobs_list=scores[0] if include_prompt_logprobs else None,
                    _topk_prompt_logprobs_list=(
                        scores[1] if include_prompt_logprobs and topk_prompt_logprobs > 0 else None
                    ),
                )

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _adopt(self, lora_id: str | None) -> None:
        """Selects the adapter, or the base model, for the next passes."""
        if lora_id is None:
            if isinstance(self._model, PeftModel):
                self._model.base_model.disable_adapter_layers()
            return
        if lora_id not in self._loaded:
            place = str(self._places[lora_id])
            if isinstance(self._model, PeftModel):
                self._model.load_adapter(place, adapter_name=lora_id)
            else:
                self._model = PeftModel.from_pretrained(self._base, place, adapter_name=lora_id)
            self._model.eval()
        self._loaded[lora_id] = None
        self._loaded.move_to_end(lora_id)
        self._model.base_model.enable_adapter_layers()
        self._model.set_adapter(lora_id)
        while len(self._loaded) > KEPT_ADAPTERS:
            self._model.delete_adapter(self._loaded.popitem(last=False)[0])

    def _score(self, tokens: list[int], params: types.SamplingParams, top_k: int):
        """The logprob of each prompt token given those before it, and the likeliest tokens there."""
        inputs = torch.tensor([tokens], device=self._device)
        logits = self._model(inputs).logits[0, :-1].float()
        logprobs = torch.log_softmax(logits / (params.temperature or 1.0), -1)
        following = inputs[0, 1:].unsqueeze(-1)
        found = logprobs.gather(-1, following).squeeze(-1).tolist()
        best = logprobs.topk(min(top_k, logprobs.shape[-1])) if top_k > 0 else ([], [])
        rows = [list(zip(ids.tolist(), values.tolist())) for values, ids in zip(*best)]
        return [None, *found], [None, *rows]

    def _generate(
        self, tokens: list[int], num_samples: int, params: types.SamplingParams
    ) -> list[types.SampledSequence]:
        random = torch.Generator(self._device)
        if params.seed is None:
            random.seed()
        else:
            random.manual_seed(params.seed)
        texts, ids = self._stops(params.stop)
        sequences: list[list[int]] = [[] for _ in range(num_samples)]
        logprobs: list[list[float]] = [[] for _ in range(num_samples)]
        reasons: list[str | None] = [None] * num_samples

        step = torch.tensor([tokens] * num_samples, device=self._device)
        cache = None
        for _ in range(params.max_tokens or 16):
            output = self._model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = output.past_key_values
            step, chosen = draw(output.logits[:, -1].float(), params, random)
            drawn, their_logprobs = step.squeeze(-1).tolist(), chosen.tolist()  # one transfer a token
            for i in range(num_samples):
                if reasons[i] is not None:
                    continue
                sequences[i].append(drawn[i])
                logprobs[i].append(their_logprobs[i])
                if sequences[i][-1] in ids or self._has_text(sequences[i], texts):
                    reasons[i] = "stop"
            if all(reasons):
                break
        return [
            types.SampledSequence(
                stop_reason=reasons[i] or "length",
                _tokens_list=sequences[i],
                _logprobs_list=logprobs[i],
            )
            for i in range(num_samples)
        ]

    def _stops(self, stop: str | list[str] | list[int] | None) -> tuple[list[str], set[int]]:
        given = [stop] if isinstance(stop, str) else stop or []
        texts = [entry for entry in given if isinstance(entry, str)]
        return texts, self._stop_ids | {entry for entry in given if isinstance(entry, int)}

    def _has_text(self, tokens: list[int], texts: list[str]) -> bool:
        if not texts:
            return False
        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained(self.config.model_path)
        completion = self._tokenizer.decode(tokens)
        return any(text in completion for text in texts)


def eos_ids(model_path: Path) -> set[int]:
    """The tokens that end an answer, by generation_config.json, else by config.json."""
    try:
        config = GenerationConfig.from_pretrained(model_path)
    except OSError:
        config = AutoConfig.from_pretrained(model_path)
    eos = config.eos_token_id
    return set(eos) if isinstance(eos, list) else set() if eos is None else {eos}


def draw(
    logits: torch.Tensor, params: types.SamplingParams, random: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token for each row, [n, 1], and its logprob, [n]. Temperature 0 takes the most probable."""
    if params.temperature == 0:
        logprobs = torch.log_softmax(logits, -1)
        token = logprobs.argmax(-1, keepdim=True)
        return token, logprobs.gather(-1, token).squeeze(-1)
    logits = logits / params.temperature
    if params.top_k > 0:
        smallest = logits.topk(min(params.top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if params.top_p < 1:
        ordered, order = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        ordered = ordered.masked_fill(before >= params.top_p, -torch.inf)
        logits = torch.full_like(logits, -torch.inf).scatter(-1, order, ordered)
    logprobs = torch.log_softmax(logits, -1)
    token = torch.multinomial(logprobs.exp(), 1, generator=random)
    return token, logprobs.gather(-1, token).squeeze(-1)
