"""Record small files with the released writers of other trainers: `python data/foreign/record.py verl`.

Run it in an environment that has the trainer, as README.md says; it needs no GPU. The rollouts are made up.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROBLEMS = {"2 + 3": "5", "4 + 4": "8"}


def trl(folder: Path = HERE / "trl", trackers: Sequence[str] = ()) -> Path:
    """Three steps of GRPOTrainer with a random tiny model of `tests/small.py`: two prompts, four completions each.

    There are two reward functions, and in each step one completion has no reward. Returns the run's folder.
    """
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    import small
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def alike(completions, log_extra, **others):
        log_extra("seen", ["yes"] * len(completions))
        return [None if place == 1 else small.score(said, "w0") for place, said in enumerate(completions)]

    def longer(completions, **others):
        return [None if place == 1 else float(len(said.split())) for place, said in enumerate(completions)]

    config = GRPOConfig(
        output_dir=str(folder), log_completions=True, num_generations=4, per_device_train_batch_size=8,
        max_completion_length=4, max_steps=3, logging_steps=1, report_to=list(trackers), use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=3, project="sums", run_name="first",
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": [f"asker now {word}" for word in small.WORDS]})
    with tempfile.TemporaryDirectory() as models:
        model = str(small.make_model(Path(models) / "model", 0))
        GRPOTrainer(model, [alike, longer], args=config, train_dataset=prompts).train()
    return folder


def trackio(folder: Path = HERE / "trackio", run: Path | None = None) -> None:
    """Log the same training to trackio, into `folder`. trackio must not be imported yet: it then settles its folder."""
    os.environ["TRACKIO_DIR"] = str(folder)
    with tempfile.TemporaryDirectory() as made:
        trl(run or Path(made), ["trackio"])


def verl() -> None:
    """Two steps of the file that `trainer.rollout_data_dir` gets: each episode has two outputs."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step in (1, 2):
        rows = []
        for task, (problem, truth) in enumerate(PROBLEMS.items()):
            for session in range(3):
                answer = truth if session < task + step else "7"
                for output, said in enumerate((f"I add: {answer}", answer)):
                    key = f"{step}{task}f0c1d2-0000-4000-8000-000000000000_{session}_{output}"
                    rows.append((f"user\n{problem}\nassistant\n", said, truth, float(answer == truth), key))
        inputs, outputs, truths, scores, keys = map(list, zip(*rows, strict=True))
        folder = str(HERE / "verl")
        PPOTrainer._write_generations(inputs, outputs, truths, scores, {"uid": keys}, folder, step)


def tinker() -> None:
    """Two iterations of two groups of three trajectories; the first group has two turns each."""
    import tinker as api
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition
    from tinker_cookbook.stores.storage import LocalStorage
    from tinker_cookbook.stores.training_store import TrainingRunStore

    store = TrainingRunStore(LocalStorage(HERE / "tinker"))
    for iteration in (0, 1):
        groups = []
        for group in range(2):
            trajectories, finals = [], []
            for number in range(3):
                turns = []
                for turn in range(2 - group):
                    last = turn == 1 - group
                    action = TokensWithLogprobs(tokens=[5, 6, number], maybe_logprobs=[-0.5, -0.5, -0.25])
                    read = api.ModelInput.from_ints(list(range(4 + 3 * turn)))
                    metrics = {"format": 1.0, "correct": float(last and number > group)}
                    turns.append(Transition(read, action, 0.1, last, metrics, {"answer": str(number)}))
                trajectories.append(Trajectory(turns, api.ModelInput.from_ints([1, 2])))
                finals.append(float(number > group))
            groups.append(TrajectoryGroup(trajectories, finals, [{"won": final} for final in finals]))
        told = {"split": "train", "iteration": iteration, "taglist_P": [["sums"], ["sums"]]}
        records = serialize_rollout_summaries(trajectory_groups_P=groups, sampling_client_steps_P=[0, 0], **told)
        store.write_rollouts(iteration, records, base_name="train")


def verifiers() -> None:
    """Four episodes of a proposer and a solver with rewards of their own; `verifiers/alone` has the solver alone."""
    from verifiers.v1.utils.trace_store import write_episode

    for folder, team in (("verifiers", True), ("verifiers/alone", False)):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
        (HERE / folder / "traces.jsonl").write_text("")
        for number in range(4):
            write_episode(HERE / folder, _episode(number, ("proposer", "solver") if team else ("solver",)))


