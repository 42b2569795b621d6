"""The runtimes of certs/README.md: how each is told which CA to trust, and a program that requests
a URL through the proxy.

A program ends with status 0, or says so, if the TLS was sound, whatever the proxy then answered;
else it prints the complaint of its TLS stack about the certificate.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from uv import find_uv_bin

from tests.compile.oracle import compose_binary
from tests.not_tested import need

REQUESTS = "import requests\ndef ask(url): requests.get(url, timeout=30)"
HTTPX = "import httpx2\ndef ask(url): httpx2.get(url, timeout=30)"
AIOHTTP = """
import asyncio, aiohttp
async def get(url):
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(url) as answer:
            await answer.read()
def ask(url): asyncio.run(get(url))
"""
OPENAI = """
import openai
def ask(url):
    try: openai.OpenAI(base_url=url, api_key="nobody", max_retries=0, timeout=30).models.list()
    except openai.APIStatusError: pass
"""
ANTHROPIC = """
import anthropic
def ask(url):
    try: anthropic.Anthropic(base_url=url, api_key="nobody", max_retries=0, timeout=30).models.list()
    except anthropic.APIStatusError: pass
"""
URLLIB = """
import urllib.error, urllib.request
def ask(url):
    try: urllib.request.urlopen(url, timeout=30)
    except urllib.error.HTTPError: pass
"""
EACH = """
import os, sys, traceback
for number, url in enumerate(sys.argv[1:]):
    if number: print("\\f")
    if url.startswith("-"): os.environ.pop(VARIABLE)
    try: ask(url.removeprefix("-"))
    except Exception: traceback.print_exc(file=sys.stdout)
    else: print("answered")
"""
# Node reads HTTPS_PROXY since version 24 only (NODE_USE_ENV_PROXY): here the program makes the
# tunnel itself.
NODE = """
const { hostname } = new URL(process.argv[1]), proxy = new URL(process.env.HTTPS_PROXY);
const failed = error => { console.error(error.message); process.exit(1); };
require("http").request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: hostname + ":443" })
  .on("connect", (_, socket) => require("https")
    .get(process.argv[1], { socket, agent: false, servername: hostname }, () => process.exit(0)).on("error", failed))
  .on("error", failed).end();
"""
JAVA = """
import java.net.*; import javax.net.ssl.*;
class Ask { public static void main(String[] given) {
  URI proxy = URI.create(System.getenv("HTTPS_PROXY"));
  var through = new Proxy(Proxy.Type.HTTP, new InetSocketAddress(proxy.getHost(), proxy.getPort()));
  for (int number = 0; number < given.length; number++) {
    if (number > 0) System.out.println("\\f");
    try { ((HttpsURLConnection) new URL(given[number]).openConnection(through)).getResponseCode(); }
    catch (Exception problem) { System.out.println(problem); continue; }
    System.out.println("answered");
  }
} }
"""

type Command = Callable[[str, Path, Path], list[str]]
"""Return a command.

Arguments: a URL, an empty directory, and the directory of the CA's public files. Some take more
URLs.
"""


@dataclass(frozen=True)
class Runtime:
    """``variable`` names the one variable that the runtime needs.

    ``answered``: its output after our answer; None: it succeeds.

    ``refused``: its output has one of these texts when it does not trust the certificate.
    ``takes_more``: its command can be followed by more URLs, and a form feed stands between its
    outputs: one process is then enough for several.
    """

    name: str
    command: Command
    variable: str | None
    adds: bool = False
    answered: str | None = None
    refused: tuple[str, ...] = ("CERTIFICATE_VERIFY_FAILED",)
    takes_more: bool = False
    forgets: bool = False
    """Behind a hyphen, a URL is asked without the variable: the runtime reads it for each client."""


def python(name: str, program: str, variable: str, *, forgets: bool = False) -> Runtime:
    command = [sys.executable, "-c", f"VARIABLE = {variable!r}\n{program}{EACH}"]
    return Runtime(
        name,
        lambda url, *_: [*command, url],
        variable,
        answered="answered",
        takes_more=True,
        forgets=forgets,
    )


def pip(url: str, *_: Path) -> list[str]:
    quick = ["--no-cache-dir", "--no-input", "--retries", "0", "--disable-pip-version-check", "-vv"]
    return [
        sys.executable,
        "-m",
        "pip",
        "download",
        *quick,
        "--index-url",
        url.replace("//", "//nobody:nothing@"),
        "no-such-one",
    ]


def uv(url: str, directory: Path, _: Path) -> list[str]:
    """Return a command of a Rust program: uv with rustls and the store of rustls-native-certs."""
    of = [
        "--no-cache",
        "--system-certs",
        "--index-url",
        url,
        "--target",
        str(directory),
        "--python",
        sys.executable,
    ]
    return [find_uv_bin(), "pip", "install", *of, "no-such-one"]


def compose(url: str, *_: Path) -> list[str]:
    """Return a command of a Go program: Docker Compose asks a registry for the file
    that it is to read.
    """
    return [str(compose_binary()), "-f", f"oci://{urlsplit(url).hostname}/a/pod:1", "config"]


def java(url: str, directory: Path, public: Path) -> list[str]:
    """Return a command with a trust store of its own; Java reads no variable that names one."""
    store, source, password = directory / "trust.p12", directory / "Ask.java", "changeit"
    keytool = [
        "-importcert",
        "-noprompt",
        "-alias",
        "claw",
        "-storetype",
        "PKCS12",
        "-storepass",
        password,
    ]
    files = ["-file", str(public / "ca-cert.pem"), "-keystore", str(store)]
    subprocess.run([need("keytool"), *keytool, *files], check=True, capture_output=True, timeout=60)
    source.write_text(JAVA, encoding="utf-8")
    told = [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]
    return [need("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", *told, str(source), url]


RUNTIMES = (
    Runtime(
        "curl",
        lambda url, *_: [need("curl"), "-sS", url],
        "CURL_CA_BUNDLE",
        refused=("SSL certificate problem",),
    ),
    Runtime(
        "git",
        lambda url, *_: [need("git"), "ls-remote", f"{url}a.git"],
        "GIT_SSL_CAINFO",
        answered="could not read Username",
        refused=("certificate verification failed", "SSL certificate problem"),
    ),
    python("Python: requests", REQUESTS, "REQUESTS_CA_BUNDLE"),
    python("Python: httpx2", HTTPX, "SSL_CERT_FILE"),
    python("Python: aiohttp", AIOHTTP, "SSL_CERT_FILE"),
    python("Python: urllib", URLLIB, "SSL_CERT_FILE"),
    python("OpenAI's SDK", OPENAI, "SSL_CERT_FILE", forgets=True),
    python("Anthropic's SDK", ANTHROPIC, "SSL_CERT_FILE", forgets=True),
    Runtime(
        "pip", pip, "PIP_CERT", answered="401 Client Error", refused=("CERTIFICATE_VERIFY_FAILED",)
    ),
    Runtime(
        "Node",
        lambda url, *_: [need("node"), "-e", NODE, url],
        "NODE_EXTRA_CA_CERTS",
        adds=True,
        refused=("self-signed certificate in certificate chain", "permitted subtree violation"),
    ),
    Runtime(
        "Rust: rustls",
        uv,
        "SSL_CERT_FILE",
        answered="401 Unauthorized",
        refused=("invalid peer certificate",),
    ),
    Runtime("Go", compose, "SSL_CERT_FILE", answered="401 Unauthorized", refused=("x509: ",)),
    Runtime("Java", java, None, answered="answered", refused=("PKIX path",), takes_more=True),
)
"""The runtimes; ``certs/README.md`` has a line for each."""
