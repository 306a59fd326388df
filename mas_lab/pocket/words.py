"""Make the tokenizer of a pocket model, with one token per word, and collect the words of an env.

Leaves out: languages. Words are separated by spaces, and output is words with one space between them.
"""

import random
from collections.abc import Iterable, Sequence

from mas_lab.env import EnvError, Message

Said = tuple[list[Message], str]
"""The messages that an agent saw, and its answer."""
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
    from transformers import PreTrainedTokenizerFast

    special = (PAD, EOS, UNKNOWN)
    words = [word for word in dict.fromkeys((*marks, *words)) if word not in special]
    random.Random(" ".join(marks)).shuffle(words)
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate((*special, *words))}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _template(marks)
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


def different(played: Iterable[Said], more: Iterable[str], name: str) -> list[str]:
    """Return the different words of the play of env `name`, and `more`; raise EnvError if they are too many."""
    found = dict.fromkeys(more)
    for messages, answer in played:
        for text in (*(message["content"] for message in messages), answer):
            found.update(dict.fromkeys(text.split()))
    if len(found) > MOST_WORDS:
        last = " ".join(map(repr, list(found)[-8:]))
        raise EnvError(
            f"env {name!r} says {len(found)} different words, and a pocket model learns at most {MOST_WORDS}; the last "
            f"ones are {last}. Say numbers as digits with spaces between them, and nothing that is new in every task"
        )
    return list(found)
