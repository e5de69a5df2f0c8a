"""Checks the pieces of a bundle against their manifest and unpacks them, once."""

import hashlib
import io
import json
import shutil
import sys
import tarfile
from pathlib import Path


class Pieces(io.RawIOBase):
    """The pieces as one stream. Each is checked before any of it is read."""

    def __init__(self, folder: Path, pieces: list[dict]) -> None:
        self._left = [(folder / piece["name"], piece) for piece in pieces]
        self._file = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while True:
            count = self._file.readinto(buffer) if self._file else 0
            if count or not self._left:
                return count
            path, piece = self._left.pop(0)
            check(path, piece)
            self._file = path.open("rb")


def check(path: Path, piece: dict) -> None:
    if not path.exists():
        sys.exit(f"{path} is missing: bring every piece that manifest.json lists")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != piece["sha256"]:
        sys.exit(f"{path} is damaged: its SHA-256 is {found}, expected {piece['sha256']}; copy it again")


def main(folder: Path) -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"Python {sys.version.split()[0]} is too old: TuFT needs 3.11 or newer")
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = "".join(piece["sha256"] for piece in manifest["pieces"])
    target = folder / "bundle"
    done = target / ".complete"
    if done.exists() and done.read_text() == digest:
        return
    shutil.rmtree(target, ignore_errors=True)
    stream = io.BufferedReader(Pieces(folder, manifest["pieces"]), 1 << 20)
    with tarfile.open(fileobj=stream, mode="r|xz") as tar:
        tar.extractall(target, filter="data")
    done.write_text(digest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
