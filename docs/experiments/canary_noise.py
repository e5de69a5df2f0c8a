"""How far the logprobs of honest samplers in bfloat16, and of faulty ones, are from the trainer's on a published model's canaries.

python3 docs/experiments/canary_noise.py MODEL_DIR TEXTS.json ADAPTER...

Needs torch, transformers and safetensors. TEXTS.json has texts as lists of token ids. The first ADAPTER is the run's version 0, the others are
its later versions in order, each the folder of a PEFT adapter. Computed are float32 and bfloat16, the latter with the adapter beside the weights and
merged into them. The rule is that of shared/rl/canary.ts. One line of JSON for each pair of trainer and sampler.
"""

import json
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

PLACES, LAST, BAND, CLOSER_BY = 32, 24, 0.1, 3


def logprobs(model, texts, adapter, scale, merged=False):
    """For each text [T - 1] the logprobs of its tokens from the second on."""
    modules, hooks, saved = dict(model.named_modules()), [], []
    for key in (adapter or {}):
        if not key.endswith("lora_A.weight"):
            continue
        module = modules[key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")]
        a, b = adapter[key].float(), adapter[key.replace("lora_A", "lora_B")].float()
        if merged:
            saved.append((module, module.weight.data))
            module.weight.data = (module.weight.data.float() + scale * (b @ a)).to(module.weight.dtype)
        else:
            a, b = a.to(module.weight.dtype), b.to(module.weight.dtype)
            hooks.append(module.register_forward_hook(lambda _, given, out, a=a, b=b: out + (given[0] @ a.T @ b.T) * scale))
    with torch.no_grad():
        found = []
        for text in texts:
            tokens = torch.tensor([text])
            scores = torch.log_softmax(model(tokens).logits[0].float(), -1)
            found.append(scores[:-1].gather(1, tokens[0, 1:, None])[:, 0].double().numpy())
    for hook in hooks:
        hook.remove()
    for module, weight in saved:
        module.weight.data = weight
    return found


def places(scores):
    """The tokens of a canary, as choosePlaces takes them."""
    worth = [(-np.exp(each) * each - (np.exp(each) < 1 / 16), text, i)
             for text, some in enumerate(scores) for i, each in enumerate(some) if i >= len(some) - LAST]
    return [(text, i) for _, text, i in sorted(worth, reverse=True)[:PLACES]]


def mean_of_most(differences):
    ordered = np.sort(np.abs(differences))
    return float(ordered[: int(np.ceil(0.75 * len(ordered)))].mean())


def main(directory, texts_file, *folders):
    texts = json.load(open(texts_file))
    models = {dtype: AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()
              for dtype in (torch.float32, torch.bfloat16)}
    versions = []
    for folder in (None, *folders):
        adapter, scale = None, 0.0
        if folder is not None:
            adapter = load_file(f"{folder}/adapter_model.safetensors")
            config = json.load(open(f"{folder}/adapter_config.json"))
            scale = config["lora_alpha"] / config["r"]
        coarse = models[torch.bfloat16]
        versions.append({
            "float32": logprobs(models[torch.float32], texts, adapter, scale),
            "bfloat16": logprobs(coarse, texts, adapter, scale),
            "bfloat16, merged": logprobs(coarse, texts, adapter, scale, merged=True),
            "half the alpha": logprobs(coarse, texts, adapter, scale / 2, merged=True),
        })
    base, first = versions[:2]
    for trainer, sampler in (("float32", "bfloat16"), ("float32", "bfloat16, merged"),
                             ("bfloat16", "bfloat16, merged"), ("bfloat16, merged", "bfloat16")):
        report = {"trainer": trainer, "sampler": sampler, "versions": len(versions) - 2, "honest": [], "closest": []}
        faults = {"the base": [], "version 0": [], "the version before": [], "half the alpha": []}
        for number in range(2, len(versions)):
            chosen = places(versions[number][trainer])
            at = lambda scores: np.array([scores[text][i] for text, i in chosen])  # noqa: E731
            own = at(versions[number][trainer])
            earlier = [at(one[trainer]) for one in (first, versions[number - 1])]
            given = at(versions[number][sampler])
            report["honest"].append(mean_of_most(given - own))
            report["closest"].append(max(mean_of_most(given - own) / mean_of_most(given - one) for one in earlier))
            wrong = {"the base": base[sampler], "version 0": first[sampler],
                     "the version before": versions[number - 1][sampler],
                     "half the alpha": versions[number]["half the alpha"]}
            for fault, scores in wrong.items():
                off = mean_of_most(at(scores) - own)
                closer = any(CLOSER_BY * mean_of_most(at(scores) - one) < off for one in earlier)
                faults[fault].append((off, off > BAND or closer))
        report |= {"honest": round(max(report["honest"]), 4), "closest": round(max(report["closest"]), 2)}
        report["faults"] = {fault: {"mean": round(min(off for off, _ in found), 4), "refused": sum(caught for _, caught in found)}
                            for fault, found in faults.items()}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
