"""All speed patches of mitmproxy (decision 0008; bench/README.md has the figures).

With all of them a pass-through request costs 1.25 times a bare mitmdump's CPU on one connection,
and 1.08 times on 16; without them, 2.22 and 1.76 times.

Events. For each of its forty addons and each of the eight events of a flow, mitmproxy enters a
context manager, a coroutine and two generators, mostly to find no handler: half of mitmdump's time.
``FastManager`` first reads two attributes. It caches only which of mitmproxy's and our own addons
have no handler for an event, and only while the chain has the very same addons. All others are
looked at each time: scripts are reloaded, addons come, go and nest, and handlers may be set later.
A method is called at once; anything else goes to mitmproxy's own functions. A pass-through request
took 1.1 ms of CPU before and 0.7 after; the cache is 0.045 ms of that.

Types. With each request and response mitmproxy compares every field of the message with its
annotation, which it takes apart anew each time. ``check_types`` does that once. A field of exactly
an allowed type passes; mitmproxy decides about all others. A message took 24 µs before and 0.6
after, and a request has three or more.

Headers. mitmproxy looks one up through five functions, and misses by an exception: some thirty
times a request. Looking up in one step saves 2 % of a pass-through request.

Options. mitmproxy copies the value of an option deeply with each look, mostly twice: some sixteen
times a request. This, and a flow's state that is no longer in weak dictionaries, took 16
connections from 1.06 times a bare mitmdump to 1.04.

Tasks. For each task, of which there are some five a request and one for each chunk of a stream,
mitmproxy looks for the name of a running test in the environment, and misses by two exceptions.

Log. For each record of its log, shown or not, mitmproxy wakes the loop and asks all addons whether
they have the deprecated handler ``add_log``. Records are passed on only while one has, and those
about connections are made only if somebody takes them.

Local files. mitmproxy makes the whole URL of each request before it looks whether there is a
``map_local`` at all: 32 µs of a forwarded request.

Writes. ``merged_writes`` joins those that follow each other. With the log, this took a streamed
response from 1.40 times a bare mitmdump to 1.10.

This is speed and not safety: a mitmproxy that is built differently is left as it is, with one line
in the log.

This module can go when mitmproxy itself skips addons without a handler and caches the types of
fields; the first is proposed upstream as ``docs/upstream/mitmproxy-dispatch.patch``. Remove
``cllama_dispatch`` with it.
"""

import asyncio
import logging
import operator
import os
import time
from collections.abc import Callable
from dataclasses import fields
from functools import cache, lru_cache
from inspect import isawaitable
from itertools import chain, islice
from types import MethodType
from typing import Any, NamedTuple, get_args

from mitmproxy import addonmanager, connection, ctx, exceptions, flow, hooks, http, log, optmanager
from mitmproxy.utils import asyncio_utils

from claw_mediate.mitm import merged_writes
from claw_mediate.mitm.addon_state import AddonState

_EXPECTED_NAMES = {
    "AddonManager.trigger_event": {"chain", "safecall", "invoke_addon", "exceptions", "AddonHalt"},
    "AddonManager.invoke_addon": {"_iter_hooks", "args", "inspect", "isawaitable"},
    "AddonManager.handle_lifecycle": {
        "args",
        "trigger_event",
        "isinstance",
        "flow",
        "Flow",
        "hooks",
        "UpdateHook",
    },
    "hooks.Hook.args": {"fields", "append", "getattr", "name"},
    "traverse": {"hasattr", "addons", "traverse"},
}
"""The functions of mitmproxy that this relies on, with all names that each of them uses."""
_FIXED_ADDONS = ("mitmproxy.", "claw_mediate.")
"""Packages whose addons get no handler while they run: mitmproxy's and ours."""


