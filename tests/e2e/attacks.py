"""Which tests stand for which attack on the server, and the record of how they went.

With ASR_ATTACKS_JSON in the environment each run adds its part to the record that tests/escape writes, too:
tools/attacks_table.py makes the table in docs/security.md from it. A name that no test has is an error.
"""
import fcntl
import json
import os
import pathlib

# Case: what is tried, and the tests that try it, as module (without test_http_) and name (without test_).
CASES = {
    "F01": ("paths that lead outside", "files no_path_leads_out", "files paths_that_are_none"),
    "F02": ("links that lead outside, and loops of them", "files links_resolve_inside"),
    "F03": ("folders that become links at the wrong moment", "attacks folders_that_become_links"),
    "F04": ("hard links", "attacks hard_links_count_once_and_lead_nowhere"),
    "F05": ("archives with entries that lead outside", "archives entries_that_lead_outside_are_left_out_and_told",
            "archives what_is_no_archive"),
    "F06": ("compression bombs", "files a_bomb_is_stopped_by_the_disk"),
    "F07": ("downloads of what is no file, or changes meanwhile", "files things_that_are_no_files_do_not_hang",
            "files a_file_that_shrinks_or_grows_while_it_is_read"),
    "F08": ("uploads that are too large, break off, or wait to be asked", "files too_large_is_said_before_it_is_sent",
            "files full_half_way", "files a_client_that_goes_away", "files the_session_ends_meanwhile",
            "files a_client_that_asks_first", "files a_client_that_asks_first_and_is_refused"),
    "F09": ("downloads that a browser would show as a page of ours", "files no_browser_shows_it_as_a_page_of_ours"),
    "F10": ("watches of storms", "archives a_storm_is_bounded", "archives changes_are_told"),
    "F13": ("names that speak to logs and terminals", "files round_trip", "settings a_log_for_people_keeps_its_lines"),
    "F14": ("volumes in places that are not theirs", "restart bad_ones"),
    "I01": ("nonsense on an interpreter's channel", "interpreter_attacks nonsense", "interpreters nonsense_on_the_channel",
            "interpreters a_line_without_an_end", "interpreters strange_shapes"),
    "I02": ("forged results, errors and ends of cells", "interpreter_attacks forged_for_others",
            "interpreter_attacks forged_for_itself", "interpreter_attacks a_cell_that_ends_itself",
            "interpreter_attacks the_next_cell_is_ended_before_it_began", "interpreters forged_results_are_its_own"),
    "I03": ("forged names of files, questions and completions", "interpreter_attacks files_that_it_did_not_make",
            "interpreter_attacks questions_that_nobody_answers", "interpreter_attacks completions"),
    "I04": ("floods of the channel and of the output, within cells and between them",
            "interpreter_attacks a_line_of_a_hundred_megabytes", "interpreter_attacks a_result_of_a_hundred_megabytes",
            "interpreter_attacks small_results_without_end", "interpreter_attacks pictures_without_end", "interpreter_attacks between_cells",
            "interpreter_attacks output_between_cells"),
    "I05": ("descriptors closed, exchanged and used up", "interpreter_attacks closed_and_exchanged",
            "interpreter_attacks closed_and_never_over", "interpreter_attacks none_to_be_had", "interpreter_attacks never_blocking",
            "interpreters closed_descriptors"),
    "I06": ("replaced functions and modules", "interpreter_attacks modules_and_functions", "interpreters replaced_functions"),
    "I07": ("the interpreter's own objects, through frames and the collector", "interpreter_attacks the_interpreters_own_objects"),
    "I08": ("threads and processes that stay after their cell", "interpreter_attacks threads_and_processes_that_stay",
            "interpreter_attacks processes_without_end", "interpreters what_it_leaves_running"),
    "I09": ("forks of the interpreter that go on", "interpreter_attacks a_fork_that_comes_back",
            "interpreter_attacks a_fork_that_goes_on_talking", "interpreter_attacks two_interpreters_on_one_channel"),
    "I10": ("cells that do not let go", "interpreter_attacks interrupts_are_ignored", "interpreter_attacks ends_that_are_none",
            "interpreter_attacks asleep_for_good", "interpreters one_that_does_not_let_go_is_replaced"),
    "I11": ("values that cannot be shown: deep, huge, endless, no text", "interpreter_values shown_or_not_the_interpreter_lives",
            "interpreter_values recursion_without_a_limit", "interpreter_values shown_forever"),
    "I12": ("files that become artifacts: many, huge, links, odd names", "interpreter_values more_than_is_kept",
            "interpreter_values more_bytes_than_are_kept", "interpreter_values names", "interpreter_values names_that_are_no_text",
            "interpreter_values links_and_things_that_are_no_files", "interpreter_values files_that_become_links_meanwhile",
            "interpreter_values folders_without_end", "interpreters artifacts_are_bounded"),
    "I13": ("what is prepared for the next interpreter", "interpreter_values modules_in_the_place_of_its_own",
            "interpreter_values an_interpreter_that_does_not_start", "interpreter_values variables_that_steer_an_interpreter",
            "interpreter_values interpreters_without_end"),
    "I14": ("the same in JavaScript and Bash", "interpreter_values javascript_against_itself", "interpreter_values bash_against_itself"),
    "N01": ("programs that ignore the proxy", "network only_the_hosts_of_the_list"),
    "N10": ("names that the sandbox resolves itself", "network names_that_lead_to_this_machine_need_a_word_for_it"),
    "N11": ("lists that are empty, wrong, or change", "network a_new_list_counts_at_once", "network who_may_open_what"),
    "N12": ("programs that knock without end", "network a_program_that_knocks_without_end_is_not_told_of_without_end"),
    "N15": ("credentials that the sandbox wants to see", "network they_are_added_outside"),
    "P01": ("guessing and enumerating sessions", "keys foreign_and_unknown_look_alike", "sessions unknown_ids"),
    "P02": ("another tenant's key, on every route", "keys every_route_has_a_rule", "keys every_route_for_every_caller",
            "keys foreign_events_are_not_told", "restart they_belong_to_one_key"),
    "P03": ("roles, and keys revoked during streams", "keys a_revoked_key_opens_nothing",
            "stream a_revoked_key_ends_every_stream", "stream a_revoked_key_ends_a_socket_that_is_busy",
            "stream a_revoked_key_ends_sockets_that_nobody_reads",
            "stream a_share_taken_back_ends_what_was_opened_with_it"),
    "P04": ("forged and odd tokens", "tokens wrong_ones", "tokens where_a_key_comes_from_is_not_for_the_token_to_say",
            "tokens signatures_of_key_pairs"),
    "P05": ("keys by brute force, in odd places and forms", "keys forms_of_a_key", "keys not_in_the_address",
            "keys from_one_address"),
    "P06": ("more requests than one may", "keys of_one_key"),
    "P07": ("bodies of impossible length", "wire bodies"),
    "P08": ("request smuggling", "wire framing", "wire pipelined_requests_are_answered_in_order",
            "wire an_answer_is_whole_whatever_was_asked_before"),
    "P09": ("slow clients, idle ones, resets", "wire half_of_a_request_and_clients_that_went_away",
            "wire five_hundred_idle_connections", "wire reset_in_the_middle_of_everything"),
    "P10": ("floods of headers", "wire lines"),
    "P11": ("JSON that readers disagree on", "wire json", "wire content_types"),
    "P12": ("settings that explode", "settings yaml_that_explodes"),
    "P13": ("cursors and filters that are not one's own", "sessions a_cursor_opens_nothing_foreign",
            "sessions bad_questions"),
    "P14": ("names that a shell would obey", "attacks words_that_a_shell_would_obey"),
    "P15": ("WebSocket frames that break the rules, and floods", "stream frames_that_break_the_rules",
            "stream pieces_and_pings", "stream who_reads_slowly_slows_the_program_down",
            "stream whoever_reads_no_answers_is_not_heard_for_long"),
    "P16": ("pages of other origins, rebound names", "settings hosts", "settings origins",
            "settings what_a_page_can_send_unasked_does_nothing"),
    "P17": ("previews that lead elsewhere", "preview nobody_elses_ports_can_be_reached"),
    "P18": ("pages in a preview against the API", "preview a_page_inside_is_of_another_origin_than_the_api",
            "preview cookies_stay_with_their_origin", "browser hot_reload_works_and_the_api_is_out_of_reach"),
    "P19": ("servers inside that answer badly", "preview what_does_not_answer_properly_is_a_bad_gateway"),
    "P20": ("keys of this server on their way into a sandbox", "preview requests_arrive_without_this_servers_keys"),
    "P21": ("webhooks to private addresses", "preview private_addresses_are_refused_where_nobody_allowed_them"),
    "P22": ("webhooks that fail", "preview events_are_told_signed_and_again_after_a_failure"),
    "P23": ("log injection", "settings every_line_of_the_log_is_json"),
    "P24": ("secrets in logs, storage, arguments, metrics", "settings they_stay_where_they_belong",
            "settings secrets_are_not_told", "restart secrets_are_not_readable_in_the_storage",
            "preview the_secret_is_told_once_and_not_kept_in_the_clear"),
    "P25": ("errors that tell of the inside", "attacks they_tell_nothing_of_the_inside"),
    "P26": ("repeated creates", "sessions a_hundred_at_once_make_one", "sessions a_repetition_looks_like_the_first"),
    "P27": ("fields nobody offered", "sessions nobody_takes_more_than_is_offered"),
    "P30": ("metrics that tell, or grow", "settings metrics_count_and_name_nobody"),
    "P31": ("files that others may read", "settings only_the_owner_can_look_in"),
    "R26": ("one tenant takes its whole quota", "attacks one_who_takes_all_it_may", "sessions of_one_key"),
    "L02": ("kill -9 of the server, under load", "crash killed_under_load"),
    "L03": ("kill -9 of a sandbox's first process", "restart a_session_whose_sandbox_dies_is_gone_at_once"),
    "L04": ("a server that is stopped for a while", "stopping stopped_for_a_while"),
    "L05": ("a restart of the machine", "restart after_a_restart_of_the_machine"),
    "L06": ("two servers on one storage, and beside each other", "stopping a_second_server_on_the_same_storage",
            "stopping a_second_server_beside_it_touches_nothing"),
    "L10": ("out of descriptors", "wire out_of_descriptors"),
    "L11": ("a server with little memory", "attacks a_server_with_little_memory"),
    "L13": ("clocks that jump", "attacks a_clock_that_jumps"),
    "L12": ("a machine without memory", "attacks sandboxes_go_before_the_server_when_memory_is_short"),
    "L16": ("destroying what is busy", "files the_session_ends_meanwhile", "stream a_deleted_session_ends_its_streams"),
    "L18": ("mounts that pile up", "attacks sessions_mount_nothing_on_the_host"),
    "L20": ("logs that nobody reads", "attacks a_log_that_nobody_reads_stops_nothing"),
    "L25": ("sessions that expired while nobody looked", "restart what_expired_meanwhile_has_ended",
            "restart without_a_next_server_they_end"),
    "L26": ("stops and updates", "restart kept_when_the_server_is_told_to", "restart a_start_that_fails_ends_nothing",
            "stopping what_does_not_end_holds_it_up_no_longer_than_said"),
    "L27": ("kernels without what is needed", "test_missing_features nothing_runs_without_a_lock_it_needs",
            "test_missing_features without_user_namespaces_nothing_runs", "test_missing_features the_second_lock_is_told_of"),
}

