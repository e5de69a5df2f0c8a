"""Trains with the real TuFT on the GPU of this machine and writes gpu-report.json.

    ./run --shape 0.6b --steps 10

Needs nothing that is not in the bundle but Python 3.11 or newer with torch and transformers: no network, no
Node.js, no pip. Without a GPU the same runs on the CPU, which is how it is tested. TuFT is the published server
with its Hugging Face backend; what stands in for Ray and vLLM is in offbeat/tools/tuft-cpu.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, median

BUNDLE = Path(__file__).resolve().parent
OFFBEAT = BUNDLE / "offbeat"
SITE = BUNDLE / "site"
NODE = BUNDLE / "bin/node"
NATS = BUNDLE / "bin/nats-server"
EMBEDDED = OFFBEAT / "shared/model/base"

# The published shapes of Qwen3; `tiny` is for a trial of the script itself.
SHAPES = {
    "tiny": dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, vocab_size=512, max_position_embeddings=1024),
    "0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                 num_key_value_heads=8, head_dim=128, vocab_size=151_936, max_position_embeddings=4096),
    "4b": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, vocab_size=151_936, max_position_embeddings=4096),
}


def main() -> None:
    options = parse_options()
    machine = look_around()
    print_machine(machine)
    unpack_wheels()
    work = options.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model, made = model_directory(options, work)
    brought = [wheel.name for wheel in sorted((BUNDLE / "wheels").glob("*.whl"))]
    report = {"machine": machine, "brought": brought, "model": describe_model(model, made), "runs": {}}
    samplers = samplers_of(options, machine)
    if made is not None and "vllm" in samplers:
        print("not with vLLM: a random model gives no token a probability at which vLLM shows it, so nothing proves a version")
        samplers.remove("vllm")
    failures = []
    if options.canary_faults is not None:
        report["canaryFaults"] = canary_faults(options, work, machine)
    for sampler in samplers:
        print(f"training {options.steps} steps, actors sample with {sampler}", flush=True)
        try:
            report["runs"][sampler] = measure(options, work / sampler, model, made, sampler, machine)
        except Exception as failure:  # whatever it was, the figures of the other run are kept
            reason = str(failure) if isinstance(failure, RunFailed) else repr(failure)
            failures.append(f"{sampler}: {reason}")
        report["problems"] = problems = [*failures, *complaints(report, options.steps)]
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    for name, run in report["runs"].items():
        print(name)
        for key, value in run["figures"].items():
            print(f"  {key:36} {value}")
    print(f"report: {options.out.resolve()}")
    if problems:
        sys.exit("\n".join(problems))


class RunFailed(Exception):
    """A run has no figures. Says why, with the end of the log."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description=__doc__.split("\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--model-dir", type=Path, help="Hugging Face directory of a Qwen or Llama model")
    add("--shape", choices=("embedded", *SHAPES), default="embedded", help="without --model-dir: the small model of"
        " the bundle, or a randomly initialized Qwen3 of this shape in bfloat16, made on the spot")
    add("--steps", type=int, default=6, help="steps to train; the first is left out of the averages")
    add("--groups-per-batch", type=int, default=8, help="groups of a step")
    add("--group-size", type=int, default=8, help="answers to a prompt")
    add("--max-tokens", type=int, help="longest answer (default: 128, and 24 for the embedded model)")
    add("--lora-rank", type=int, default=32, help="of the adapter")
    add("--learning-rate", type=float, help="of the steps (default: that of Offbeat for the width of the model)")
    add("--micro-batch-size", type=int, default=16, help="sequences in one pass of TuFT")
    add("--actors", type=int, default=2, help="actor processes")
    add("--adapter-dtype", choices=("fp32", "bf16"), default="fp32", help="of the adapters that actors elsewhere fetch")
    add("--vllm", choices=("auto", "no", "only"), default="auto", help="sample with vLLM too, if it is installed; or not at all; or with nothing else")
    add("--sampler-class", choices=("fp32", "bf16", "fp8"), help="of the actors' arithmetic, by which versions are proven")
    add("--vllm-flags", default="", help="more flags for vLLM, such as --enforce-eager")
    add("--warm-up", type=int, metavar="STEPS", help="first train this many steps on solutions of the task, 64 in each, go on from there and measure what is solved")
    add("--canary-faults", metavar="CLASSES", help="first have an actor look for faults in vLLM that serves the embedded model in these classes, such as fp32,bf16,fp8")
    add("--minutes", type=float, default=30, help="time limit of each run")
    add("--work", type=Path, default=Path("gpu-test-work"), help="folder for models, checkpoints and logs; emptied first")
    add("--out", type=Path, default=Path("gpu-report.json"), help="the report")
    options = parser.parse_args()
    if options.vllm == "only" and options.model_dir is None and options.shape != "embedded":
        parser.error("--vllm only needs --model-dir: vLLM shows too few tokens of a random model to prove its versions")
    if options.steps < 2:
        parser.error("--steps must be at least 2: the first step is left out of the averages")
    return options


