"""Edge cases of YAML, variables, `.env`, and the files that are read."""

from __future__ import annotations

from tests.compile.edge_cases.edge_case import REMEDY, EdgeCase

FILES: dict[str, EdgeCase] = {
    "31": EdgeCase(
        "Compose's interpolation: nested, the earliest operator, `$$`, `:?`, blanks",
        "as the real Compose; unset-variable at the scalar",
        (
            "compile/parsing/test_environment_dialect.py::test_what_we_fill_in_compose_fills_in_alike",
            "compile/parsing/test_environment.py::test_variables_are_filled_in_as_compose_does_it",
            "compile/cases/unset-variable.yml",
            REMEDY,
        ),
    ),
    "32": EdgeCase(
        "`.env` with `export`, quotes, `#` within them, CRLF, a byte order mark, an open quote",
        "as the real Compose; dotenv-syntax at its line",
        (
            "compile/parsing/test_dotenv_dialect.py::test_what_we_read_of_dotenv_compose_reads_alike",
            "compile/parsing/test_dotenv.py::test_a_line_of_dotenv_reads_as_compose_reads_it",
            "compile/parsing/test_dotenv.py::test_a_byte_order_mark_before_dotenv_is_no_part_of_a_name",
            "compile/cases/dotenv/claw-pod.yml",
        ),
    ),
    "37": EdgeCase(
        "a contract that leads out of the pod, is a directory, or is missing",
        "path-escapes-pod, unreadable-file",
        (
            "compile/cases/files.yml",
            "compile/loading/test_files.py::test_a_symlink_out_of_the_pod_is_refused_and_one_inside_is_not",
        ),
    ),
    "38": EdgeCase(
        "a duplicate key, a bare `...`, a second document, `cllama` by a merge key",
        "duplicate-key, document-end, second-document; merged, and told at the anchor's line",
        (
            "compile/cases/duplicate-keys.yml",
            "compile/cases/document-end.yml",
            "compile/cases/second-document.yml",
            "compile/cases/merge-keys.yml",
            "compile/cases/merged-cllama.yml",
            REMEDY,
        ),
    ),
    "39": EdgeCase(
        "numbers without quotes",
        "ids keep their spelling, a quoted count is a number, `1e3` is bad-limit",
        ("compile/grammar/test_shapes.py::test_numbers_without_quotes_are_what_their_key_takes",),
    ),
    "40": EdgeCase(
        "twice, in another place, and a kill in the middle",
        "the same bytes; the old tree or the new one",
        (
            "compile/test_compiler_golden.py::test_another_place_on_the_disk_changes_no_byte",
            "compile/test_compiler_killed.py::test_clock_locale_hashes_and_directory_of_the_process_change_no_byte",
            "compile/test_compiler_killed.py::test_a_compiler_that_is_killed_leaves_every_agent_whole_and_the_next_one_goes_on",
            "compile/output/test_write_live_tree.py::test_no_request_sees_half_an_agent_while_its_tree_is_exchanged",
            "compile/output/test_write.py::test_an_interrupted_write_leaves_the_old_tree",
            "compile/output/test_write.py::test_a_reader_that_opened_the_old_tree_reads_it_to_the_end",
        ),
    ),
}
