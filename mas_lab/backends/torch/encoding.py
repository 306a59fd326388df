"""From chat messages to the token ids of a prompt, by the tokenizer's own chat template.

A prompt that the model cannot read is refused. Without a chat template the end of a turn is unknown. A word that the
tokenizer does not know reaches the model as an unknown token only. Leaves out: learning (`policy`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from mas_lab.arguments import check_arguments
from mas_lab.env import Message, Tools
from mas_lab.policy import Completion, PolicyError, Request
from mas_lab.tool_calls import opening, response_template

UNKNOWN_SHARE, UNKNOWN_LEAST = 0.1, 3
"""A prompt is refused if more than this share of its tokens, and at least this number, are the unknown token."""
PRIVATE = 0xF0000
"""First of the characters that replace special tokens in a message; Unicode assigns them to nobody."""
NAMED = 12
"""Number of unknown words that an error message lists."""


class ChatPolicy:
    """The part of a policy that only needs `shared`, the parts that all policies of its model share."""

    name: str
    shared: Any

    tokenizer = property(lambda self: self.shared.tokenizer)
    engine = property(lambda self: self.shared.engine)
    lock = property(lambda self: self.shared.lock)
    context = property(lambda self: self.shared.context)

    def __deepcopy__(self, memo: Any) -> "ChatPolicy":
        """Return the policy itself: what holds it, such as a credit, may be copied, and weights are not."""
        return self

    def encode(self, messages: Sequence[Message], tools: Tools = (), choice: str = "auto") -> list[int]:
        """Return the token ids of a chat, up to the place where the policy answers."""
        return self.encode_all([messages], tools, choice)[0]

    def encode_all(self, chats: Sequence[Sequence[Message]], tools: Tools = (), choice: str = "auto"):
        """Encode many chats in one call of the tokenizer."""
        with _writing(self.name):
            return encode(self.tokenizer, chats, self.shared.template, self.name, tools, choice)

    def encode_answer(self, text: str) -> list[int]:
        """Return the token ids of an answer, with the token that ends a turn.

        That is the one that the chat template puts after an answer, if sampling stops at it, else EOS. Raises
        PolicyError if the text has no token, or one that the tokenizer does not know.
        """
        chat = [{"role": "user", "content": "6 * 7"}, {"role": "assistant", "content": "42"}]
        after = self.tokenizer.apply_chat_template(chat, tokenize=False, **self.shared.template).rpartition("42")[2]
        ids, marks = self.tokenizer([text, after], add_special_tokens=False)["input_ids"]
        unknown, ends = unknown_mark(self.tokenizer), self.shared.eos_ids()
        if not ids or (unknown and unknown[1] in ids):
            raise PolicyError(f"policy {self.name!r}: its tokenizer has no tokens for {text!r:.200}")
        return [*ids, next((i for i in marks if i in ends), self.tokenizer.eos_token_id)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Return a completion per request, in order."""
        return self.engine.sample(self, requests)


class AdapterBase:
    """A base with up to `size` adapters of at most `rank`; each is the policy of one agent."""

    size: int
    rank: int
    policies: dict[str, Any]

    def free(self) -> list[int]:
        """Return the indices of the adapters that no agent has."""
        taken = [policy.made_with["index"] for policy in self.policies.values()]
        return [index for index in range(self.size) if index not in taken]

    def adapter(self, agent: str, rank: int | None = None, lr: float | None = None) -> Any:
        """Return the policy of `agent`; another call for the same agent returns the same policy.

        `rank` is at most the rank of the base, because an engine has room for no more. `None` as `rank` or `lr` keeps
        the present value, which is the base's at first. Raises PolicyError if all adapters are taken, if `rank` is out
        of range, or if the agent's adapter was made with another rank.
        """
        check_arguments(type(self).adapter, {"lr": lr}, "adapter", lr=0)
        if agent not in self.policies:
            if not self.free():
                raise PolicyError(
                    f"agent {agent!r} requests an adapter; the base was loaded with adapters={self.size}, "
                    f"taken by {', '.join(self.policies)}"
                )
            self.make(self.free()[0], agent, rank)
        policy = self.policies[agent]
        if rank not in (None, policy.made_with["own_rank"]):
            raise PolicyError(f"agent {agent!r} requests rank {rank}; its adapter was made before, of another rank")
        policy.lr = policy.lr if lr is None else lr
        return policy


