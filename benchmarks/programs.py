"""What a call of a program costs: through HTTP against a call in the same process.

    .venv/bin/python benchmarks/programs.py     # writes data/results/benchmark_programs.json

Sixty episodes at once make three calls each, with a tool on offer, to pocket weights. The same calls go through
`endpoint.message`, through HTTP by hand, and through the OpenAI SDK where it is installed (`make clients`). Rounds
alternate, and all draws are the same. Processor seconds are those of this process, client and server together. Leaves
out what a framework adds.
"""

import argparse
import http.client
import importlib.util
import json
import os
import platform
import ssl
import statistics
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mas_lab as lab
from mas_lab.contrib import programs
from mas_lab.tasks.calculator import CALCULATE

HERE = Path(__file__).resolve().parent
AGENTS = ("opener", "closer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "results" / "benchmark_programs.json")
    given = parser.parse_args()
    ways = {"in the process": in_process, "HTTP by hand": by_hand}
    if importlib.util.find_spec("openai"):
        ways["OpenAI SDK"] = by_the_sdk
    measured = measure(ways, given)
    results = {name: summary(found, measured["in the process"]) for name, found in measured.items()}
    for name, found in results.items():
        print(f"{name:16}", found, flush=True)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    print("load", load)
    told = {
        "command": f"python benchmarks/programs.py --rounds {given.rounds}",
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "load": load},
        "python": platform.python_version(),
        "results": results,
    }
    given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def in_process(endpoint: Any, bodies: list[dict[str, Any]]) -> None:
    for body in bodies:
        endpoint.message(body["model"], **{name: value for name, value in body.items() if name != "model"})


def by_hand(endpoint: Any, bodies: list[dict[str, Any]]) -> None:
    """Make the calls with one connection."""
    address = urlsplit(endpoint.base_url)
    connection = http.client.HTTPConnection(address.hostname, address.port)
    for body in bodies:
        head = {"Authorization": f"Bearer {endpoint.api_key}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), head)
        json.loads(connection.getresponse().read())["choices"][0]["message"]
    connection.close()


def by_the_sdk(endpoint: Any, bodies: list[dict[str, Any]]) -> None:
    from openai import DefaultHttpxClient, OpenAI

    plain = DefaultHttpxClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # loopback needs no certificates
    own = {"base_url": endpoint.base_url, "api_key": endpoint.api_key, "max_retries": 0, "http_client": plain}
    with OpenAI(**own) as client:
        for body in bodies:
            client.chat.completions.create(**body)


def measure(ways: dict[str, Any], given: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return (processor, wall) milliseconds a call of each way and round, after one round that is not counted."""
    team = lab.Team.shared(lab.load_policy("calculator"), AGENTS)
    tasks = lab.make_env("calculator").tasks(given.episodes, "train", 0)
    found, calls = {name: [] for name in ways}, given.episodes * given.calls
    for _ in range(given.rounds + 1):
        first = None
        for name, make in ways.items():

            def program(task: lab.Task, endpoint: Any, make: Any = make) -> float:
                text = " ".join(task.data["chain"].split()[:3])
                messages = [{"role": "user", "content": text}]
                agents = [AGENTS[number % 2] for number in range(given.calls)]
                make(endpoint, [{"model": one, "messages": messages, "tools": [CALCULATE]} for one in agents])
                return 1.0

            begin, used = time.perf_counter(), time.process_time()
            turns = programs.play(program, team, tasks, max_tokens=16, at_once=given.episodes, patience_s=60)
            used, wall = time.process_time() - used, time.perf_counter() - begin
            found[name].append((used / calls * 1e3, wall / calls * 1e3))
            said = turns.sort_values(["episode", "depth"])["completion"].tolist()
            first = first or said
            if said != first or len(said) != calls:
                raise SystemExit(f"{name} got other answers than {next(iter(ways))}")
    return {name: rounds[1:] for name, rounds in found.items()}


def summary(rounds: list[tuple[float, float]], base: list[tuple[float, float]]) -> dict[str, float]:
    """Return medians over the rounds, and the median difference to the same rounds of `base`."""
    more = [one[0] - other[0] for one, other in zip(rounds, base, strict=True)]
    return {
        "processor ms a call": round(statistics.median(one[0] for one in rounds), 2),
        "more than in the process": round(statistics.median(more), 2),
        "wall ms a call": round(statistics.median(one[1] for one in rounds), 2),
    }


if __name__ == "__main__":
    main()
