"""Imports the third-party packages of the suites and reports their versions."""

import json
import re
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

root = Path(__file__).resolve().parents[2]
pins = {}
for file in ("tools/tuft-cpu/requirements.txt", "test/compat/requirements.txt"):
    pins |= dict(re.findall(r"^([\w.-]+)==(\S+)", (root / file).read_text(), re.MULTILINE))

for name in ("torch", "transformers", "peft", "tuft", "tinker"):
    if name != "tuft":  # needs the launcher's stand-ins, which its own suite proves
        import_module(name)
    found = version(name)
    check = {"check": name, "value": found, "bound": pins[name], "passed": found == pins[name]}
    json.dump(check, sys.stdout)
    print()