# What is there


def look_around() -> dict:
    """The facts of this machine, before anything is unpacked. Ends with all that is missing."""
    missing = []
    manifest = json.loads((BUNDLE.parent / "manifest.json").read_text())
    here, packed_for = f"{sys.version_info.major}.{sys.version_info.minor}", manifest["python"]
    if here != packed_for:
        missing.append(f"this is Python {here}, and the wheels of the bundle are for {packed_for}: use Python {packed_for}"
                       f" (OFFBEAT_PYTHON names one), or pack again with --python {here}")
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            missing.append(f"Python has no {name}: use a Python that has it (OFFBEAT_PYTHON names one)")
    for path in (NODE, NATS):
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            missing.append(f"{path} does not run here: {done.stderr.strip()}")
    if missing:
        sys.exit("\n".join(missing))
    import torch

    gpu = None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        gpu = {"name": properties.name, "bytes": properties.total_memory, "cuda": torch.version.cuda,
               "bf16": torch.cuda.is_bf16_supported(), "driver": nvidia_smi("driver_version")}
    return {
        "host": socket.gethostname(),
        "offbeat": {"version": json.loads((OFFBEAT / "package.json").read_text())["version"], "commit": manifest.get("commit")},
        "system": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version(),
        "node": subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout.strip(),
        "gpu": gpu,
        "packages": {name: installed(name) for name in ("torch", "transformers", "peft", "accelerate", "vllm")},
        "freeDiskBytes": shutil.disk_usage(".").free,
    }


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def nvidia_smi(field: str) -> str | None:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def print_machine(machine: dict) -> None:
    gpu = machine["gpu"]
    what = f"{gpu['name']}, CUDA {gpu['cuda']}" if gpu else "no GPU: everything runs on the CPU"
    versions = ", ".join(f"{name} {found or 'absent'}" for name, found in machine["packages"].items())
    print(f"{what}; Python {machine['python']}; {versions}", flush=True)


