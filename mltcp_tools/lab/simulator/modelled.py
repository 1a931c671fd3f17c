# SPDX-License-Identifier: BSD-2-Clause
"""The experiments that can be simulated, and which of their variants."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator

from mltcp_tools.base.document import meant
from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import CONGESTION_CONTROLS, NAMES, mechanisms_of
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.links import MTU
from mltcp_tools.lab.experiments.neighbours import OWN
from mltcp_tools.lab.experiments.treatments import TREATMENTS, PrioritiesSettings
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.inputs import RTO_MIN_S

SLOW_START_AFTER_IDLE = "net.ipv4.tcp_slow_start_after_idle"
_RTO_MIN = "net.ipv4.tcp_rto_min_us"
_DECIMAL = re.compile("[1-9][0-9]{0,8}")
_RTO_MAX_S = 120.0  # the kernel's TCP_RTO_MAX

_BASES = ("reno", "dctcp", "cubic")
_SIMULATED = (*_BASES, *(each.name for each in CONGESTION_CONTROLS.values() if each.base in _BASES))
_OTHERS = {
    *("bbr", "bic", "cdg", "highspeed", "htcp", "hybla", "illinois", "lp", "nv"),
    *("scalable", "vegas", "veno", "westwood", "yeah"),
}
"""Those of Linux, net/ipv4/Kconfig."""


def rto_min_s(experiment: Experiment) -> float:
    """TCP's shortest timeout, seconds; 0 where it isn't written as microseconds."""
    value = experiment.sysctls.get(_RTO_MIN)
    if value is None:
        return RTO_MIN_S
    # The kernel takes a leading 0 for octal.
    return int(value) / 1e6 if _DECIMAL.fullmatch(value) else 0.0


def with_mechanisms(params: JobParams, cc: str) -> JobParams:
    """The parameters with the congestion control's own mechanisms where they name none."""
    if params.mechanisms is not None:
        return params
    return dataclasses.replace(params, mechanisms=mechanisms_of(cc))


def modelled(
    experiment: Experiment, named: Collection[str] = ()
) -> tuple[Experiment, dict[str, str]]:
    """The experiment with those of its variants that can be simulated, and the others' names, each
    with what can't.

    named: variants that were asked for by name. Where the baseline can't be simulated, a variant of
    reno takes its place. Raises UsageError where a variant asked for can't be simulated, where none
    can, or where the experiment has anything else that isn't modelled.
    """
    for what in _not_modelled(experiment):
        raise UsageError(
            f"experiment {experiment.name} can't be simulated: {what} isn't modelled; `mltcp"
            " testbed run` measures it."
        )
    unknowns = {variant.name: _unknown(experiment, variant) for variant in experiment.variants}
    left_out = {name: what for name, what in unknowns.items() if what}
    kept = [variant for variant in experiment.variants if variant.name not in left_out]
    for variant in (each for each in experiment.variants if each.name in left_out):
        if variant.cc not in {*_OTHERS, *NAMES, *_SIMULATED}:
            end = meant(variant.cc, [*_SIMULATED, *NAMES, *_OTHERS])
            raise UsageError(
                f"variant {variant.name} of experiment {experiment.name} has `cc: {variant.cc}`,"
                f" which is no"
                f" congestion control of Linux or MLTCP{end}"
            )
        if variant.name in named or not kept:
            known = (*_SIMULATED, *TREATMENTS)
            raise UsageError(
                f"variant {variant.name} of experiment {experiment.name} can't be simulated:"
                f" {left_out[variant.name]} isn't modelled, only {', '.join(known)} are."
            )
    changed = experiment.override(variants=[variant.name for variant in kept])
    if experiment.baseline in left_out:
        plain = [variant.name for variant in kept if variant.cc == "reno"]
        changed = dataclasses.replace(changed, baseline=(plain or [kept[0].name])[0])
    return changed, left_out


def _unknown(experiment: Experiment, variant: Variant) -> str:
    """Return the feature of the variant that isn't modelled; nothing where all is."""
    if variant.cc not in _SIMULATED:
        return variant.cc
    managed = any(each.marks for each in experiment.links.values() or [experiment.link])
    ordered = variant.treatment(PrioritiesSettings) is not None
    return "priorities with queue management" if ordered and managed else ""


def _not_modelled(experiment: Experiment) -> Iterator[str]:
    for link in experiment.links.values() or [experiment.link]:
        if link.offloads:
            yield "`offloads` of the link"
        if link.mtu != MTU:
            yield "`mtu` of the link (`mltcp simulate --mtu` is)"
        if link.qdisc != "none":
            yield "`qdisc` of the hosts"
    for neighbour in experiment.neighbours:
        if neighbour.cc not in (*_SIMULATED, OWN):
            yield f"{neighbour.cc} of neighbour {neighbour.name}"
    for name, value in experiment.sysctls.items():
        if name == _RTO_MIN and not 0 < rto_min_s(experiment) <= _RTO_MAX_S:
            yield f"{name} = {value}"
        elif name not in (SLOW_START_AFTER_IDLE, _RTO_MIN):
            yield f"the sysctl {name}"
