"""What the scripts of this folder share: each loads its model once, then measures one round for each line that it reads."""

import argparse
import json
import os
import sys
import time


def decoding():
    """A parser of what every script that decodes is given: a model, and how many prompts and tokens of which length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, required=True, help="tokens of a prompt")
    parser.add_argument("--group-size", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="tokens of an answer")
    return parser


def timed(work):
    """The count that `work` returns, with the processor time of all threads and the time by the clock, in seconds."""
    processor, wall = time.process_time(), time.perf_counter()
    count = work()
    return {
        "count": count,
        "processor": time.process_time() - processor,
        "wall": time.perf_counter() - wall,
    }


def difference(run, few, many, answers):
    """The work of `many` tokens without that of `few`. On a busy machine a difference can be below zero: it is measured again."""
    for _ in range(5):
        (processor, wall), (more_processor, more_wall) = run(few), run(many)
        if more_processor > processor and more_wall > wall:
            break
    else:
        raise SystemExit("the machine is too busy to tell a long run from a short one")
    return {"count": answers * (many - few), "processor": more_processor - processor, "wall": more_wall - wall}


def serve(measure, **about):
    """Answers each line of standard input with a line of JSON; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    measure()  # not counted: the first round also allocates and compiles
    print(json.dumps(about), file=answers)
    for _ in sys.stdin:
        print(json.dumps(measure()), file=answers)
