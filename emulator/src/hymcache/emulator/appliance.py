"""One appliance: a blade and what stands around it. Here the parts are put together; `run` serves them."""

from __future__ import annotations

import asyncio

from aiohttp import web
from hymcache.emulator.blade import Blade
from hymcache.emulator.cables import Cables
from hymcache.emulator.faults import Faults
from hymcache.emulator.media import Medium
from hymcache.emulator.media.memfd import MemfdMedium
from hymcache.emulator.model import Host, HostName
from hymcache.emulator.redfish.sessions import Access
from hymcache.emulator.redfish.tasks import Tasks
from hymcache.emulator.redfish.tree import Tree
from hymcache.emulator.settings import Settings
from hymcache.emulator.store import Store


class Appliance:
    """The parts of a running appliance. `start` before use, `close` at the end; both from the event loop.

    Raises:
        StoreError: the state folder is another appliance's.
    """

    def __init__(self, settings: Settings, medium: Medium | None = None) -> None:
        self.settings = settings
        store = Store(settings.state_dir, settings.blade) if settings.state_dir else None
        memfd = MemfdMedium(settings.allocate, settings.reserve_bytes, settings.page_size)
        self.blade = Blade(settings, medium or memfd, store)
        self.cables = Cables(settings.cable_dir, self.blade, lambda: self.powered)
        self.access = Access(settings.user, settings.password)
        self.tasks = Tasks()
        self.faults = Faults()
        self.tree = Tree(settings, lambda: self.blade.view, self.access, self.tasks)
        self.powered = True
        self._switch = asyncio.Lock()
        self._coming_up: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Plug the cables in and begin to bring the blade up; regions that the books know come back one by one."""
        self.cables.sync()
        self._coming_up = asyncio.create_task(self.blade.start())

    async def close(self) -> None:
        """Unplug the cables, end what runs, power off: no region's bytes are left."""
        self.cables.close()
        await self.tasks.close()
        await self.blade.close()
        if self._coming_up is not None:
            await self._coming_up

    def add_host(self, host: Host) -> tuple[Host, bool]:
        """Cable a host; False where it was already. Raises ApplianceError EXISTS, or OSError: no socket."""
        added = self.blade.add_host(host)
        self.cables.sync()
        return added

    def remove_host(self, name: HostName, *, force: bool) -> None:
        """Take a host and its cable away. Raises ApplianceError NOT_FOUND, IN_USE."""
        self.blade.remove_host(name, force=force)
        self.cables.sync()

    async def power_cycle(self, *, keep: bool, seconds: float) -> None:
        """Power off for `seconds` - no answers, links down - and on again."""
        async with self._switch:
            self.powered = False
            try:
                await self.blade.power_cycle(keep=keep)
                self.access.clear()
                await asyncio.sleep(seconds)
            finally:
                self.powered = True


APPLIANCE = web.AppKey("appliance", Appliance)
