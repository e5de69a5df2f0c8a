"""onnxruntime-genai decodes a batch with a model that its own builder made, drawing every token from the whole
distribution. Reading the prompts does not count. No adapter."""

import pathlib
import subprocess
import sys

import numpy
import onnxruntime_genai
from rounds import decoding, serve, timed

parser = decoding()
parser.add_argument("--source", required=True, help="a Hugging Face directory")
parser.add_argument("--vocabulary", type=int, required=True)
args = parser.parse_args()

folder = pathlib.Path(args.model)
if not (folder / "genai_config.json").exists():
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", args.source, "-o", str(folder)]
    subprocess.run([*builder, "-p", "fp32", "-e", "cpu", "-c", str(folder / "cache")], check=True, stdout=sys.stderr)

config = onnxruntime_genai.Config(str(folder))
config.overlay(
    '{"model": {"decoder": {"session_options": {"intra_op_num_threads": %d, "inter_op_num_threads": 1}}}}' % args.threads
)
model = onnxruntime_genai.Model(config)
prompt = [(37 * i + 11) % args.vocabulary for i in range(args.prompt)]
prompts = numpy.array([prompt] * args.group_size, dtype=numpy.int32)
length = args.prompt + args.tokens + 8


def measure():
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(
        batch_size=args.group_size, do_sample=True, top_k=0, top_p=1.0, temperature=1.0, min_length=length, max_length=length
    )
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(prompts)
    generator.generate_next_token()

    def steps():
        for _ in range(args.tokens):
            generator.generate_next_token()
        return args.group_size * args.tokens

    return timed(steps)


serve(measure)
