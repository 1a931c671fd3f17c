# SPDX-License-Identifier: BSD-2-Clause
"""Documents: what is generated is fresh, and what they point to is there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mltcp_tools.cli.main import cli

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in CHECKOUT.rglob("*.md")
    if not path.relative_to(CHECKOUT).parts[0].startswith((".", "runs"))
)
READMES = [path for path in DOCUMENTS if path.name == "README.md"]
COMMANDED = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"] + sorted(
    path
    for wing in ("bpf", "kmod", "mltcp_tools", "vagrant")
    for path in (CHECKOUT / wing).rglob("*")
    if path.suffix in {".1", ".yaml", ".service", ".conf"}
)
"""Files that tell users what to type. CHANGELOG names what there was, too."""
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- .*?<!-- end -->", re.DOTALL)
QUOTED = re.compile(r"`mltcp ([a-z][^`]*)`")
TYPED = re.compile(
    r"^(?:ExecStart(?:Pre)?=\S*@MLTCP@|[ #]*(?:sudo )?mltcp) ([a-z][^#|>&;\n]*)", re.MULTILINE
)
ASKING = {"What", "Which", "Whether", "Who", "Whose", "Where", "How", "When", "Why"}
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the document's headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text()):
        path = document.parent / target if target else document
        assert path.exists(), f"{document} links to {target}, which isn't there"
        assert not anchor or anchor in anchors(path), f"{document}: no heading {anchor} in {path}"


def test_the_readme_is_short() -> None:
    text = GENERATED.sub("", (CHECKOUT / "README.md").read_text())
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1300


@pytest.mark.parametrize("document", READMES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_readme_takes_minutes(document: Path) -> None:
    """Commands, and tables that are made by one, aren't read through."""
    text = GENERATED.sub("", FENCE.sub("", document.read_text()))
    assert len(text.split()) <= 1500


def described_by(node: ast.AST) -> str:
    """Return a docstring, or one of an attribute: a string that is a statement; else nothing."""
    value = node.value if isinstance(node, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return str(value.value).strip() if is_text else ""


def test_docstrings_begin_with_the_thing_or_a_verb() -> None:
    asking = [
        f"{path.relative_to(CHECKOUT)}: {text.splitlines()[0]}"
        for wing in ("mltcp_tools", "scripts", "tests")
        for path in sorted((CHECKOUT / wing).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if (text := described_by(node)) and re.split(r"\W", text, maxsplit=1)[0] in ASKING
    ]
    assert not asking, "\n".join(asking)


def test_helps_of_options_begin_with_the_thing_or_a_verb() -> None:
    helps = [
        f"{' '.join(option.opts)}: {option.help or 'What is it?'}"
        for command in commands(cli)
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert len(helps) > 150
    asking = [each for each in helps if re.split(r"\W", each.partition(": ")[2])[0] in ASKING]
    assert not asking, "\n".join(asking)


def commands(group: click.Command) -> Iterator[click.Command]:
    """Yield a command and all below it."""
    yield group
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield from commands(command)


def names(group: click.Group, before: str = "") -> Iterator[str]:
    """Yield the full names of all commands below a group, the longest of a beginning first."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from names(command, f"{before}{name} ")
        yield before + name


MENTIONED = re.compile(rf"(?<![\w,=/+-])((?:{'|'.join(names(cli))}) --[a-z][a-z-]*)")


def command_lines(path: Path) -> Iterator[str]:
    """Yield command lines of a document without `mltcp`, and options beside a command in text."""
    text = path.read_text()
    yield from MENTIONED.findall(" ".join(text.replace("\\-", "-").split()))
    examples = "".join(FENCE.findall(text)) if path.suffix == ".md" else text
    yield from QUOTED.findall(text)
    yield from TYPED.findall(examples.replace("\\\n", " "))


def unknown_words(line: str) -> list[str]:
    """Return the commands and options in the line that `mltcp` doesn't have."""
    command: click.Command = cli
    ctx = click.Context(cli, **cli.context_settings)
    unknown = []
    for word in line.replace("\\-", "-").split():
        option = re.match(r"\[?(--[a-z][a-z-]*)", word)
        if option:
            names = [name for each in command.get_params(ctx) for name in each.opts]
            names += [name for each in command.get_params(ctx) for name in each.secondary_opts]
            unknown += [option[1]] if option[1] not in names else []
        elif isinstance(command, click.Group):
            inner = command.get_command(ctx, word)
            if inner is None:  # a placeholder, such as COMMAND, ends the line
                return unknown + ([word] if re.fullmatch(r"[a-z-]+", word) else [])
            command = inner
    return unknown


def test_commands_and_options_in_documents_exist() -> None:
    lines = [(path, line) for path in COMMANDED for line in command_lines(path)]
    assert len(lines) > 100
    wrong = [
        f"{path.relative_to(CHECKOUT)}: mltcp {line.strip()}: {' '.join(words)}"
        for path, line in lines
        if (words := unknown_words(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_names_of_tests_are_at_most_60_characters() -> None:
    long = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in sorted((CHECKOUT / "tests").rglob("*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text())
        if len(name) > 60
    ]
    assert not long, "\n".join(long)


BSD, GPL = "BSD-2-Clause", "GPL-2.0-only"
SHARED = re.compile(
    r"kmod/mltcp_(core|delay|learn|yield|loss|hop|wait|step|uapi|rate)\.h|bpf/mltcp_aggregate\.h"
)
"""Headers that the kernel's side and user space both compile."""


def licence_of(name: str) -> str:
    if SHARED.fullmatch(name):
        return f"({GPL} OR {BSD})"
    return GPL if name.startswith(("kmod/", "bpf/", "tests/vm/programs/modules/")) else BSD


def test_code_names_its_licence() -> None:
    tracked = subprocess.check_output(["git", "-C", CHECKOUT, "ls-files"], text=True).splitlines()
    wrong = []
    for name in tracked:
        path = CHECKOUT / name
        if path.suffix not in {".py", ".c", ".h", ".sh", ".j2", ".html"} or not path.is_file():
            continue
        head = path.read_text()[:300]
        found = re.search(r"SPDX-License-Identifier: (.*?)(?: \*/| #\}| -->)?$", head, re.MULTILINE)
        if head.strip() and (not found or found[1] != licence_of(name)):
            wrong.append(f"{name}: {found and found[1]}, not {licence_of(name)}")
    assert not wrong, "\n".join(wrong)
