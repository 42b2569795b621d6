"""The tools host's files and memory: what they do, and what they withstand."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = 'docs/spec/tools-host.md, "Files"'
PROTECTED = 'docs/spec/tools-host.md, "Files"'
MEMORY = 'docs/spec/tools-host.md, "The tools"'

REQUIREMENTS: dict[str, Requirement] = {
    "files:escapes": Requirement(
        SPEC,
        "A path that leads out of the workspace, by `..`, as absolute path, by a prefix of its name or by any link, is"
        " `invalid_path`, and nothing outside is read, written or made.",
    ),
    "files:inside": Requirement(
        SPEC, "`..` and links that stay inside are followed; a link at the end is not written."
    ),
    "files:no-openat2": Requirement(
        SPEC, "Without `openat2` paths are walked by descriptors, and no link is followed."
    ),
    "files:missing-folders": Requirement(
        SPEC, "`write_file` makes missing folders, and none where the path can't be written."
    ),
    "files:hard-link": Requirement(
        SPEC, "A write replaces the name: a hard link is never written through."
    ),
    "files:no-file": Requirement(
        SPEC,
        "A pipe, socket, device, folder or link into /proc is `invalid_path` at once, and leaves no descriptor.",
    ),
    "files:odd-paths": Requirement(
        SPEC, "Control characters, lengths, depths and half characters have defined errors."
    ),
    "files:any-path": Requirement(
        SPEC, "Whatever the path, nothing outside is read or written, and no message tells of it."
    ),
    "files:race": Requirement(
        SPEC,
        "A process that exchanges a folder and a link, as fast as it can, gets no call out of the workspace.",
    ),
    "files:pages": Requirement(
        SPEC, "`read_file` returns whole lines within the limit, and where the rest begins."
    ),
    "files:huge": Requirement(
        SPEC, "A file of any size is read in bounded memory, and its size told."
    ),
    "files:binary": Requirement(
        SPEC, "A binary file is told as one; text that is not UTF-8 is shown, and said."
    ),
    "files:write-limit": Requirement(
        SPEC, "Content above the limit, or with half a surrogate pair, is `invalid_args`."
    ),
    "files:atomic": Requirement(
        SPEC, "A reader sees the old file or the new one, of several writers one's file whole."
    ),
    "files:killed": Requirement(
        SPEC, "kill -9 leaves the old or the new file; what else it leaves, the next write removes."
    ),
    "files:full-disk": Requirement(
        SPEC, "A full disk is an error, the old file is whole, and nothing is left beside it."
    ),
    "files:mode": Requirement(
        SPEC, "A file that is replaced keeps its mode, without setuid and setgid."
    ),
    "files:owner": Requirement(
        SPEC,
        "Where the host is root, file tools have the rights of the workspace's owner, to whom what they make belongs.",
    ),
    "files:dropped": Requirement(
        SPEC, "The tools work, and refuse, in a process without any rights of root."
    ),
    "files:cancelled": Requirement(
        SPEC, "A cancelled call changes nothing afterwards, and leaves nothing half written."
    ),
    "files:principals": Requirement(
        SPEC, "Calls of one principal that wait do not hold up those of another."
    ),
    "files:list": Requirement(
        SPEC,
        "A listing is sorted and cut at its limit, shows a link as one, and tells nothing of what it leads to.",
    ),
    "files:edit-once": Requirement(
        SPEC, "`edit_file` replaces the one match; none, several and overlapping ones are errors."
    ),
    "files:edit-literal": Requirement(
        SPEC, "Texts are literal, and compared by their code points."
    ),
    "files:edit-line-ends": Requirement(SPEC, "An edit keeps a byte order mark and CRLF."),
    "files:edit-changed": Requirement(
        SPEC, "A file that was changed during an edit keeps the other writer's content."
    ),
    "files:edit-concurrent": Requirement(
        SPEC, "Of concurrent edits of one file none is lost, across processes too."
    ),
    "files:protected": Requirement(
        PROTECTED, "Files that other programs run or obey are not written, nor their folders made."
    ),
    "files:protected-place": Requirement(
        PROTECTED,
        "A protected file is known by where it is: by a link, another spelling or another case it is the same.",
    ),
    "files:protected-list": Requirement(
        PROTECTED, "`protected` in the configuration replaces the list."
    ),
    "memory:append": Requirement(
        MEMORY, "`memory_write` adds a paragraph, or overwrites; another mode is `invalid_args`."
    ),
    "memory:search": Requirement(
        MEMORY, "A query finds the first 20 paragraphs with all its words, in any case."
    ),
    "memory:concurrent": Requirement(
        MEMORY, "Of concurrent appends none is lost and none doubled, across processes too."
    ),
    "memory:full": Requirement(
        MEMORY, "What would exceed the limit is `memory_full`, and the notes stay."
    ),
    "memory:link": Requirement(
        MEMORY, "A MEMORY.md that is a link out of the workspace is neither read nor written."
    ),
    "memory:principals": Requirement(MEMORY, "Each workspace has notes of its own."),
}