# The same for tests of parts in C++: a program of theirs, and a filter of its tests.
ELSEWHERE = {
    "L01": ("kill -9 at every step", "crash_matrix_test CrashMatrix.*"),
    "L07": ("no space for what the server keeps", "store_test FullDisk.*", "session_test Journal.AFullDiskLeavesNoHalfRecord"),
    "L08": ("a damaged database, or one of another release", "store_test Damage*.*:Migrations.*"),
    "L09": ("the end of the process right after an answer", "store_test StoreCrash.*"),
    "L15": ("sandboxes without end", "leaks_test Leaks.CyclesLeaveNothingBehind:Leaks.SandboxesWithANetworkLeaveNothingBehind"),
    "L19": ("what is left when all is stopped in the middle",
            "leaks_test Leaks.StoppingAtOnceLeavesNothingBehind:Leaks.StoppingWhileAPoolRefillsLeavesNothingBehind"),
    "L17": ("destroying twice, and by many", "life_test Life.DestroyTwiceAndByMany"),
    "L23": ("what belongs to another server beside this one", "engine_test Instances.*:Groups.*:Ranges.*"),
    "L24": ("things of the same name that were left behind", "engine_test Groups.OfADeadDaemonAreTakenOverOrSwept",
            "recovery_test Recovery.*"),
    "N02": ("addresses instead of names, in every spelling", "net_test EgressPolicy.Addresses*:HostNames.HaveOneSpelling",
            "net_egress_test EgressTunnel.AddressesMustBeListed"),
    "N03": ("other ports, and odd ways to write them", "net_test EgressPolicy.OnlyListedPorts:HostNames.WithAPort",
            "net_egress_test EgressTunnel.OnlyListedPorts"),
    "N04": ("a second host behind the first", "net_egress_test EgressForward.EachRequestIsJudgedAnew:EgressForward.TheHostMustAgree:"
            "EgressForward.StrangeHeadsAreRefused"),
    "N05": ("TLS that asks for another name", "net_egress_test EgressTunnel.OtherNamesAreCutOff:ClientHello.*"),
    "N06": ("a request in pieces", "net_egress_test EgressTunnel.TheFirstWordsMayComeInPieces:ClientHello.In*"),
    "N07": ("names that look alike", "net_test EgressPolicy.NamesMatchByLabels:HostNames.*"),
    "N14": ("much through an allowed host", "net_egress_test EgressTunnel.BytesAreBounded"),
    "N16": ("two sessions at one proxy", "net_egress_test EgressTunnel.TwoSessionsDoNotMeet"),
}

