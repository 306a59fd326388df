"""Write and encode chats with a tokenizer of somebody else, as a run would, in the child process of `child`.

A chat template is a program, and a tokenizer is one too: it can loop, grow a text, or crash. Leaves out: the limits of
the process (`child`), and texts that trigger a fault by words that stand in neither file.
"""

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from transformers import AutoTokenizer

from mas_lab.runs.disk import RunError

ROOM, GROWTH = 20_000, 8
"""A chat of n characters, as JSON, may have `ROOM` + `GROWTH` n tokens; a template may write a long system message."""
CHARACTERS = 2000
"""Number of a tokenizer's own characters that are tried."""
CALL = {"id": "call_0_0", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2]}}}
FORM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "add", "description": "Add numbers.", "parameters": FORM}}
TURN = [
    {"role": "user", "content": "What is 1 + 2?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_0_0", "content": "3"}, {"role": "assistant", "content": "It is 3."},
]  # fmt: skip
SYSTEM = [{"role": "system", "content": "You add."}]


def try_chats(tokenizers: str, at: Callable[[str], None]) -> None:
    """Write, encode and decode chats with each tokenizer of a list, in JSON, of folders and template arguments.

    Tried are chats of 1 to 16 messages of all roles, with and without a system message and tools, as prompts and as
    history; texts of the tokenizer's own characters, once and repeated; a long text; and all tokens. Raises RunError if
    a text grows out of proportion.
    """
    for where, template in json.loads(tokenizers):
        at(where)
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        content = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else json.dumps(tokenizer.get_vocab())
        _require(len(tokenizer.decode(list(range(len(tokenizer))))), len(content), where)
        for messages, options in _chats("".join(sorted(set(content))[:CHARACTERS]), tokenizer.all_special_tokens):
            try:
                ids = tokenizer.apply_chat_template(messages, **{"return_dict": False, **options, **template})
            except MemoryError:
                raise
            except Exception:  # a template may refuse a role, which is an error when a prompt has it
                continue
            length = len(json.dumps([messages, options]))
            _require(max(len(ids), len(tokenizer.decode(ids)) // GROWTH), length, where)


def _chats(own: str, marks: list[str]) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Yield chats, each with options of the chat template."""
    for first, length, tools, prompt in product((0, 1), range(1, 17), ({}, {"tools": [TOOL]}), (True, False)):
        yield (SYSTEM + 4 * TURN)[1 - first : length + 1], {"add_generation_prompt": prompt, **tools}
    for text in (own, "".join(40 * character + " " for character in own), " ".join(marks), 5000 * "a word, 12. "):
        yield [{"role": "user", "content": text}], {"add_generation_prompt": True}


def _require(tokens: int, characters: int, where: str) -> None:
    if tokens > ROOM + GROWTH * characters:
        raise RunError(f"{where}: it makes {tokens:,} tokens of {characters:,} characters; ask its maker")
