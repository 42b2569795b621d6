"""Edge cases of the output: the Compose file, and an agent's directory."""

from __future__ import annotations

from tests.compile.edge_cases.edge_case import EdgeCase

OUTPUT: dict[str, EdgeCase] = {
    "28": EdgeCase(
        "three agents of one service",
        "each with its own token, and no other's",
        (
            "compile/output/compose/test_agent_service.py::test_each_ordinal_has_its_own_credential_network_and_labels",
            "compile/test_worked_pods.py::test_no_agents_files_hold_the_token_of_another",
        ),
    ),
    "30": EdgeCase(
        "a secret with a `$`",
        "it arrives byte for byte",
        (
            "compile/output/compose/test_compose_file.py::test_a_secret_with_a_dollar_sign_arrives_byte_for_byte",
        ),
    ),
    "35": EdgeCase(
        "an agent's environment holds a provider's key, by name or by shape; or `env_file`, "
        "`secrets`, `configs`, build args, a"
        " Dockerfile or an `extends` parent does; or its own token stands there",
        "provider-key-variable, provider-key-value or token-visible-to-agent, each at its own "
        "place; the token is allowed."
        " What is in a finished image can't be seen without Docker",
        (
            "compile/cases/starvation/claw-pod.yml",
            "compile/policy/test_credential_leaks.py::test_an_agents_own_token_may_stand_in_any_variable_and_another_agents_in_none",
        ),
    ),
    "healthcheck": EdgeCase(
        "a health check of the user's",
        "kept",
        (
            "compile/output/compose/test_agent_service.py::test_what_the_user_wrote_for_an_agent_stays_beside_what_is_ours",
        ),
    ),
    "networks": EdgeCase(
        "networks of the user's, with aliases",
        "kept, with ours beside them",
        (
            "compile/output/compose/test_edits.py::test_networks_that_the_user_gave_an_agent_are_kept_in_either_form",
        ),
    ),
    "colon": EdgeCase(
        "a host path with a `:`",
        "mounted as it is called",
        (
            "compile/output/compose/test_agent_service.py::test_volumes_and_host_paths_are_mounted_whatever_is_in_their_names",
        ),
    ),
}
