"""The headline of a run: three sentences for somebody who knows nothing of it."""

from __future__ import annotations

from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.result import ArmResult, Result, ScheduleResult
from mltcp_tools.lab.analysis.soundness import host_limits
from mltcp_tools.lab.analysis.undisturbed import INSTEAD
from mltcp_tools.lab.runs.disturbance import BUSY_CPU

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def headline(result: Result) -> list[str]:
    """Three sentences on a result: what was seen, how good that is, and how far
    to trust it. Where no arm was measured, one that says so."""
    arm = shown_arm(result)
    if arm is None:
        return ["No arm was measured, so there is nothing to say."]
    baseline = result.baseline or arm
    return [_seen(result, arm, baseline), _possible(result, arm), _trust(result, arm, baseline)]


def shown_arm(result: Result) -> str | None:
    """The arm that the sentences are about: the first of MLTCP's, else the first but the baseline,
    each preferably one that can be compared."""
    arms, baseline = result.arms, result.baseline
    others = [name for name in arms if name != baseline] or list(arms)
    first = [name for name in others if is_mltcp(str(arms[name].cc))] or others
    return next((name for name in first if comparable(arms[name])), first[0] if first else None)


def comparable(entry: ArmResult) -> bool:
    """Return whether an arm's figures may stand next to others'."""
    disturbance = entry.disturbance
    return disturbance is None or not disturbance.void


def _seen(result: Result, arm: str, baseline: str) -> str:
    entry, base = result.arms[arm], result.arms[baseline]
    jobs = _jobs(len(entry.jobs))
    sentence = f"Under {arm} {jobs} finished an iteration in {_mean(entry)} on average"
    if arm == baseline:
        return f"{sentence}."
    # Arms of one congestion control differ in something else: none of them stands for all.
    alike = [
        f"; under {name} in {_mean(other)}"
        for name, other in result.arms.items()
        if name not in (arm, baseline) and other.cc == entry.cc and comparable(other)
    ]
    end = f"{''.join(alike)}."
    speedup = result.speedup.get(arm, {}).get(baseline, {}).get("mean")
    if speedup is None:
        return f"{sentence}, under {baseline} in {_mean(base)}{end}"
    times = speedup.value
    how = "as fast as" if times >= 1 else "the speed of"
    return f"{sentence}, {times:.2f} times {how} under {baseline} ({_mean(base)}){end}"


def _possible(result: Result, arm: str) -> str:
    entry, bound = result.arms[arm], result.schedules.get("bound")
    if not bound:
        return "What would be possible isn't known, as the jobs' own needs aren't."
    best = f"The best possible is {_mean(bound)}, with perfect turns"
    gain = entry.captured_gain
    if gain is None:
        return f"{best}."
    share = gain.value
    if share < 0:
        return f"{best}, and {arm} was further from it than {result.baseline}."
    return f"{best}, and of what there was to gain {arm} gained {share:.0%}."


def _trust(result: Result, arm: str, baseline: str) -> str:
    void = [name for name in dict.fromkeys((arm, baseline)) if not comparable(result.arms[name])]
    if result.failures:
        return f"No verdict is possible: {_inner(result.failures[0])}"
    if void:
        return (
            f"No verdict is possible, as something else on this host disturbed {' and '.join(void)}"
            f" all the time; {INSTEAD}."
        )
    if result.environment.get("simulated"):
        return "This was simulated, so nothing on this host could disturb it."
    watched = [entry.disturbance for entry in result.arms.values() if entry.disturbance]
    if not watched:
        return "Whether something else on the host disturbed it was not recorded."
    left_out = sum(each.left_out for each in watched)
    again = sum(each.again for each in watched)
    others = [name for name in result.arms if not comparable(result.arms[name])]
    said = []
    if again:
        said.append(f"disturbed runs made again: {again}")
    if left_out:
        said.append(f"disturbed repetitions left out: {left_out}")
    if others:
        said.append(f"disturbed, so not compared: {', '.join(others)}")
    busy = [name for name in dict.fromkeys((arm, baseline)) if _busy(result.arms[name])]
    if busy:
        said.append(f"CPUs more than {BUSY_CPU:.0%} busy, so doubtful: {', '.join(busy)}")
    slow = [name for name in dict.fromkeys((arm, baseline)) if host_limits(result.arms[name])]
    if slow:
        said.append(f"a processor was full and the link wasn't, so doubtful: {', '.join(slow)}")
    if not said:
        return "Nothing else on this host disturbed it."
    return f"What is compared was not disturbed: {'; '.join(said)}."


def _busy(entry: ArmResult) -> bool:
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
    seconds = entry.iteration_s.mean
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"
