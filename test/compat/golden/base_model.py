"""Results of transformers for the model in the repository."""

import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["3 17 21=72:17*3+21", "5 9 2=12:5+9-2", "30 4 7=58:(30-1)*2"]


def write_base_model(directory: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        following = [logprobs[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
        cases.append({"text": text, "tokens": ids, "logprobs": following})
    golden = {"model": type(model).__name__, "cases": cases}
    (folder / "logprobs.json").write_text(json.dumps(golden, indent=1) + "\n")
