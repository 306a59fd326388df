"""The bar to beat: the same step written by hand around a plain Hugging Face model, with the two savings that matter.

Sampling prefills each prompt once and expands its KV cache to the K candidates. The update packs a prompt once with
its K completions, which see the prompt and themselves but not each other. One policy, groups of K, clipped loss, mean
over tokens. Leaves out everything that makes a trainer: tables, teams, checks, statistics, checkpoints.
"""

from stopwatch import LEARNING_RATE, Stopwatch, arguments, reward

args = arguments(("--rows", {"type": int, "default": 8, "help": "prompts per micro-batch of the update"}))

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache  # noqa: E402

K, T = args.candidates, args.new_tokens
tokenizer = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa", dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
prompts_BP = torch.tensor([tokenizer(prompt).input_ids for prompt in args.prompts])
B, P = prompts_BP.shape


@torch.no_grad()
def sample():
    """K completions of every prompt: ids, log-probabilities and mask, each (B * K, T). EOS counts, what follows not."""
    model.eval()
    cache = DynamicCache(config=model.config)
    out = model(prompts_BP, past_key_values=cache, use_cache=True, logits_to_keep=1)
    cache.batch_repeat_interleave(K)
    logits = out.logits[:, -1].repeat_interleave(K, 0)
    ids = torch.full((B * K, T), tokenizer.pad_token_id)
    logprobs, mask = torch.zeros(B * K, T), torch.zeros(B * K, T, dtype=torch.bool)
    alive = torch.ones(B * K, dtype=torch.bool)
    for t in range(T):
        if t:
            logits = model(ids[:, t - 1 : t], past_key_values=cache, use_cache=True).logits[:, -1]
        logp = logits.log_softmax(-1)
        drawn = torch.multinomial(logp.exp(), 1)
        ids[:, t] = torch.where(alive, drawn[:, 0], tokenizer.pad_token_id)
        logprobs[:, t] = logp.gather(1, drawn)[:, 0]
        mask[:, t] = alive
        alive = alive & (drawn[:, 0] != tokenizer.eos_token_id)
        if not alive.any():
            break
    return ids, logprobs, mask


def tree_mask():
    """(S, S) additive, S = P + K * T: causal within the prompt and within a candidate, candidates see the prompt."""
    branch = torch.cat([torch.full((P,), -1), torch.arange(K).repeat_interleave(T)])
    sees = (branch[None, :] == -1) | (branch[:, None] == branch[None, :])
    return torch.where(sees.tril(), 0.0, torch.finfo(torch.float32).min)


MASK_SS = tree_mask()
POSITIONS = torch.cat([torch.arange(P), (P + torch.arange(T)).repeat(K)])
# The logits that predict a candidate's tokens stand at the prompt's end and at all of its tokens but the last.
PREDICTS = torch.cat([torch.full((K, 1), P - 1), P + torch.arange(K * T).view(K, T)[:, :-1]], 1).flatten()


def update(ids, sampled, mask, advantages_BK):
    model.train()
    total = mask.sum()
    for start in range(0, B, args.rows):
        b = slice(start, start + args.rows)
        rows = slice(start * K, (start + args.rows) * K)
        packed = torch.cat([prompts_BP[b], ids[rows].view(-1, K * T)], 1)
        n = len(packed)
        hidden = model.model(
            input_ids=packed,
            attention_mask=MASK_SS.expand(n, 1, -1, -1),
            position_ids=POSITIONS.expand(n, -1),
            use_cache=False,
        ).last_hidden_state
        logp = model.lm_head(hidden[:, PREDICTS]).log_softmax(-1)
        logp = logp.gather(2, packed[:, P:, None])[..., 0].view(n * K, T)
        ratio = (logp - sampled[rows]).exp()
        advantage = advantages_BK[b].reshape(-1, 1)
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        ((loss * mask[rows]).sum() / total).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


watch = Stopwatch()
watch.start()
for _ in range(args.warmup + args.steps):
    ids, sampled, mask = sample()
    watch.count(mask.sum(1))
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    rewards_BK = torch.tensor([reward(text) for text in texts]).view(B, K)
    advantages_BK = (rewards_BK - rewards_BK.mean(1, keepdim=True)) / (rewards_BK.std(1, keepdim=True) + 1e-6)
    update(ids, sampled, mask, advantages_BK)
    watch.split()
watch.write(args, "transformers")
