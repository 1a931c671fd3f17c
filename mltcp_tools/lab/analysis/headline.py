# SPDX-License-Identifier: BSD-2-Clause
"""The headline of a run: a few sentences for a reader who doesn't know the experiment."""

from __future__ import annotations

from mltcp_tools.base.units import counted, format_bytes, format_rate, format_seconds
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.result import RunResult, ScheduleResult, VariantResult
from mltcp_tools.lab.analysis.soundness import host_limits
from mltcp_tools.lab.analysis.undisturbed import INSTEAD
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.runs.disturbance import BUSY_CPU


def headline(result: RunResult, links: list[Link]) -> list[str]:
    """Sentences on a result: conditions, finding, distance from the bound, and how far to trust it.

    links: the bottlenecks. Where no variant was measured, one sentence that says so.
    """
    variant = shown_variant(result)
    if variant is None:
        return ["No variant was measured."]
    baseline = result.baseline or variant
    return [
        _conditions(result.variants[variant], links),
        _seen(result, variant, baseline),
        _possible(result, variant),
        _trust(result, variant, baseline),
    ]


def shown_variant(result: RunResult) -> str | None:
    """The variant that the sentences are about: the first of MLTCP's, else the first but the
    baseline, each preferably one that can be compared."""
    variants, baseline = result.variants, result.baseline
    others = [name for name in variants if name != baseline] or list(variants)
    first = [name for name in others if is_mltcp(str(variants[name].cc))] or others
    return next((name for name in first if comparable(variants[name])), first[0] if first else None)


def comparable(entry: VariantResult) -> bool:
    """Return whether a variant's figures may stand next to others'."""
    disturbance = entry.disturbance
    return disturbance is None or not disturbance.discarded


def _conditions(entry: VariantResult, links: list[Link]) -> str:
    described = " and ".join(dict.fromkeys(map(_link, links)))
    over = f" over {described}" if links else ""
    repetitions = len(entry.means_s)
    iterations = max(each.iteration_s.count for each in entry.jobs.values() if each.iteration_s)
    each = counted(round(iterations / repetitions), "iteration")
    return (
        f"{counted(len(entry.jobs), 'job')}{over}: {counted(repetitions, 'repetition')} of {each}."
    )


def _link(link: Link) -> str:
    delay = f" and {format_seconds(link.delay)} of delay" if link.delay else ""
    return f"{format_rate(link.rate)} with a queue of {format_bytes(link.queue)}{delay}"


def _seen(result: RunResult, variant: str, baseline: str) -> str:
    entry, base = result.variants[variant], result.variants[baseline]
    sentence = f"Under {variant} an iteration took {_mean(entry)} on average"
    if variant == baseline:
        return f"{sentence}."
    sentence += f", under {baseline} {_mean(base)}"
    # No variant stands for others of its congestion control, and none hides a faster one.
    others = [
        f" Under {name} it took {_mean(other)}."
        for name, other in result.variants.items()
        if name not in (variant, baseline)
        and comparable(other)
        and (other.cc == entry.cc or _is_faster(other, entry))
    ]
    speedup = result.speedup.get(variant, {}).get(baseline, {}).get("mean")
    if speedup:
        sentence += f": {speedup.value:.2f} times as fast{_interval(speedup)}"
        sentence += _p99(entry, base, baseline)
    return f"{sentence}.{''.join(others)}"


def _is_faster(one: VariantResult, other: VariantResult) -> bool:
    times = one.iteration_s, other.iteration_s
    return bool(times[0] and times[1] and times[0].mean < times[1].mean)


def _interval(found: Estimate) -> str:
    """The 95 % interval; a difference isn't significant where it contains 1."""
    if found.low is None or found.high is None:
        return ""
    same = ", not significantly different" if found.low <= 1 <= found.high else ""
    return f" (95 % CI {found.low:.2f} to {found.high:.2f}{same})"


def _p99(entry: VariantResult, base: VariantResult, base_name: str) -> str:
    if entry.iteration_s is None or base.iteration_s is None:
        return ""
    own, other = entry.iteration_s.p99, base.iteration_s.p99
    change = round(100 * (own / other - 1))
    how = f"{abs(change)} % {'below' if change < 0 else 'above'}" if change else "equal to"
    return f". Its 99th percentile was {_time(own)}, {how} that of {base_name}"


def _possible(result: RunResult, variant: str) -> str:
    entry, bound = result.variants[variant], result.schedules.get("bound")
    if not bound:
        return "The bound is unknown, so no captured gain is given."
    sentence = f"With perfect interleaving (the bound) it would take {_mean(bound)}"
    gain = entry.captured_gain
    if gain is None:
        return f"{sentence}."
    if gain.value < 0:
        return f"{sentence}; {variant} was not faster than {result.baseline}."
    between = (
        ""
        if gain.low is None or gain.high is None
        else f" (95 % CI {_percent(gain.low)} to {_percent(gain.high)})"
    )
    return f"{sentence}; {variant} captured {_percent(gain.value)} of that gain{between}."


def _trust(result: RunResult, variant: str, baseline: str) -> str:
    discarded = [
        name for name in dict.fromkeys((variant, baseline)) if not comparable(result.variants[name])
    ]
    if result.failures:
        return f"No verdict is possible: {_inner(result.failures[0])}"
    if discarded:
        return (
            f"No verdict is possible, because every repetition of {' and '.join(discarded)} was"
            f" disturbed; {INSTEAD}."
        )
    if result.environment.get("simulated"):
        return "This was simulated, so this host could not disturb it."
    watched = [entry.disturbance for entry in result.variants.values() if entry.disturbance]
    if not watched:
        return "Disturbance by other programs was not recorded."
    left_out = sum(each.left_out for each in watched)
    again = sum(each.again for each in watched)
    others = [name for name in result.variants if not comparable(result.variants[name])]
    said = []
    if again:
        said.append(f"disturbed runs repeated: {again}")
    if left_out:
        said.append(f"disturbed repetitions left out: {left_out}")
    if others:
        said.append(f"disturbed, so not compared: {', '.join(others)}")
    busy = [name for name in dict.fromkeys((variant, baseline)) if _busy(result.variants[name])]
    if busy:
        said.append(f"doubtful, as CPUs were more than {BUSY_CPU:.0%} busy: {', '.join(busy)}")
    slow = [
        name for name in dict.fromkeys((variant, baseline)) if host_limits(result.variants[name])
    ]
    if slow:
        said.append(f"doubtful, as a CPU was full and the link wasn't: {', '.join(slow)}")
    return "; ".join(["The compared runs were not disturbed", *said]) + "."


def _busy(entry: VariantResult) -> bool:
    return (entry.cpu_busy or 0.0) > BUSY_CPU


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _inner(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _mean(entry: ScheduleResult) -> str:
    return "an unknown time" if entry.iteration_s is None else _time(entry.iteration_s.mean)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"
