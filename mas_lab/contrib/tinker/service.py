"""The connection to a Tinker-compatible server: calls with a time limit, and errors that name the server.

Leaves out: the calls themselves (`policy`).
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mas_lab.policy import PolicyError

SLICE, LOST = 5.0, 20.0
"""Seconds of waiting after which we check that the server is there; seconds that it may take to say so."""


@dataclass(frozen=True)
class TinkerOptions:
    """Options of a server."""

    url: str = "http://127.0.0.1:8000"
    """Address of the server."""
    api_key: str | None = None
    """Key of a hosted server. `None`: the environment variable TINKER_API_KEY. It is never written anywhere."""
    model: str | None = None
    """The server's name for the base model. `None`: its directory or hub id."""
    clips: bool = False
    """True if the server clips by AdamParams.grad_clip_norm. The hosted one does. SkyRL 0.3 does not, and gives no
    error."""
    timeout_s: float = 900.0
    """Seconds that one answer may take, including compilation."""


class Service:
    """A server; PolicyError says what to do if none answers or its version does not fit."""

    def __init__(self, options: TinkerOptions):
        try:
            import tinker
        except ImportError as error:
            raise PolicyError("backend='tinker' needs the SDK: pip install 'mas-lab[tinker]'") from error
        self.url, self.timeout_s = options.url, options.timeout_s
        self.require("connect")
        key = options.api_key or os.environ.get("TINKER_API_KEY") or "tml-local"  # which your own server does not read
        self.client = self.of("connect", tinker.ServiceClient, base_url=self.url, api_key=key)

    def require(self, what: str) -> None:
        """Raise PolicyError if no server answers."""
        import httpx

        with suppress(httpx.HTTPError):
            if httpx.get(f"{self.url.rstrip('/')}/api/v1/healthz", timeout=LOST).is_success:
                return
        raise PolicyError(
            f"no Tinker server answers at {self.url} (to {what}); start it, or give its address: load_base(..., "
            "backend='tinker', url='http://127.0.0.1:8000'). A run goes on from its last checkpoint when it is back"
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
                "form that it does not know, take a version of the SDK that fits the server: docs/cluster.md has pairs"
            ) from error

    def _wait(self, what: str, future: Any) -> Any:
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            try:
                return future.result(timeout=SLICE)
            except TimeoutError:
                self.require(what)
        raise PolicyError(f"the Tinker server at {self.url} took more than timeout_s={self.timeout_s:g} s to {what}")
