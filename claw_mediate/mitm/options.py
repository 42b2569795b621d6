"""The options of mitmproxy: ours, and mitmproxy's own that are forced or refused (decision 0004).

Without ``--mode`` there are two listeners: base URL and forward proxy (``docs/spec/mediation.md``
section 1). mitmproxy begins to open its listeners before it loads a script, but mostly binds their
ports later: that task is cancelled, and the script opens ours when the proxy is prepared.
"""

import asyncio
import ipaddress
import logging
import math
import os
from typing import Any

from mitmproxy import ctx, exceptions, optmanager
from mitmproxy.proxy import mode_servers, mode_specs
from mitmproxy.utils import human

from claw_mediate.mitm.addon_state import BuiltinAddons
from claw_mediate.settings import SETTINGS, Setting, parse_address
from claw_mediate.telemetry import nonblocking_writer
from claw_mediate.telemetry.event_log import EventLog

_TASK = "setup_servers"
"""mitmproxy's name of the task that opens the listeners."""
_LOOKUP_FAILED = "Transparent mode failure: "
"""The beginning of mitmproxy's line about a connection whose destination the kernel can't tell."""


def modes(listen: str, proxy: str) -> list[str]:
    """Return the mode specifications of both listeners. Raise ``OptionsError`` with one line."""
    try:
        base_host, base_port = parse_address(listen, "listen")
        proxy_host, proxy_port = parse_address(proxy, "proxy")
    except ValueError as error:
        raise exceptions.OptionsError(str(error)) from error

    # The target of the reverse mode is never dialled: a decision names the provider.
    return [
        f"reverse:http://pod.invalid@{_prefix(base_host)}{base_port}",
        f"regular@{_prefix(proxy_host)}{proxy_port}",
    ]


def survive_direct_connections(builtin: BuiltinAddons) -> None:
    """Let the proxy start even if somebody connects to a transparent listener directly.

    No NAT rule has led them there, so mitmproxy closes such a connection and logs an error. But
    any error that is logged before mitmproxy runs ends it. Raise ``RuntimeError`` for a
    mitmproxy that is built differently.
    """
    if _LOOKUP_FAILED not in mode_servers.ServerInstance.handle_stream.__code__.co_consts:
        raise RuntimeError(
            "this version of mitmproxy is built differently: its lookup of destinations "
            "can't be watched"
        )
    logging.getLogger(mode_servers.__name__).addFilter(_explain)
    if builtin.errorcheck is not None:
        builtin.errorcheck.logger.addFilter(_concerns_startup)


def cancel_early(builtin: BuiltinAddons) -> None:
    """Keep mitmproxy from opening its listeners before the proxy is prepared.

    Among them may be the default one, which nobody asked for. One that is bound already stays.
    """
    if any(_is_bound_early(mode_specs.ProxyMode.parse(each)) for each in ctx.options.mode):
        return

    for task in asyncio.all_tasks():
        if task.get_name() == _TASK:
            task.cancel()
            # Never started, so there is nothing to stop when the list of modes changes.
            builtin.proxyserver.servers._instances.clear()  # noqa: SLF001


def _is_bound_early(mode: mode_specs.ProxyMode) -> bool:
    """Return whether mitmproxy has bound this listener before it loads a script.

    A name, or all addresses (""), are looked up in a thread, and the script is loaded meanwhile.
    An IP address is bound at once, and so may be what is no listener of TCP.
    """
    if mode.transport_protocol != "tcp":
        return True
    try:
        ipaddress.ip_address(mode.listen_host(ctx.options.listen_host))
    except ValueError:
        return False
    return True


def _explain(record: logging.LogRecord) -> bool:
    """Say what a failed lookup means, and mark its record; keep every record."""
    reason = record.getMessage()
    if reason.startswith(_LOOKUP_FAILED):
        record.msg = (
            "cllama: closed a connection to the transparent listener: "
            "no redirect of the kernel led it there"
            f" ({reason.removeprefix(_LOOKUP_FAILED)})"
        )
        record.args = ()
        record.closes_one_connection = True
    return True


def _concerns_startup(record: logging.LogRecord) -> bool:
    return not hasattr(record, "closes_one_connection")


def _prefix(host: str) -> str:
    return f"{host}:" if host else ""


