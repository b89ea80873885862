# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/docs: the HTML documentation in build/docs: the guides of docs/, then the reference of antsibull-docs.

docs/docsite/index.md is the start page with the order of all others; its picture and the style of all are beside it.
Every link is checked.
"""

from __future__ import annotations

import argparse
import re
import shutil
from html.parser import HTMLParser
from os.path import join, normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from . import SetupError, environments, output_of
from .lint import copy_variables
from .paths import CHECKOUT, NAME, NAMESPACE, copied_tree

OUTPUT = CHECKOUT / "build" / "docs"
ENVIRONMENT = "docs"
#: the folder of antsibull-docs' pages in the site
REFERENCE = "reference"
#: the folder of the start page, its picture and the style in the checkout
_START = "docs/docsite"
#: added to the settings that antsibull-docs writes
_SETTINGS = """
extensions.append("myst_parser")
myst_heading_anchors = 4
html_show_sourcelink = False
html_static_path = ["rst/%(start)s"]
html_css_files = ["style.css"]
html_title = html_short_title = title = "%(title)s"
copyright = "%(title)s authors"
html_theme_options = {
    "documentation_home_url": "%(repository)s",
    "show_extranav": False,
    "topbar_links": {"Repository": "%(repository)s", "Issues": "%(repository)s/issues"},
}
"""
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dev/docs", description=(__doc__ or "").partition(": ")[2].splitlines()[0])
    parser.parse_args(arguments)
    environments.ensure(ENVIRONMENT)
    folder = copied_tree("docs")
    environment = copy_variables(folder, ENVIRONMENT)
    # not in the checkout: antsibull-docs wants folders that others cannot write to
    site = folder.parents[2] / "site"
    shutil.rmtree(site, ignore_errors=True)
    pages = site / "rst"
    (pages / REFERENCE).mkdir(mode=0o755, parents=True)
    collection = f"{NAMESPACE}.{NAME}"
    sphinx_init = ["antsibull-docs", "sphinx-init", "--use-current", "--squash-hierarchy", "--lenient"]
    output_of([*sphinx_init, "--project", collection, "--dest-dir", str(site), collection], site, environment)
    rst = ["antsibull-docs", "collection", "--use-current", "--squash-hierarchy"]
    output_of([*rst, "--dest-dir", str(pages / REFERENCE), collection], site, environment)
    repository = repository_of(folder)
    with (site / "conf.py").open("a", encoding="utf-8") as settings:
        settings.write(_SETTINGS % {"title": collection, "repository": repository, "start": _START})
    put_guides(folder, pages, repository)
    output_of(["sphinx-build", "-q", "-b", "html", "-c", str(site), str(pages), str(site / "html")], site, environment)
    dead = dead_links(site / "html")
    if dead:
        raise SetupError("\n".join(["links of the documentation that lead nowhere:", *dead]))
    shutil.rmtree(OUTPUT, ignore_errors=True)
    shutil.copytree(site / "html", OUTPUT)
    print(f"documentation: {OUTPUT / 'index.html'}")
    return 0


def repository_of(checkout: Path) -> str:
    found = re.search(r"^repository: *(\S+)$", (checkout / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SetupError("galaxy.yml names no repository")
    return found[1]


def put_guides(checkout: Path, pages: Path, repository: str) -> None:
    """The Markdown files where they are to each other in the checkout, and the start page with what it shows."""
    files = [*checkout.glob("*.md"), *checkout.glob("docs/*.md")]
    for path in files:
        target = pages / path.relative_to(checkout)
        target.parent.mkdir(exist_ok=True)
        target.write_text(_linked(path, checkout, files, repository), encoding="utf-8")
    (pages / _START).mkdir(parents=True, exist_ok=True)
    for name in ("*.svg", "*.css"):
        for path in (checkout / _START).glob(name):
            shutil.copy2(path, pages / _START)
    text = (checkout / _START / "index.md").read_text(encoding="utf-8")
    # the start page is at the top of the site, and below docs in the checkout
    text = _LINK.sub(lambda match: f"]({normpath(join(_START, match[1]))}{match[2] or ''})", text)
    (pages / "index.md").write_text(text, encoding="utf-8")


def _linked(path: Path, checkout: Path, files: list[Path], repository: str) -> str:
    """The text of a page; links to files that are no pages lead to the repository."""

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[1]).resolve()
        if target in files or not target.exists():
            return match[0]
        return f"]({repository}/blob/main/{target.relative_to(checkout.resolve())}{match[2] or ''})"

    return _LINK.sub(link, path.read_text(encoding="utf-8"))


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links(html: Path) -> list[str]:
    """Links of pages to other files of the site, or places in them, that are not there."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(html.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target in pages or target.is_file()
            if not there or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
                dead.append(f"{path.relative_to(html)}: {link}")
    return dead
