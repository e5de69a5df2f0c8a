"""Makes a small random Qwen3 whose tokenizer can write TuFT's Countdown prompts and answers.

The embedded model reads the characters of bare arithmetic, and the example asks in English. With
words as tokens a prompt has some 180 of them, and chance alone hits `<answer>` and `</answer>` now
and then: that is the first thing to be learned.

Arguments: a folder to write to, the example's dataset folder. The example's own folder is on the
path: its env.py says how prompts read.
"""

import re
import sys

import torch
from env import COUNTDOWN_FEWSHOT, CountdownDatasetLoader
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PIECE = r"</?answer>| ?[A-Za-z]+|[0-9]|[^A-Za-z0-9]"
SPECIAL = ["<pad>", "<eos>", "<unk>"]


def main(folder, dataset):
    problems = CountdownDatasetLoader(dataset, test_size=1, seed=0).get_batch(64)
    texts = [COUNTDOWN_FEWSHOT + problem.question for problem in problems]
    pieces = sorted({piece for text in texts for piece in re.findall(PIECE, text)})
    vocabulary = {piece: i for i, piece in enumerate(SPECIAL + pieces)}
    assert all(digit in vocabulary for digit in "0123456789")

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    assert all(wrapped.decode(wrapped.encode(text)) == text for text in texts)
    wrapped.save_pretrained(folder)

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,  # tied, it would repeat what it read
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(5)  # which LoRA leaves as it is: it bounds how sure one can get
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
