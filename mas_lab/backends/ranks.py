"""Several processes train one team, one per device, as `accelerate launch` or torchrun starts them.

Rank 0 drives: it alone plays the environment, keeps tables and checkpoints, and yields reports. The other ranks wait
for what it asks of all: to *sample*, where each answers a share of the requests, and to *update* on the table that it
broadcasts, where each makes the passes of a share of the packed rows and torch's DDP joins the gradients. After it all
ranks hold the same weights. Accelerate makes the process group, wraps the models and carries every message.
Leaves out: the loop (`mas_lab.train`), and one model cut over several devices (engines with tensor parallelism).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import (
    InitProcessGroupKwargs,
    broadcast,
    broadcast_object_list,
    gather_object,
)

from mas_lab.backends.packing import MicroBatch, Tree, micro_batches, token_logprobs
from mas_lab.policy import Completion, PolicyError, Request, Sample
from mas_lab.team import Team

PATIENCE = timedelta(hours=12)
"""How long a rank waits for the others: rank 0 may play long, or stand in a notebook between two steps."""


class RankError(PolicyError):
    """The ranks cannot go on together: names the rank and what ended."""


class Ranks:
    """This process among those that train together."""

    def __init__(self, on_cpu: bool):
        handlers = [InitProcessGroupKwargs(timeout=PATIENCE)]
        self.accelerator = Accelerator(cpu=on_cpu, mixed_precision="no", kwargs_handlers=handlers)
        self.number, self.size = self.accelerator.process_index, self.accelerator.num_processes
        self.team: Team | None = None
        self.engines: list[RankedEngine | Elsewhere] = []
        self.listening = True
        """Do the other ranks wait for a word of rank 0? Not while all of them update."""

    @classmethod
    def of(cls, team: Team) -> "Ranks":
        """The ranks that a launcher started. Raises RankError where they are not one group."""
        ranks = cls(on_cpu=all(policy.shared.device.type == "cpu" for policy in team.policies.values()))
        if ranks.size != int(os.environ["WORLD_SIZE"]):
            raise RankError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but accelerate found {ranks.size} processes; "
                "call train() before making an Accelerator of your own, or make it for the same devices"
            )
        return ranks

    @property
    def drives(self) -> bool:
        return self.number == 0

    # Words

    def tell(self, word: str, *rest: Any) -> None:
        """From rank 0 to all."""
        with self._connected():
            broadcast_object_list([(word, *rest)])

    def hear(self) -> tuple[Any, ...]:
        with self._connected():
            return broadcast_object_list([None])[0]

    def gather(self, mine: Any) -> list[Any]:
        """What every rank has, by rank, on every rank."""
        with self._connected():
            return gather_object([mine])

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Another rank's end shows as an error of the process group: say so."""
        try:
            yield
        except RuntimeError as error:
            if not _is_lost(error):
                raise
            raise RankError(
                f"rank {self.number} of {self.size}: another rank ended or lost its connection. If the run is kept, "
                "the same command goes on from its newest checkpoint. What was seen here: "
                f"{str(error).splitlines()[0].rpartition('] ')[2][:100]}"
            ) from error

    # Rank 0

    @contextmanager
    def telling(self) -> Iterator[None]:
        """On rank 0: an error inside ends the other ranks too, with the same words if they listen."""
        try:
            with _saying_why(self.number), self._connected():
                yield
        except GeneratorExit:
            raise
        except BaseException as error:
            if self.listening and isinstance(error, Exception) and not isinstance(error, RankError):
                with suppress(RankError):  # it may be one of them that ended
                    self.tell("error", f"{type(error).__name__}: {error}")
            raise

    @contextmanager
    def driving(self) -> Iterator[None]:
        """On rank 0, around a whole training: the other ranks end when it ends."""
        try:
            with self.telling():
                yield
        except GeneratorExit:
            self.tell("end")
            raise
        else:
            self.tell("end")
        finally:
            self._part()

    def assemble(self, team: Team, watch: Any) -> None:
        """On rank 0: let every rank have this team, from now on one engine and one optimizer over all ranks."""
        self.tell("assemble")
        self._assemble(team, watch)

    @contextmanager
    def updating(self, turns, options: dict[str, Any]) -> Iterator[None]:
        """On rank 0: the others update on `turns` while the body does."""
        self.tell("update", turns, options)
        self.listening = False
        yield
        self.listening = True

    # The others

    def serve(self, team: Team, watch: Any, update: Callable) -> Iterator[Any]:
        """On every rank but 0: do what rank 0 asks, until it ends. Yields nothing. Raises RankError with its error."""
        try:
            with _saying_why(self.number), self._connected():
                while (heard := self.hear())[0] != "end":
                    self._obey(heard, team, watch, update)
        finally:
            self._part()
        yield from ()

    def _obey(self, heard: tuple[Any, ...], team: Team, watch: Any, update: Callable) -> None:
        word, *rest = heard
        if word == "error":
            raise RankError(f"rank {self.number} of {self.size}: rank 0 stopped: {rest[0]}")
        if word == "assemble":
            self._assemble(team, watch)
        elif word == "sample":
            self.engines[rest[0]].answer(rest[1])
        elif word == "update":
            update(team, rest[0], watch=watch, **rest[1])

    # All

    def _assemble(self, team: Team, watch: Any) -> None:
        from mas_lab.checkpoint import describe_team
        from mas_lab.disk import differences

        self.team = team
        for number, described in enumerate(told := self.gather(describe_team(team))):
            if different := differences(told[0], described):
                raise RankError(f"rank {number} has another team than rank 0: {different}")
        for policy in team.policies.values():
            self._share_state(policy)
        for name, policy in team.policies.items():
            if team.learners(name):
                policy.ranks = Share(self, policy)
        models = {id(policy.shared): policy.shared for policy in team.policies.values()}
        for number, model in enumerate(models.values()):
            self.engines.append(Elsewhere(model) if model.engine.streams else RankedEngine(self, number, model))
            if not (model.engine.streams and self.drives):
                model.engine = self.engines[-1]
        if hasattr(watch, "load_state"):
            watch.load_state(broadcast_object_list([watch.state() if self.drives else None])[0])

    def _share_state(self, policy) -> None:
        """Weights, AdamW's state and learning rate as rank 0 has them, which may have read a checkpoint."""
        known = [{key: (value.shape, value.dtype) for key, value in policy.optimizer.state.get(p, {}).items()}
                 for p in policy.parameters.values()]  # fmt: skip
        (policy.lr, known), device = broadcast_object_list([(policy.lr, known)])[0], self.accelerator.device
        for parameter, fields in zip(policy.parameters.values(), known, strict=True):
            parameter.data.copy_(broadcast(parameter.data.to(device)))
            for key, (shape, dtype) in fields.items():
                mine = policy.optimizer.state[parameter].get(key)
                value = torch.zeros(shape, dtype=dtype, device=device) if mine is None else mine.to(device)
                value = broadcast(value)
                policy.optimizer.state[parameter][key] = value.to(parameter.device)

    def _part(self) -> None:
        """Every policy is its own again."""
        for engine in self.engines:
            engine.model.engine = engine.inner
        for policy in self.team.policies.values() if self.team else ():
            policy.ranks = None
        self.accelerator.free_memory()
        self.engines, self.team = [], None


