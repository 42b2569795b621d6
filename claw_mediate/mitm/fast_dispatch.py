"""Telling addons of events, without asking each of them in vain (bench/README.md has what it saves).

For each of its forty addons and each of the eight events of a flow, mitmproxy enters a context manager, a coroutine and two
generators, mostly to find that the addon has nothing to hear: half of mitmdump's time. Here two attribute reads come first.

Kept is only which addons of mitmproxy's and ours are deaf to an event, and only while the chain has the very same ones. All
others are asked each time: scripts are reloaded, addons come, go and nest, and handlers may be attributes that are set later.
A method is called at once; whatever else may have something to hear is told by mitmproxy's own functions.

This is speed and not safety: a mitmproxy that is built differently goes on in its own way, with one line in the log.
"""

from __future__ import annotations

from inspect import isawaitable
from itertools import chain, islice
from operator import attrgetter, is_
from types import MethodType
from typing import Any

from mitmproxy import addonmanager, ctx, exceptions, hooks

from claw_mediate.mitm import glance
from claw_mediate.telemetry.event_log import EventLog

_BUILT = {
    "AddonManager.trigger_event": {"chain", "safecall", "invoke_addon", "exceptions", "AddonHalt"},
    "AddonManager.invoke_addon": {"_iter_hooks", "args", "inspect", "isawaitable"},
    "AddonManager.handle_lifecycle": {"args", "trigger_event", "isinstance", "flow", "Flow", "hooks", "UpdateHook"},
    "traverse": {"hasattr", "addons", "traverse"},
}
"""The functions of mitmproxy that are relied on, and the names that each of them uses: those, and no others."""
_STAY = ("mitmproxy.", "claw_mediate.")
"""Whose addons are as they are: mitmproxy's and ours."""


class FastManager(addonmanager.AddonManager):
    """mitmproxy's addon manager, but for the addons that it passes over."""

    async def trigger_event(self, event: hooks.Hook) -> None:
        name, args = event.name, event.args()
        added = islice(self.chain, len(self.chain), None)  # by an addon that is told of this event
        for addon in chain(self._hearing(name), added):
            try:
                handler, nests = getattr(addon, name, None), hasattr(addon, "addons")
                if type(handler) is MethodType and not nests:
                    heard = handler(*args)
                    if heard is not None and isawaitable(heard):
                        await heard
                elif handler or nests:
                    await self.invoke_addon(addon, event)
            except exceptions.AddonHalt:
                return
            except exceptions.OptionsError:
                raise
            except Exception:  # mitmproxy's own way with them: they are logged, and the next addon is told
                with addonmanager.safecall():
                    raise

    def _hearing(self, name: str) -> list[Any]:
        """All addons of the chain, in its order, that are not known to be deaf to this event."""
        known: dict[str, tuple[list[Any], list[Any]]] = self.__dict__.setdefault("_known_hearing", {})
        then, hearing = known.get(name, ((), []))
        if len(then) != len(self.chain) or not all(map(is_, then, self.chain)):
            hearing = [addon for addon in self.chain if not _is_deaf(addon, name)]
            known[name] = [*self.chain], hearing
        return hearing


def _is_deaf(addon: Any, name: str) -> bool:
    """Whether it hears nothing of this event, now and ever. Only of classes that are known to set no handler later."""
    stays = type(addon).__module__.startswith(_STAY)
    return stays and getattr(addon, name, None) is None and not hasattr(addon, "addons")


class Dispatch:
    """The addon: chooses the manager by the setting ``dispatch``. Added to the master itself, so that it outlives scripts."""

    name = "claw-dispatch"

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._problem: str | None = None

    def load(self, _loader: Any) -> None:
        """Says once what is different about this mitmproxy, if anything is."""
        if (problem := misfit(ctx.master.addons)) is not None:
            self._problem = problem
            self._events.event("error", error="dispatch_not_fast", reason=problem)
        self.configure(set())

    def configure(self, _updated: set[str]) -> None:
        fast = ctx.options.cllama_dispatch == "fast"
        glance.choose(fast=fast)
        if self._problem is None:
            ctx.master.addons.__class__ = FastManager if fast else addonmanager.AddonManager


def misfit(manager: addonmanager.AddonManager) -> str | None:
    """In what this mitmproxy is not what ``FastManager`` was written for; None: it is."""
    if type(manager) not in (addonmanager.AddonManager, FastManager):
        return f"the addon manager is a {type(manager).__name__}"
    changed = ", ".join(name for name, uses in _BUILT.items() if _uses(name) != uses)
    return f"this version of mitmproxy tells its addons in another way: {changed}" if changed else None


def _uses(name: str) -> set[str] | None:
    try:
        return set(attrgetter(f"{name}.__code__.co_names")(addonmanager))
    except AttributeError:
        return None
