"""The options of mitmproxy that governance depends on: set, or refused where they were set badly (design.md "The guard")."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

from mitmproxy import ctx, exceptions, optmanager
from mitmproxy.utils import human

from claw_mediate.mitm import listeners
from claw_mediate.settings import SETTINGS, Setting
from claw_mediate.telemetry import nonblocking_writer
from claw_mediate.telemetry.event_log import EventLog

FORCED: dict[str, Any] = {"connection_strategy": "lazy", "rawtcp": False}
"""Nothing may dial a provider before we decided, and bytes that are not HTTP must not pass on a governed connection."""
REFUSED = ("stream_large_bodies", "ignore_hosts", "allow_hosts", "tcp_hosts", "udp_hosts")
"""Each lets traffic of governed hosts through before, or without, a decision."""
DEFAULTS: dict[str, Any] = {
    "body_size_limit": "64m",
    "tcp_timeout": 3600,
    "flow_detail": 0,
    # It hands out the CA of mitmproxy's own directory, which is not the pod's.
    "onboarding": False,
    # stdout is the structured log, one JSON object a line; what mitmproxy has to say goes to stderr.
    "termlog_verbosity": "error",
}
"""Set where the operator did not."""
_TALKS = "web_port"
"""An option of mitmweb's, which has to say where its page is."""
CHATTY = ("httpcore2", "httpx2")
"""Loggers with a dozen records a request, headers and all. mitmproxy listens to every level of every logger, and tells all of
its addons of each record, whether it is shown or not: a third of a turn's time (bench/README.md)."""
LEAST_TCP_TIMEOUT = 300
"""Seconds; a shorter idle time-out would cut turns that are waiting for a model."""


def is_set(name: str) -> bool:
    """Whether the operator gave this option a value, on the command line or in mitmproxy's configuration."""
    return ctx.options._options[name].value is not optmanager.unset  # noqa: SLF001 - there is no public way to ask


def add(loader: Any) -> None:
    """Every setting is an option; its environment variable is its default, where it is not empty, and may be shown."""
    for setting in SETTINGS:
        default = setting.default if setting.is_secret else _of_environment(setting)
        loader.add_option(f"cllama_{setting.name}", str, default, f"{setting.help} Environment: {setting.env}.")


def values() -> dict[str, str]:
    """The settings' values by name."""
    return {setting.name: _value(setting) for setting in SETTINGS}


def _value(setting: Setting) -> str:
    option = f"cllama_{setting.name}"
    value: str = getattr(ctx.options, option)
    return _of_environment(setting) if setting.is_secret and not is_set(option) else value


def _of_environment(setting: Setting) -> str:
    given = os.environ.get(setting.env)
    return setting.default if given is None or not (given or setting.is_word) else given


def most_bytes() -> float:
    """How long a body may be that must be whole to be read (``body_size_limit``)."""
    most = human.parse_size(ctx.options.body_size_limit)
    return math.inf if most is None else most


def _trust() -> dict[str, Any]:
    """Whom providers are trusted by: what our own connections go by (``SSL_CERT_FILE``) holds for mitmproxy's too."""
    option = "ssl_verify_upstream_trusted_ca"
    bundle = os.environ.get("SSL_CERT_FILE")
    return {option: bundle} if bundle and option in ctx.options and not is_set(option) else {}


def harden() -> None:
    """Force what governance needs, and choose the entrances. Raises ``OptionsError`` with one line for what can't be."""
    for name, value in FORCED.items():
        if is_set(name) and getattr(ctx.options, name) != value:
            raise exceptions.OptionsError(f"cllama needs {name}={_text(value)}; remove the option {name}")
    check()
    changes = {name: value for name, value in DEFAULTS.items() if name in ctx.options and not is_set(name)}
    changes |= _trust()
    if _TALKS in ctx.options:
        changes.pop("termlog_verbosity", None)
    if not is_set("mode"):
        listeners.hold()
        changes["mode"] = listeners.modes(ctx.options.cllama_listen, ctx.options.cllama_proxy)
    ctx.options.update(**FORCED, **changes)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mitmproxy.proxy.server").addFilter(_worth_telling)
    if (termlog := ctx.master.addons.get("termlog")) is not None:
        termlog.logger.file = nonblocking_writer.TextAdapter(2)
    if (dumper := ctx.master.addons.get("dumper")) is not None:
        dumper.outfp = nonblocking_writer.TextAdapter(2)


def event_log() -> EventLog:
    """On stdout; in the console, whose screen that is, among mitmproxy's own events."""
    if ctx.master.addons.get("consoleaddon") is None:
        return EventLog()
    return EventLog(lambda line: logging.getLogger("cllama").info(line.decode().rstrip()))


def _worth_telling(record: logging.LogRecord) -> bool:
    """For each response that is streamed, mitmproxy says so."""
    return not str(record.msg).startswith("Streaming ")


def check() -> None:
    """What must hold at every moment. Raises ``OptionsError``, and mitmproxy takes the change back."""
    for name in REFUSED:
        if getattr(ctx.options, name):
            raise exceptions.OptionsError(f"cllama can't govern with {name}: it lets requests out undecided")
    for name, value in FORCED.items():
        if is_set(name) and getattr(ctx.options, name) != value:
            raise exceptions.OptionsError(f"cllama needs {name}={_text(value)}")
    if is_set("tcp_timeout") and ctx.options.tcp_timeout < LEAST_TCP_TIMEOUT:
        raise exceptions.OptionsError(f"cllama needs tcp_timeout of {LEAST_TCP_TIMEOUT} seconds or more")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
