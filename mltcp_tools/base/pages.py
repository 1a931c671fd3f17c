# SPDX-License-Identifier: BSD-2-Clause
"""Reports as pages of HTML that need nothing else: their templates, and the images in them."""

from __future__ import annotations

import base64

import jinja2


def templates(package: str) -> jinja2.Environment:
    """The templates of a package, in whose pages nothing is markup that isn't theirs."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def embedded(image: bytes) -> str:
    """An image as the text by which a page holds it."""
    return base64.b64encode(image).decode("ascii")
