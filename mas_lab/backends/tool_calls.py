"""The former place of `mas_lab.tool_calls`, for code that imports it from here."""

from mas_lab.tool_calls import QWEN3, answer_of, as_action, opening, read_answer, response_template

__all__ = ["QWEN3", "answer_of", "as_action", "opening", "read_answer", "response_template"]
