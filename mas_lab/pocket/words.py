"""Make the tokenizer of a pocket model, with one token per word, and collect the words of an env.

Leaves out: languages. Words are separated by spaces, and output is words with one space between them.
"""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mas_lab.env import EnvError
from mas_lab.tool_calls import QWEN3
from mas_lab.train.demonstrations import Demonstration

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
MARKED = ("user", "assistant", "system", "tool")
"""The roles of a chat, in the order of a design's marks."""
MOST_WORDS = 8192


def make_tokenizer(words: Iterable[str], marks: Sequence[str] = ("<user>", "<assistant>"), context: int = 256):
    """Return a word-level fast tokenizer over `words`, with pad, eos and a chat template.

    The template shows every message. A role without a mark, by default system and tool, has that of the user. The marks
    are plain words. So a model that writes one is not silently corrected by the decoder.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = (PAD, EOS, UNKNOWN)
    words = [word for word in dict.fromkeys((*marks, *words)) if word not in special]
    random.Random(" ".join(marks)).shuffle(words)
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate((*special, *words))}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _fast(core, context, _template(marks), eos_token=EOS)


def _fast(core, context: int, template: str, **special: str):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, model_max_length=context,
                                        clean_up_tokenization_spaces=False, **special)  # fmt: skip
    tokenizer.chat_template = template
    return tokenizer


PARTS = r"<[^<>\s]+>|\n|[{}:,\" \[\]]*[{}:,\"\[\]][{}:,\" \[\]]*|\d|[^\s\d{}:,\"\[\]<]+|."
"""The parts of a text with tool calls: marks, line ends, the signs of JSON between two words, digits, words, spaces."""
OPEN, CLOSE = "<|im_start|>", "<|im_end|>"
CALLED = (*"\n <", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>",
          "system", "user", "assistant", "name", "arguments", '{"', '": "', '", "', '": {"', '": ', ', "', "}", "}}",
          '"}}', ":", '"', '"}')  # fmt: skip
"""Words of the template of tool calls."""


def parts_of(text: str, tools: bool) -> list[str]:
    """Return the words of a text, or its `PARTS` for a model with tools."""
    return re.findall(PARTS, text) if tools else text.split()


def make_tool_tokenizer(words: Iterable[str], context: int = 256):
    """Return a fast tokenizer for prompts with tools, with a chat template and a response template as Qwen3's.

    It gives text back as it was: spaces and signs of JSON are tokens of their own.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    listed = dict.fromkeys((PAD, CLOSE, UNKNOWN, OPEN, *CALLED, *words))
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(listed)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(PARTS), behavior="isolated")
    core.decoder = decoders.Fuse()
    template = Path(__file__).with_name("tools.jinja").read_text(encoding="utf-8")
    tokenizer = _fast(core, context, template, eos_token=CLOSE, unk_token=UNKNOWN)
    tokenizer.response_template = QWEN3
    return tokenizer


def _template(marks: Sequence[str]) -> str:
    """Return a chat template: each message follows the mark of its role; eos ends a message of the assistant."""
    lines = {}
    for role, mark in zip(MARKED, marks, strict=False):
        end = "' + eos_token + ' '" if role == "assistant" else "'"
        lines[role] = f"{{{{ '{mark} ' + message['content'] + ' {end} }}}}"
    others = lines.pop("user")
    known = "{%- el".join(f"if message['role'] == '{role}' %}}{line}" for role, line in lines.items())
    opened = f"{{%- if add_generation_prompt %}}{{{{ '{marks[1]}' }}}}{{%- endif %}}"
    return "{%- for message in messages %}{%- " + known + "{%- else %}" + others + "{%- endif %}{%- endfor %}" + opened


def different(played: Iterable[Demonstration], more: Iterable[str], name: str) -> list[str]:
    """Return the different words of the play of env `name`, and `more`; raise EnvError if they are too many.

    It is also an error if a message to an agent without tools has more than a role and a content.
    """
    found = dict.fromkeys(more)
    for one in played:
        more = [key for message in one.messages for key in message if key not in ("role", "content")]
        more += ["no content" for message in one.messages if message["content"] is None]
        if more and not one.tools:
            problem = f"a message has {more[0]!r}, and a pocket model reads role and content alone"
            raise EnvError(f"{one.place}: {problem}; say it there, in words")
        for text in (*(message["content"] or "" for message in one.messages), one.text):
            found.update(dict.fromkeys(parts_of(text, bool(one.tools))))
    if len(found) > MOST_WORDS:
        last = " ".join(map(repr, list(found)[-8:]))
        raise EnvError(
            f"env {name!r} says {len(found)} different words, and a pocket model learns at most {MOST_WORDS}; the last "
            f"ones are {last}. Say numbers as digits with spaces between them, and nothing that is new in every task"
        )
    return list(found)