def prime_rl() -> None:
    """Two steps of the monitor that writes into `output_dir`: the same team, with each trace's advantage.

    In step 1 one episode failed before its first message; it is in the file of all episodes alone.
    """
    from prime_rl.configs.monitors import FileMonitorConfig
    from prime_rl.monitors.file import FileMonitor
    from prime_rl.orchestrator.algo.routing import assign_advantages
    from verifiers.v1.episode import TrainRunInfo, TrainWorkInfo

    async def write() -> None:
        monitor = FileMonitor(FileMonitorConfig())
        await monitor.init(HERE / "prime_rl")
        for step in (1, 2):
            episodes = [_episode(number, ("proposer", "solver")) for number in range(4)]
            for episode in episodes:
                episode.record_run(TrainRunInfo(id="run", work=TrainWorkInfo(step=step)))
                assign_advantages(episode.traces[0], -0.5 if episode.traces[0].reward > 0.5 else 0.5)
                assign_advantages(episode.traces[1], episode.traces[1].reward - 0.5)
            failed = [_episode(4, ())] if step == 1 else []
            await monitor.log_episodes([*episodes, *failed], step, "train", "all")
            await monitor.log_episodes(episodes, step, "train", "effective")

    asyncio.run(write())


def slime() -> None:
    """Two rollouts of two prompts with three samples each; the samples of the second prompt call a tool."""
    from slime.observability.rollout_data_utils import save_debug_rollout_data
    from slime.utils.types import Sample

    for rollout in (0, 1):
        samples = []
        for group, (problem, truth) in enumerate(PROBLEMS.items()):
            for index in range(3):
                answer = truth if index < group + rollout else "7"
                sample = Sample(
                    group_index=2 * rollout + group, index=6 * rollout + 3 * group + index, label=truth,
                    prompt=[{"role": "user", "content": problem}] if group else f"user: {problem}", tokens=[11, 12],
                    metadata={"level": group},
                )  # fmt: skip
                if group:
                    sample.append_response_tokens(tokens=[31], log_probs=[-0.5], text="<call>")
                    sample.append_response_tokens(tokens=[32], text=truth, trainable=False)
                end = {"finish_reason": {"type": "length" if index == 2 else "stop"}, "weight_version": str(rollout)}
                sample.append_response_tokens(tokens=[21, 22], log_probs=[-0.5, -0.25], text=answer, meta_info=end)
                sample.reward = float(answer == truth)
                samples.append(sample)
        save_debug_rollout_data(
            str(HERE / "slime/rollout_{rollout_id}.pt"), samples, rollout_id=rollout, evaluation=False
        )


def _episode(number: int, agents: tuple[str, ...]) -> Any:
    """Return an episode of verifiers with a trace of each agent."""
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.episode import EnvInfo, Episode, GroupInfo
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import State
    from verifiers.v1.task import WireTaskData, task_key
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask
    from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, UserMessage

    problem, truth = list(PROBLEMS.items())[number // 2 % 2]
    data = WireTaskData(idx=number // 2, prompt=problem)
    key = task_key(data.model_dump(mode="json", exclude_none=True))
    task = TraceTask(type="Sum", data=data, key=key, hash=key)
    right, traces = number % 2 == 0, []
    for place, agent in enumerate(agents):
        said, clock = truth if right else "7", 100.0 * number + 10.0 * place
        sampled = {"mask": [False, True, True], "logprobs": [-0.5, -0.25]}
        call = ToolCall(id="call_0", name="add", arguments=f'{{"sum": "{problem}"}}')
        nodes = [
            MessageNode(message=UserMessage(content=problem), timestamp=clock, token_ids=[11, 12], mask=[False] * 2),
            MessageNode(parent=0, message=AssistantMessage(tool_calls=[call]), sampled=True, timestamp=clock + 1,
                        token_ids=[3, 21, 22], **sampled),
            MessageNode(parent=1, message=ToolMessage(tool_call_id="call_0", content=said), timestamp=clock + 2,
                        token_ids=[13], mask=[False]),
            MessageNode(parent=2, message=AssistantMessage(content=said), sampled=True, timestamp=clock + 2,
                        token_ids=[3, 23, 24], **sampled),
        ]  # fmt: skip
        trace = Trace[WireTaskData, State, WireAgentConfig](
            task=task, agent=AgentInfo(config=WireAgentConfig(), name=agent), nodes=nodes, is_completed=True, ok=True
        )
        trace.record_reward("correct", float(right), weight=1.0)
        trace.record_reward("hard", 0.5 if agent == "proposer" and not right else 0.0, weight=2.0)
        traces.append(trace)
    group = GroupInfo(id=f"group-{number // 2}")
    return Episode(env=EnvInfo(id="sums"), task=task, group=group, traces=traces, ok=bool(traces))


if __name__ == "__main__":
    writers = (trl, trackio, verl, tinker, verifiers, prime_rl, slime)
    {writer.__name__: writer for writer in writers}[sys.argv[1]]()
