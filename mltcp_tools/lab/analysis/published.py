"""Published pages: they name what made each table, and say which of it has changed since.

A section has a comment below its title, a table between a document's marks a sentence:

    ## NAME                                     <!-- results: NAME -->
    <!-- NAME PART VERSION -->                  … mltcp-tools 0.1.0, algorithm VERSION. …
                                                <!-- end -->

PART is what decides on the figures: `algorithm`, `collectives` or `clusters/COMMAND`. `Present`
gives the version of a part at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mltcp_tools.errors import UsageError

Present = Callable[[str], str]

STALE = "**Another version than the present one made this table.**"
_PART = r"(?P<part>algorithm|collectives|clusters/\w+) (?P<by>\w+(?:, \w+)*)"
_MADE = re.compile(rf"^<!-- [\w.-]+ {_PART} -->$", re.MULTILINE)
_SAID = re.compile(rf"\b{_PART}\.")
_MARKED = re.compile(
    r"(?P<begin><!-- results: (?P<name>[^>\n]+) -->\n)(?P<content>.*?)(?=<!-- end -->)", re.DOTALL
)


def made_by(name: str, part: str, version: str) -> str:
    """The comment of a section."""
    return f"<!-- {name} {part} {version} -->"


def sections(page: str) -> dict[str, str]:
    """A page's sections by their titles; "" has what stands before the first."""
    head, *parts = re.split(r"^## ", page, flags=re.MULTILINE)
    return {"": head} | {part.partition("\n")[0]: f"## {part}" for part in parts}


def joined(parts: dict[str, str]) -> str:
    """A page of sections."""
    return "\n\n".join(part.strip() for part in parts.values() if part.strip()) + "\n"


def put_section(page: str, name: str, content: str) -> str:
    """The page with the section in the place of the one of that name, or at its end."""
    return joined(sections(page) | {name: content})


def stale(page: str, present: Present) -> list[str]:
    """Names of the sections and marked tables that another version made."""
    old = [
        title for title, text in sections(page).items() if title and _is_old(_MADE, text, present)
    ]
    marks = _MARKED.finditer(page)
    return old + [each["name"] for each in marks if _is_old(_SAID, each["content"], present)]


def marked(page: str, present: Present) -> str:
    """The page, each of whose tables says so where another version made it."""
    page = page.replace(f"{STALE}\n\n", "")
    old = set(stale(page, present))

    def mark(found: re.Match[str]) -> str:
        note = f"{STALE}\n\n" if found["name"] in old else ""
        return f"{found['begin']}{note}{found['content']}"

    page = _MARKED.sub(mark, page)
    for title in sections(page):
        # A comparison is as old as what it compares.
        name, colon, _ = title.partition(":")
        if title in old or (colon and {name, f"{name}-simulated"} & old):
            page = page.replace(f"\n## {title}\n\n", f"\n## {title}\n\n{STALE}\n\n", 1)
    return page


def _is_old(said: re.Pattern[str], text: str, present: Present) -> bool:
    return any(each["by"] != present(each["part"]) for each in said.finditer(text))


def put_between(page: str, name: str, content: str) -> str:
    """The page with the content between `<!-- results: NAME -->` and the `<!-- end -->` after it.

    Raises UsageError where it has no such pair of marks.
    """
    begin, end = f"<!-- results: {name} -->\n", "<!-- end -->"
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise UsageError(f"The document has no place for a table ({begin.strip()} … {end}).")
    return f"{before}{begin}{content}\n{end}{after}"