def unpack_wheels() -> None:
    """Wheels are zip files: unpacked, they are importable, with their metadata, without pip."""
    done = SITE / ".complete"
    if done.exists():
        return
    shutil.rmtree(SITE, ignore_errors=True)
    for wheel in sorted((BUNDLE / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(SITE)
    done.touch()


def environment(**more: str) -> dict:
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "OFFBEAT_NATS_SERVER": str(NATS),
            "PYTHONUNBUFFERED": "1", **more}


# The model


def model_directory(options: argparse.Namespace, work: Path) -> tuple[Path, str | None]:
    """The directory of the model, and the shape if it was made here."""
    if options.model_dir is not None:
        return options.model_dir.resolve(), None
    if options.shape == "embedded":
        return EMBEDDED, None
    folder = work / f"qwen3-{options.shape}-random"
    make = f"import sys; sys.path.insert(0, {str(BUNDLE)!r}); import gpu_test; gpu_test.make_model({options.shape!r}, {str(folder)!r})"
    subprocess.run([sys.executable, "-c", make], env=environment(), check=True)
    return folder, options.shape


def make_model(shape: str, folder: str) -> None:
    """Writes a randomly initialized Qwen3 in bfloat16, with a tokenizer of printable ASCII and of words without meaning."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    sizes = SHAPES[shape]
    config = Qwen3Config(**sizes, tie_word_embeddings=True, rope_theta=1_000_000, eos_token_id=1, bos_token_id=None,
                         pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    special = ["<pad>", "<eos>", "<unk>"]
    known = [*special, "\n", *map(chr, range(32, 127))]
    words = [*known, *(f"w{i}" for i in range(len(known), sizes["vocab_size"]))]
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(special)]
    base = json.loads((EMBEDDED / "tokenizer.json").read_text())
    base["added_tokens"] = added
    base["model"] |= {"vocab": {text: i for i, text in enumerate(words)}, "merges": []}
    (Path(folder) / "tokenizer.json").write_text(json.dumps(base))
    shutil.copy(EMBEDDED / "tokenizer_config.json", folder)


def describe_model(folder: Path, made: str | None) -> dict:
    config = json.loads((folder / "config.json").read_text())
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return {"directory": str(folder), "isRandom": made is not None, "type": config.get("model_type"),
            "dtype": config.get("dtype", config.get("torch_dtype")), "layers": config.get("num_hidden_layers"),
            "width": config.get("hidden_size"), "vocabulary": config.get("vocab_size"), "weightBytes": weights}


# One training run


def samplers_of(options: argparse.Namespace, machine: dict) -> list[str]:
    """What actors sample with, one run each. Ends if vLLM is asked for and is not there."""
    has_vllm = machine["packages"]["vllm"] is not None and machine["gpu"] is not None
    asked = "--vllm only" if options.vllm == "only" else "--canary-faults" if options.canary_faults is not None else None
    if asked is not None and not has_vllm:
        sys.exit(f"{asked} needs a GPU and a Python with vLLM (OFFBEAT_PYTHON names one), or leave the flag out")
    if options.vllm == "only":
        return ["vllm"]
    return ["tinker", "vllm"] if has_vllm and options.vllm == "auto" else ["tinker"]


# On a GPU vLLM prepares an adapter of the head, too, for which 22 tokens are too few: it does not start.
EMBEDDED_FLAGS = ["--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def canary_faults(options: argparse.Namespace, work: Path, machine: dict) -> list[str]:
    """What `npm run test:compat -- vllm-faults` says here, line by line."""
    command = [NODE, OFFBEAT / "dist/test/compat/main.js", "vllm-faults"]
    env = environment(OFFBEAT_VLLM_PYTHON=sys.executable, VLLM_RELEASE=machine["packages"]["vllm"],
                      VLLM_CLASSES=options.canary_faults,
                      VLLM_FLAGS=" ".join(["--gpu-memory-utilization=0.2", *EMBEDDED_FLAGS]))
    log = work / "canary-faults.log"
    with log.open("wb") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=work, check=False)
    return log.read_text().splitlines()


def measure(options: argparse.Namespace, work: Path, model: Path, made: str | None, sampler: str, machine: dict) -> dict:
    """Trains once. @raises RunFailed if a server does not start, or the training fails."""
    work.mkdir(parents=True)
    with contextlib.ExitStack() as ending:
        memory = ending.enter_context(Memory())
        # Both start at once: each takes a minute on its own.
        tuft = ending.enter_context(start_tuft(options, work, model, with_sampling=sampler == "tinker"))
        engine = ending.enter_context(start_vllm(options, work, model, machine)) if sampler == "vllm" else None
        for name, server in (("tuft", tuft), ("vllm", engine)):
            if server is not None:
                memory.watch(name, server.process.pid)
                server.wait()
        warmed = train_on_solutions(options, work, model, tuft, engine) if options.warm_up else None
        seconds = train(options, work, model, made, tuft, engine)
        adapter = download_adapter(tuft)
    steps = [json.loads(line) for line in (work / "runs/gpu/metrics.jsonl").read_text().splitlines()]
    summary = json.loads((work / "runs/gpu/summary.json").read_text())
    run = {"figures": figures(steps, summary, adapter, memory, seconds), "steps": steps, "summary": summary}
    if warmed is not None:
        run["figures"]["warmUpSeconds"] = warmed
        run["evaluations"] = [json.loads(line) for line in (work / "runs/gpu/evals.jsonl").read_text().splitlines()]
    return run


class Server:
    """A child process that serves HTTP on loopback; ended with its process group."""

    def __init__(self, command: list, port: int, key: str, log: Path, env: dict, ready: str, patience: float) -> None:
        self.url, self.key = f"http://127.0.0.1:{port}", key
        self.log, self._ready = log, ready
        self.process = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env=env,
                                        start_new_session=True)
        self._deadline = time.monotonic() + patience

    def wait(self) -> None:
        """Returns once it answers. @raises RunFailed if it never does."""
        while not self._answers(self._ready):
            if self.process.poll() is not None or time.monotonic() > self._deadline:
                raise RunFailed(f"{self.log.stem} did not start; the end of {self.log}:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def _answers(self, path: str) -> bool:
        try:
            return urllib.request.urlopen(self.url + path, timeout=2).status == 200
        except OSError:
            return False

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        for name in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
                return


def start_tuft(options: argparse.Namespace, work: Path, model: Path, *, with_sampling: bool) -> Server:
    port, key = free_port(), f"tml-{secrets.token_hex(16)}"
    command = [sys.executable, OFFBEAT / "tools/tuft-cpu/tuft_cpu.py", f"--model-dir={model}", "--model-name=model",
               f"--checkpoint-dir={work / 'checkpoints'}", f"--port={port}",
               f"--micro-batch-size={options.micro_batch_size}", *(["--sampling"] if with_sampling else [])]
    return Server(command, port, key, work / "tuft.log", environment(TINKER_API_KEY=key), "/api/v1/healthz", 600)


def scale_out(release: str) -> list[str]:
    """vLLM serves token ids without a flag up to 0.29, where it refuses this one, and from 0.30 on only with it."""
    number = re.match(r"(\d+)\.(\d+)", release)
    is_older = number is not None and tuple(map(int, number.groups())) < (0, 30)
    return [] if is_older else ["--enable-scale-out"]


def start_vllm(options: argparse.Namespace, work: Path, model: Path, machine: dict) -> Server:
    """vLLM beside TuFT on one GPU: each may have half of it. The flags are those of docs/engines.md."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host=127.0.0.1", f"--port={port}",
               "--served-model-name=base", *scale_out(machine["packages"]["vllm"]), "--enable-lora", "--max-loras=6",
               f"--max-lora-rank={options.lora_rank}", "--logprobs-mode=processed_logprobs",
               "--gpu-memory-utilization=0.45", *(EMBEDDED_FLAGS if model == EMBEDDED else []),
               *options.vllm_flags.split()]
    # vLLM brings its own versions of what the wheels bring, too.
    env = {**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
           "DO_NOT_TRACK": "1"}
    return Server(command, port, "", work / "vllm.log", env, "/health", 1200)


