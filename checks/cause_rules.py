"""The table of causes: the failures that follow from each.

Where a failure follows from several causes, the first of CAUSE_RULES has it: causes of other causes come before those.
"""

from __future__ import annotations

from checks.cause_occurrences import (
    NO_ANSWER,
    find_damaged_weights,
    find_dead_network,
    find_driver_mismatch,
    find_exhausted_memory,
    find_failed_instances,
    find_full_disks,
    find_lacking_modules,
    find_lost_cards,
    find_missing_mounts,
    find_paused_instances,
    find_pending_reboots,
    find_replaced_packages,
    find_starting_instances,
    find_stopped_by_hand,
    find_stopped_instances,
    find_stopping_instances,
    find_unanswered_sections,
    find_undeployed,
    find_undeployed_edit,
    find_unresponsive_instances,
    find_unstarted_since_boot,
    find_wrong_clock,
)
from checks.failure_causes import CauseRule, Consequence

# Checks of what a deploy neither makes nor needs: the hardware, what surrounds Rigwright, and what should not be there.
SURROUNDINGS = (
    r"[MX][0-9]{2}|P01|N(0[1-7]|2[3467]|39|4[125])|B03|O(03|08|09)|R0[4789]|U0[56]|S(09|10|24)|K0[68]|H09|Q07"
)
NO_SUCCESS = r"(?:(?!\b2[0-9]{2}\b).)*"
"""A text without the HTTP status of an answer."""
NO_REPLY = r"(no answer|not asked|[45][0-9]{2}\b|Connection|timed out).*"
"""The answer of a process that does not answer."""
DOWN_STATES = "inactive|failed|activating|deactivating"
DOWN = (
    Consequence("S01|D08", DOWN_STATES, "active", of_part="down"),
    Consequence("S01", "<down> is .*", "<down> is ready", of_part="down"),
    Consequence("S02", "another key|no record of a start", of_part="down"),
    Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="down"),
    Consequence("S06", NO_SUCCESS, "one token from its (socket|port)", of_part="down"),
    Consequence("S13", NO_SUCCESS, "the model .*|events ending in .*", of_part="down"),
    Consequence("S12|I0[1-7]", "none", "a (process|container)", of_part="down"),
    Consequence("S08", r"\[\]", of_part="down"),
    Consequence("R05", r".* is nothing|no listener", of_part="down"),
    Consequence("E0[1-5]", "nothing was tried: .*", of_part="down"),
    Consequence("D07", rf"<models> \({NO_SUCCESS}\)", "an answer for every name"),
    Consequence("D08", "nothing|left out", of_part="down"),
    Consequence("U09", r"<own_units> (is (inactive|not there|queued to start or stop)|has failed)"),
)
"""The effects of an instance that does not run."""
GATE = (
    Consequence("S1[89]|S21", "<gate> .*"),
    Consequence("S12", "/usr/lib/systemd/systemd(-executor)?", "a program in .*", of_part="down"),
)
"""The effects of processes that systemd runs in an instance's unit until its first answer."""
UNRESPONSIVE = (
    Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="down"),
    Consequence("S06|S13", NO_REPLY, of_part="down"),
    Consequence("D08", "left out", of_part="down"),
    Consequence("D07", rf"<offered> \({NO_SUCCESS}\)"),
)
"""The effects of an instance that runs and does not answer."""
NO_SMI = "an answer from nvidia-smi"
NVIDIA = "N[0-9]{2}|S08|C05"


