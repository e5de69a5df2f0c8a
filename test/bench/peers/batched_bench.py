"""llama.cpp's llama-batched-bench: the difference between a run with few tokens and one with more, so that loading and
reading the prompt, which all answers share, do not count. It draws tokens at random and computes no logprobs."""

import argparse
import json
import resource
import subprocess

from rounds import serve

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True)
parser.add_argument("--model", required=True, help="a GGUF file")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--prompt", type=int, required=True)
parser.add_argument("--group-size", type=int, required=True)
parser.add_argument("--tokens", type=int, required=True)
args = parser.parse_args()

context = args.group_size * 256 * -(-(args.prompt + args.tokens + 4) // 256)


def run(tokens):
    """The processor time of a run with so many tokens, and what it prints."""

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    words = ["-m", args.model, "-t", args.threads, "-tb", args.threads, "-c", context, "-pps"]
    words += ["-npp", args.prompt, "-npl", args.group_size, "-ntg", tokens, "--output-format", "jsonl"]
    done = subprocess.run([args.program, *map(str, words)], capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(rows) != 1:
        raise SystemExit(f"llama-batched-bench ended with {done.returncode}: {done.stderr[-300:]}")
    return spent() - before, rows[0]["t_tg"]


def measure():
    few, few_wall = run(2)
    many, many_wall = run(2 + args.tokens)
    return {"count": args.group_size * args.tokens, "processor": many - few, "wall": many_wall - few_wall}


serve(measure)
