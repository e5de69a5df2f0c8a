"""OpenVINO GenAI decodes a batch from a GGUF file, drawing every token from the whole distribution: the difference
between few tokens and more, so that reading the prompts does not count. No adapter."""

import time

import numpy
import openvino
import openvino_genai
from rounds import decoding, difference, serve

parser = decoding()
parser.add_argument("--vocabulary", type=int, required=True)
args = parser.parse_args()

# 2026.4 dies of a division by zero on one thread (a SIGFPE that no Python sees), so it has two at least.
threads = max(2, args.threads)
pipeline = openvino_genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=threads)
prompt = [(37 * i + 11) % args.vocabulary for i in range(args.prompt)]
prompts = numpy.array([prompt] * args.group_size, dtype=numpy.int64)
inputs = openvino_genai.TokenizedInputs(openvino.Tensor(prompts), openvino.Tensor(numpy.ones_like(prompts)))


def run(tokens):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos = tokens, True
    config.do_sample, config.temperature, config.top_p = True, 1.0, 1.0
    config.top_k = args.vocabulary
    processor, wall = time.process_time(), time.perf_counter()
    found = pipeline.generate(inputs, config).tokens
    if any(len(answer) != tokens for answer in found):
        raise SystemExit(f"{len(found[0])} tokens instead of {tokens}")
    return time.process_time() - processor, time.perf_counter() - wall


serve(lambda: difference(run, 2, 2 + args.tokens, args.group_size))