CAUSE_RULES: tuple[CauseRule, ...] = (
    CauseRule(
        "not-deployed",
        find_undeployed,
        (
            Consequence(rf"(?!{SURROUNDINGS})[A-Z][0-9]{{2}}"),
            Consequence("[A-Z][0-9]{2}", expected=f"{NO_ANSWER}.*", needs="bare"),
        ),
        is_first=True,
    ),
    CauseRule(
        "undeployed-edit",
        find_undeployed_edit,
        (
            Consequence("G01", expected="<intact_generation>"),
            Consequence("G02", "<mark>"),
            Consequence("U01", r"/etc/systemd/system/<changed_units> has different contents"),
            Consequence("U01", r"(/etc/systemd/system/)?<added_units> (is (not a link|not there|not-found))"),
            Consequence("U03", r"(?!<foreign>\Z)<changed_units> has .*"),
            Consequence("U04", r"\S+ does not want <added_units>"),
            Consequence("U09", "<added_units> is (inactive|not there)"),
            Consequence("S10", "(/etc/systemd/system/)?<removed_units>"),
            Consequence("S25", "<added_units> has no process"),
            Consequence("S25", r"<changed_units>'s (worker )?process [0-9]+ has RW_DIGEST \S+, not \S+"),
            Consequence("D02", "<digests>"),
            Consequence("D02|H02|Q02", r"\S+ started from <digests>"),
            Consequence("D02", "<added_units> (inactive|)"),
            Consequence("[AB][0-9]{2}|O02", "no user <added_users>"),
            Consequence("S02", "<digests>"),
            Consequence("S03|S11", of_part="changed"),
            Consequence("S04", found="nothing|.* (inactive|not there|)", of_part="changed_ports"),
            Consequence("S05", rf"{NO_SUCCESS} for (no|wrong) key", of_part="changed_ports"),
            Consequence("S06", NO_SUCCESS, "one token from its port", of_part="changed_ports"),
            Consequence("S08", of_part="changed_cards"),
            Consequence(
                "S12", expected="a program in .*|the (arguments|variables) of its unit", of_part="changed_processes"
            ),
            Consequence("S13", expected="the model .*", of_part="changed_variants"),
            Consequence("[A-Z][0-9]{2}", of_part="added"),
        ),
        is_first=True,
    ),
    CauseRule(
        "unanswered", find_unanswered_sections, (Consequence("[A-Z][0-9]{2}", "<why>", expected="<unanswered>"),)
    ),
    CauseRule("stopped-by-hand", find_stopped_by_hand, DOWN),
    CauseRule(
        "wrong-clock",
        find_wrong_clock,
        (
            Consequence("P01", "its clock is .*"),
            Consequence("O07", needs="behind"),
            Consequence("W03", expected="less than .* days ago, and not in the future"),
            Consequence("W05", expected="a past run|a run less than .*|the next run within .*"),
            Consequence("D10", "rotated at .*"),
            Consequence("N17|K05", ".*(not valid yet|invalid for another|expired|is not yet valid).*"),
        ),
    ),
    CauseRule(
        "missing-mount",
        find_missing_mounts,
        (
            Consequence("W0[1-8]", of_part="weights"),
            Consequence("M0[56]|O0[18]|F[0-9]{2}|S02|P01|B02", r".*<path>(?![\w.-]).*"),
            *DOWN,
        ),
    ),
    CauseRule(
        "lost-card",
        find_lost_cards,
        (
            Consequence(NVIDIA, expected=r".*<card>(?![0-9]).*"),
            Consequence(NVIDIA, expected=r".*<address>(?![0-9]).*"),
            Consequence("N01", expected="[0-9]+ cards on the PCI bus"),
            Consequence("P01", r"<card> is declared as .*"),
            Consequence(
                NVIDIA, ".*([Gg][Pp][Uu] is lost|fallen off the bus|Unable to determine the device handle).*", NO_SMI
            ),
            Consequence("N06", ".*<address>.*", "no warning of nvidia-smi"),
            *DOWN,
        ),
    ),
    CauseRule(
        "driver-mismatch",
        find_driver_mismatch,
        (
            Consequence("N02|N09|N20|N30", r".*<library>.*|.*version mismatch.*"),
            Consequence("N02", expected=".*<module>.*"),
            Consequence(NVIDIA, ".*([Mm]ismatch|NVML).*", NO_SMI),
            Consequence("N1[34]|N20", r"(.*[ ,])?<packages>([ ,:=].*)?"),
            Consequence("N18", ".*(<packages>|pending).*", "no reboot to be pending"),
            *DOWN,
        ),
    ),
    CauseRule(
        "lacking-module",
        find_lacking_modules,
        (
            Consequence("N(02|08)", "none", "a loaded kernel module `nvidia`", needs="running"),
            Consequence("N03", expected="the (device|driver) .*", needs="running"),
            Consequence("N(09|10|18|20|3[0135])|M1[01]", expected=r".*<kernel>.*"),
            Consequence("N(09|10|18|20|3[0135])|M1[01]", r".*<kernel>.*"),
            Consequence("N20", "none", "driver .*", needs="running"),
            Consequence(NVIDIA, expected=NO_SMI, needs="running"),
            *DOWN,
        ),
    ),
    CauseRule(
        "pending-reboot",
        find_pending_reboots,
        (
            Consequence("N18"),
            Consequence("N(20|3[35])", r".*<kernel>.*"),
            Consequence("N(20|3[35])", expected=r".*<kernel>.*"),
        ),
    ),
    CauseRule(
        "full-disk",
        find_full_disks,
        (
            Consequence("O08", r"<paths> with [0-9]+ MiB free"),
            Consequence("P01", r".*<paths>(?![\w.-]).*"),
            Consequence("[A-Z][0-9]{2}", r".*<paths>.*No space left on device.*"),
        ),
    ),
    CauseRule(
        "replaced-packages",
        find_replaced_packages,
        (
            Consequence("S21", r"\S+ (worker )?process [0-9]+ runs <files>, which was (deleted|replaced)"),
            Consequence("S21", r"\S+ (worker )?process [0-9]+ runs <files> \(deleted\), not .*"),
            Consequence("D02|H02", "another program", needs="programs"),
            Consequence("B04", r"(.*[ ,(])?<removed>([ ,:;)=].*)?"),
            Consequence("B03|K0[38]|N1[345]|N(18|20)|T01", r"(.*[ ,(])?<packages>([ ,:;)=].*)?"),
        ),
    ),
    CauseRule(
        "dead-network",
        find_dead_network,
        (
            Consequence("N17|K05|P01|Q06", ".*(resolv|unreachable|[Cc]ould not connect|No route to host).*"),
            Consequence("R09", "the route to .*"),
        ),
    ),
    CauseRule("exhausted-memory", find_exhausted_memory, DOWN),
    CauseRule(
        "unstarted-since-boot",
        find_unstarted_since_boot,
        (
            *DOWN,
            Consequence("U04", r"\S+ does not want <unit>"),
            Consequence("S01", "disabled|not wanted", of_part="down"),
        ),
    ),
    CauseRule(
        "damaged-weights",
        find_damaged_weights,
        (
            Consequence("W0[126]", of_part="weights"),
            Consequence("S02", "<paths>", "the weights on disk now"),
            *DOWN,
        ),
    ),
    CauseRule("failed-instance", find_failed_instances, (*DOWN, *GATE)),
    CauseRule("starting-instance", find_starting_instances, (*DOWN, *GATE)),
    CauseRule("stopping-instance", find_stopping_instances, (*DOWN, *GATE)),
    CauseRule("stopped-instance", find_stopped_instances, DOWN),
    CauseRule(
        "paused-instance",
        find_paused_instances,
        (Consequence("S22", r"<unit>'s (worker )?process [0-9]+ is T .*"), *UNRESPONSIVE),
    ),
    CauseRule("unresponsive-instance", find_unresponsive_instances, UNRESPONSIVE),
)