class Share:
    """What of one policy's passes this rank makes."""

    def __init__(self, ranks: Ranks, policy):
        self.ranks = ranks
        policy._activate()  # DDP joins the gradients of what is trainable now: this policy's
        self.module = ranks.accelerator.prepare(LogProbs(policy.shared.net), device_placement=[False])

    def passes(self, policy, samples: Sequence[Sample], known_3N, found_4N, loss) -> None:
        """The gradient of all ranks' samples in `.grad`, and `found_4N` of all samples, on every rank.

        All ranks make equally many passes, the shorter ones with rows of weight 0. DDP averages the gradients; the
        weights refer to the whole table, so that their sum is wanted: hence the factor.
        """
        mine, padding = self._deal(policy.plant(samples), policy.shared.options.train_tokens)
        factor_3N = torch.ones_like(known_3N)
        factor_3N[2] = self.ranks.size
        nothing_3N, unread_4N = torch.ones_like(known_3N), torch.empty_like(found_4N)
        nothing_3N[2] = 0
        for number, batch in enumerate(batches := list(policy.batches(mine + padding, samples)), 1):
            scale_3N, into_4N = (factor_3N, found_4N) if number <= len(mine) else (nothing_3N, unread_4N)
            with nullcontext() if number == len(batches) else self.ranks.accelerator.no_sync(self.module):
                policy.one_pass(batch, known_3N * scale_3N, into_4N, loss, self.module)
        found_4N.copy_(self.ranks.accelerator.reduce(found_4N, "sum"))

    def _deal(self, trees: list[Tree], budget: int) -> tuple[list[list[Tree]], list[list[Tree]]]:
        """This rank's micro-batches, and those that pad them to the number of the rank with the most."""
        trees = sorted(trees, key=len, reverse=True)
        size = self.ranks.size
        dealt = [list(micro_batches(trees[number::size], budget)) for number in range(size)]
        mine = dealt[self.ranks.number]
        return mine, [trees[-1:]] * (max(map(len, dealt)) - len(mine))


