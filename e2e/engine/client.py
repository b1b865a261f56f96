"""A client of vLLM's OpenAI API: completions with the time to the first token, tokens of a text, counters."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import requests

REQUEST_SECONDS = 300.0


class RequestFailed(RuntimeError):
    """The server answered a request with an error."""


@dataclass
class Completion:
    """One answer: its text, token ids where asked for, and when the first token came."""

    text: str = ""
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)


class Client:
    """Talks to one server on the loopback."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = requests.Session()
        self._http.trust_env = False

    def healthy(self) -> bool:
        """Whether the server answers."""
        try:
            return self._http.get(f"{self._url}/health", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def tokens(self, text: str) -> list[int]:
        """The text as the model's tokens."""
        answer = self._post("tokenize", {"model": "model", "prompt": text, "add_special_tokens": False})
        return [int(token) for token in answer["tokens"]]

    def complete(self, prompt: Sequence[int], *, max_tokens: int = 16) -> Completion:
        """Greedy completion of a prompt of token ids, streamed.

        Raises:
            RequestFailed: the server answered with an error, at once or in the stream.
            requests.RequestException: the connection broke.
        """
        body = {
            "model": "model",
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        result = Completion()
        started = time.perf_counter()
        with self._http.post(f"{self._url}/v1/completions", json=body, stream=True, timeout=REQUEST_SECONDS) as reply:
            _check(reply)
            for line in reply.iter_lines():
                if line.startswith(b"data: {"):
                    _read(json.loads(line[6:]), result, started)
        result.total_seconds = time.perf_counter() - started
        return result

    def reset_prefix_cache(self, seconds: float = 30) -> None:
        """Empty the engine's own prefix cache; the shared tier is left alone. Waits while blocks are in use."""
        deadline = time.monotonic() + seconds
        while not self._post("reset_prefix_cache", {}).get("success", True):
            if time.monotonic() > deadline:
                raise RequestFailed(
                    f"{self._url}: the prefix cache was in use for {seconds:.0f} s; is a request stuck?"
                )
            time.sleep(0.2)

    def metrics(self) -> dict[str, float]:
        """The server's counters; labels other than vLLM's own (model, engine) are part of the name."""
        text = self._http.get(f"{self._url}/metrics", timeout=30).text
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[_short(name)] = found.get(_short(name), 0.0) + float(value)
        return found

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self._http.post(f"{self._url}/{path}", json=body, timeout=REQUEST_SECONDS)
        _check(reply)
        return dict(reply.json()) if reply.content else {}


def _short(name: str) -> str:
    base, _, labels = name.rstrip("}").partition("{")
    kept = [item for item in labels.split(",") if item and not item.startswith(("model_name=", "engine="))]
    return f"{base}{{{','.join(kept)}}}" if kept else base


def _check(reply: requests.Response) -> None:
    if reply.status_code != 200:
        raise RequestFailed(f"{reply.url}: expected status 200, found {reply.status_code}: {reply.text[:500]}")


def _read(event: dict[str, Any], result: Completion, started: float) -> None:
    if "error" in event:
        raise RequestFailed(str(event["error"]))
    if usage := event.get("usage"):
        result.prompt_tokens = usage["prompt_tokens"]
        details = usage.get("prompt_tokens_details") or {}
        result.cached_tokens = details.get("cached_tokens") or 0
    for choice in event["choices"]:
        if not result.first_token_seconds:
            result.first_token_seconds = time.perf_counter() - started
        result.text += choice["text"]
        result.token_ids += choice.get("token_ids") or []
