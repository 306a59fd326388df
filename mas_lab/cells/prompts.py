"""The prompts of a rollout: what each agent observes, as text and as token ids.

Leaves out: chat templates, which belong to a policy.
"""

from collections.abc import Sequence
from typing import Any

from mas_lab.cells.episode import Generate, RolloutError, error_context, place_of
from mas_lab.env import Env, EnvError, Tools, tools_of, transcript, unwritable
from mas_lab.policy import Policy, PolicyError


class Prompts:
    """Write the prompts of one rollout. Each (node, agent) is observed once; each distinct chat is encoded once."""

    def __init__(self, env: Env):
        self.env, self.tools = env, {agent: tools_of(env, agent) for agent in env.agents}
        self._chats: dict[tuple[str, str], tuple[list, Tools, str, str, str]] = {}  # with a key, a text and a place
        self._ids: dict[tuple[int, str], tuple[int, ...]] = {}

    def __call__(self, policy: Policy, requests: Sequence[tuple[Any, Generate]]) -> list[tuple[str, tuple[int, ...]]]:
        """Return the text and the token ids of each prompt.

        Raises:
            EnvError: The environment returned no chat.
            RolloutError: The environment's `observe` failed, or the policy cannot encode the chat.

        Both errors name task, agent and turn.
        """
        chats = [self._chat(task, one) for task, one in requests]
        by_tools: dict[str, dict[str, tuple[list, Tools, str]]] = {}
        for messages, tools, key, _, where in chats:
            if (id(policy), key) not in self._ids:
                by_tools.setdefault(repr(tools), {})[key] = messages, tools, where
        for new in by_tools.values():
            for key, ids in zip(new, self._encode(policy, list(new.values())), strict=True):
                self._ids[id(policy), key] = tuple(ids)
        return [(text, self._ids[id(policy), key]) for _, _, key, text, _ in chats]

    def _chat(self, task: Any, one: Generate) -> tuple[list, Tools, str, str, str]:
        key, tools = (one.at.name, one.agent), self.tools[one.agent]
        if key not in self._chats:
            where = place_of(task, one.at, one.agent)
            with error_context(self.env, "observe", where):
                messages = self.env.observe(one.at.state, one.agent)
            self._chats[key] = messages, tools, repr((messages, tools)), self._text(messages, tools, where), where
        return self._chats[key]

    def _text(self, messages: Any, tools: Tools, where: str) -> str:
        observe = f"{type(self.env).__name__}.observe"
        try:
            text = transcript(messages, tools)
        except Exception as error:
            raise EnvError(
                f"{observe} gave {messages!r:.200} for {where}; give a list of {{'role': ..., 'content': text}}"
            ) from error
        if problem := unwritable(text):
            raise EnvError(
                f"{observe} gave text with {problem} for {where}; no tokenizer reads it and no file holds it: replace "
                "it, as text.encode(errors='replace').decode() does"
            )
        return text

    def _encode(self, policy: Policy, chats: Sequence[tuple[list, Tools, str]]) -> list[Sequence[int]]:
        """Encode chats with the same tools in one call. If that fails, encode each alone, to name the bad one."""
        offered = {"tools": chats[0][1]} if chats[0][1] else {}
        try:
            return policy.encode_all([messages for messages, _, _ in chats], **offered)
        except Exception as error:
            if len(chats) > 1:
                return [self._encode(policy, [chat])[0] for chat in chats]
            problem = str(error)
            if not isinstance(error, PolicyError):
                problem = (
                    f"its policy's chat template cannot write the prompt: {type(error).__name__}: {error}; have "
                    "observe return what the template takes, or pass load_policy(..., template={'chat_template': ...})"
                )
            raise RolloutError(f"rollout: {chats[0][2]}: {problem}") from error
