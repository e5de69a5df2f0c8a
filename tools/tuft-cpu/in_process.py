"""Stand-ins that let TuFT's Hugging Face backend train in this process, on the CPU.

TuFT keeps the model in a Ray actor that asks for a GPU. Here the same object lives on a thread of its
own, behind a handle with the actor's interface: `handle.method.remote(...)` is awaitable.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch


def install() -> None:
    """Replaces the parts of TuFT that need Ray and CUDA. Call it before the server is created."""
    if "ray" not in sys.modules:
        ray, actor = ModuleType("ray"), ModuleType("ray.actor")
        ray.kill = lambda handle, **_: handle.close()  # what TuFT's shutdown calls
        actor.ActorProxy = InProcessActor
        ray.actor = actor
        sys.modules |= {"ray": ray, "ray.actor": actor}
    if not torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats = lambda *_: None  # called at each pass, unguarded

    from tuft.backends.hf_training_model import HFTrainingModel

    HFTrainingModel.get_actor = classmethod(lambda cls, config: InProcessActor(lambda: cls(config)))


class InProcessActor:
    """A handle on an object whose coroutines run, one loop for all, on a separate thread.

    The thread matters: those coroutines compute for seconds without a pause, and on the server's own
    loop every other request would wait for them.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._target = build()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="actor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after its current call, such as a save, but waits only for a limited time."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def __getattr__(self, name: str) -> "_Method":
        return _Method(getattr(self._target, name), self._loop)


class _Method:
    def __init__(self, method: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self._method = method
        self._loop = loop

    def remote(self, *args: Any, **kwargs: Any) -> asyncio.Future:
        """Starts the coroutine there; the future belongs to the loop of the caller."""
        running = asyncio.run_coroutine_threadsafe(self._method(*args, **kwargs), self._loop)
        return asyncio.wrap_future(running)
