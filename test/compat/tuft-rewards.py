"""Writes the rewards of TuFT's own Countdown scorer for the hostile completions, for comparison in `npm test`.

From the repository's root, with a checkout of TuFT v0.2.0; an answer that takes more than a few seconds
is called endless:
python test/compat/tuft-rewards.py TUFT > test/shared/tasks/countdown/golden/tuft-rewards.json
"""

import ast
import hashlib
import json
import math
import multiprocessing
import re
import sys
import warnings
from pathlib import Path

SECONDS = 5


def reward_function(checkout):
    """Loads only the reward function: its module needs packages that rewards do not."""
    source = (Path(checkout) / "examples/countdown_rl/env.py").read_text()
    wanted = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.Assign) and "re.compile" in ast.unparse(node))
    ]
    for node in wanted:
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    names = {"re": re}
    exec(compile(ast.Module(wanted, []), "env.py", "exec"), names)
    return names["compute_reward"]


def text_of(pieces):
    if isinstance(pieces, str):
        return pieces
    return "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in pieces)


def judge(reward_of, text, target, numbers, answers):
    warnings.simplefilter("ignore")
    try:
        reward = reward_of(text, target, numbers, 0.1, True)
        answers.put("nan" if math.isnan(reward) else reward)
    except Exception:
        answers.put("crash")


def outcome(*problem):
    answers = multiprocessing.Queue()
    process = multiprocessing.Process(target=judge, args=(*problem, answers))
    process.start()
    try:
        return answers.get(timeout=SECONDS)
    except Exception:
        return "endless"
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    corpus = json.loads(Path("test/shared/tasks/countdown/hostile-completions.json").read_text())
    reward_of = reward_function(sys.argv[1])
    rewards = {}
    for entry in (entry for group in corpus.values() for entry in group):
        if entry.get("style") == "compact":
            continue
        answer = entry.get("answer")
        text = text_of(entry["completion"]) if answer is None else f"<answer>{text_of(answer)}</answer>"
        numbers, target = entry.get("numbers", [3, 7, 21]), entry.get("target", 84)
        problem = ",".join(map(str, numbers)) + f"={target}\n"
        content = problem.encode() + text.encode("utf-16-le", "surrogatepass")
        key = hashlib.sha256(content).hexdigest()[:16]
        rewards[key] = outcome(reward_of, text, target, numbers)
    json.dump({"tuft": "0.2.0", "rewards": rewards}, sys.stdout, indent=0)
    print()
