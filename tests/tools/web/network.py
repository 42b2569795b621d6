"""A network of its own: a public address and loopback, a web server at each, and a
DNS server that changes its mind.

``test_dialer_namespace`` runs it in new namespaces of network and mounts; it prints what ``web_fetch``
found.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from claw_contract.toolhost_file import UrlPolicySection
from claw_tools.errors import ToolError
from claw_tools.web.fetch import WebFetch

LOCAL = "127.0.0.1"
_A = 1


class Names(asyncio.DatagramProtocol):
    """A DNS server: for each name the addresses of the first query, of the second, … (RFC 1035)."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self._answers, self.asked = answers, Counter[str]()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        labels, place = [], 12
        while size := data[place]:
            labels.append(data[place + 1 : place + 1 + size].decode())
            place += 1 + size
        name, question = ".".join(labels) + ".", data[12 : place + 5]
        found: list[str] = []
        if question[-4:-2] == struct.pack(">H", _A) and name in self._answers:
            turns = self._answers[name]
            found = turns[min(self.asked[name], len(turns) - 1)]
            self.asked[name] += 1
        head = data[:2] + struct.pack(
            ">HHHHH", 0x8580 | (3 if name not in self._answers else 0), 1, len(found), 0, 0
        )
        records = [
            b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, 0, 4) + socket.inet_aton(address)
            for address in found
        ]
        self._transport.sendto(head + question + b"".join(records), peer)


async def serve(address: str, text: str, hits: Counter[str]) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits[address] += 1
        request = await reader.readuntil(b"\r\n\r\n")
        moved = (
            b"302 Moved\r\nlocation: http://inside.example/" if b"/moved" in request else b"200 OK"
        )
        head = b"HTTP/1.1 " + moved + b"\r\ncontent-type: text/plain\r\n"
        writer.write(head + f"content-length: {len(text)}\r\n\r\n{text}".encode())
        writer.close()

    return await asyncio.start_server(answer, address, 80)


async def find(public: str) -> dict[str, Any]:
    names = Names(
        {
            "steady.example.": [[public]],
            "rebinding.example.": [[public], [LOCAL]],
            "inside.example.": [[LOCAL]],
            "mixed.example.": [[public, LOCAL]],
            "metadata.example.": [["169.254.169.254"]],
        }
    )
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, (LOCAL, 53))
    hits: Counter[str] = Counter()
    servers = [await serve(public, "public", hits), await serve(LOCAL, "private", hits)]
    tool = WebFetch(UrlPolicySection())

    async def fetch(url: str) -> Any:
        try:
            return await tool.execute({"url": url})
        except ToolError as error:
            return error.message

    rebinding = [
        (await fetch("http://rebinding.example/"))["text"],
        await fetch("http://rebinding.example/"),
    ]
    found = {
        "literal": await fetch(f"http://{public}/"),
        "named": await fetch("http://STEADY.example./"),
        "rebinding": rebinding,
        "redirected": await fetch("http://steady.example/moved"),
        "mixed": await fetch("http://mixed.example/"),
        "localhost": await fetch("http://localhost/"),
        "metadata": await fetch("http://metadata.example/"),
        "asked": names.asked,
        "reached inside": hits[LOCAL],
    }
    for server in servers:
        server.close()
    return found


def main(public: str, home: str) -> None:
    resolv, hosts = Path(home, "resolv.conf"), Path(home, "hosts")
    resolv.write_text(f"nameserver {LOCAL}\noptions timeout:2 attempts:2\n", encoding="utf-8")
    hosts.write_text(f"{LOCAL} localhost\n", encoding="utf-8")
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "--bind", str(resolv), str(Path("/etc/resolv.conf").resolve())],
        ["mount", "--bind", str(hosts), "/etc/hosts"],
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{public}/32", "dev", "lo"],
    ):
        subprocess.run(command, check=True)
    sys.stdout.write(json.dumps(asyncio.run(find(public))))


if __name__ == "__main__":
    main(*sys.argv[1:])
