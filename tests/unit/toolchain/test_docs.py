# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make docs`: every guide has its place in the site, the picture shows the boot states, and dead links are found."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from dev.toolchain import docs
from dev.toolchain.paths import CHECKOUT
from tests.folders import put_files

PAGES = {
    "README.md": "[a](docs/a.md#one) [l](LICENSES) [t](plugins/x.py#L1) [o](https://example.com/docs/a.md) [h](#here)",
    "docs/a.md": "[up](../README.md) [c](../galaxy.yml) [gone](gone.md)",
}
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
    put_files(checkout, {**files, "docs/docsite/index.md": START, "docs/docsite/flow.svg": "way"})
    site.mkdir()
    docs.put_guides(checkout, site, docs.repository_of(checkout))
    assert (site / "docs/docsite/flow.svg").read_text() == "way"
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
