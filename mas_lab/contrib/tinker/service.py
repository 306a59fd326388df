"""The connection to a Tinker-compatible server: calls with a time limit, and errors that name the server.

Leaves out: the calls themselves (`policy`, `engine`).
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any

import httpx

from mas_lab.policy import PolicyError

SLICE, LOST = 5.0, 20.0
"""Seconds of waiting after which we check that the server is there; seconds that it may take to say so."""
LOCAL_KEY = "tml-local"
"""The SDK requires a key; your own server does not read it."""


class Service:
    """A server at `url`; PolicyError says what to do if none answers or its version does not fit."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float):
        try:
            import tinker
        except ImportError as error:
            raise PolicyError(
                "backend='tinker' needs the SDK: pip install 'mas-lab[tinker]', whose versions fit SkyRL 0.3"
            ) from error
        self.url, self.timeout_s = url, timeout_s
        self.require("connect")
        key = api_key or os.environ.get("TINKER_API_KEY") or LOCAL_KEY
        self.client = self.of("connect", tinker.ServiceClient, base_url=url, api_key=key)

    def require(self, what: str) -> None:
        """Raise PolicyError if no server answers."""
        with suppress(httpx.HTTPError):
            if httpx.get(f"{self.url.rstrip('/')}/api/v1/healthz", timeout=LOST).is_success:
                return
        raise PolicyError(
            f"no Tinker server answers at {self.url} (to {what}); start it, or give its address: load_base(..., "
            "backend='tinker', url='http://127.0.0.1:8000'). A run goes on from its last checkpoint when the server is "
            "back"
        )

    def of(self, what: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the answer to a call, or to the future that it returns; an error says `what` was asked."""
        return self.ask(what, partial(call, *arguments, **options))[0]

    def ask(self, what: str, *calls: Callable[[], Any]) -> list[Any]:
        """Make all calls, and return the answer to each."""
        try:
            answers = [call() for call in calls]
            return [self._wait(what, one) if hasattr(one, "result") else one for one in answers]
        except PolicyError:
            raise
        except Exception as error:
            self.require(what)
            raise PolicyError(
                f"the Tinker server at {self.url} did not {what}: {type(error).__name__}: {error}. If this is about a "
                f"form that it does not know, its version and the SDK's (tinker {version('tinker')}) do not fit: "
                "docs/cluster.md has pairs that do"
            ) from error

    def _wait(self, what: str, future: Any) -> Any:
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            try:
                return future.result(timeout=SLICE)
            except (TimeoutError, FutureTimeout):
                self.require(what)
        raise PolicyError(
            f"the Tinker server at {self.url} has taken more than timeout_s={self.timeout_s:g} seconds to {what}; give "
            "it more, or look at its log"
        )
