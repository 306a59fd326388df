"""What the agents are told in one rollout, as text and as tokens.

An agent is asked for once at each node, and each distinct chat is put into tokens once for each policy, all new ones of
a wave in one call. Leaves out: how a chat becomes tokens (the policy).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mas_lab.cells.game import Say
from mas_lab.cells.steps import RolloutError, naming, where
from mas_lab.env import Env, EnvError, Message, Task, transcript, unwritable
from mas_lab.policy import Policy, PolicyError


@dataclass(frozen=True)
class Chat:
    """What an agent is told, first at `place`; `written` tells it from every other."""

    messages: Sequence[Message]
    written: str
    text: str
    place: str


class Prompts:
    """Called with a policy and those who are to speak by it: for each the prompt as text, and its token ids.

    Raises EnvError or RolloutError, which name task, agent and turn, where the environment tells them nothing that is a
    chat, or the policy cannot put it into tokens.
    """

    def __init__(self, env: Env):
        self.env = env
        self._told: dict[tuple[str, str], Chat] = {}
        self._chats: dict[str, Chat] = {}
        self._ids: dict[tuple[int, str], tuple[int, ...]] = {}

    def __call__(self, policy: Policy, says: Sequence[tuple[Task, Say]]) -> list[tuple[str, tuple[int, ...]]]:
        chats = [self._chat(task, say) for task, say in says]
        new = {chat.written: chat for chat in chats if (id(policy), chat.written) not in self._ids}
        for written, ids in zip(new, _encoded(policy, list(new.values())), strict=True):
            self._ids[id(policy), written] = tuple(ids)
        return [(chat.text, self._ids[id(policy), chat.written]) for chat in chats]

    def _chat(self, task: Task, say: Say) -> Chat:
        key = say.at.name, say.agent
        if key not in self._told:
            with naming(self.env, "observe", lambda: where(task, say.at, say.agent)):
                messages = self.env.observe(say.at.state, say.agent)
                written = repr(messages)
            if written not in self._chats:
                place = where(task, say.at, say.agent)
                self._chats[written] = Chat(messages, written, self._transcript(messages, place), place)
            self._told[key] = self._chats[written]
        return self._told[key]

    def _transcript(self, messages: Sequence[Message], place: str) -> str:
        """The prompt as text, which a table must be able to hold."""
        observe = f"{type(self.env).__name__}.observe"
        try:
            text = transcript(messages)
        except Exception as error:
            raise EnvError(
                f"{observe} gave {messages!r:.200} for {place}; give a list of {{'role': ..., 'content': text}}"
            ) from error
        if problem := unwritable(text):
            raise EnvError(
                f"{observe} gave text with {problem} for {place}; no tokenizer reads it and no file holds it: replace "
                "it, as text.encode(errors='replace').decode() does"
            )
        return text


def _encoded(policy: Policy, chats: Sequence[Chat]) -> list[Sequence[int]]:
    """All at once, where the policy can; where that fails, one by one, which tells whose chat it is."""
    if hasattr(policy, "encode_all"):
        try:
            return policy.encode_all([chat.messages for chat in chats])
        except Exception:
            pass
    return [_encoded_alone(policy, chat) for chat in chats]


def _encoded_alone(policy: Policy, chat: Chat) -> Sequence[int]:
    try:
        return policy.encode(chat.messages)
    except PolicyError as error:
        raise RolloutError(f"rollout: {chat.place}: {error}") from error
    except Exception as error:  # of a chat template, which may know no tools, say
        raise RolloutError(
            f"rollout: {chat.place}: its policy's chat template cannot write the prompt: {type(error).__name__}: "
            f"{error}; have observe give what the template takes, or pass load_policy(..., "
            "template={'chat_template': ...})"
        ) from error
