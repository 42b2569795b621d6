#!/usr/bin/env python3
"""Make docs/mitmweb.png: one turn of the trading desk, as an operator sees it in mitmweb.

    make screenshot            (needs chromium and a font with emoji)

Everything in the picture is real but the model, which is that of the demo: mitmweb with our addon
is the proxy, the executor's runner asks it to read the journal and to buy, and Chromium looks at
the page. Three things are done for the picture:

- Inside the proxy, the provider and the pod's services have the names of production (a script of
  mitmproxy's looks them up), so that the list shows no addresses of this machine.
- Long lines of the transcript are wrapped.
- mitmweb's footer, which shows the ports of this machine, is cut off.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import yaml
from mitmproxy import certs
from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "mitmweb.png"
sys.path[:0] = [str(ROOT), str(ROOT / "pods" / "trading-desk")]

import scripted_model  # noqa: E402 - of the trading desk
from demo import BIN, DESK, Demo, Screen  # noqa: E402
from demo import PROVIDER as PROVIDERS_VARIABLES  # noqa: E402
from evidence import log_ends  # noqa: E402
from stage import Command, Stage, StageError  # noqa: E402

from tests.docs.pages import blocks  # noqa: E402
from tests.web.mitmweb import PASSWORD, Mitmweb  # noqa: E402

PROVIDER = "api.anthropic.com"
JOURNAL_ENTRY = "Add to the journal: NVDA looks cheap below $140."
PROMPT = "Read the journal about NVDA, then buy 10 NVDA."
COLUMNS = ("path", "status", "size", "time")
WIDTH, HEIGHT, LIST_WIDTH = 1320, 935, 520
FOOTER = 28
"""The height of mitmweb's footer, which shows this machine's ports and is cut off."""
WRAP_LINES = """
.contentview pre, .contentview pre * {
    white-space: pre-wrap !important;
    word-break: normal !important;
}
"""

LEND_NAMES = """
import asyncio
import socket

ADDRESSES = {addresses!r}
PORTS = {ports!r}
resolve, connect = socket.getaddrinfo, asyncio.BaseEventLoop.create_connection

def lent_address(host, *rest, **more):
    return resolve(ADDRESSES.get(host, host), *rest, **more)

async def lent_port(loop, protocol, host, port, **more):
    if host in PORTS:
        host, port = "127.0.0.1", PORTS[host]
    return await connect(loop, protocol, host, port, **more)

