"""What the installed Tinker SDK can send: the fields of its requests and messages, and its routes.

`python test/compat/sdk/protocol.py` adds those of the installed version to known-protocol.json, which holds all
that we have compared with our schemas, messages and docs/backends.md. Tests fail until those know the additions.
With `--check` it reports whether there are any.
"""

import importlib
import json
import pkgutil
import re
import sys
from importlib.metadata import version
from pathlib import Path

from checks import report

KNOWN = Path(__file__).with_name("known-protocol.json")
NESTED = ("AdamParams", "LoraConfig", "SamplingParams")
ROUTE = re.compile(r'\._?(get|post|put|delete)\(\s*f?"/api/v1/([^"]+)"')


def installed_protocol():
    import tinker
    from tinker.proto import tinker_public_pb2
    from tinker.types import __path__ as types

    requests = {}
    for module in pkgutil.walk_packages(types, "tinker.types."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if not hasattr(found, "model_fields"):
                continue
            if name.endswith("Request") or name in NESTED:
                requests[name] = sorted(found.model_fields)
    messages = {
        name: {str(field.number): field.name for field in message.fields}
        for name, message in tinker_public_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    routes = set()
    for file in Path(tinker.__file__).parent.rglob("*.py"):
        if not file.stem.endswith("_test"):
            for method, path in ROUTE.findall(file.read_text()):
                routes.add(f"{method.upper()} {re.sub('[{][^}]*[}]', ':id', path)}")
    return {
        "versions": [version("tinker")],
        "requests": requests,
        "messages": messages,
        "routes": sorted(routes),
    }


def merged(known, found):
    """Both, as sorted as JSON can be; of a name that has changed, the new one."""
    if isinstance(known, dict):
        keys = sorted({*known, *found})
        return {
            key: merged(known.get(key, found.get(key)), found.get(key, known.get(key)))
            for key in keys
        }
    if isinstance(known, list):
        return sorted({*known, *found})
    return found


def additions(known, found, path=""):
    """The paths of what `found` has and `known` lacks, or has under another name."""
    if isinstance(found, dict):
        parts = [
            additions(known[key], value, f"{path}{key}.") if key in known else [f"{path}{key}"]
            for key, value in found.items()
        ]
        return [one for part in parts for one in part]
    if isinstance(found, list):
        return [f"{path}{one}" for one in found if one not in known]
    return [] if found == known else [f"{path}{found}"]


def check_protocol():
    known, found = json.loads(KNOWN.read_text()), installed_protocol()
    (installed,) = found.pop("versions")  # a version that sends nothing new is fine
    unknown = additions(known, found)
    check = f"SDK {installed} sends what is known here"
    report(check, ", ".join(unknown) or "yes", "yes", not unknown)


if __name__ == "__main__" and sys.argv[1:] == ["--check"]:
    check_protocol()
elif __name__ == "__main__":
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    KNOWN.write_text(json.dumps(merged(known, installed_protocol()), indent=2) + "\n")
