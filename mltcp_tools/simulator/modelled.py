"""Which experiments can be simulated, and which of their arms."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterator

from mltcp_tools.backends.base import ALL_NAMES, MECHANISMS, JobParams
from mltcp_tools.errors import UsageError
from mltcp_tools.experiments.arms import Arm
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.neighbours import OWN
from mltcp_tools.experiments.treatments import Cassini, Feedback, Sincronia
from mltcp_tools.simulator.inputs import RTO_MIN_S

SLOW_START_AFTER_IDLE = "net.ipv4.tcp_slow_start_after_idle"
_RTO_MIN = "net.ipv4.tcp_rto_min_us"
_DECIMAL = re.compile("[1-9][0-9]{0,8}")
_RTO_MAX_S = 120.0  # the kernel's TCP_RTO_MAX

_MECHANISMS: dict[str, tuple[str, ...]] = {
    "reno": (),
    "dctcp": (),
    "cubic": (),
    "mltcp": MECHANISMS,
    "mltcp_reno": ("increase",),
    "mltcp_cubic": ("increase",),
    "mltcp_dctcp": MECHANISMS,
    "mltcp_int": ("increase",),
}
"""The congestion controls that are simulated, with the mechanisms that each uses by itself."""


_TREATMENTS = (Cassini, Feedback, Sincronia)
_OTHERS = {
    *("bbr", "bic", "cdg", "highspeed", "htcp", "hybla", "illinois", "lp", "nv"),
    *("scalable", "vegas", "veno", "westwood", "yeah"),
}
"""Those of Linux, net/ipv4/Kconfig."""


def rto_min_s(experiment: Experiment) -> float:
    """TCP's shortest time-out, seconds; 0 where it isn't written as microseconds."""
    value = experiment.sysctls.get(_RTO_MIN)
    if value is None:
        return RTO_MIN_S
    # The kernel takes a leading 0 for octal.
    return int(value) / 1e6 if _DECIMAL.fullmatch(value) else 0.0


def base_of(cc: str) -> str:
    """What the congestion control builds on: cubic, dctcp or reno, which is that itself."""
    return next((each for each in ("cubic", "dctcp") if cc.endswith(each)), "reno")


def with_mechanisms(params: JobParams, cc: str) -> JobParams:
    """The parameters with the congestion control's own mechanisms where they name none."""
    if params.mechanisms is not None:
        return params
    return dataclasses.replace(params, mechanisms=_MECHANISMS[cc])


def modelled(experiment: Experiment, named: Collection[str] = ()) -> tuple[Experiment, list[Arm]]:
    """The experiment with those of its arms that can be simulated, and the others.

    named: arms that were asked for by name. Where the baseline can't be simulated, an arm of reno
    takes its place. Raises UsageError where an arm asked for can't be simulated, where none can, or
    where the experiment has anything else that isn't modelled.
    """
    for what in _not_modelled(experiment):
        raise UsageError(
            f"experiment {experiment.name} can't be simulated: {what} isn't modelled; `mltcp"
            " testbed run` measures it."
        )
    left_out = [arm for arm in experiment.arms if _unknown(experiment, arm)]
    kept = [arm for arm in experiment.arms if arm not in left_out]
    for arm in left_out:
        if arm.cc not in _OTHERS | {*ALL_NAMES, *_MECHANISMS}:
            near = difflib.get_close_matches(arm.cc, [*_MECHANISMS, *ALL_NAMES, *_OTHERS], 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"arm {arm.name} of experiment {experiment.name} has `cc: {arm.cc}`, which is no"
                f" congestion control of Linux or MLTCP{meant or '.'}"
            )
        if arm.name in named or not kept:
            known = (*_MECHANISMS, *(kind.name for kind in _TREATMENTS))
            raise UsageError(
                f"arm {arm.name} of experiment {experiment.name} can't be simulated:"
                f" {_unknown(experiment, arm)} isn't modelled, only {', '.join(known)} are."
            )
    changed = experiment.override(arms=[arm.name for arm in kept])
    if any(arm.name == experiment.baseline for arm in left_out):
        plain = [arm.name for arm in kept if arm.cc == "reno"]
        changed = dataclasses.replace(changed, baseline=(plain or [kept[0].name])[0])
    return changed, left_out


def _unknown(experiment: Experiment, arm: Arm) -> str:
    """What of the arm isn't modelled; nothing where all is."""
    if arm.cc not in _MECHANISMS:
        return arm.cc
    links = experiment.links.values() or [experiment.link]
    if arm.treatment(Sincronia) and any(link.aqm != "none" for link in links):
        return "sincronia with queue management"
    feedback = arm.treatment(Feedback)
    if feedback is not None and feedback.uplink is not None:
        return "an uplink of the hosts"
    return next((each.name for each in arm.treatments if not isinstance(each, _TREATMENTS)), "")


def _not_modelled(experiment: Experiment) -> Iterator[str]:
    for link in experiment.links.values() or [experiment.link]:
        if link.aqm == "fq_codel" or (link.aqm == "red" and not link.ecn):
            yield f"the queue management {link.aqm}{'' if link.ecn else ' that drops'}"
        if link.offloads:
            yield "`offloads` of the link"
    for neighbour in experiment.neighbours:
        if neighbour.cc not in (*_MECHANISMS, OWN):
            yield f"{neighbour.cc} of neighbour {neighbour.name}"
    for job in experiment.jobs:
        if job.rate is not None:
            yield f"the limited rate of job {job.name}"
    for name, value in experiment.sysctls.items():
        if name == _RTO_MIN and not 0 < rto_min_s(experiment) <= _RTO_MAX_S:
            yield f"{name} = {value}"
        elif name not in (SLOW_START_AFTER_IDLE, _RTO_MIN):
            yield f"the sysctl {name}"
