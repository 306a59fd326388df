"""Prompts that a model could not read are refused with the words; a policy says what it is."""

import re
from pathlib import Path

import pytest

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.encoding import encode, unknown_mark
from mas_lab.policy import PolicyError


def said(content, role="user"):
    return [{"role": role, "content": content}]


@pytest.fixture(scope="module")
def maze_policy():
    return load_policy("plan_path")


def test_a_prompt_of_unknown_words_is_refused_with_the_words(maze_policy):
    with pytest.raises(PolicyError) as refused:
        maze_policy.encode(said("the goal is e5 you are at b3"))
    assert "policy 'plan_path': 4 of the 10 tokens" in str(refused.value)
    assert re.findall(r"'(\w+)'", str(refused.value))[1:] == ["the", "is", "you", "are"]
    assert "lab.make_pocket(env, out)" in str(refused.value)
    with pytest.raises(PolicyError, match=r"'u0' .*'u11' and 8 more;"):
        maze_policy.encode(said(" ".join(f"u{i}" for i in range(20))))
    # The template's two marks count among the tokens: of 29 tokens 3 are more than a tenth, of 30 they are not.
    for unknown, known in ((3, 24), (4, 33)):
        with pytest.raises(PolicyError, match=f"{unknown} of the {unknown + known + 2} tokens .* 'zebra';"):
            maze_policy.encode(said("zebra " * unknown + "a1 " * known))
    for unknown, known in ((2, 0), (3, 25)):
        assert len(maze_policy.encode(said("zebra " * unknown + "a1 " * known))) == unknown + known + 2


def test_a_word_that_is_spelled_like_the_mark_is_known_and_a_policy_says_what_it_is(qwen3, maze_policy):
    assert repr(maze_policy) == "TorchPolicy(model='plan_path', lr=0.001, device='cpu')"
    policy = load_policy(qwen3, lora=2, lr=0.02)
    named = Path(qwen3).name
    assert repr(policy) == f"TorchPolicy(model={qwen3!r}, adapter={named!r}, lr=0.02, device='cpu')"
    assert unknown_mark(policy.tokenizer) == ("w1", 5)
    assert policy.encode(said("w1 w1 w1 w1")) == [4, 5, 5, 5, 5, 3]
    with pytest.raises(PolicyError, match=r"3 of the 7 tokens .* 'x' 'y';"):
        policy.encode(said("w1 w1 x y x"))


def test_a_tokenizer_that_spells_any_text_refuses_none():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(sorted(alphabet))}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelling = PreTrainedTokenizerFast(tokenizer_object=core, chat_template="{{ messages[0]['content'] }}")
    assert unknown_mark(spelling) is None
    [ids] = encode(spelling, [said("zebras é")], {}, "speller")
    assert len(ids) == len("zebras é".encode())


def test_a_tokenizer_without_a_chat_template_is_refused_unless_one_is_passed(qwen3):
    policy = load_policy(qwen3)
    assert policy.encode(said("w5 w6")) == [4, 9, 10, 3] and policy.decode([9, 10, 2]) == "w5 w6"
    policy.tokenizer.chat_template = None
    with pytest.raises(PolicyError, match=r"no chat template.*template=\{'chat_template': ...\}"):
        policy.encode(said("w5"))
    policy = load_policy(qwen3, template={"chat_template": "{{ messages[0]['content'] }} say"})
    policy.tokenizer.chat_template = None
    assert policy.encode(said("w5 w6")) == [9, 10, 3]