class LogProbs(torch.nn.Module):
    """`token_logprobs` as a module, since DDP joins gradients of what went through its own `forward`."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch: MicroBatch, entropy_grad: bool):
        return token_logprobs(self.net, batch, entropy_grad)


class RankedEngine:
    """One model's sampler over all ranks: rank 0 asks, every rank answers the requests of a share of the prompts."""

    streams = False

    def __init__(self, ranks: Ranks, number: int, model):
        self.ranks, self.number, self.model, self.inner = ranks, number, model, model.engine
        self.policies = [policy for policy in ranks.team.policies.values() if policy.shared is model]
        self._pending: list[tuple[int, int, Request]] = []
        self._tickets = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests, on rank 0; returns a ticket for each."""
        tickets = list(range(self._tickets, self._tickets + len(requests)))
        self._tickets += len(requests)
        own = self.policies.index(policy)
        self._pending += [(ticket, own, request) for ticket, request in zip(tickets, requests, strict=True)]
        return tickets

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forgets what was asked and has no answer yet."""
        forgotten = set(tickets)
        self._pending = [entry for entry in self._pending if entry[0] not in forgotten]

    def ready(self) -> list[tuple[int, Completion]]:
        """Answers everything pending, as (ticket, completion)."""
        pending, self._pending = self._pending, []
        asked = [(own, request) for _, own, request in pending]
        return list(zip([ticket for ticket, _, _ in pending], self._ask(asked), strict=True))

    def sample(self, policy, requests: Sequence[Request]) -> list[Completion]:
        """Answers these requests now, in order."""
        return self._ask([(self.policies.index(policy), request) for request in requests])

    def _ask(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        if not asked:
            return []
        self.ranks.tell("sample", self.number, asked)
        return self.answer(asked)

    def answer(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        """On every rank: all completions, in order. Raises RankError where a rank could not answer its share."""
        mine = self._deal(asked)[self.ranks.number]
        try:
            found, error = self._sample([asked[i] for i in mine]), None
        except (PolicyError, RuntimeError) as failed:
            found, error = [], f"{type(failed).__name__}: {failed}"
        answers: list[Any] = [None] * len(asked)
        for number, (places, completions, failed) in enumerate(self.ranks.gather((mine, found, error))):
            if failed is not None:
                raise RankError(f"rank {number} of {self.ranks.size} could not sample: {failed}")
            for place, completion in zip(places, completions, strict=True):
                answers[place] = completion
        return answers

    def _sample(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        tickets = [self.inner.submit(self.policies[own], [request])[0] for own, request in asked]
        answers: dict[int, Completion] = {}
        while len(answers) < len(tickets):
            answers.update(self.inner.ready())
        return [answers[ticket] for ticket in tickets]

    def _deal(self, asked: list[tuple[int, Request]]) -> list[list[int]]:
        """Places in `asked` by rank. A prompt's candidates stay together; the longest work goes out first."""
        prompts: dict[tuple, list[int]] = {}
        for place, (own, request) in enumerate(asked):
            prompts.setdefault((own, request.prompt_ids), []).append(place)
        load = {key: len(key[1]) + sum(asked[i][1].max_tokens for i in places) for key, places in prompts.items()}
        dealt, work = [[] for _ in range(self.ranks.size)], [0] * self.ranks.size
        for key in sorted(prompts, key=load.get, reverse=True):
            least = work.index(min(work))
            dealt[least] += prompts[key]
            work[least] += load[key]
        return dealt


class Elsewhere:
    """On every rank but 0, in place of an engine that streams: servers, which rank 0 alone asks and sends weights."""

    streams = True

    def __init__(self, model):
        self.model, self.inner = model, model.engine

    def publish(self, policy) -> None: ...
    def rest(self) -> None: ...


def _is_lost(error: RuntimeError) -> bool:
    """Did the process group fail, and not the work? Gloo and DDP raise plain RuntimeErrors."""
    known = ("gloo", "nccl", "connection", "closed by peer", "socket")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in known)


@contextmanager
def _saying_why(number: int) -> Iterator[None]:
    """A launcher that sees a rank end stops the others by SIGTERM: let them say why before they end. After an error
    this process ends by itself, and a SIGTERM that came before its last words were out would swallow them."""

    def stop(*_):
        raise SystemExit(f"mas_lab: rank {number} was stopped by the launcher: another rank ended, or it was asked to")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    after = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        after = signal.SIG_IGN
        raise
    finally:
        signal.signal(signal.SIGTERM, after)
