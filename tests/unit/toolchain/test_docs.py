# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make docs`: every guide has its place in the site, the picture shows the boot states, and dead links are found."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from dev.toolchain import docs
from dev.toolchain.paths import CHECKOUT
from tests.folders import put_files

PAGES = {
    "README.md": "[a](docs/a.md#one) [l](LICENSES) [t](plugins/x.py#L1) [o](https://example.com/docs/a.md) [h](#here)",
    "docs/a.md": "[up](../README.md) [c](../galaxy.yml) [gone](gone.md)",
}
PAGES_OF_SITE = sorted([*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md"), CHECKOUT / "docs/docsite/index.md"])
START = "[r](../../README.md#use) [a](../a.md) ![way](flow.svg) [o](https://example.com/x)"


def test_the_start_page_leads_to_every_guide_once():
    text = (CHECKOUT / "docs/docsite/index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    named = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    pages = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")]
    # a page may have another title there
    named = [re.sub(r"^.* <(.*)>$", r"\1", line) for line in named]
    there = sorted(str(path.relative_to(CHECKOUT).with_suffix("")) for path in pages)
    assert sorted(named) == sorted([*there, f"{docs.REFERENCE}/index"])


def test_who_comes_first_is_led_to_guides_before_the_reference():
    text = (CHECKOUT / "docs/docsite/index.md").read_text(encoding="utf-8")
    before, *chapters = text.split("```{toctree}")
    for guide in ("first_cloud_node.md", "first_dedicated_server.md", "consent.md", "#try-it-without-an-account"):
        assert guide in before, "what a person clicks first"
    picture = re.search(r"^!\[[^\]]+\]\(flow\.svg\)$", before, re.MULTILINE)
    assert picture
    assert picture.start() < before.index("first_cloud_node.md")
    names = [re.findall("^:caption: (.*)$", chapter, re.MULTILINE) for chapter in chapters]
    assert names == [["Begin"], ["Playbooks and roles"], ["Guides"], ["Reference"], ["The project"]]
    assert f"{docs.REFERENCE}/index" in chapters[3]
    # a reference is for what users call: of the filters that are for our playbooks alone, only the one that holds them
    filters = {path.stem for path in (CHECKOUT / "plugins/filter").glob("*.py")}
    assert filters == {"install_plan", "internal", "local_path", "machine_specs", "node_user_data", "preprov_images"}


def odd_rows(text: str) -> list[str]:
    """Rows of tables that have more or fewer cells than the first row of their table; a bar in a cell is ``\\|``."""
    found, cells = [], 0
    for line in re.sub(r"(?ms)^```.*?^```$", "", text).splitlines():
        now = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        found += [line] if cells and now and now != cells else []
        cells = cells if cells and now else now
    return found


@pytest.mark.parametrize("path", PAGES_OF_SITE, ids=lambda path: path.stem)
def test_a_page_of_the_site_has_one_title_whole_tables_and_headings_in_their_order(path: Path):
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text(encoding="utf-8"))
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert [(one, two) for one, two in itertools.pairwise(levels) if two > one + 1] == []
    assert odd_rows(text) == []


def test_a_table_that_a_bar_in_a_cell_breaks_is_found():
    rows = ["| `x || y` | c |", "| d |"]
    table = ["| a | b |", "|---|---|", "| `x \\| y` | c |", *rows, "", "| one |", "|---|", "| e |"]
    assert odd_rows("\n".join(table)) == rows


def test_the_style_of_the_site_is_taken_and_lets_tables_of_a_narrow_screen_wrap():
    assert 'html_css_files = ["style.css"]' in docs._SETTINGS
    style = (CHECKOUT / "docs/docsite/style.css").read_text(encoding="utf-8")
    assert re.search(r"\.wy-table-responsive table td,[^{]*\{\s*white-space: normal;", style)
    assert not re.search(r"url\(|@import", style), "it loads nothing"


def test_the_picture_of_the_start_page_shows_every_boot_state_in_its_order_and_loads_nothing():
    folder = CHECKOUT / "docs/docsite"
    assert "](flow.svg)" in (folder / "index.md").read_text(encoding="utf-8")
    text = (folder / "flow.svg").read_text(encoding="utf-8")
    shown = [element.text for element in ElementTree.fromstring(text).iter() if element.get("class") == "state"]
    assert tuple(shown) == tuple(state for state in boot_states.ORDER if state)
    assert not re.search(r"<script|href|url\((?!#)|@import", text)


def test_links_of_a_guide_stay_in_the_site_or_lead_to_the_repository(tmp_path: Path):
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    files = {**PAGES, "LICENSES/GPL": "", "plugins/x.py": "", "galaxy.yml": "repository: https://example.com/us\n"}
    beside = {"docs/docsite/index.md": START, "docs/docsite/flow.svg": "way", "docs/docsite/style.css": "look"}
    put_files(checkout, {**files, **beside})
    site.mkdir()
    docs.put_guides(checkout, site, docs.repository_of(checkout))
    assert (site / "docs/docsite/flow.svg").read_text() == "way"
    assert (site / "docs/docsite/style.css").read_text() == "look"
    main = "https://example.com/us/blob/main"
    assert {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.md")} == {
        "README.md": f"[a](docs/a.md#one) [l]({main}/LICENSES) [t]({main}/plugins/x.py#L1) "
        "[o](https://example.com/docs/a.md) [h](#here)",
        # what is nowhere is left for the check of the links
        "docs/a.md": f"[up](../README.md) [c]({main}/galaxy.yml) [gone](gone.md)",
        "index.md": "[r](README.md#use) [a](docs/a.md) ![way](docs/docsite/flow.svg) [o](https://example.com/x)",
    }


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/picture.svg").touch()
    (tmp_path / "docs/a b.html").write_text(
        '<h1 id="one"></h1><a name="two"></a><img src="picture.svg"><a href="#one">'
    )
    good = ["docs/a%20b.html", "docs/a%20b.html#one", "docs/a%20b.html#two", "#", "https://example.com/x", "mailto:a@b"]
    bad = ["docs/b.html", "docs/a%20b.html#three", "#here", "docs", "/"]
    (tmp_path / "index.html").write_text("".join(f'<a href="{link}">' for link in [*good, *bad, *bad]))
    assert docs.dead_links(tmp_path) == [f"index.html: {link}" for link in bad]
