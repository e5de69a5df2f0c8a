"""Runs TuFT's Countdown example as it is, against a running local backend, and judges the outcome.

Arguments: the example's folder, a dataset's folder, the model's folder. TINKER_BASE_URL and
TINKER_API_KEY say where the backend is; the example and the SDK read them by themselves. A step
whose loss is not finite fails in the backend, and with it the example.
"""

import contextlib
import io
import json
import re
import runpy
import sys
import tarfile
import urllib.request

import tinker
import torch
from safetensors.torch import load

STEPS = 10
EVERY = 5  # steps: an evaluation at 0 and 5


def main(example, dataset, model):
    run, output = train(example, dataset, model)
    rest = tinker.ServiceClient().create_rest_client()
    saved = {each.tinker_path: each for each in rest.list_checkpoints(run).result().checkpoints}
    names = [path.rsplit("/", 1)[1] for path in saved]
    same("steps, by the weights saved for each", count(names, "rl_step_"), STEPS)
    same("evaluations", count(names, "eval_"), len(range(0, STEPS, EVERY)))

    first, last = map(float, re.search(r"reward: ([\d.]+) -> ([\d.]+)", output).groups())
    report("mean reward, of the first step", first, "< 0.02", first < 0.02)
    # 0.1 is the reward for the format alone.
    report("mean reward, of the last step", last, "> 0.05", last > 0.05)

    url = rest.get_checkpoint_archive_url_from_tinker_path(final(saved)).result().url
    with urllib.request.urlopen(url, timeout=30) as answer:
        archive = tarfile.open(fileobj=io.BytesIO(answer.read()))
    weights = load(archive.extractfile("adapter_model.safetensors").read())
    finite = all(torch.isfinite(tensor).all() for tensor in weights.values())
    report("its final weights are finite", f"{len(weights)} tensors", "all", finite)
    moved = max(tensor.abs().max().item() for name, tensor in weights.items() if "lora_B" in name)
    report("and they have moved: largest of B", moved, "> 0", moved > 0)


def train(example, dataset, model):
    """The id of its run, and its output."""
    sys.path.insert(0, example)
    sys.argv = [f"{example}/train.py", "--dataset", dataset, "--base-model", model]
    sys.argv += ["--num-steps", str(STEPS), "--batch-size", "4", "--group-size", "32"]
    sys.argv += ["--max-tokens", "16", "--learning-rate", "1e-2"]
    sys.argv += ["--test-size", "64", "--eval-every", str(EVERY), "--eval-batch-size", "16"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(sys.argv[0], run_name="__main__")
    path = re.search(r"^Checkpoint: (tinker://(\S+)/weights/\S+)$", output.getvalue(), re.MULTILINE)
    same("it ends with a checkpoint", path is not None, True)
    return path[2], output.getvalue()


def final(saved):
    return next(path for path in saved if path.endswith("/sampler_weights/COUNTDOWN-final"))


def count(names, prefix):
    return sum(name.startswith(prefix) for name in names)


def same(check, found, expected):
    report(check, found, str(expected), found == expected)


def report(check, value, bound, passed):
    value = value if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
    print(json.dumps({"check": check, "value": value, "bound": bound, "passed": passed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