def train_on_solutions(options: argparse.Namespace, work: Path, model: Path, tuft: Server, engine: Server | None) -> float:
    """Runs `offbeat sft`. @returns its seconds."""
    examples = 64
    return offbeat(options, work, tuft, "sft", [
        "--run=warm", *shared_flags(options, work, model, tuft, engine), "--data=solver", "--actors=1",
        f"--train-size={examples * options.warm_up}", f"--batch-examples={examples}", f"--max-steps={options.warm_up}",
        "--eval-problems=0", "--keep-every-steps=10000"])


def train(options: argparse.Namespace, work: Path, model: Path, made: str | None, tuft: Server,
          engine: Server | None) -> float:
    """Runs `offbeat up`. @returns its seconds."""
    # A model that solves nothing, or everything, has groups of equal rewards: they are kept, or the run would end without a step.
    task = [] if options.warm_up else ["--zero-variance=train"]
    # All rewards of a random model are equal: the entropy bonus alone moves its weights.
    task += ["--entropy-bonus=0.001"] if made else []
    # The entropy is held as in docs/experiments/smollm2.sh.
    evaluated = ["--from=warm", "--eval-problems=256", "--eval-samples=4", "--eval-every-versions=20",
                 "--entropy-bonus=0.05", "--entropy-target=0.35"] if options.warm_up else ["--eval-problems=0"]
    return offbeat(options, work, tuft, "up", [
        "--run=gpu", *shared_flags(options, work, model, tuft, engine), *task, *evaluated,
        f"--max-steps={options.steps}", f"--groups-per-batch={options.groups_per_batch}",
        f"--group-size={options.group_size}", "--num-minibatches=1", f"--adapter-dtype={options.adapter_dtype}",
        f"--actors={1 if engine else options.actors}", "--stop-reward-share=0",
        # Low enough that half of the steps wait for answers of newer versions.
        f"--max-steps-off-policy={max(0, min(4, options.steps // 2 - 1))}"])


