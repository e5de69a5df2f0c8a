"""The limits of the machine in float32: matrix products of 1,024 x 1,024 and reads of a matrix that no cache holds."""

import argparse

import torch
from rounds import serve, timed

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=1)
threads = parser.parse_args().threads
torch.set_num_threads(threads)

a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
into = torch.empty(1024, 1024)
matrix, vector = torch.randn(16384, 8192), torch.randn(8192)


def products():
    for _ in range(20):
        torch.mm(a, b, out=into)
    return 20 * 2 * 1024**3


def reads():
    for _ in range(2):
        torch.mv(matrix, vector)
    return 2 * matrix.nbytes


serve(lambda: {"products": timed(products), "reads": timed(reads)})
