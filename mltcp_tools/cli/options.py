"""Options that several commands share."""

from __future__ import annotations

import click

from mltcp_tools.backends import AUTO, BACKENDS

backend_option = click.option(
    "--backend",
    type=click.Choice((AUTO, *BACKENDS)),
    default=AUTO,
    show_default=True,
    help="The eBPF programs (bpf) or the kernel module (kmod); auto: the one that is loaded, else"
    " the module where it is installed for this kernel, else eBPF.",
)