def shared_flags(options: argparse.Namespace, work: Path, model: Path, tuft: Server, engine: Server | None) -> list:
    is_embedded = model == EMBEDDED
    longest = options.max_tokens or (24 if is_embedded else 128)
    sampler = ["--sampler=tinker"] if engine is None else ["--sampler=vllm", f"--engine-url={engine.url}"]
    style = "compact" if options.warm_up else "fewshot"
    # As in docs/experiments/smollm2.sh.
    numbers = ["--numbers=3", "--max-number=30", "--max-target=100", "--test-size=1024"] if options.warm_up else []
    return [f"--runs-dir={work / 'runs'}", f"--backend-url={tuft.url}", f"--model-dir={model}", "--model-name=model",
            *sampler, *([] if options.sampler_class is None else [f"--sampler-class={options.sampler_class}"]),
            *([] if is_embedded else [f"--prompt-style={style}"]), *numbers, f"--max-tokens={longest}",
            f"--lora-rank={options.lora_rank}", "--ready-seconds=600", "--no-dashboard", "--json", "--gpus-trainer=1",
            *([] if options.learning_rate is None else [f"--learning-rate={options.learning_rate}"])]


def offbeat(options: argparse.Namespace, work: Path, tuft: Server, command: str, flags: list) -> float:
    """@returns the seconds of a command. @raises RunFailed if it does not end with 0."""
    began = time.monotonic()
    log = work / f"offbeat-{command}.log"
    with log.open("wb") as output:
        done = subprocess.Popen([NODE, OFFBEAT / "dist/cli/cli.js", command, *flags], stdout=output,
                                stderr=subprocess.STDOUT, cwd=work, start_new_session=True,
                                env=environment(TINKER_API_KEY=tuft.key))
        try:
            code = done.wait(options.minutes * 60)
        except subprocess.TimeoutExpired:
            code = f"none within {options.minutes} minutes"
        finally:
            if done.poll() is None:
                os.killpg(done.pid, signal.SIGTERM)
                done.wait()
    if code != 0:
        raise RunFailed(f"offbeat {command} ended with exit code {code}; the end of {log}:\n{log.read_text()[-3000:]}\n"
                        f"and of {tuft.log}:\n{tuft.log.read_text()[-3000:]}")
    return time.monotonic() - began


def download_adapter(tuft: Server) -> dict:
    """The newest adapter as an actor elsewhere would fetch it: its bytes, and the time that took."""
    headers = {"X-API-Key": tuft.key}

    def get(path: str) -> bytes:
        return urllib.request.urlopen(urllib.request.Request(tuft.url + path, headers=headers), timeout=120).read()

    runs = json.loads(get("/api/v1/training_runs"))["training_runs"]
    found = [
        (checkpoint["time"], run["training_run_id"], checkpoint["checkpoint_id"])
        for run in runs
        for checkpoint in json.loads(get(f"/api/v1/training_runs/{run['training_run_id']}/checkpoints"))["checkpoints"]
        if checkpoint["checkpoint_type"] == "sampler"
    ]
    _, run, checkpoint = max(found)
    began = time.monotonic()
    archive = get(f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}/archive")
    return {"bytes": len(archive), "seconds": time.monotonic() - began}


