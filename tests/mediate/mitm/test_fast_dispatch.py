"""The fast dispatch gives any addons the same events as mitmproxy's own."""

from __future__ import annotations

import asyncio
import logging
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mitmproxy import addonmanager, ctx, exceptions, hooks, http, log, options
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.test import tflow
from mitmproxy.utils import asyncio_utils

from claw_mediate.mitm import fast_dispatch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pyparsing warns when mitmproxy's filters are made
    from mitmproxy.addons import maplocal
    from mitmproxy.test import taddons


@dataclass(frozen=True)
class Plan:
    """The plan of an addon: its reaction to a request and to an update, and the
    addons nested in it.
    """

    request: str
    update: str
    nested: tuple[Plan, ...] | None


DOINGS = (
    "nothing",
    "hears",
    "awaits",
    "fails",
    "fails later",
    "halts",
    "misconfigures",
    "is cancelled",
    "stops an iteration",
    "adds one",
    "adds mitmproxy's own",
    "removes the last",
    "nests one",
    "hears of updates from now on",
    "hears no more",
    "is a module",
    "is no function",
    "is empty",
    "can't be read",
    "is mitmproxy's own",
    "is mitmproxy's own, and hears updates only",
)
PLANS = st.recursive(
    st.builds(Plan, st.sampled_from(DOINGS), st.sampled_from(DOINGS), st.none()),
    lambda plans: st.builds(
        Plan,
        st.sampled_from(DOINGS),
        st.sampled_from(DOINGS),
        st.lists(plans, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


class PlannedAddon:
    """An addon made by its plan, with handlers as instance attributes."""

    def __init__(self, trial: ManagerTrial, name: str, plan: Plan) -> None:
        self.trial, self.name = trial, name
        for event, doing in (("request", plan.request), ("update", plan.update)):
            if (handler := trial.handler(self, event, doing)) is not None:
                setattr(self, event, handler)
        if plan.nested is not None:
            self.addons = [
                trial.make(f"{name}.{place}", nested) for place, nested in enumerate(plan.nested)
            ]

    def __repr__(self) -> str:
        return self.name


class Unreadable(PlannedAddon):
    @property
    def request(self) -> Any:
        raise ValueError(f"{self.name} can't be read")


class UnreadableUpdates(PlannedAddon):
    @property
    def update(self) -> Any:
        raise ValueError(f"{self.name} can't be read")


class BuiltinAddon:
    """An addon like mitmproxy's own: its class defines all its handlers, once and for all."""

    __module__ = "mitmproxy.addons.own"

    def __init__(self, trial: ManagerTrial, name: str) -> None:
        self.trial, self.name = trial, name

    def __repr__(self) -> str:
        return self.name

    async def request(self, argument: Any) -> None:
        await asyncio.sleep(0)
        self.trial.heard.append(("request", self.name, argument))


class OwnOfUpdates(BuiltinAddon):
    __module__ = "mitmproxy.addons.own"
    request = None  # type: ignore[assignment]

    def update(self, argument: Any) -> None:
        self.trial.heard.append(("update", self.name, argument))


@dataclass
class ManagerTrial:
    """One manager, its addons, and the events that they got."""

    manager: addonmanager.AddonManager
    heard: list[tuple[str, str, Any]] = field(default_factory=list)

    def make(self, name: str, plan: Plan) -> PlannedAddon | BuiltinAddon:
        if plan.request.startswith("is mitmproxy's own"):
            return (
                OwnOfUpdates(self, name)
                if plan.request.endswith("only")
                else BuiltinAddon(self, name)
            )
        if plan.request == "can't be read":
            return Unreadable(self, name, Plan("nothing", plan.update, plan.nested))
        if plan.update == "can't be read":
            return UnreadableUpdates(self, name, plan)
        return PlannedAddon(self, name, plan)

    def handler(self, addon: PlannedAddon, event: str, doing: str) -> Any:
        doing = "nothing" if doing.startswith("is mitmproxy's own") else doing
        odd = {
            "is a module": types,
            "is no function": "text",
            "is empty": (),
            "nothing": None,
            "can't be read": None,
        }
        if doing in odd:
            return odd[doing]

        def hear(argument: Any) -> Any:
            self.heard.append((event, addon.name, argument))
            return self.act(addon, doing)

        async def later(argument: Any) -> None:
            await asyncio.sleep(0)
            hear(argument)

        return later if doing in {"awaits", "fails later"} else hear

    def act(self, addon: PlannedAddon, doing: str) -> Any:
        chain = self.manager.chain
        acts: dict[str, Callable[[], Any]] = {
            "adds one": lambda: chain.append(
                self.make(f"{len(chain)}", Plan("hears", "hears", None))
            ),
            "adds mitmproxy's own": lambda: chain.append(BuiltinAddon(self, f"{len(chain)}")),
            "removes the last": lambda: setattr(self.manager, "chain", chain[:-1]),
            "nests one": lambda: setattr(
                addon, "addons", [self.make(f"{addon.name}+", Plan("hears", "awaits", None))]
            ),
            "hears of updates from now on": lambda: addon.__dict__.update(
                update=self.handler(addon, "update", "hears")
            ),
            "hears no more": lambda: addon.__dict__.pop("update", None),
            "stops an iteration": lambda: next(iter(())),
        }
        errors = {
            "fails": ValueError("on purpose"),
            "fails later": ValueError("on purpose, later"),
            "halts": exceptions.AddonHalt(),
            "misconfigures": exceptions.OptionsError("on purpose"),
            "is cancelled": asyncio.CancelledError(),
        }
        if doing in errors:
            raise errors[doing]
        return acts[doing]() if doing in acts else None


def calls_of(
    kind: type[addonmanager.AddonManager], plans: list[Plan], flow: Any
) -> tuple[Any, ...]:
    """Run two requests; return the events, the log with the failing functions, the
    outcomes, and the remaining addons.
    """
    trial = ManagerTrial(kind(types.SimpleNamespace(options=options.Options())))
    trial.manager.chain = [trial.make(str(place), plan) for place, plan in enumerate(plans)]
    ends: list[str] = []
    lines = Lines()
    logging.getLogger("mitmproxy.addonmanager").addHandler(lines)
    try:
        for _ in range(2):
            try:
                asyncio.run(trial.manager.handle_lifecycle(HttpRequestHook(flow)))
                ends.append("over")
            except (exceptions.OptionsError, asyncio.CancelledError) as error:
                ends.append(type(error).__name__)
    finally:
        logging.getLogger("mitmproxy.addonmanager").removeHandler(lines)
    return trial.heard, lines.said, ends, [addon.name for addon in trial.manager.chain]


class Lines(logging.Handler):
    """A log handler that notes mitmproxy's lines about addons, each with the
    function that failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info
        self.said.append((record.getMessage(), traceback.extract_tb(record.exc_info[2])[-1].name))


@pytest.mark.requirement("dispatch:same")
@given(st.lists(PLANS, max_size=6))
@example([Plan("hears", "can't be read", None), Plan("hears", "hears", None)])
@example([Plan("hears", "nothing", (Plan("hears", "can't be read", None),))])
def test_any_addons_hear_the_same_in_the_same_order_as_from_mitmproxy_itself(
    plans: list[Plan],
) -> None:
    flow = tflow.tflow()
    fast, plain = (
        calls_of(kind, plans, flow)
        for kind in (fast_dispatch.FastManager, addonmanager.AddonManager)
    )
    assert fast == plain


@pytest.mark.requirement("dispatch:same")
def test_the_arguments_of_each_event_are_those_that_mitmproxy_reads() -> None:
    events = [kind(*range(len(fields(kind)))) for kind in hooks.all_hooks.values()]
    plain = [event.args() for event in events]
    fast_dispatch.use_fast_args(fast=True)
    try:
        assert [event.args() for event in events] == plain
        assert hooks.Hook.args.__module__ == "claw_mediate.mitm.fast_dispatch"
    finally:
        fast_dispatch.use_fast_args(fast=False)
    assert hooks.Hook.args.__module__ == "mitmproxy.hooks"


@pytest.mark.requirement("dispatch:same")
@pytest.mark.parametrize("is_test", [False, True])
def test_a_task_says_what_it_is_for_as_it_does_in_mitmproxy(
    monkeypatch: pytest.MonkeyPatch, *, is_test: bool
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    if is_test:
        monkeypatch.setenv("PYTEST_CURRENT_TEST", "this test")

    async def described(client: tuple[str, int] | None) -> str:
        task = asyncio_utils.create_task(
            asyncio.sleep(0), name="a task", keep_ref=True, client=client
        )
        await task
        return asyncio_utils.task_repr(task)

    def both() -> list[str]:
        return [asyncio.run(described(client)) for client in (None, ("127.0.0.1", 80))]

    plain = both()
    fast_dispatch.use_fast_tasks(fast=True)
    try:
        assert both() == plain
    finally:
        fast_dispatch.use_fast_tasks(fast=False)
    assert asyncio_utils.set_task_debug_info.__module__ == "mitmproxy.utils.asyncio_utils"


@dataclass
class EqualAddon:
    """An addon that is equal to another one of its kind."""

    heard: list[str] = field(default_factory=list, compare=False)

    def request(self, _flow: Any) -> None:
        self.heard.append("request")


@pytest.mark.requirement("dispatch:same")
def test_an_addon_that_replaces_an_equal_one_is_heard() -> None:
    manager = fast_dispatch.FastManager(types.SimpleNamespace(options=options.Options()))
    first, second = EqualAddon(), EqualAddon()
    for addon in (first, second):
        manager.chain = [addon]
        asyncio.run(manager.trigger_event(HttpRequestHook(tflow.tflow())))
    assert (first.heard, second.heard) == (["request"], ["request"])


@pytest.mark.requirement("dispatch:local-files")
def test_local_files_are_served_as_by_mitmproxy_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text("local", encoding="utf-8")
    addon = maplocal.MapLocal()
    for replacements, content in (([], None), ([f"|//address|{page}"], b"local")):
        with taddons.context(addon) as context:
            context.configure(addon, map_local=replacements)
            fast_dispatch.use_fast_map_local(addon, fast=True)
            flow = tflow.tflow()
            addon.request(flow)
            assert (flow.response.content if flow.response else None) == content


@pytest.mark.requirement("dispatch:local-files")
def test_no_url_is_made_where_no_local_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    addon, flow = maplocal.MapLocal(), tflow.tflow()
    urls: list[str] = []
    monkeypatch.setattr(http.Request, "pretty_url", property(lambda _: urls.append("made")))
    fast_dispatch.use_fast_map_local(addon, fast=True)
    addon.request(flow)
    assert urls == []
    fast_dispatch.use_fast_map_local(addon, fast=False)
    addon.request(flow)
    assert urls == ["made"]


@pytest.mark.requirement("dispatch:asserted")
def test_this_mitmproxy_is_what_the_fast_dispatch_was_written_for() -> None:
    manager = addonmanager.AddonManager(types.SimpleNamespace(options=options.Options()))
    assert fast_dispatch.incompatibility(manager) is None


@pytest.mark.requirement("dispatch:asserted")
def test_a_mitmproxy_that_is_built_differently_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = addonmanager.AddonManager(types.SimpleNamespace(options=options.Options()))

    async def trigger_event(self: Any, event: Any) -> None:
        for addon in reversed(self.chain):
            await self.invoke_addon(addon, event)

    monkeypatch.setattr(addonmanager.AddonManager, "trigger_event", trigger_event)
    monkeypatch.delattr(addonmanager, "traverse")
    assert fast_dispatch.incompatibility(manager) == (
        "this version of mitmproxy calls its addons in another way: "
        "AddonManager.trigger_event, traverse"
    )


@pytest.mark.requirement("dispatch:asserted")
def test_a_manager_of_someone_else_is_left_alone() -> None:
    class Theirs(addonmanager.AddonManager):
        pass

    assert (
        fast_dispatch.incompatibility(Theirs(types.SimpleNamespace(options=options.Options())))
        == "the addon manager is a Theirs"
    )


VALUES = st.one_of(
    st.none(), st.binary(max_size=3), st.text(max_size=3), st.integers(), st.floats(), st.booleans()
)


@pytest.mark.requirement("dispatch:same")
@given(st.sampled_from([tflow.treq().data, tflow.tresp().data]), st.data())
def test_the_types_of_a_message_pass_the_fast_check_where_they_pass_mitmproxys_own(
    sound: http.MessageData, data: st.DataObject
) -> None:
    message = type(sound)(**vars(sound))
    vars(message).update(
        data.draw(st.dictionaries(st.sampled_from(sorted(vars(sound))), VALUES, max_size=2))
    )

    def refusal(check: Callable[[Any], None]) -> str | None:
        try:
            check(message)
        except TypeError as error:
            return str(error)
        return None

    assert refusal(fast_dispatch.check_types) == refusal(http.MessageData.__post_init__)


@pytest.mark.requirement("dispatch:choice")
def test_the_fast_check_of_types_is_put_in_place_and_taken_back() -> None:
    thorough = http.MessageData.__post_init__
    fast_dispatch.use_fast_type_check(fast=True)
    assert http.MessageData.__post_init__ is fast_dispatch.check_types
    with pytest.raises(TypeError, match="for port"):
        http.RequestData(**{**vars(tflow.treq().data), "port": "80"})
    fast_dispatch.use_fast_type_check(fast=False)
    assert http.MessageData.__post_init__ is thorough


NAMES = st.one_of(
    st.sampled_from(["host", "HOST", "x-\udcff", "\u212aey"]),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.none(),
)
RAW = st.one_of(st.sampled_from([b"Host", b"x-\xff", b"key"]), st.binary(max_size=3))


def looked_up(headers: http.Headers, name: Any) -> list[Any]:
    """Return what each lookup gives, or the name of its error."""
    lookups: list[Callable[[], Any]] = [
        lambda: headers.get_all(name),
        lambda: headers.get(name),
        lambda: headers.get(name, 7),
        lambda: name in headers,
        lambda: headers[name],
    ]
    return [result_of(lookup) for lookup in lookups]


def result_of(lookup: Callable[[], Any]) -> Any:
    try:
        return lookup()
    except Exception as error:  # noqa: BLE001 - also the errors must be the same
        return type(error).__name__


@pytest.mark.requirement("dispatch:headers")
@given(st.lists(st.tuples(RAW, RAW), max_size=4), NAMES)
def test_headers_are_found_as_mitmproxy_itself_finds_them(
    fields: list[tuple[bytes, bytes]], name: Any
) -> None:
    headers = http.Headers(fields)
    plain = looked_up(headers, name)
    fast_dispatch.use_fast_headers(fast=True)
    try:
        assert looked_up(headers, name) == plain
    finally:
        fast_dispatch.use_fast_headers(fast=False)
    assert http.Headers.get_all.__module__ == "mitmproxy.http"


@pytest.mark.requirement("dispatch:options")
def test_options_are_read_as_mitmproxy_itself_reads_them() -> None:
    known = options.Options()
    known.update(ignore_hosts=["a.test"], listen_host="::1")
    names = sorted(known.keys())
    plain = {name: getattr(known, name) for name in names}
    fast_dispatch.use_fast_options(fast=True)
    try:
        assert {name: getattr(known, name) for name in names} == plain
        known.ignore_hosts.append("b.test")
        assert known.ignore_hosts == ["a.test"]
        assert not known.has_changed("listen_port")
    finally:
        fast_dispatch.use_fast_options(fast=False)


@pytest.mark.requirement("dispatch:log")
def test_a_record_wakes_the_loop_only_while_an_addon_asks_for_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    woken: list[str] = []
    loop = types.SimpleNamespace(
        call_soon_threadsafe=lambda _call, event: woken.append(event.entry.msg)
    )
    manager = addonmanager.AddonManager(types.SimpleNamespace(options=options.Options()))
    monkeypatch.setattr(
        ctx, "master", types.SimpleNamespace(addons=manager, event_loop=loop), raising=False
    )
    events = log.LegacyLogEvents(ctx.master)
    events.install()
    try:
        fast_dispatch.skip_unheard_records(fast=True)
        logging.getLogger("mitmproxy.test").warning("nobody asks")
        nested = types.SimpleNamespace(addons=[types.SimpleNamespace(add_log=print)])
        manager.chain = [nested]
        logging.getLogger("mitmproxy.test").warning("one asks")
        manager.chain = []
        fast_dispatch.skip_unheard_records(fast=False)
        logging.getLogger("mitmproxy.test").warning("mitmproxy's own way")
    finally:
        events.uninstall()
    assert [line.rpartition("] ")[2] for line in woken] == ["one asks", "mitmproxy's own way"]


@pytest.mark.requirement("dispatch:log")
def test_records_about_connections_are_made_for_the_handlers_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = addonmanager.AddonManager(types.SimpleNamespace(options=options.Options()))
    monkeypatch.setattr(ctx, "master", types.SimpleNamespace(addons=manager), raising=False)
    legacy, shown = log.LegacyLogEvents(ctx.master), logging.Handler(logging.ERROR)
    monkeypatch.setattr(logging.getLogger(), "handlers", [legacy, shown])
    connections, levels = logging.getLogger("mitmproxy.proxy.server"), []
    for handler_level, chain in (
        (logging.ERROR, []),
        (logging.INFO, []),
        (logging.ERROR, [types.SimpleNamespace(add_log=print)]),
    ):
        shown.setLevel(handler_level)
        manager.chain = chain
        fast_dispatch.skip_untaken_records()
        levels.append(connections.level)
    assert levels == [logging.ERROR, logging.INFO, logging.NOTSET]
