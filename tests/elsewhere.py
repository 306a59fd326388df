"""What the tests of handing over share: a run whose agents are one policy, which then is somebody else's engine."""

import asyncio
from pathlib import Path

from small import SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.contrib.verl.reader import completion

ASKED = {**SETTINGS, "minibatches": 1, "schedule": None, "workers": None}


def trained(models: Path, run: Path, recipe: lab.Recipe, steps: int = 1, team: lab.Team | None = None) -> Path:
    team = make_team("shared", models) if team is None else team
    list(lab.train(Relay(), team, recipe, steps, run=run, **ASKED))
    return run


def speaking(policy, calls: list | None = None):
    """An async sampler that answers with a policy of ours: ids in, ids and log-probabilities out."""

    async def speak(request):
        await asyncio.sleep(0)
        if calls is not None:
            calls.append(request)
        [said] = policy.sample([request])
        return completion(said.ids, said.logprobs, request, policy.tokenizer)

    return speak
