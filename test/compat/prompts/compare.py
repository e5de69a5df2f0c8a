"""Compares prompts, their tokens and those of a conversation with what transformers makes of the same model directory.

Started in a folder with ours.json and the directory `smol`.
"""

import json

from transformers import AutoTokenizer

found = json.load(open("ours.json"))
tokenizer = AutoTokenizer.from_pretrained("smol")


def equal(check, value, expected):
    print(json.dumps({"check": check, "value": str(value), "bound": str(expected), "passed": value == expected}))


def tokens(text, is_plain=False):
    return tokenizer(text, add_special_tokens=is_plain).input_ids


def formatted(chat, opens):
    return tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=opens)


for each in found["prompts"]:
    text = each["plain"] if each["chat"] is None else formatted(each["chat"], True) + each["opening"]
    name = f"{each['style']} in {each['language']}"
    equal(f"{name}: the same text", each["text"] == text, True)
    equal(f"{name}: the same tokens", each["tokens"] == tokens(text, each["chat"] is None), True)

chat = found["conversation"]
whole = tokens(formatted(chat["messages"], False))
equal("a conversation: tokens in the same order, but for the line break at its end", chat["tokens"] == whole[:-1], True)
trained = [token for token, is_trained in zip(chat["tokens"], chat["isTrained"]) if is_trained]
said = [message["content"] + tokenizer.eos_token for message in chat["messages"] if message["role"] == "assistant"]
equal("a conversation: only the answers are trained, each with its end", tokenizer.decode(trained), "".join(said))