class FastManager(addonmanager.AddonManager):
    """mitmproxy's addon manager, except that it skips addons without a handler."""

    async def trigger_event(self, event: hooks.Hook) -> None:
        name = event.name
        args = _args(event)
        # Addons that come into the chain while this event is handled hear of it, too: the slice is
        # read only after the candidates, and begins where the chain ends now.
        added = islice(self.chain, len(self.chain), None)
        for addon in chain(self.candidates(name), added):
            try:
                handler = getattr(addon, name, None)
                nests = hasattr(addon, "addons")
                if type(handler) is MethodType and not nests:
                    result = handler(*args)
                    if result is not None and isawaitable(result):
                        await result
                elif handler or (nests and _any_handles(addon.addons, name)):
                    await self.invoke_addon(addon, event)
            except exceptions.AddonHalt:
                return
            except exceptions.OptionsError:
                raise
            except Exception:  # as mitmproxy does: it is logged, and the next addon is called
                with addonmanager.safecall():
                    raise

    async def invoke_addon(self, addon: Any, event: hooks.Hook) -> None:
        args = _args(event)
        for _, handler in self._iter_hooks(addon, event):
            result = handler(*args)
            if result is not None and isawaitable(result):
                await result

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        await self.trigger_event(event)
        message = _args(event)[0]
        # Every event of a flow brings an update, which mostly nobody handles.
        if isinstance(message, flow.Flow) and self._may_hear(hooks.UpdateHook.name):
            await self.trigger_event(hooks.UpdateHook([message]))

    def _may_hear(self, name: str) -> bool:
        try:
            return _any_handles(self.candidates(name), name)
        except Exception:  # noqa: BLE001 - an addon that can't be read: the event logs it
            return True

    def candidates(self, name: str) -> list[Any]:
        """Return the addons of the chain that may have a handler for an event."""
        known: dict[str, _Candidates] = self.__dict__.setdefault("_candidates_by_event", {})
        cached = known.get(name)
        if cached is not None and cached.is_same(cached.chain, self.chain):
            return cached.addons

        addons = [addon for addon in self.chain if not _never_handles(addon, name)]
        known[name] = _Candidates([*self.chain], addons, _comparison_of(self.chain))
        return addons


class _Candidates(NamedTuple):
    """The addons of a chain that may handle one event, until the chain has other addons."""

    chain: list[Any]
    addons: list[Any]
    is_same: Callable[[list[Any], list[Any]], bool]


_IDENTITY: Any = object.__eq__


def _comparison_of(chain: list[Any]) -> Callable[[list[Any], list[Any]], bool]:
    """Return the function that tells whether another chain has the very same addons.

    An object without an ``__eq__`` of its own is equal to itself only, and two lists of such
    objects are compared six times as fast.
    """
    has_no_other = (getattr(type(addon), "__eq__", None) is _IDENTITY for addon in chain)
    if all(has_no_other):
        return operator.eq
    return _are_identical


def _are_identical(chain: list[Any], other: list[Any]) -> bool:
    return len(chain) == len(other) and all(map(operator.is_, chain, other))


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _args(event: hooks.Hook) -> list[Any]:
    """Return what ``Hook.args`` returns, without taking the class apart each time."""
    kind: Any = type(event)
    return [getattr(event, name) for name in _field_names(kind)]


_full_args = hooks.Hook.args


def use_fast_args(*, fast: bool) -> None:
    """Let all of mitmproxy read an event's arguments by ``_args``, or in its own way."""
    hooks.Hook.args = _args if fast else _full_args  # type: ignore[method-assign, assignment]


_full_task_info = asyncio_utils.set_task_debug_info
_TEST = "PYTEST_CURRENT_TEST"


def _set_task_info(
    task: asyncio.Task[Any], *, name: str, client: tuple[Any, ...] | None = None
) -> None:
    """Note what a task is for, as mitmproxy does outside of its tests."""
    task.created = time.time()  # type: ignore[attr-defined]
    task.set_name(name)
    if client:
        task.client = client  # type: ignore[attr-defined]


