"""transformers decodes groups of answers: the model's own forward pass with its cache, every token drawn from the whole
distribution and its logprob kept. The prompt of a group is read once. No adapter."""

import time

import torch
from rounds import decoding, serve
from transformers import AutoModelForCausalLM

parser = decoding()
parser.add_argument("--dtype", default="float32")
parser.add_argument("--groups", type=int, default=1)
parser.add_argument("--repeats", type=int, default=1)
parser.add_argument("--counts-prompt", action="store_true", help="whether reading the prompt counts")
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).eval()
vocabulary = model.config.vocab_size
prompts = torch.tensor(
    [[(37 * i + 11 + group) % vocabulary for i in range(args.prompt)] for group in range(args.groups)]
)
cpu, clock = time.process_time, time.perf_counter


def draw(logits):
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    tokens = torch.multinomial(logprobs.exp(), 1)
    return tokens, logprobs.gather(1, tokens)


def measure():
    spent, passed, count = 0.0, 0.0, 0
    for _ in range(args.repeats):
        at = (cpu(), clock())
        read = model(prompts, use_cache=True, logits_to_keep=1)
        cache = read.past_key_values
        cache.batch_repeat_interleave(args.group_size)
        tokens, logprobs = draw(read.logits[:, -1].repeat_interleave(args.group_size, 0))
        answers = [(tokens, logprobs)]
        if not args.counts_prompt:
            at = (cpu(), clock())
        for _ in range(args.tokens - 1):
            logits = model(tokens, past_key_values=cache, use_cache=True).logits[:, -1]
            tokens, logprobs = draw(logits)
            answers.append((tokens, logprobs))
        spent, passed = spent + cpu() - at[0], passed + clock() - at[1]
        steps = args.tokens if args.counts_prompt else args.tokens - 1
        count += args.groups * args.group_size * steps
    return {"count": count, "processor": spent, "wall": passed}


serve(measure)
