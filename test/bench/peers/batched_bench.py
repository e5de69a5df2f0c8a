"""llama.cpp's llama-batched-bench: the difference between a run with few tokens and one with more, so that loading and
reading the prompt, which all answers share, do not count. It draws tokens at random and computes no logprobs."""

import json
import resource
import subprocess

from rounds import decoding, difference, serve

parser = decoding()
parser.add_argument("--program", required=True)
args = parser.parse_args()

context = args.group_size * 256 * -(-(args.prompt + args.tokens + 4) // 256)


extra = []


def run(tokens):
    """The processor time of a run with so many tokens, and the seconds that it prints for them."""

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    words = ["-m", args.model, "-t", args.threads, "-tb", args.threads, "-c", context, "-pps", *extra]
    words += ["-npp", args.prompt, "-npl", args.group_size, "-ntg", tokens, "--output-format", "jsonl"]
    done = subprocess.run([args.program, *map(str, words)], capture_output=True, text=True)
    if done.returncode < 0 and not extra:
        # On processors with AMX it dies of a signal with Q8_0, whose matrices it arranges for AMX.
        extra.append("--no-repack")
        return run(tokens)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(rows) != 1:
        raise SystemExit(f"llama-batched-bench ended with {done.returncode}: {done.stderr[-300:]}")
    return spent() - before, rows[0]["t_tg"]



serve(lambda: difference(run, 2, 2 + args.tokens, args.group_size))
