"""Adapters as downloads.

Stock TuFT answers an archive request with the checkpoint's directory on its own disk (`file://…`).
Here the answer names a link of this server, good for as long as TuFT says, which streams a tar of
`adapter_model.safetensors` and `adapter_config.json`: what Tinker clients expect.
"""

import hashlib
import hmac
import io
import secrets
import tarfile
import time
from datetime import timezone
from email.utils import format_datetime
from pathlib import Path

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from tuft.auth import User
from tuft.exceptions import TuFTException
from tuft.server import _get_state, _get_user, _normalize_checkpoint_id
from tuft.state import ServerState

FILES = ("adapter_config.json", "adapter_model.safetensors")


def add_routes(app: FastAPI) -> None:
    """Puts the download route beside TuFT's routes, and the archive route before its own."""
    secret = secrets.token_bytes(32)  # links do not outlive this process

    async def archive(
        run: str,
        checkpoint: str,
        request: Request,
        state: ServerState = Depends(_get_state),
        user: User = Depends(_get_user),
    ) -> Response:
        name = _normalize_checkpoint_id(checkpoint)
        try:
            place = state.build_archive_url(run, user_id=user.user_id, checkpoint_id=name)
        except TuFTException as error:
            raise HTTPException(error.status_code, error.detail) from error
        expires = place.expires.astimezone(timezone.utc)
        link = request.url_for("download_adapter", run=run, name=name).include_query_params(
            expires=int(expires.timestamp()),
            signature=sign(secret, run, name, int(expires.timestamp())),
        )
        headers = {"Location": str(link), "Expires": format_datetime(expires, usegmt=True)}
        return Response(status_code=302, headers=headers)

    def download_adapter(
        run: str, name: str, expires: int, signature: str, state: ServerState = Depends(_get_state)
    ) -> Response:
        # The link is the permission: a client that follows it, as an SDK does, sends no key.
        expected = sign(secret, run, name, expires)
        if not hmac.compare_digest(signature.encode(), expected.encode()) or expires < time.time():
            raise HTTPException(403, "this link is wrong or has expired: ask for the archive again")
        folder = Path(state.config.checkpoint_dir) / run / name / "adapter"
        try:
            return Response(tar_of(folder), media_type="application/x-tar")
        except FileNotFoundError as error:
            raise HTTPException(404, f"checkpoint {name} has been deleted") from error

    prefix = "/api/v1/training_runs/{run}/checkpoints"
    app.add_api_route("/adapters/{run}/{name}.tar", download_adapter, methods=["GET"])
    app.add_api_route(f"{prefix}/{{checkpoint:path}}/archive", archive, methods=["GET"])
    app.router.routes.insert(0, app.router.routes.pop())  # the first matching route answers


def sign(secret: bytes, run: str, name: str, expires: int) -> str:
    """A signature that only this process can make: no part of a link can be changed."""
    return hmac.new(secret, f"{run}\n{name}\n{expires}".encode(), hashlib.sha256).hexdigest()


def tar_of(folder: Path) -> bytes:
    """The adapter's files as a tar, the same bytes each time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in FILES:
            content = (folder / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
