"""The real TuFT server with real LoRA training on a CPU: no GPU, no Ray, no vLLM.

    python tools/tuft-cpu/tuft_cpu.py --model-dir DIR --checkpoint-dir DIR

or `npx offbeat tuft-cpu …`, which makes the Python environment first.

TuFT is imported as published. What a CPU lacks is put in its place before the server is made: the
Ray actor that holds the model (in_process.py), vLLM (hf_sampler.py, with --sampling), and an archive
that can be downloaded instead of a path on the server's disk (archives.py). README.md has the details.
"""

import argparse
import json
import logging
import os
import secrets
import signal
import sys
from functools import partialmethod
from importlib.metadata import version
from pathlib import Path


EMBEDDED_MODEL = Path(__file__).resolve().parents[2] / "shared/model/base"


def main() -> None:
    # Ends the process also while the model is being loaded; once uvicorn serves, it listens itself,
    # closes the server, and then repeats the signal to us.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(0))

    options = parse_options()
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    os.environ.pop("TUFT_CPU_TEST", None)  # it would replace training by a toy
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is a directory: there is nothing to ask

    # Waiting threads yield the core: if actors share the cores, spinning made a pass of
    # 1.3 s take 40 s.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    # Slow imports come after the checks that can fail at once.
    import torch
    import transformers
    import uvicorn

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)  # TuFT ignores the seeds of its requests

    import in_process

    in_process.install()

    from tuft.futures import FutureStore
    from tuft.server import create_root_app

    import archives

    if options.sampling:
        import hf_sampler

        hf_sampler.install()
    FutureStore.retrieve = partialmethod(FutureStore.retrieve, timeout=options.poll_seconds)

    transformers.utils.logging.disable_progress_bar()
    app = create_root_app(tuft_config(options))
    if options.archive == "http":
        archives.add_routes(app)

    class Server(uvicorn.Server):
        async def startup(self, sockets=None) -> None:
            await super().startup(sockets)
            if self.started:
                what = f"TuFT {version('tuft')} trains {options.model_name}"
                print(f"{what} at http://{options.host}:{options.port}", flush=True)

    settings = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level=options.log_level,
        timeout_graceful_shutdown=2,  # a poll may be held for minutes
    )
    try:
        Server(settings).run()
        code = 0
    except SystemExit as end:  # of our own handler above, or of a port that is taken
        code = end.code
    # All is saved. A normal exit takes seconds, and aborts while a pass still runs.
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tuft-cpu",
        description="The real TuFT server with real LoRA training on a CPU. The key that clients must"
        " send is TINKER_API_KEY; without it one is made and printed.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model-dir", default=EMBEDDED_MODEL, type=Path, help="Hugging Face directory: Qwen or Llama")
    add("--model-name", help="name under which clients ask for it (default: the directory's path)")
    add("--checkpoint-dir", default=Path("checkpoints"), type=Path, help="where weights are saved")
    add("--host", default="127.0.0.1", help="address to serve on")
    add("--port", default=10610, type=int, help="and its port")
    add("--threads", default=os.cpu_count() or 1, type=positive, help="threads of torch")
    add("--seed", default=0, type=int, help="of torch: decides fresh adapters and samples")
    add("--micro-batch-size", default=16, type=positive, help="sequences in one pass of the model")
    add("--lora-alpha-ratio", default=2, type=positive, help="lora_alpha = ratio * rank")
    add("--sampling", action="store_true", help="also sample, with transformers in place of vLLM")
    add("--archive", choices=("http", "file"), default="http", help="how adapters are handed out: as"
        " a download, or as stock TuFT does, by their place on this machine's disk")
    add("--no-persistence", dest="persistence", action="store_false", help="forget runs at the end;"
        " otherwise they are kept in the checkpoint directory")
    add("--poll-seconds", default=120, type=float, help="how long a poll for a result is held")
    add("--log-level", default="warning", choices=("debug", "info", "warning", "error"), help="of TuFT")
    options = parser.parse_args()

    try:
        config = json.loads((options.model_dir / "config.json").read_text())
    except (OSError, ValueError) as error:
        parser.error(f"--model-dir {options.model_dir} is no Hugging Face directory: {error}")
    family = str(config.get("model_type"))
    if not family.startswith(("qwen", "llama")):
        parser.error(
            f"model_type is {family} in {options.model_dir}/config.json: TuFT trains qwen… and llama…"
        )
    options.model_dir = options.model_dir.resolve()
    options.model_name = options.model_name or str(options.model_dir)
    options.max_model_len = int(config.get("max_position_embeddings", 4096))
    options.checkpoint_dir = options.checkpoint_dir.resolve()  # TuFT makes a file:// URL of it

    options.api_key = os.environ.get("TINKER_API_KEY") or ""
    if not options.api_key:
        options.api_key = f"tml-{secrets.token_urlsafe(24)}"
        print(f"TINKER_API_KEY={options.api_key}", flush=True)
    if not options.api_key.startswith("tml-"):
        parser.error("TINKER_API_KEY must begin with tml-: Tinker SDKs refuse every other key")
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def tuft_config(options: argparse.Namespace):
    """TuFT's configuration of one model. Exits if the kept runs belong to another one."""
    from tuft.config import AppConfig, ModelConfig
    from tuft.exceptions import ConfigMismatchError
    from tuft.persistence import PersistenceConfig, get_redis_store, validate_config_signature

    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    model = ModelConfig(
        model_name=options.model_name,
        model_path=options.model_dir,
        max_model_len=options.max_model_len,
        capabilities=["training", "sampling"] if options.sampling else ["training"],
        training_backend="hf",
        micro_batch_size=options.micro_batch_size,
        lora_alpha_ratio=options.lora_alpha_ratio,
    )
    config = AppConfig(
        checkpoint_dir=options.checkpoint_dir,
        supported_models=[model],
        authorized_users={options.api_key: "local-user"},
    )
    if not options.persistence:
        return config

    # Futures are kept for an hour: TuFT rewrites the whole file at each of their changes.
    kept = options.checkpoint_dir / "tuft-state.json"
    config.persistence = PersistenceConfig.from_file(kept, future_ttl_seconds=3600)
    get_redis_store().configure(config.persistence)
    try:
        validate_config_signature(config)
    except ConfigMismatchError as error:
        sys.exit(f"{kept} belongs to another configuration: {error}\nChoose another --checkpoint-dir.")
    return config


if __name__ == "__main__":
    main()
