# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH phase of one machine: its steps one after the other, each with what the step before found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables, wrong_value
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options

from ..progress import display, fleet_state
from . import commands, machine_boot, machine_disks, robot_installimage
from .flow import BadInput, Host, named

#: In the order in which a machine takes them: the options of a step, and the step.
STEPS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[Host, dict[str, Any]], dict[str, Any]]]] = {
    "pre_provision_command": (options.pre_provision_command_spec, commands.pre_provision_command),
    "machine_disks": (options.machine_disks_spec, machine_disks.run),
    "image_url_command": (options.image_url_command_spec, commands.image_url_command),
    "robot_installimage": (options.robot_installimage_spec, robot_installimage.run),
    "machine_boot": (options.machine_boot_spec, machine_boot.run),
}
#: Seconds between two looks at the program of one machine: every look costs it a dozen processes. Its end is seen at
#: once, and of many machines people see sums.
SHORTEST_POLL, LONGEST_POLL = 2.0, 15.0
#: Results of a step that are results of the machine, too.
_OF_MACHINE = (
    "boot_state",
    "boot_state_since",
    "in_rescue",
    "permanent",
    "verified",
    "proof",
    "msg",
    "stderr_tail",
    "interleaved_tail",
    "log_file",
)


def run(
    host: Host, machine: Mapping[str, Any], variables: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Any]:
    """Take the steps of a machine until one fails; always a result.

    ``variables``: for each step, the variables that hold its options, for messages.
    """
    names: Mapping[str, str] = {}
    found: dict[str, Any] = {
        "name": host.name, "address": machine["address"], "msg": "nothing to do", "changed": False, "failed": False,
        "late": False, "runs": False, "transitions": [], "steps": {}, "warned": [],
    }  # fmt: skip
    for note in machine["notes"] or []:
        display.warning(f"{host.name}: {one_line(note)}")
    if machine["refused"]:
        found.update(failed=True, msg=machine["refused"])
        display.ended(host.name, fleet_state.FAILED, found["msg"], known=True)
        return found
    try:
        for step, (specification, take) in STEPS.items():
            if machine[step] is None:
                continue
            names = (variables or {}).get(step, {})
            if variables and "machine_disks" in found["steps"]:
                # the devices of this step are the disks that the hints of that one chose
                names = {**names, "root_devices": variables["machine_disks"]["root_device_hints"]}
            given = _options(specification(), {**machine[step], **_from_steps(step, found["steps"], machine[step])})
            result = named(take(host, given), names)
            found["steps"][step] = result
            # Ansible shows them when the task ends, and not those of a machine in a list; that is after the write.
            for text in result.get("warnings") or []:
                found["warned"].append(f"{host.name}: {one_line(str(text)).removeprefix(f'{host.name}: ')}")
                display.warning(found["warned"][-1])
            found.update({key: result[key] for key in _OF_MACHINE if key in result})
            found["changed"] = found["changed"] or bool(result.get("changed"))
            found["transitions"] += result.get("transitions") or []
            if result["failed"]:
                found["failed"] = True
                break
            display.progress(host.name, one_line(result.get("msg", step)))
    except AnsibleError as exc:
        text = in_variables(str(exc).removeprefix(f"{host.name}: "), names)
        found.update(failed=True, msg=f"{host.name}: {text}")
    finally:
        host.close()
    late = found["failed"] and found.get("in_rescue") is False and not found.get("permanent")
    booted = "machine_boot" in found["steps"] and not host.check_mode
    found.update(late=late, runs=not found["failed"] and (machine["installed"] or booted))
    if late and machine["may_be_late"]:
        # The API phase sends it to its rescue once more.
        found["failed"] = False
    is_bad = found["failed"] or (late and machine["second_try"])
    outcome = fleet_state.FAILED if is_bad else fleet_state.LATE if late else fleet_state.DONE
    display.ended(host.name, outcome, found["msg"])
    return found


def poll_by_size(machines: Sequence[Mapping[str, Any]]) -> None:
    """Look at each program the less often the more machines there are, where the user did not say how often."""
    seconds = min(LONGEST_POLL, max(SHORTEST_POLL, len(machines) / 4))
    for machine in machines:
        for step, (specification, _take) in STEPS.items():
            if machine[step] is not None and "poll" in specification():
                machine[step].setdefault("poll", seconds)


def diffs(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the steps of a machine changed, or would change, as Ansible shows it; headers begin with its name."""
    name, found = result["name"], []
    for step in result["steps"].values():
        given = step.get("diff") or []
        for one in [given] if isinstance(given, dict) else given:
            headers = {key: one[key] for key in ("before_header", "after_header") if one.get(key, name) != name}
            found.append({**one, **{key: f"{name}: {text}" for key, text in headers.items()}})
    return found


def findings(
    host: Host, machine: Mapping[str, Any], variables: Mapping[str, Mapping[str, str]], known: Sequence[str] = ()
) -> list[str]:
    """What is wrong with the options of a machine's steps, as far as that is known without the machine.

    ``variables``: for each step, the variables that hold its options; ``known``: findings that were made already.
    """
    found: list[str] = []
    for step, (specification, take) in STEPS.items():
        given, options_of, names = machine.get(step), specification(), variables.get(step, {})
        if given is None:
            continue
        wrong = {names.get(option, option): wrong_value(options_of[option], value) for option, value in given.items()}
        if any(wrong.values()):
            found += [
                f"{name} {text}"
                for name, text in wrong.items()
                if text and not any(one.startswith(name) for one in known)
            ]
            continue
        missing = [option for option, spec in options_of.items() if spec.get("required") and option not in given]
        if missing:  # its disks are not known yet, or the finding is known
            continue
        try:
            take(host, _options(options_of, given))
        except BadInput as exc:
            more = [in_variables(text, names) for text in exc.findings]
            found += [text for text in more if text not in known]
        except AnsibleError as exc:
            found.append(in_variables(str(exc).removeprefix(f"{host.name}: "), names))
    return list(dict.fromkeys(found))


def _options(specification: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    checked = ArgumentSpecValidator(specification).validate(given)
    if checked.error_messages:
        raise AnsibleError("; ".join(checked.error_messages))
    return dict(checked.validated_parameters)


def _from_steps(step: str, results: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a step that the steps before it found out."""
    if not results:
        return {}
    last = list(results.values())[-1]
    more: dict[str, Any] = {key: last[key] for key in ("boot_state", "boot_state_since")}
    disks = results.get("machine_disks")
    if disks and step == "image_url_command":
        more.update(root_devices=disks["root_devices"], consent=f"checked+{disks['consent']}", empty=disks["to_empty"])
        more.update(still_empty=disks["found_empty"])
    elif disks and step == "robot_installimage":
        more.update(root_devices=disks["root_devices"], consent=disks["consent"], empty=disks["to_empty"])
    written = results.get("image_url_command") or results.get("robot_installimage")
    if written and step == "machine_boot":
        more.update({key: written[key] for key in ("installation", "written") if written.get(key)})
        if written.get("boot_id"):
            more["previous_boot_id"] = written["boot_id"]
        if written.get("host_keys") and not given.get("host_keys"):
            more["host_keys"] = written["host_keys"]
        if written.get("unlock_host_keys"):
            more["unlock_host_keys"] = written["unlock_host_keys"]
    return more
