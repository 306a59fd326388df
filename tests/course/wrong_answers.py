"""Wrong answers, as changes to the notebooks' own solutions: (text of the solution, what stands in its place instead).

`KNOWN` is what the cells before an exercise define, in small. The runs of notebook 13 are tables with each defect, made
by hand; the trained ones: notebook 13 itself.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd

import mas_lab as lab

WRONG = {
    "00.1": [("-0.79, -0.79, -0.79, 0.79, 1.58", "-0.2, -0.2, -0.2, 0.2, 0.4"), ("-0.79, -0.79, -0.79, 0.79, ", "")],
    "00.2": [("~fresh", "fresh"), ("fresh, number)", "fresh, None)")],
    "00.3": [('("task",)', '("task", "agent")'), ('("task",)', '("episode", "agent", "turn")')],
    "00.4": [("seed=seed", "seed=0"), ("(0.2))", "(0.2), epochs=2)"), ('("episode", "agent", "turn")', '("task",)')],
    "01.1": [("126, 24]", "126, 8]"), ("[48, ", "[..., ")],
    "01.2": [("    scaled = scaled - scaled.max()\n", ""), ("logits / temperature", "logits")],
    "01.3": [('.drop_duplicates(["episode", "depth"])', ""), ('turns[turns["kept"]]', "turns"),
             ("sum()", "max()"), ('"depth"]', '"team_reward"]')],
    "01.4": [("np.mean", "sum"), ('turns["logprobs"].map(np.mean)', 'turns["local_reward"]')],
    "01.5": [("        cache = out.past_key_values\n", ""), (" / temperature", "")],
    "02.1": [("labelled, wrong)", "labelled, [4])"), ("labelled, wrong)", "labelled, [4, 60])")],
    "02.2": [('"role": ("task", "agent")', '"role": ("agent",)'), ('"turn")', '"depth")')],
    "02.3": [("(frozen=True)", ""), ('["episode", "agent"]', '["episode"]')],
    "02.4": [("[0, 1, 2]", "[0, 1, 2, 3, 4, 5]"), ("[0, 1, 2]", "[0, 0, 1]")],
    "02.5": [("list(by), ", '"task", '), ("same_prompt and", "False and"),
             ('turns.groupby(label)["prompt"].nunique()', 'pd.Series([turns["prompt"].nunique()])')],
    "03.1": [('["task", "agent"]', '["task"]'), ("ddof=0", "ddof=1")],
    "03.2": [('turns.groupby("episode")["credit"].mean().mean()', 'turns["credit"].mean()'), ("ddof=0", "ddof=1")],
    "03.3": [('["tester", ', '["critic", "tester", '), ('["tester", ', "[")],
    "03.4": [("[4, 5, 6, 7]", "[4, 5]"), ("[4, 5, 6, 7]", "[4, 5, 6, 9]")],
    "03.5": [("ddof=0", "ddof=1"), ("(size < 2) | ", "")],
    "04.1": [("= 1, 1.0", "= 2, 1.0"), ("= 1, 1.0", "= 1, 1.2")],
    "04.2": [("[1, 4]", "[1]"), ("[1, 4]", "[1, 2, 4]")],
    "04.3": [("return -", "return "), ("* logprobs", "* logprobs.detach()")],
    "04.4": [("return -", "return "), ("torch.minimum", "torch.maximum")],
    "04.5": [(".detach()", ""), ("clamp(max", "clamp(0.8, max")],
    "04.6": [("len(row.prompt_ids) - 1 : -1", "len(row.prompt_ids) :"), ("    optimizer.step()\n", "")],
    "04.7": [('- tokens["policy_version"]', "- 1"), (".clip(upper=2.0)", ""), ("clip(upper=2.0)", "clip(0.8, 1.2)")],
    "05.1": [("own.var() / (own.var() + offset)", "own.var() / rewards.var()"),
             ("(own.var() + offset) / rewards.var()", "own.var() / rewards.var()")],
    "05.2": [("lowest > 0", "lowest > -1"), ("lowest > 0", "lowest > 9")],
    "05.3": [("[6, 7]", "[7]"), ("rewards, called)", "[1] * 8, [0, 1])")],
    "05.4": [("rewards, called)", "[1, 1, 1, 1, 0.2, 0.2, 0.2, 0], [4, 5, 6, 7])"),
             ("rewards, called)", "[1, 1, 1, 1, 1, 1, 1, 0], [6, 7])")],
    "05.5": [("        model.zero_grad()\n", ""), ("len(prompt_ids) - 1 + place", "len(prompt_ids) + place - 2")],
    "06.1": [('by = ("episode", ', 'by = ("task", '), ('"agent", "turn")', '"turn")')],
    "06.2": [("credit.min() - 1", "0.0"), ("credit.min() - 1", "-1.0"), ("credit.min() - 1", "-np.inf")],
    "06.3": [("local_2 - local_1", "local_1 - local_2"), ("return (", "return 1.0; (")],
    "06.4": [("return k * calls", "return calls"), (", calls, 1 + k * (calls - 1)", "")],
    "06.5": [("(one - low) / (high - low)", "one / high"), (' if arm not in ("team return", "tree")', "")],
    "07.1": [("sigma_k**2 + ", ""), ("sigma**2", "sigma")],
    "07.2": [("range(20, 101)", "[20]"), ("range(20, 101)", "[150]")],
    "07.3": [('"114 agent_1", ', ""), ('"114 agent_1", ', '"114 agent_1", "127 agent_4", ')],
    "07.4": [("ddof=0", "ddof=1"), ('"agent", "episode"]', '"agent", "episode", "turn"]')],
    "07.5": [
        ('frozen=("solver", "verifier")', 'frozen="solver"'),
        ("lr=1e-4", "lr=3e-4"),
        ("math_small", "math"),
        ("temperature=0.5", "temperature=0.6"),
        ("yours)", "lab.Team({**yours, 'solver': yours['fixer']}, sampling=yours.sampling, frozen=yours.frozen))"),
    ],
    "08.1": [("[0.9,", "[1.15,"), (", advantages)", ', {"short": advantages["short"]})')],
    "08.2": [('(total - table["credit"]) / (size - 1).clip(lower=1)', "total / size"),
             ("marloo)", 'lambda table: lab.normalize(table, center="loo", scale="none"))')],
    "08.3": [("g**agents", "g * agents"), ("return agents * g * nodes, ", "return ")],
    "08.4": [('"a": 1.5', '"a": 2.0'), (", returns)", ", 1.5)")],
    "08.5": [("gray also one two three four", "gray"), (", pair)\n", ", SUMMARY)\n")],
    "08.6": [('"then singer soldier clock basket but chair boat bridge village so', '"chair boat bridge village'),
             (", pair)\n", ", SUMMARY)\n")],
    "09.1": [('{**state, "said": dict(actions)}', 'state["said"].update(actions) or state'),
             ("lab.Step(after, reward", 'lab.Step(after, reward if all(valid.values()) else float("-inf")'),
             ("Split())", "Split)")],
    "09.2": [("range(2)", "(0, 0)"),
             ("range(2)", "(1, 2)"),
             ("min(said", "max(said"),
             ("at = episode.next(at, [kept], step)", "pass"),
             ("episode.record(at, [kept], step)", "[episode.record(at, [one], step) for one in said]")],
    "09.3": [('groupby("episode")', 'groupby(["episode", "agent"])'), ("shared_by_turns())", "lambda turns: 1.0)")],
    "09.4": [("self.pull / 2", "self.pull"), ("moved_N = logprobs_N", "moved_N = logprobs_N.detach()")],
    "09.5": [("rng.choice((state[0], *HOURS))", "state[0]"), ('("guesser", "hinter"), 3', '("left", "right"), 3')],
    "10.1": [("2**16", "2**14"), ("2**16", "2**17")],
    "10.2": [("inputs + outputs", "inputs * outputs"), ("in layers)", "in layers[:1])")],
    "10.3": [("np.exp(trained - sampled) - 1", "trained - sampled"), (".max()", ".mean()")],
    "11.1": [("lora=16", "frozen=True"), (", lora=16", "")],
    "11.2": [(" / rows.sum()", ""), ("return (", "return means; (")],
    "11.3": [('"num_processes": 8', '"num_processes": 4'), (", second)", ", 8)")],
    "12.1": [("rng.choice(scores, size=(samples, len(scores)))", "np.tile(scores, (samples, 1))"),
             ("iqm(drawn)", "drawn.mean(axis=1)")],
    "12.2": [(" / 2", ""), ("> y", "< y")],
    "12.3": [("unequal)", '"score")'), ("unequal)", '{"score"})')],
    "12.4": [('"sweep": {"lr": [1e-4, 3e-4, 1e-3], "seeds": [10, 11]}', '"lr": 1e-4'),
             ('"seeds": 5', '"seeds": 3'),
             ('{"tokens": 60_000}', '{"episodes": 3840}'),
             ("[1e-4, 3e-4, 1e-3]", "[3e-4, 1e-3]"),
             ("dr_mas_mean", "dr_mas_std"),
             ('{"recipe": "dr_mas_mean"}', '{"recipe": "dr_mas_mean", "settings": {"tasks": 32}}')],
    "13.1": [('"stale weights", 1', '"padding", 1'), ('"stale weights", 1', '"stale weights", 0')],
    "13.2": [('"lone row"', '"group key"'), ("defect, row)", "defect, 0)")],
    "13.3": [('"best of K"', '"padding"'), ("defect, success)", "defect, 0.97)")],
    "13.4": [('"padding"', '"lone row"'), ("row, tokens)", "0, 0)")],
    "13.5": [('"group key"', '"best of K"'), ("first, second)", "0, 1)")],
    "13.6": [('"padding"', '"fine"'), ("size == 1", "size == 9")],
    "14.1": [("minimum", "maximum"), ("trained - sampled", "sampled - trained")],
    "14.2": [("> 0)", "< 0)"), ('["local_reward"] == 0', '["local_reward"] == 1')],
    "15.1": [("q[2] - q[1]", "q[1] - q[2]"), (" + p[2] * (q[1] - q[0])", "")],
    "15.2": [("max(", "min("), ("p[2] - p[1], ", "")],
    "15.3": [("np.mean(past, axis=0)", "past[-1]"), ("max(wins", "min(wins"),
             ("max(wins, key=wins.get)", "max((rock, 'paper'), (paper, 'scissors'), (scissors, 'rock'))[1]")],
    "16.1": [('given["a"] - given["b"]', 'given["b"] - given["a"]'), ("str(result)", "result")],
    "16.2": [('"completion_ids"', '"prompt_ids"'), (".map(len).sum(), rows", ".size, rows")],
    "16.3": [('turns[turns["call_status"] != "none"]', "turns"), ('!= "ok"', '== "invalid_json"')],
}  # fmt: skip
ALSO_RIGHT = {
    "01.5": [
        ("model(read", "model(input_ids=read"),
        ("return ids, logprobs", "return np.array(ids), np.array(logprobs)"),
    ],
    "02.1": [("labelled, wrong)", "labelled, set(wrong))")],
    "02.2": [('("node", "agent")', '("episode", "agent", "turn")')],
    "02.5": [("label = turns", "turns = turns.sort_values(list(by))\n    label = turns")],
    "03.1": [("1e-9, 0.0)", "1e-9, 0.0).to_numpy()")],
    "04.3": [("-advantages", "advantages.neg_()")],
    "04.2": [("[1, 4]", "torch.tensor([1, 4])")],
    "04.7": [("used)", "used.round(2))")],
    "06.1": [('("episode", "agent", "turn")', '["agent", "turn", "episode", "task"]')],
    "07.4": [("1e-12), 0.0)", "1e-12), 0.0).sort_index(ascending=False)")],
    "10.1": [("2**16", "2.0**16")],
    "12.4": [('"own": {"recipe": "dr_mas"}', '"own": {"recipe": {"name": "dr_mas"}}')],
    "16.2": [('rows["completion_ids"].map(len).sum(), rows["prompt_ids"]', 'rows[["completion_ids", "prompt_ids"]]')],
}


def run(mismatch=0.0, **changed):
    """Three rows without a defect, but for what is `changed`: column=(row, value)."""
    said = {"task": "t0", "agent": list("aab"), "group": ["g0", "g0", "g1"], "advantage": [1.0, -1.0, 0.0],
            "completion_ids": [[7, 1], [8, 1], [7, 7, 1]], "episode": ["e0", "e1", "e1"]}  # fmt: skip
    turns = pd.DataFrame(said)
    for column, (row, value) in changed.items():
        turns.at[row, column] = value
    return SimpleNamespace(turns=turns, stats=pd.DataFrame({"step": [0, 1], "mismatch": [0.0, mismatch]}))


def paid_help():
    """Three tasks of eight episodes: 1 the solver was right, "p" the helper, 0 nobody."""
    rows = []
    for task, told in {"hard": "1110p0p0", "easy": "11111p10", "middle": "110pp011"}.items():
        for number, one in enumerate(told):
            row = {"task": task, "episode": f"{task}-{number}", "turn": 0}
            right = {"team_reward": float(one == "1"), "success": one == "1"}
            rows.append(row | right | {"agent": "solver", "depth": 0})
            if one != "1":
                paid = {"team_reward": 0.2 * (one == "p"), "success": one == "p"}
                rows.append(row | paid | {"agent": "helper", "depth": 1})
    return lab.RECIPES["grpo"].advantages(pd.DataFrame(rows))


class Model:
    """Has what is asked of a policy in notebook 07, and loads at once."""

    def __init__(self, name, lr=1e-3):
        self.lr, self.model, self._count = lr, self, {"math": 335_184, "math_small": 100_160}[name]

    def parameters(self):
        return [self]

    def numel(self):
        return self._count


def known(number):
    """Names and values that the cells of a notebook find."""
    if number in ("00", "13"):
        env = lab.make_env("plan_path")
        team, tasks = lab.Team.shared(lab.load_policy(env.pocket), env.agents), env.tasks(2, "train", 0)
    if number == "00":
        return {"env": env, "team": team, "tasks": tasks, "fresh": lab.rollout(env, team, tasks, lab.tree(4))}
    if number == "08":
        env = lab.make_env("tldr")
        [story] = env.tasks(1, "test", seed=0)
        first, second = story.data["source"].split(" .")[:2]
        return {"env": env, "story": story, "SUMMARY": (first, f"{first} then {second}")}
    if number == "13":
        success = SimpleNamespace(env=env, team=team, curve=pd.DataFrame({"success": [0.5, 1.0]}))
        runs = {"A": run(2.0), "B": run(advantage=(2, 0.5)), "C": success, "D": run(completion_ids=(1, [8, 1, 0, 0]))}
        return {"runs": runs | {"E": run(group=(2, "g0"))}, "mended": {"A": run(), "B": run()}}
    return KNOWN.get(number, {})


KNOWN = {
    "02": {"labelled": pd.DataFrame({"task": ["t"] * 7, "agent": list("aabbbab"), "group": list("AABBAAC")})},
    "05": {"judged": pd.DataFrame({
        "agent": ["stage_1", "stage_1", "stage_2", "stage_2", "stage_3", "stage_3", "stage_4"],
        "right": [True, False, False, False, False, True, True], "global": [1.0, -1.0, 0.4, -0.2, 0.9, 1.2, 2.0],
    })},
    "06": {"board": SimpleNamespace(table=pd.DataFrame({
        "recipe": ["team return", "own reward", "by agent and turn", "tree", "tree, outcome only"],
        "final": [0.71, 0.87, 0.85, 0.91, 0.79],
    }))},
    "07": {"turns": paid_help(), "Model": Model},
    "09": {"HOURS": range(1, 10)},
    "11": {"eight": {f"cuda:{i}": 79.1 for i in range(8)}},
    "12": {"own": np.zeros(5), "other": np.ones(5)},
}  # fmt: skip