socket.getaddrinfo = lent_address
asyncio.BaseEventLoop.create_connection = lent_port
"""
"""A script of mitmproxy's: each name of the pod gets a loopback address, and each of these the port
at which its service really listens.
"""


class PicturedDemo(Demo):
    """The demo, with mitmweb as its proxy."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        super().__init__(stage, screen)
        self.web = Mitmweb()
        key = f"scripted-{secrets.token_hex(24)}"
        self.provider = {"ANTHROPIC_API_KEY": key}

    def compile(self) -> None:
        """Compile the pod, with the executor's grants of the README."""
        for name in ("agents", "descriptors", ".claw-discovered"):
            shutil.copytree(DESK / name, self.root / "pod" / name)
        described = yaml.safe_load((DESK / "claw-pod.yml").read_bytes())
        (grant,) = blocks(ROOT / "README.md", "grant")
        granted = yaml.safe_load(grant.text)["services"]["executor"]["x-claw"]["tools"]
        described["services"]["executor"]["x-claw"]["tools"] = granted
        pod = self.root / "pod" / "claw-pod.yml"
        pod.write_text(yaml.safe_dump(described), encoding="utf-8")

        env = {"CLAW_MASTER_SECRET": secrets.token_hex(32)}
        env["TRADING_API_TOKEN"] = self.run.tool_token
        command: Command = [BIN / "claw", "compile", pod]
        self.stage.run("compile", [*command, "-o", self.root / "runtime"], env)

    def start(self) -> None:
        env = {"TRADING_API_TOKEN": self.run.tool_token, "TRADING_DB": str(self.root / "desk.db")}
        self.serve("trading_api", self.api, env)

        compose = yaml.safe_load((self.root / "runtime" / "compose.generated.yml").read_bytes())
        env = compose["services"]["journal"]["environment"]
        env |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        env |= {"LISTEN_ADDR": self.journal, "JOURNAL_FILE": str(self.root / "journal.jsonl")}
        self.stage.serve(
            "journal", [BIN / "claw", "mcp-stdio"], env, f"http://{self.journal}/health"
        )
        self.start_model()
        self.start_proxy()

    def start_model(self) -> None:
        """Serve the scripted model with TLS, in the provider's name."""
        key, ca = certs.create_ca("The picture's provider", "The picture's provider", 2048)
        leaf = certs.dummy_cert(key, ca, PROVIDER, [certs.x509.DNSName(PROVIDER)])
        (self.root / "provider.key").write_bytes(_pem_of_key(key))
        (self.root / "provider.pem").write_bytes(leaf.to_pem())
        (self.root / "provider-ca.pem").write_bytes(certs.Cert(ca).to_pem())

        os.environ["SCRIPTED_MODEL_KEY"] = self.provider["ANTHROPIC_API_KEY"]
        os.environ["SCRIPTED_MODEL_RECORD"] = str(self.root / "model-requests.jsonl")
        config = uvicorn.Config(
            scripted_model.application(),
            port=_port(self.model),
            log_level="warning",
            ssl_keyfile=self.root / "provider.key",
            ssl_certfile=self.root / "provider.pem",
        )
        server = uvicorn.Server(config)
        threading.Thread(target=server.run, daemon=True).start()
        self.stage.wait_until(lambda: server.started, "the model is ready")

    def start_proxy(self) -> None:
        services = {PROVIDER: self.model, "trading-api": self.api, "journal": self.journal}
        addresses = {name: f"127.9.0.{last}" for last, name in enumerate(services, 1)}
        ports = {addresses[name]: _port(address) for name, address in services.items()}
        script = LEND_NAMES.format(addresses=addresses, ports=ports)
        names = self.root / "lend_names.py"
        names.write_text(script, encoding="utf-8")

        env = {
            "LISTEN_ADDR": self.proxy,
            "CLAW_PROXY_ADDR": self.forward,
            "CLAW_CONTEXT_ROOT": str(self.root / "runtime" / "context"),
            "CLAW_SESSION_HISTORY_DIR": str(self.root / "history"),
            "CLAW_STATE": str(self.root / "state.db"),
            "CLAW_POD": "trading-desk",
            "SSL_CERT_FILE": str(self.root / "provider-ca.pem"),
        }
        command: Command = [
            *(BIN / "mitmweb", "-s", names, "-s", ROOT / "addons" / "cllama.py"),
            *self.web.arguments,
            *(part for name in COLUMNS for part in ("--set", f"web_columns={name}")),
        ]
        self.stage.serve("proxy", command, env | self.provider, f"http://{self.proxy}/ready")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _pem_of_key(key: certs.rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        certs.serialization.Encoding.PEM,
        certs.serialization.PrivateFormat.TraditionalOpenSSL,
        certs.serialization.NoEncryption(),
    )


@contextmanager
def page_of(web: Mitmweb, home: Path) -> Iterator[Page]:
    """Yield mitmweb's page in a browser with a profile of its own."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed")
    with sync_playwright() as playwright:
        window = playwright.chromium.launch_persistent_context(
            home / "profile",
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            viewport={"width": WIDTH, "height": HEIGHT},
        )
        page = window.new_page()
        page.goto(f"{web.url}/?token={PASSWORD}")
        yield page
        window.close()


def take(demo: PicturedDemo, picture: Path) -> None:
    """Show the executor's turn, and the requests that belong to it; take the picture."""
    with page_of(demo.web, demo.root) as page:
        page.get_by_text("Flow List").first.click()
        page.get_by_placeholder("Search").fill("~comment executor")
        rows = page.locator("tr:has(td.col-path)")
        expect(rows).to_have_count(8)  # the turn, four model calls, three tool calls
        rows.first.click()
        page.get_by_text("Response", exact=True).click()
        expect(page.locator(".contentview")).to_contain_text("── round 3")

        page.add_style_tag(content=WRAP_LINES)
        splitter = page.locator(".splitter-x").first.bounding_box()
        assert splitter is not None
        page.mouse.move(splitter["x"] + 1, splitter["y"] + 100)
        page.mouse.down()
        page.mouse.move(LIST_WIDTH, splitter["y"] + 100, steps=5)
        page.mouse.up()
        page.evaluate("document.activeElement.blur()")

        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT - FOOTER}
        page.screenshot(path=picture, clip=clip)  # type: ignore[arg-type]


def main() -> None:
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    for name in PROVIDERS_VARIABLES:
        os.environ.pop(name, None)  # a real provider's key makes the demo ask it

    with Stage() as stage:
        demo = PicturedDemo(stage, Screen())
        try:
            demo.compile()
            demo.start()
            demo.ask("analyst", "anthropic", [JOURNAL_ENTRY])
            demo.ask("executor", "anthropic", [PROMPT])
        except StageError as error:
            sys.exit(f"{error}\n{log_ends(stage.root)}")
        take(demo, picture)


if __name__ == "__main__":
    main()