# What no test here can try, and why.
NOT_APPLICABLE = {
    "F11": ("images from elsewhere", "images are not imported yet; tarballs are unpacked inside a sandbox"),
    "F12": ("what snapshots hold", "there are no snapshots yet"),
    "L14": ("process ids that are used again", "the daemon signals through pidfds and groups only; it never calls kill() on a sandbox's process"),
    "L21": ("threads that end and take children along", "no process of a sandbox is bound to a thread of the daemon: there is no PR_SET_PDEATHSIG"),
    "L22": ("providers that are down", "there is one provider, and it is in this process"),
    "L28": ("sanitizers and fuzzing", "./dev test runs all of it under ASan and UBSan, what is threaded under TSan, and the fuzz targets"),
    "P28": ("attacks on the Docker provider", "there is no Docker provider yet"),
    "P29": ("attacks on the E2B provider", "there is no E2B provider yet"),
    "P32": ("forged peers of a Unix socket", "the server listens on no Unix socket"),
}


def cases_of(module, name):
    test = f"{module.removeprefix('test_http_')} {name.removeprefix('test_')}"
    return [case for case, (_, *tests) in CASES.items() if test in tests]


def keep(case, test, well, attempts=1, proven=0):
    """Adds how one test went: what it tried inside, and what of it worked outside."""
    def with_it(old):
        tests, counts = {**old.get("tests", {}), test: well}, {**old.get("counts", {}), test: [attempts, proven]}
        failed = sorted(name for name, went_well in tests.items() if not went_well)
        tried, shown = (sum(counts.get(name, [1, 0])[i] for name in tests) for i in (0, 1))
        return {"case": case, "title": (CASES.get(case) or ELSEWHERE[case])[0], "result": "breached" if failed else "held",
                "attempts": tried, "proven": shown, "reason": ", ".join(failed), "tests": tests, "counts": counts}
    change(case, with_it)


def keep_reasons():
    for case, (title, reason) in NOT_APPLICABLE.items():
        record = {"case": case, "title": title, "result": "not_applicable", "attempts": 0, "proven": 0, "reason": reason}
        change(case, lambda _, record=record: record)


def change(case, how):
    report = os.environ.get("ASR_ATTACKS_JSON")
    if not report:
        return
    parts = pathlib.Path(report + ".d")
    parts.mkdir(parents=True, exist_ok=True)
    with open(parts / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part = parts / f"{case}.json"
        old = json.loads(part.read_text()) if part.exists() else {}
        part.write_text(json.dumps(how(old)) + "\n")
        everything = [json.loads(file.read_text()) for file in sorted(parts.glob("*.json"))]
        pathlib.Path(report).write_text("[\n" + ",\n".join("  " + json.dumps(one) for one in everything) + "\n]\n")