@contextmanager
def _writing(policy: str) -> Iterator[None]:
    """Raise PolicyError if the chat template fails, such as Gemma's, which knows no system role."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("jinja2"):
            raise
        raise PolicyError(
            f"policy {policy!r}: its chat template refuses the messages ({error}); pass another one, load_policy(..., "
            "template={'chat_template': ...}), or use an env without such messages, for example without system prompts"
        ) from error


def encode(tokenizer, chats: Sequence[Sequence[Message]], template: Mapping[str, Any], policy: str,
           tools: Tools = (), choice: str = "auto") -> list[list[int]]:  # fmt: skip
    """Return the token ids of each chat, up to the point where the assistant speaks.

    `template`: keyword arguments for the chat template. `choice`: "auto", or what the answer must call (`opening`).
    Raises PolicyError if there is no chat template, or, with the words, if more than a tenth of a chat's tokens, and at
    least three, are unknown.
    """
    if not (tokenizer.chat_template or template.get("chat_template")):
        raise PolicyError(
            f"policy {policy!r}: its tokenizer has no chat template, so a prompt cannot be written; take the model's "
            "instruction-tuned form, or pass load_policy(..., template={'chat_template': ...})"
        )
    chats = [list(messages) for messages in chats]
    if not chats:
        return []
    if tools:
        response_template(tokenizer)  # what cannot be read is not offered
    options = {"add_generation_prompt": True, **({"tools": list(tools)} if tools else {}), **template}
    write = partial(tokenizer.apply_chat_template, tokenize=False, **options)

    def written(messages: Sequence[Message]) -> str:
        return write(messages) + ("" if choice == "auto" else opening(write, messages, choice))

    texts = [written(messages) for messages in chats]
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    for place, messages in enumerate(chats):
        if marks := _typed_marks(tokenizer, write, messages):
            encoded[place] = _spell(tokenizer, marks, written, messages)
    mark, number = unknown_mark(tokenizer) or ("", None)
    for text, ids in zip(texts, encoded, strict=True):
        words = text.split()
        count = ids.count(number) - words.count(mark)  # an agent may have written the mark itself
        if UNKNOWN_LEAST <= count > UNKNOWN_SHARE * len(ids):
            unknown = [word for word in dict.fromkeys(words) if number in tokenizer(word)["input_ids"] and word != mark]
            raise PolicyError(
                f"policy {policy!r}: {count} of the {len(ids)} tokens of a prompt are unknown to its tokenizer: "
                f"{' '.join(map(repr, unknown[:NAMED]))}; a pocket model knows the words of the env that it was made "
                "for: make one for this env with lab.make_pocket(env, out), or load a model that can spell any text"
            )
    return encoded


def _typed_marks(tokenizer, write, messages: Sequence[Message]) -> list[str]:
    """Return the special tokens, and other marks of a turn, whose characters occur in a message.

    The tokenizer would read them as tokens: an agent could end the turn of its message and open another one.
    """
    texts: list[str] = []
    _replaced(messages, lambda text: texts.append(text) or text)
    added = [(str(token), token.special) for token in tokenizer.added_tokens_decoder.values()]
    typed = [(mark, special) for mark, special in added if any(mark in text for text in texts)]
    if all(special for _, special in typed):
        return [mark for mark, _ in typed]
    around = write(_replaced(messages, lambda text: ""))
    return [mark for mark, special in typed if special or mark in around]


def _spell(tokenizer, marks: Sequence[str], written, messages: Sequence[Message]) -> list[int]:
    """Return the ids of a chat in which the `marks` that occur in messages are encoded as their characters.

    An earlier answer keeps its marks that are no special tokens: a template finds the thoughts that it drops by them.
    """
    placeholders = {chr(PRIVATE + number): mark for number, mark in enumerate(sorted(marks, key=len, reverse=True))}
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}

    def masked(message: Message) -> Message:
        def change(text: str) -> str:
            for placeholder, mark in placeholders.items():
                if mark in special or message["role"] != "assistant":
                    text = text.replace(mark, placeholder)
            return text

        return _replaced(message, change)

    text, ids = written([masked(message) for message in messages]), []
    for part in re.split(f"([{''.join(placeholders)}])", text):
        if mark := placeholders.get(part):
            halves = tokenizer([mark[:1], mark[1:]], add_special_tokens=False)["input_ids"]
            ids += [i for half in halves for i in half if i not in tokenizer.added_tokens_decoder]
        elif part:
            ids += tokenizer(part, add_special_tokens=False)["input_ids"]
    return ids


def _replaced(data: Any, change: Callable[[str], str]) -> Any:
    """Return messages with every text changed, except that of a role."""
    if isinstance(data, Mapping):
        return {key: part if key == "role" else _replaced(part, change) for key, part in data.items()}
    if isinstance(data, str):
        return change(data)
    return [_replaced(part, change) for part in data] if isinstance(data, Sequence) else data


def unknown_mark(tokenizer) -> tuple[str, int] | None:
    """Return the token for unknown words and its id; `None` for a tokenizer that can spell any text."""
    token = tokenizer.unk_token
    if token is None and tokenizer.is_fast:
        token = getattr(tokenizer.backend_tokenizer.model, "unk_token", None)
    return None if token is None else (token, tokenizer.convert_tokens_to_ids(token))
