# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/docs: the HTML documentation by antsibull-docs and Sphinx, in build/docs."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from .linters import copy_variables
from .paths import CHECKOUT, NAME, NAMESPACE
from .report import SetupError
from .trees import copied_tree

OUTPUT = CHECKOUT / "build" / "docs"


def main(arguments: list[str] | None = None) -> int:
    """Build the documentation and say where it lies."""
    argparse.ArgumentParser(prog="dev/docs", description=__doc__.partition(": ")[2]).parse_args(arguments)
    folder = copied_tree("docs")
    environment = copy_variables(folder)
    # not in the checkout: antsibull-docs wants folders that others cannot write to
    site = folder.parents[2] / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(mode=0o755)
    collection = "%s.%s" % (NAMESPACE, NAME)
    sphinx_init = ["antsibull-docs", "sphinx-init", "--use-current", "--squash-hierarchy", "--lenient"]
    _run([*sphinx_init, "--project", collection, "--dest-dir", str(site), collection], site, environment)
    rst = ["antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--dest-dir", str(site / "rst")]
    (site / "rst").mkdir(mode=0o755, exist_ok=True)
    _run([*rst, collection], site, environment)
    _run(
        ["sphinx-build", "-q", "-b", "html", "-c", str(site), str(site / "rst"), str(site / "html")],
        site,
        environment,
    )
    shutil.rmtree(OUTPUT, ignore_errors=True)
    shutil.copytree(site / "html", OUTPUT)
    print("documentation: %s" % (OUTPUT / "index.html"))
    return 0


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SetupError("%s failed:\n%s" % (" ".join(command), done.stdout[-3000:]))