def use_fast_tasks(*, fast: bool) -> None:
    """Note what tasks are for without a look at the environment, or in mitmproxy's own way."""
    is_test = _TEST in os.environ
    asyncio_utils.set_task_debug_info = _set_task_info if fast and not is_test else _full_task_info


def _never_handles(addon: Any, name: str) -> bool:
    """Return whether an addon has no handler for this event, now and ever.

    That is known only of addons that get none later.
    """
    is_fixed = type(addon).__module__.startswith(_FIXED_ADDONS)
    return is_fixed and getattr(addon, name, None) is None and not hasattr(addon, "addons")


def _any_handles(addons: Any, name: str) -> bool:
    """Return whether one of these addons has a handler now, or one that it nests.

    A script is an addon two levels down.
    """
    for addon in addons:
        if getattr(addon, name, None):
            return True
        nested = getattr(addon, "addons", None)
        if nested and _any_handles(nested, name):
            return True

    return False


class DispatchAddon:
    """The addon: chooses the manager by the setting ``dispatch``. It outlives scripts."""

    name = "claw-dispatch"

    def __init__(self, addon_state: AddonState) -> None:
        self._events = addon_state.events
        self._builtin = addon_state.builtin
        self._problem: str | None = None

    def load(self, _loader: Any) -> None:
        """Log once that this mitmproxy is built differently, if it is."""
        if (problem := incompatibility(ctx.master.addons)) is not None:
            self._problem = problem
            self._events.event("error", error="dispatch_not_fast", reason=problem)
        self.configure(set())

    def configure(self, _updated: set[str]) -> None:
        is_fast = ctx.options.cllama_dispatch == "fast"
        use_fast_args(fast=is_fast)
        use_fast_tasks(fast=is_fast)
        use_fast_type_check(fast=is_fast)
        use_fast_headers(fast=is_fast)
        use_fast_options(fast=is_fast)
        use_fast_map_local(ctx.master.addons.get("maplocal"), fast=is_fast)
        skip_unheard_records(fast=is_fast)
        if self._problem is None:
            ctx.master.addons.__class__ = FastManager if is_fast else addonmanager.AddonManager

    def client_connected(self, client: connection.Client) -> None:
        handler = self._builtin.proxyserver.connections.get(client.id)
        if handler is not None and self._problem is None and ctx.options.cllama_dispatch == "fast":
            skip_untaken_records()
            merged_writes.install(handler)


def incompatibility(manager: addonmanager.AddonManager) -> str | None:
    """Return how this mitmproxy differs from the one that ``FastManager`` was written for.

    Return None if it does not.
    """
    if type(manager) not in (addonmanager.AddonManager, FastManager):
        return f"the addon manager is a {type(manager).__name__}"

    changed = [name for name, used in _EXPECTED_NAMES.items() if _names_of(name) != used]
    if not changed:
        return None
    return f"this version of mitmproxy calls its addons in another way: {', '.join(changed)}"


def _names_of(function: str) -> set[str] | None:
    try:
        return set(operator.attrgetter(f"{function}.__code__.co_names")(addonmanager))
    except AttributeError:
        return None


_full_check: Callable[[Any], None] | None = getattr(http.MessageData, "__post_init__", None)
"""mitmproxy's own check; None if Python leaves assertions out (``-O``)."""
_ALLOWED_TYPES = {
    kind: tuple(
        (field.name, frozenset(get_args(field.type) or (field.type,))) for field in fields(kind)
    )
    for kind in (http.RequestData, http.ResponseData)
}
_UNKNOWN_KIND = (("__class__", frozenset[Any]()),)
"""The types of a message of an unknown kind: none is allowed, so mitmproxy's check decides."""


def check_types(message: Any) -> None:
    """Check the types of a message's fields.

    Raise ``TypeError`` exactly as mitmproxy's own check does.
    """
    for name, kinds in _ALLOWED_TYPES.get(type(message), _UNKNOWN_KIND):
        if type(getattr(message, name)) not in kinds:
            assert _full_check is not None
            _full_check(message)
            return


