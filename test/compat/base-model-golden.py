"""Writes what transformers makes of the model in the repository, for `npm test` to compare with.

pip install torch==2.13.0 transformers; then, from the repository's root:
python test/compat/base-model-golden.py shared/model/base > test/shared/model/golden/base-model.json
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

texts = ["3 17 21=72:17*3+21", "5 9 2=12:5+9-2", "30 4 7=58:(30-1)*2"]

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
cases = []
for text in texts:
    ids = tokenizer.encode(text, add_special_tokens=False)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    following = [logprobs[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
    cases.append({"text": text, "tokens": ids, "logprobs": following})
json.dump({"model": type(model).__name__, "cases": cases}, sys.stdout, indent=1)
