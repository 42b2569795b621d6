"""Pass-through: requests that are not mediated, byte for byte, compressed, large or odd."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "forward:byte-for-byte": Requirement(
        "docs/spec/mediation.md section 3",
        "Without managed tools the body is unchanged; with them, all that is not ours is.",
    ),
    "forward:unread": Requirement(
        "docs/spec/mediation.md section 1",
        "Of an agent without tools only the model must be readable, once; what its provider takes is not ours to refuse.",
    ),
    "forward:streaming": Requirement(
        "docs/spec/mediation.md section 3",
        "An unmediated stream passes through; usage is read from a copy.",
    ),
    "forward:recorded": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "A forwarded completion is recorded like a mediated turn.",
    ),
    "forward:tool-choice-none": Requirement(
        "docs/spec/mediation.md section 3, item 3", "tool_choice none: no injection and no loop."
    ),
    "forward:other-paths": Requirement(
        "docs/spec/mediation.md section 1",
        "Known paths of no dialect (a thread's messages too) are identified, credential-swapped and passed through.",
    ),
    "forward:asks-a-model": Requirement(
        "docs/spec/mediation.md section 1",
        "A POST of no dialect that asks a model counts in the budget, and is a line of history with its usage.",
    ),
    "forward:unreachable": Requirement(
        "docs/spec/mediation.md section 2, upstream",
        "An unreachable provider is a 502 that names no address.",
    ),
    "forward:usage-from-a-copy": Requirement(
        "docs/spec/mediation.md section 3",
        "Usage is found in both dialects, JSON and streams, packed in any way, cut at any byte.",
    ),
    "forward:hostile-copy": Requirement(
        "docs/spec/mediation.md section 1",
        "A copy that is garbage, endless or a bomb costs little, and never touches what goes through.",
    ),
    "forward:every-method": Requirement(
        "docs/spec/mediation.md section 1",
        "Every known method and path goes through, query and body as they came.",
    ),
    "forward:every-status": Requirement(
        "docs/spec/mediation.md section 1",
        "Responses without a body, and repeated headers, stay as they are, and count as whole.",
    ),
    "forward:one-connection": Requirement(
        "RFC 9110, 7.6.1",
        "Headers of the runner's own connection go no further, and remove nothing behind us.",
    ),
    "forward:expect": Requirement(
        "RFC 9110, 10.1.1", "Expect: 100-continue is answered: go on, or the refusal at once."
    ),
    "forward:errors-tell-no-key": Requirement(
        "docs/spec/mediation.md section 2",
        "An error that says our key back is passed on without it; any other one is not touched.",
    ),
    "forward:leaves": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "A runner that leaves ends its request at the provider, and is recorded as 499.",
    ),
    "forward:breaks-off": Requirement(
        "docs/spec/mediation.md section 1",
        "A provider that gives no response is a 502 in the dialect's shape; one that breaks off, a break.",
    ),
    "compressed:any-coding": Requirement(
        "docs/spec/mediation.md section 1",
        "gzip, deflate, br and zstd, and chains of two, are read, cut anywhere.",
    ),
    "compressed:refusals": Requirement(
        "docs/spec/mediation.md section 1",
        "A body that can't be unpacked is 400, an unknown coding 415.",
    ),
    "compressed:bombs": Requirement(
        "docs/spec/mediation.md section 1",
        "What unpacks to too much, or for too long, is given up for little memory.",
    ),
    "packed:requests": Requirement(
        "docs/spec/mediation.md section 1",
        "Compressed requests are mediated; one that is forwarded goes unpacked, as it was read.",
    ),
    "packed:refusals": Requirement(
        "docs/spec/mediation.md section 1",
        "Such a refusal has the dialect's shape, and nothing goes out.",
    ),
    "packed:responses": Requirement(
        "docs/spec/mediation.md section 1",
        "The runner's Accept-Encoding goes upstream, and a compressed response through, untouched.",
    ),
    "large:streams": Requirement(
        "docs/spec/mediation.md section 1",
        "Uploads and downloads of any size stream through, and the proxy's memory stays flat.",
    ),
    "large:back-pressure": Requirement(
        "docs/spec/mediation.md section 1",
        "A peer of HTTP/2 that gives no window slows the other side down; nothing piles up.",
    ),
    "large:mediated": Requirement(
        "docs/spec/mediation.md section 1",
        "A chat with 30 MB of images is read, mediated and forwarded.",
    ),
    "large:limit": Requirement(
        "docs/spec/mediation.md section 1",
        "A chat beyond body_size_limit is a 413 in the dialect's shape, at once; nothing of it is kept.",
    ),
    "odd:trailers": Requirement(
        "RFC 9110, 6.5.1", "Trailers are dropped, in every version of HTTP, and harm nothing."
    ),
    "odd:protocols": Requirement("RFC 7301, 3.2", "Over TCP no runner is taken up on HTTP/3."),
    "odd:endless": Requirement(
        "docs/spec/mediation.md section 1",
        "Heads, chunks and trailers that never end are closed, and not kept.",
    ),
    "odd:heads": Requirement(
        "RFC 9112, 5.2",
        "Folded lines, line breaks and null bytes in a head are refused, and other transfer codings.",
    ),
    "odd:targets": Requirement(
        "RFC 9112, 3.2; RFC 3986, 2",
        "A target that is not even UTF-8 is refused, and costs its agent nothing.",
    ),
}
