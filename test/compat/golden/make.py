"""Makes the golden files of `npm test` with transformers and peft.

    python test/compat/golden/make.py            writes them anew
    python test/compat/golden/make.py --check    compares the committed ones with what it would write

Everything is seeded. --check prints one line of JSON a golden folder, for `npm run test:compat`, and
ends with 1 if one differs.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from base_model import write_base_model
from rotary import write_rotary
from safetensors.torch import load_file
from transformers.utils import logging
from values import write_variant
from variants import VARIANTS

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "test" / "shared" / "model" / "golden"
BASE_MODEL = ROOT / "shared" / "model" / "base"
TOLERANCE = 2e-5  # absolute or relative: norms and softmax are float32 even so


def write_all(folder: Path) -> None:
    torch.set_num_threads(1)
    write_base_model(BASE_MODEL, folder / "base-model")
    write_rotary(folder / "rotary")
    for variant in VARIANTS:
        write_variant(variant, BASE_MODEL, folder / variant.name)


def distance(ours: Path, theirs: Path) -> float:
    """The greatest difference of two files' numbers; infinite if their names or shapes differ."""
    if not (ours.exists() and theirs.exists()):
        return float("inf")
    read = load_file if ours.suffix == ".safetensors" else lambda path: json.loads(path.read_text())
    return tree_distance(read(ours), read(theirs))


def tree_distance(a, b) -> float:
    if isinstance(a, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        a, b = a.double(), b.double()
        differences = (a - b).abs() / b.abs().clamp(min=1)
        return differences.nan_to_num(nan=float("inf")).max().item()
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((tree_distance(a[key], b[key]) for key in a), default=0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((tree_distance(x, y) for x, y in zip(a, b)), default=0)
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) / max(1, abs(b))
    return 0 if a == b else float("inf")


def check() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        write_all(fresh)
        worst: dict[str, float] = {}
        for root in (fresh, GOLDEN):
            for path in sorted(root.rglob("*")):
                if path.is_file():
                    file = path.relative_to(root)
                    found = distance(GOLDEN / file, fresh / file)
                    worst[file.parts[0]] = max(found, worst.get(file.parts[0], 0))
    for name, found in worst.items():
        line = {
            "check": f"golden files of {name}",
            "value": f"{found:.2g}" if found < float("inf") else "other files or shapes",
            "bound": f"≤ {TOLERANCE:g}",
            "passed": found <= TOLERANCE,
        }
        print(json.dumps(line))
    return all(found <= TOLERANCE for found in worst.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if parser.parse_args().check:
        sys.exit(0 if check() else 1)
    write_all(GOLDEN)
