"""Checks for the table of `npm run test:compat`: one line of JSON each, on standard output."""

import inspect
import json
import sys
import threading


def report(check, value, bound, passed):
    json.dump({"check": check, "value": value, "bound": bound, "passed": bool(passed)}, sys.stdout)
    print(flush=True)


def at_most(check, value, limit):
    report(check, float(value), f"≤ {limit:g}", value <= limit)


def same(check, found, expected):
    report(check, brief(found), brief(expected), found == expected)


def holds(check, fact, value="yes"):
    """A fact without a number; `value` is the observation."""
    report(check, brief(value), "holds", fact)


def refused(check, call, error, words, seconds=30):
    """`call` must raise `error` with `words` in its message, or one of them, and not keep its caller waiting."""
    expected = (words,) if isinstance(words, str) else words
    outcome = {}

    def run():
        try:
            outcome["value"] = call()
        except BaseException as caught:
            outcome["error"] = caught

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    bound = f"says {' or '.join(expected)}"
    if thread.is_alive():
        report(check, f"no answer after {seconds} s", bound, False)
    elif "value" in outcome:
        report(check, f"it returned {brief(outcome['value'])}", bound, False)
    else:
        kind = type(outcome["error"]).__name__
        said = str(outcome["error"])
        passed = isinstance(outcome["error"], error) and any(each in said for each in expected)
        report(check, kind if passed else f"{kind}: {outcome['error']}", bound, passed)


def client_of(created):
    """The created client itself: SDK 0.38 returns a future of it."""
    return created.result() if hasattr(created, "result") else created


def offers(method, parameter):
    """Whether the installed SDK has the parameter. `method` is of the class: instances may hide its signature."""
    return parameter in inspect.signature(method).parameters


def brief(value):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 36 else f"{text[:35]}…"
