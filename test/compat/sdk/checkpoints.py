"""Saving, loading, listing, downloading and deleting weights."""

import io
import json
import tarfile
import tempfile
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

import tinker
import torch
from peft import PeftModel

from checks import at_most, client_of, holds, refused, same
from reference import imitation, logprobs_of


def check_checkpoints(world):
    client = world.client(rank=8, seed=1)
    train(client, world, 3)
    saved = client.save_state("state").result().path
    same("save_state: path", saved, f"tinker://{client.model_id}/weights/state")
    check_restoring(world, client, saved)
    sampled = client.save_weights_for_sampler("sampler").result().path
    check_sampler(world, client, sampled)
    check_archive(world, client, sampled)
    check_listings(world, client, saved, sampled)


def train(client, world, steps):
    """The losses before each of the steps, and after the last."""
    data = [imitation(text) for text in world.texts]
    adam = tinker.AdamParams(learning_rate=1e-3)
    found = []
    for _ in range(steps):
        found.append(client.forward_backward(data, "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(adam).result()
    found.append(client.forward(data, "cross_entropy").result().metrics["loss:sum"])
    return found


def check_restoring(world, client, saved):
    went_on = train(client, world, 3)
    client.load_state_with_optimizer(saved).result()
    same(
        "load_state_with_optimizer: the same 3 steps, to the bit", train(client, world, 3), went_on
    )
    again = client_of(world.service.create_training_client_from_state_with_optimizer(saved))
    same("create_training_client_from_state_with_optimizer", train(again, world, 3), went_on)
    same("its rank", again.get_info().lora_rank, 8)

    client.load_state(saved).result()
    fresh = train(client, world, 3)
    same("load_state: the same loss", fresh[0], went_on[0])
    holds("load_state: AdamW begins anew", fresh[2:] != went_on[2:])
    bare = client_of(world.service.create_training_client_from_state(saved))
    same("create_training_client_from_state", train(bare, world, 3), fresh)


def check_sampler(world, client, path):
    current = logprobs_of(
        client.forward([imitation(t) for t in world.texts], "cross_entropy").result()
    )
    named = world.sampler(model_path=path)
    unnamed = client_of(client.save_weights_and_get_sampling_client())
    for label, sampler in (("a saved sampler", named), ("an unnamed one", unnamed)):
        worst = 0.0
        for text, expected in zip(world.texts, current, strict=True):
            scored = sampler.compute_logprobs(tinker.ModelInput.from_ints(text)).result()[1:]
            worst = max(worst, (torch.tensor(scored) - expected).abs().max())
        at_most(f"{label}: compute_logprobs against forward", worst, 1e-4)
    base = world.reference.logprobs(world.texts[0])
    away = (current[0] - base).abs().max()
    holds("both differ from the base model", away > 0.1, f"by {away:.2g}")


def check_archive(world, client, path):
    """The download loads in peft, and then transformers and the backend agree."""
    rest = world.service.create_rest_client()
    with tempfile.TemporaryDirectory() as folder:
        if hasattr(rest, "get_checkpoint_archive_url_from_tinker_path"):
            url = rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
            with urllib.request.urlopen(url, timeout=30) as answer:
                archive = tarfile.open(fileobj=io.BytesIO(answer.read()))
            archive.extractall(folder, filter="data")
            check_adapter(world, client, "archive", folder)
        else:  # SDK 0.38 has links to the files of external weights instead
            saved = client.save_weights_external("outside").result().path
            for name, url in rest.get_external_weights_urls(saved).result().urls.items():
                with urllib.request.urlopen(url, timeout=30) as answer:
                    Path(folder, name).write_bytes(answer.read())
            check_adapter(world, client, "external weights", folder)


def check_adapter(world, client, label, folder):
    config = json.loads(Path(folder, "adapter_config.json").read_text(encoding="utf-8"))
    same(f"{label}: the adapter's rank", config["r"], 8)
    adapted = PeftModel.from_pretrained(world.reference.model, folder).eval()
    found = logprobs_of(
        client.forward([imitation(t) for t in world.texts], "cross_entropy").result()
    )
    expected = [world.reference.logprobs(t, model=adapted) for t in world.texts]
    adapted.unload()
    worst = max((a - b).abs().max() for a, b in zip(found, expected, strict=True))
    at_most(f"{label}: forward against peft with its adapter", worst, 1e-4)


def check_listings(world, client, saved, sampled):
    rest = world.service.create_rest_client()
    run = client.model_id

    def listed():
        return {each.tinker_path for each in rest.list_checkpoints(run).result().checkpoints}

    holds("list_checkpoints: both", {saved, sampled} <= listed())
    users = {each.tinker_path for each in rest.list_user_checkpoints().result().checkpoints}
    holds("list_user_checkpoints: both", {saved, sampled} <= users)
    runs = [each.training_run_id for each in rest.list_training_runs().result().training_runs]
    holds("list_training_runs: this one", run in runs)
    page = rest.list_training_runs(limit=2, offset=1).result().training_runs
    same("list_training_runs: a page of it", [each.training_run_id for each in page], runs[1:3])
    about = rest.get_training_run_by_tinker_path(saved).result()
    same("get_training_run: model, rank", (about.base_model, about.lora_rank), (world.model, 8))
    same("get_training_run: last state", about.last_checkpoint.tinker_path, saved)
    info = rest.get_weights_info_by_tinker_path(saved).result()
    same(
        "get_weights_info: rank, mlp, attn",
        (info.lora_rank, info.train_mlp, info.train_attn),
        (8, True, True),
    )

    sessions = rest.list_sessions().result().sessions
    session = next(s for s in sessions if run in rest.get_session(s).result().training_run_ids)
    samplers = rest.get_session(session).result().sampler_ids
    sources = {rest.get_sampler(each).result().model_path for each in samplers}
    holds("get_session and get_sampler: the sampler, by its path", sampled in sources)

    def entry():
        listing = rest.list_checkpoints(run).result().checkpoints
        return next(each for each in listing if each.tinker_path == saved)

    rest.publish_checkpoint_from_tinker_path(saved).result()
    same("publish_checkpoint: it is public", entry().public, True)
    rest.unpublish_checkpoint_from_tinker_path(saved).result()
    same("unpublish_checkpoint: it is not", entry().public, False)
    rest.set_checkpoint_ttl_from_tinker_path(saved, 3600).result()
    left = (entry().expires_at - datetime.now(timezone.utc)).total_seconds()
    at_most("set_checkpoint_ttl: seconds from the expected end", abs(left - 3600), 30)

    rest.delete_checkpoint_from_tinker_path(sampled).result()
    rest.delete_checkpoint(run, "weights/state").result()
    same("delete_checkpoint: both are gone", listed() & {saved, sampled}, set())
    refused(
        "what is gone cannot be loaded",
        lambda: client.load_state(saved).result(),
        tinker.RequestFailedError,
        "not found",
    )
    refused(
        "what is gone cannot be deleted",
        lambda: rest.delete_checkpoint_from_tinker_path(saved).result(),
        tinker.NotFoundError,
        "not found",
    )
    refused(
        "what is gone cannot be published",
        lambda: rest.publish_checkpoint_from_tinker_path(saved).result(),
        tinker.NotFoundError,
        "not found",
    )
    refused(
        "whoami, which needs accounts",
        lambda: rest.whoami().result(),
        RuntimeError,
        "JWT",
    )
