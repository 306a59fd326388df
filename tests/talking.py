"""A policy with a real tokenizer and Qwen3's chat template, which says what a test tells it to.

For tests of tools and clients: prompts are written, and answers are read, as with a real model. Nothing here learns.
"""

import http.client
import json
import random
from pathlib import Path
from urllib.parse import urlsplit

from scripted import Scripted

import mas_lab as lab
from mas_lab.backends.torch.encoding import encode
from mas_lab.contrib import programs
from mas_lab.policy import Completion
from mas_lab.tool_calls import QWEN3

ANSWERS = "<|im_start|>assistant\n"
NO_THOUGHT = "<think>\n\n</think>\n\n"
MARKS = ["<|im_start|>", "<|im_end|>"]


def make_tokenizer():
    """A tokenizer of bytes with Qwen3's marks and templates."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(MARKS)
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    fast.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    fast.response_template = QWEN3
    return fast


class Talker(Scripted):
    """`reply(prompt, draw)` is the whole answer to the text of a prompt; `draw` is random numbers of the request.

    What the prompt has opened of the answer is not said again. A stop text or `max_tokens` ends it early.
    """

    def __init__(self, reply, context=1_000_000, streams=False):
        super().__init__(reply, streams, context)
        self.tokenizer, self.template = make_tokenizer(), {}

    def encode(self, messages, tools=(), choice="auto"):
        return self.encode_all([messages], tools, choice)[0]

    def encode_all(self, chats, tools=(), choice="auto"):
        return encode(self.tokenizer, chats, self.template, self.name, tools, choice)

    def submit(self, policy, requests):
        self.waves.append(len(requests))
        tickets = []
        for request in requests:
            tickets.append(sum(self.waves) + len(tickets))
            self._pending.append((tickets[-1], self._said(request)))
        return tickets

    def _said(self, request):
        draw = random.Random(request.seed)
        prompt = self.tokenizer.decode(list(request.prompt_ids))
        whole, opened = self.reply(prompt, draw), prompt.rpartition(ANSWERS)[2].removeprefix(NO_THOUGHT)
        text = whole.removeprefix(opened)
        ends = [text.index(stop) + len(stop) for stop in request.stop if stop in text]
        finish = "stop" if ends else "eos"
        text = text[: min(ends)] if ends else text + "<|im_end|>"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) > request.max_tokens:
            ids, finish = ids[: request.max_tokens], "length"
        said = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(tuple(ids), tuple(-draw.random() for _ in ids), said, finish)


def call(name, **arguments):
    """The text of a tool call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def last(prompt):
    """The last message of a prompt, as (role, text); what a tool gave has the role "tool"."""
    role, _, text = prompt.rpartition(ANSWERS)[0].rpartition("<|im_start|>")[2].partition("\n")
    text = text.removesuffix("\n").removesuffix("<|im_end|>").strip()
    if text.startswith("<tool_response>"):
        return "tool", text.removeprefix("<tool_response>").removesuffix("</tool_response>").strip()
    return role, text


def team_of(reply, *agents, **settings):
    return lab.Team.shared(Talker(reply, **settings), agents)


def post(endpoint, body, path="/v1/chat/completions"):
    """Return (status, text) of one request by hand."""
    address = urlsplit(endpoint.base_url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = {"Authorization": f"Bearer {endpoint.api_key}"}
    connection.request("POST", path, data, head)
    answer = connection.getresponse()
    status, text = answer.status, answer.read().decode()
    connection.close()
    return status, text


def exchange(reply, *bodies, path="/v1/chat/completions"):
    """Post bodies in one episode, then ask once in plain words; return each (status, text) and the other rows.

    A body may be a function from the last answer's JSON.
    """
    found = []

    def program(task, endpoint):
        for body in bodies:
            found.append(post(endpoint, body(json.loads(found[-1][1])) if callable(body) else body, path))
        endpoint("checker", "hello")
        return 1.0

    turns = programs.play(program, team_of(reply, "solver", "checker"), ["one"], max_tokens=400)
    return found, turns[turns["agent"] == "solver"].reset_index(drop=True)