def use_fast_type_check(*, fast: bool) -> None:
    """Put ``check_types`` in the place of mitmproxy's own check, or put that back."""
    if _full_check is not None:
        http.MessageData.__post_init__ = check_types if fast else _full_check  # type: ignore[method-assign]


_full_get_all = http.Headers.get_all
_FULL_LOOKUPS: dict[str, Any] = {
    name: getattr(http.Headers, name) for name in ("get_all", "get", "__contains__")
}


def _get_all(headers: http.Headers, name: str | bytes) -> list[str]:
    if type(name) is not str:
        return _full_get_all(headers, name)

    key = _key_of(name)
    length = len(key)  # It differs mostly, and then no other spelling is made
    return [
        value.decode("utf-8", "surrogateescape")
        for each, value in headers.fields
        if len(each) == length and each.lower() == key
    ]


@lru_cache(maxsize=512)
def _key_of(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape").lower()


def _get(headers: http.Headers, name: str | bytes, default: Any = None) -> Any:
    values = _get_all(headers, name)
    return ", ".join(values) if values else default


def _contains(headers: http.Headers, name: str | bytes) -> bool:
    return bool(_get_all(headers, name))


_FAST_LOOKUPS = {"get_all": _get_all, "get": _get, "__contains__": _contains}


def use_fast_headers(*, fast: bool) -> None:
    """Look headers up in one step, or in mitmproxy's own way."""
    for name, lookup in (_FAST_LOOKUPS if fast else _FULL_LOOKUPS).items():
        setattr(http.Headers, name, lookup)


_full_current = optmanager._Option.current  # noqa: SLF001 - there is no public way to read an option without copies
_IMMUTABLE = frozenset({str, int, bool, type(None)})


def _current(option: Any) -> Any:
    value = option._default if option.value is optmanager.unset else option.value  # noqa: SLF001
    return value if type(value) in _IMMUTABLE else _full_current(option)


def use_fast_options(*, fast: bool) -> None:
    """Read options whose value can't be changed without copying it, or in mitmproxy's own way."""
    optmanager._Option.current = _current if fast else _full_current  # type: ignore[method-assign, assignment]  # noqa: SLF001


def use_fast_map_local(addon: Any, *, fast: bool) -> None:
    """Look for a local file only where ``map_local`` names one, or in mitmproxy's own way.

    ``addon`` is mitmproxy's ``maplocal``; None: there is none.
    """
    if not hasattr(addon, "replacements"):
        return

    addon.__dict__.pop("request", None)
    if not fast:
        return

    find_file = addon.request

    def request(self: Any, request_flow: http.HTTPFlow) -> Any:
        return find_file(request_flow) if self.replacements else None

    addon.request = MethodType(request, addon)


def skip_unheard_records(*, fast: bool) -> None:
    """Give records of the log to ``add_log`` handlers only while there is one, or always."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, log.LegacyLogEvents):
            change = handler.addFilter if fast else handler.removeFilter
            change(_is_heard)
    _connections.setLevel(logging.NOTSET)


def _is_heard(_record: logging.LogRecord | None = None) -> bool:
    manager = ctx.master.addons
    addons = manager.candidates("add_log") if isinstance(manager, FastManager) else manager.chain
    return any(hasattr(addon, "add_log") for addon in addonmanager.traverse(addons))


def skip_untaken_records() -> None:
    """Make no record of what happens to connections if no handler takes it.

    There are some six of them for each connection.
    """
    levels = [
        handler.level
        for name in ("", "mitmproxy", "mitmproxy.proxy")
        for handler in logging.getLogger(name).handlers
        if not isinstance(handler, log.LegacyLogEvents) or _is_heard()
    ]
    lowest = min(levels, default=logging.NOTSET)
    if _connections.level != lowest:
        _connections.setLevel(lowest)


_connections = logging.getLogger("mitmproxy.proxy.server")
