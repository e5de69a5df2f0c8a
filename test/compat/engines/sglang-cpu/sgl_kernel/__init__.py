"""Stands in for SGLang's compiled kernels, which no package index offers for CPUs.

SGLang imports some of them by name and calls none of them to serve a dense model in float32 with the attention,
the sampling and the adapters of PyTorch: a call would end the server with the kernel's name.
"""

import torch

__version__ = "0.0"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args, **_options):
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in on a CPU")

    return missing


def _without_pinning(make):
    """Memory cannot be pinned without a driver for CUDA, which SGLang's adapters ask for on every device."""

    def made(*args, **options):
        options.pop("pin_memory", None)
        return make(*args, **options)

    return made


if not torch.cuda.is_available():
    for _name in ["tensor", "empty", "zeros", "ones", "full", "empty_like", "zeros_like"]:
        setattr(torch, _name, _without_pinning(getattr(torch, _name)))
    torch.Tensor.pin_memory = lambda self, *_args: self