FORCED: dict[str, Any] = {"connection_strategy": "lazy", "rawtcp": False}
"""Nothing may dial a provider before a decision, and only HTTP may pass where we govern."""
REFUSED = ("stream_large_bodies", "ignore_hosts", "allow_hosts", "tcp_hosts", "udp_hosts")
"""Each lets traffic to governed hosts out before a decision, or without one."""
DEFAULTS: dict[str, Any] = {
    "body_size_limit": "64m",
    "tcp_timeout": 3600,
    "flow_detail": 0,
    # It hands out the CA of mitmproxy's own directory, which is not the pod's.
    "onboarding": False,
    # stdout is the structured log, one JSON object a line; mitmproxy's own messages go to stderr.
    "termlog_verbosity": "error",
}
"""Set unless the operator did."""
_WEB_OPTION = "web_port"
"""An option of mitmweb, which must log the address of its page."""
VERBOSE_LOGGERS = ("httpcore2", "httpx2")
"""Loggers with a dozen records a request, with headers.

mitmproxy passes every record of every level to all of its addons, shown or not: a third of a turn's
time (bench/README.md).
"""
MIN_TCP_TIMEOUT = 300
"""Seconds. A shorter idle time-out would cut turns that are waiting for a model."""


def is_set(name: str) -> bool:
    """Return whether the operator gave this option a value.

    That is on the command line or in mitmproxy's configuration.
    """
    return ctx.options._options[name].value is not optmanager.unset  # noqa: SLF001 - there is no public way to ask


def add(loader: Any) -> None:
    """Add an option for every setting.

    Its default is the environment variable, unless that is empty or a secret.
    """
    for setting in SETTINGS:
        default = setting.default if setting.is_secret else _of_environment(setting)
        loader.add_option(
            f"cllama_{setting.name}", str, default, f"{setting.help} Environment: {setting.env}."
        )


def values() -> dict[str, str]:
    return {setting.name: _value(setting) for setting in SETTINGS}


def _value(setting: Setting) -> str:
    option = f"cllama_{setting.name}"
    value: str = getattr(ctx.options, option)
    return _of_environment(setting) if setting.is_secret and not is_set(option) else value


def _of_environment(setting: Setting) -> str:
    value = os.environ.get(setting.env)
    if value is None:
        return setting.default

    # A setting of words refuses an empty variable: a missing value must not decide about safety.
    is_empty = not value and not setting.is_word
    return setting.default if is_empty else value


def max_body_bytes() -> float:
    """Return the limit of a body that must be whole to be read (``body_size_limit``), in bytes."""
    limit = human.parse_size(ctx.options.body_size_limit)
    return math.inf if limit is None else limit


def _upstream_trust() -> dict[str, Any]:
    """Return the option that makes mitmproxy trust the CAs of ``SSL_CERT_FILE``.

    Our own connections trust them already.
    """
    option = "ssl_verify_upstream_trusted_ca"
    bundle = os.environ.get("SSL_CERT_FILE")
    if not bundle or option not in ctx.options or is_set(option):
        return {}
    return {option: bundle}


def harden(builtin: BuiltinAddons) -> None:
    """Force the options that decisions depend on, and choose the listeners.

    Raise ``OptionsError`` with one line.
    """
    for name, value in FORCED.items():
        if is_set(name) and getattr(ctx.options, name) != value:
            raise exceptions.OptionsError(
                f"cllama needs {name}={_text(value)}; remove the option {name}"
            )
    check()

    changes = {
        name: value for name, value in DEFAULTS.items() if name in ctx.options and not is_set(name)
    }
    changes |= _upstream_trust()
    if _WEB_OPTION in ctx.options:
        changes.pop("termlog_verbosity", None)
    cancel_early(builtin)
    if not is_set("mode"):
        changes["mode"] = modes(ctx.options.cllama_listen, ctx.options.cllama_proxy)
    ctx.options.update(**FORCED, **changes)

    for name in VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mitmproxy.proxy.server").addFilter(_is_worth_logging)

    # A terminal or pipe that nobody reads must not stop the proxy.
    if builtin.termlog is not None:
        builtin.termlog.logger.file = nonblocking_writer.TextAdapter(2)
    if builtin.dumper is not None:
        builtin.dumper.outfp = nonblocking_writer.TextAdapter(2)


def event_log(builtin: BuiltinAddons) -> EventLog:
    """Return the event log.

    It is on stdout; in the console, which draws there, it is among mitmproxy's own events.
    """
    if builtin.consoleaddon is None:
        return EventLog()
    return EventLog(lambda line: logging.getLogger("cllama").info(line.decode().rstrip()))


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether to log a record; False for the line about each response that streams."""
    return not str(record.msg).startswith("Streaming ")


def check() -> None:
    """Check what must be true at every moment.

    Raise ``OptionsError``, and mitmproxy takes the change back.
    """
    for name in REFUSED:
        if getattr(ctx.options, name):
            raise exceptions.OptionsError(
                f"cllama can't govern with {name}: it lets requests out undecided"
            )

    for name, value in FORCED.items():
        if is_set(name) and getattr(ctx.options, name) != value:
            raise exceptions.OptionsError(f"cllama needs {name}={_text(value)}")

    if is_set("tcp_timeout") and ctx.options.tcp_timeout < MIN_TCP_TIMEOUT:
        raise exceptions.OptionsError(
            f"cllama needs tcp_timeout of {MIN_TCP_TIMEOUT} seconds or more"
        )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
