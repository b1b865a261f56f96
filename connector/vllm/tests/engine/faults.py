"""Faults below the connector: a region that loses objects, refuses them, raises, is slow or stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from hymcache.vllm.attachment import Attachment


class Faults:
    """Wraps every namespace that is opened after it and counts loads and stores; arming a load counts from 0 again."""

    def __init__(self, monkeypatch: Any) -> None:
        self.loads = self.stores = 0
        self._on_load: dict[int, Callable[[], int | None]] = {}
        self._on_store: dict[int, Callable[[], bool | None]] = {}
        self._load_seconds = self._store_seconds = 0.0
        self._full = 0
        opened = Attachment.namespace
        monkeypatch.setattr(Attachment, "full_count", lambda _: self._full)
        monkeypatch.setattr(Attachment, "namespace", lambda attachment, key: _Faulty(opened(attachment, key), self))

    def lose_load(self, number: int) -> None:
        """The `number`-th load from now on finds nothing."""
        self._arm_load(number, lambda: 0)

    def raise_on_load(self, number: int) -> None:
        """The `number`-th load from now on runs into a defect."""

        def act() -> int:
            raise RuntimeError("injected")

        self._arm_load(number, act)

    def block_load(self, number: int) -> threading.Event:
        """The `number`-th load from now on stands still until the returned event is set."""
        gate = threading.Event()
        self._arm_load(number, lambda: (gate.wait(30), None)[1])
        return gate

    def refuse_stores(self, count: int, *, full: bool = False) -> None:
        """The next `count` stores are not taken; with `full` because there is no room."""

        def act() -> bool:
            self._full += full
            return False

        self._on_store = {self.stores + n: act for n in range(count)}

    def block_store(self, number: int) -> threading.Event:
        """The `number`-th store from now on stands still until the returned event is set."""
        gate = threading.Event()
        self._on_store = {self.stores + number: lambda: (gate.wait(30), None)[1]}
        return gate

    def slow_loads(self, seconds: float) -> None:
        """Every load takes this much longer."""
        self._load_seconds = seconds

    def slow_stores(self, seconds: float) -> None:
        """Every store takes this much longer."""
        self._store_seconds = seconds

    def load(self, namespace: Any, *arguments: Any, **named: Any) -> int:
        act = self._on_load.get(self.loads, lambda: None)
        self.loads += 1
        time.sleep(self._load_seconds)
        answer = act()
        return namespace.get_into(*arguments, **named) if answer is None else answer

    def store(self, namespace: Any, *arguments: Any, **named: Any) -> bool:
        act = self._on_store.get(self.stores, lambda: None)
        self.stores += 1
        time.sleep(self._store_seconds)
        answer = act()
        return namespace.put(*arguments, **named) if answer is None else answer

    def _arm_load(self, number: int, act: Callable[[], int | None]) -> None:
        self.loads = 0
        self._on_load = {number: act}


class _Faulty:
    def __init__(self, namespace: Any, faults: Faults) -> None:
        self._namespace, self._faults = namespace, faults
        self.lookup, self.contains = namespace.lookup, namespace.contains

    def get_into(self, *arguments: Any, **named: Any) -> int:
        return self._faults.load(self._namespace, *arguments, **named)

    def put(self, *arguments: Any, **named: Any) -> bool:
        return self._faults.store(self._namespace, *arguments, **named)
