# SPDX-License-Identifier: BSD-2-Clause
"""The headline of a run: three sentences for somebody who knows nothing of it."""

from __future__ import annotations

from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.result import Result, ScheduleResult, VariantResult
from mltcp_tools.lab.analysis.soundness import host_limits
from mltcp_tools.lab.analysis.undisturbed import INSTEAD
from mltcp_tools.lab.runs.disturbance import BUSY_CPU

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def headline(result: Result) -> list[str]:
    """Three sentences on a result: what was seen, how good that is, and how far
    to trust it. Where no variant was measured, one that says so."""
    variant = shown_variant(result)
    if variant is None:
        return ["No variant was measured, so there is nothing to say."]
    baseline = result.baseline or variant
    return [
        _seen(result, variant, baseline),
        _possible(result, variant),
        _trust(result, variant, baseline),
    ]


def shown_variant(result: Result) -> str | None:
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


def _seen(result: Result, variant: str, baseline: str) -> str:
    entry, base = result.variants[variant], result.variants[baseline]
    jobs = _jobs(len(entry.jobs))
    sentence = f"Under {variant} {jobs} finished an iteration in {_mean(entry)} on average"
    if variant == baseline:
        return f"{sentence}."
    # Variants of one congestion control differ in something else: none of them stands for all.
    alike = [
        f"; under {name} in {_mean(other)}"
        for name, other in result.variants.items()
        if name not in (variant, baseline) and other.cc == entry.cc and comparable(other)
    ]
    end = f"{''.join(alike)}."
    speedup = result.speedup.get(variant, {}).get(baseline, {}).get("mean")
    if speedup is None:
        return f"{sentence}, under {baseline} in {_mean(base)}{end}"
    times = speedup.value
    how = "as fast as" if times >= 1 else "the speed of"
    return (
        f"{sentence}, {times:.2f} times {how} under {baseline} ({_mean(base)}){_interval(speedup)}"
        f"{_p99(entry, base, baseline)}{end}"
    )


def _interval(found: Estimate) -> str:
    """The 95 % interval, and whether it contains 1: a difference that proves nothing."""
    if found.low is None or found.high is None:
        return ""
    same = ", so not significantly different" if found.low <= 1 <= found.high else ""
    return f" [95 % CI {found.low:.2f} to {found.high:.2f}{same}]"


def _p99(entry: VariantResult, base: VariantResult, base_name: str) -> str:
    if entry.iteration_s is None or base.iteration_s is None:
        return ""
    own, other = entry.iteration_s.p99, base.iteration_s.p99
    change = f"{100 * (own / other - 1):+.0f} % beside {base_name}'s"
    return f"; its 99th percentile was {_time(own)}, {change}"


def _possible(result: Result, variant: str) -> str:
    entry, bound = result.variants[variant], result.schedules.get("bound")
    if not bound:
        return "What would be possible isn't known, as the jobs' own needs aren't."
    best = f"The best possible is {_mean(bound)}, with perfect interleaving"
    gain = entry.captured_gain
    if gain is None:
        return f"{best}."
    share = gain.value
    if share < 0:
        return f"{best}, and {variant} was not faster than {result.baseline}."
    between = "" if gain.low is None else f" [{gain.low:.0%} to {gain.high:.0%}]"
    return f"{best}, and of what there was to gain {variant} gained {share:.0%}{between}."


def _trust(result: Result, variant: str, baseline: str) -> str:
    discarded = [
        name for name in dict.fromkeys((variant, baseline)) if not comparable(result.variants[name])
    ]
    if result.failures:
        return f"No verdict is possible: {_inner(result.failures[0])}"
    if discarded:
        return (
            f"No verdict is possible, as something else on this host disturbed"
            f" {' and '.join(discarded)}"
            f" all the time; {INSTEAD}."
        )
    if result.environment.get("simulated"):
        return "This was simulated, so nothing on this host could disturb it."
    watched = [entry.disturbance for entry in result.variants.values() if entry.disturbance]
    if not watched:
        return "Whether something else on the host disturbed it was not recorded."
    left_out = sum(each.left_out for each in watched)
    again = sum(each.again for each in watched)
    others = [name for name in result.variants if not comparable(result.variants[name])]
    said = []
    if again:
        said.append(f"disturbed runs made again: {again}")
    if left_out:
        said.append(f"disturbed repetitions left out: {left_out}")
    if others:
        said.append(f"disturbed, so not compared: {', '.join(others)}")
    busy = [name for name in dict.fromkeys((variant, baseline)) if _busy(result.variants[name])]
    if busy:
        said.append(f"CPUs more than {BUSY_CPU:.0%} busy, so doubtful: {', '.join(busy)}")
    slow = [
        name for name in dict.fromkeys((variant, baseline)) if host_limits(result.variants[name])
    ]
    if slow:
        said.append(f"a CPU was full and the link wasn't, so doubtful: {', '.join(slow)}")
    if not said:
        return "Nothing else on this host disturbed it."
    return f"What is compared was not disturbed: {'; '.join(said)}."


def _busy(entry: VariantResult) -> bool:
    return (entry.cpu_busy or 0.0) > BUSY_CPU


def _inner(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _jobs(count: int) -> str:
    if count == 1:
        return "the job"
    return f"the {_NUMBERS[count] if count < len(_NUMBERS) else count} jobs"


def _mean(entry: ScheduleResult) -> str:
    if entry.iteration_s is None:
        return "an unknown time"
    return _time(entry.iteration_s.mean)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"