class Memory:
    """The most memory in use: of the GPU by all processes, and of each watched process on the host."""

    def __init__(self) -> None:
        self.gpu_bytes: int | None = None
        self.host_bytes: dict[str, int] = {}
        self._pids: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def watch(self, name: str, pid: int) -> None:
        self._pids[name] = pid

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.wait(0.5):
            used = nvidia_smi("memory.used")
            if used is not None and used.isdigit():
                self.gpu_bytes = max(self.gpu_bytes or 0, int(used) * 2**20)
            for name, pid in self._pids.items():
                with contextlib.suppress(OSError, StopIteration):
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
                    self.host_bytes[name] = max(self.host_bytes.get(name, 0), int(kilobytes) * 1024)


# The report


def figures(steps: list[dict], summary: dict, adapter: dict, memory: Memory, seconds: float) -> dict:
    """The figures of a run. Rates leave out its first step, which waits for the first answers."""
    later = steps[1:]
    total = lambda key: sum(step.get(key, 0) for step in later)  # noqa: E731
    last = lambda key: next((step[key] for step in reversed(steps) if key in step), None)  # noqa: E731
    busy = total("seconds") - total("idle_seconds")
    waits = ("ticket", "policy", "publish")
    # Idle seconds and held seconds of the actors, both summed over them, between the first step and the last.
    grown = lambda key: (last(key) or 0) - steps[0].get(key, 0)  # noqa: E731
    idle = sum(grown(f"actors/idle_seconds/{cause}") for cause in waits)
    sampling = grown("held_seconds/sampler") - idle
    per = lambda amount, time: amount / time if time > 0 else None  # noqa: E731
    return {
        "wallSeconds": seconds,
        "steps": summary["steps"],
        "stepSecondsMedian": median(step["seconds"] for step in later),
        "stepSecondsMean": mean(step["seconds"] for step in later),
        "endToEndTokensPerSecond": per(total("scored/tokens"), total("seconds")),
        "samplingTokensPerSecondOfAnActor": per(grown("run_tokens/sampled"), sampling),
        "trainingTokensPerSecond": per(total("trained/tokens"), busy),
        "learnerIdleShare": per(total("idle_seconds"), total("seconds")),
        "klAtStaleness0": mean_of(steps, "kl_sample_train_v2/staleness_0"),
        "stalenessMean": mean_of(later, "staleness/mean"),
        "publishToFirstTokenSeconds": last("publish_to_first_token_seconds"),
        "publishSeconds": {phase: last(f"publish_seconds/{phase}") for phase in ("save", "session", "check", "manifest")},
        "adapterBytes": adapter["bytes"],
        "adapterDownloadSeconds": adapter["seconds"],
        "peakGpuBytes": memory.gpu_bytes,
        "peakHostBytes": memory.host_bytes,
        "tokens": summary["cost"]["tokens"],
        "rewardLast": last("env/all/reward/total"),
    }


def mean_of(steps: list[dict], key: str) -> float | None:
    values = [step[key] for step in steps if key in step]
    return mean(values) if values else None


def complaints(report: dict, steps: int) -> list[str]:
    """What a run must show for the report to be worth anything."""
    needed = ("stepSecondsMedian", "endToEndTokensPerSecond", "samplingTokensPerSecondOfAnActor",
              "trainingTokensPerSecond", "learnerIdleShare", "klAtStaleness0", "publishToFirstTokenSeconds",
              "adapterBytes", "adapterDownloadSeconds")
    found = []
    for name, run in report["runs"].items():
        measured = run["figures"]
        found += [f"{name}: {key} was not measured" for key in needed if measured[key] is None]
        if measured["steps"] != steps:
            found.append(f"{name}: {measured['steps']} steps instead of {steps}")
        if (measured["klAtStaleness0"] or 0) > 0.05:
            found.append(f"{name}: sampler and trainer differ by {measured['klAtStaleness0']} nats a token at staleness 0")
        if report["machine"]["gpu"] is not None and measured["peakGpuBytes"] is None:
            found.append(f"{name}: nvidia-smi did not report the memory in use")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
