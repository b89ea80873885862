# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program on the newest Python that it takes, in a Debian that has no other one (nor has Ubuntu 26.04)."""

import json
import subprocess
from pathlib import Path

import pytest

from dev.toolchain import release
from dev.toolchain.paths import CHECKOUT
from lab import cache
from lab.images.bootstrap import bootstrap
from lab.images.recipe import Recipe
from tests.integration.runs import LIMIT

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(1800)]

RECIPE = Recipe("python", ("python3.14",), suite="sid", like="debian")
#: SCRATCH TREE PROGRAM REPORTS ARGUMENTS…: the program over the tree, which stays as it is
RUN = """
set -e
scratch=$1 root=$1/root
mount -t tmpfs scratch "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$root"
mount -t overlay -o "lowerdir=$2,upperdir=$scratch/upper,workdir=$scratch/work" root "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs run "$root/run"
mount --bind "$4" "$root/mnt"
install -m 0755 "$3" "$root/root/provision"
shift 4
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LANG=C REPORT_DIR=/mnt /root/provision "$@"
"""


@pytest.fixture(scope="module")
def tree() -> Path:
    """The root file system, made once."""

    def build(folder: Path) -> None:
        bootstrap(RECIPE, folder / "tree", cache.root() / "packages-sid", print)

    found = cache.once(cache.root() / f"python-tree-{RECIPE.digest}", build, "python-tree") / "tree"
    assert [path.name for path in (found / "usr/bin").glob("python*")] == ["python3.14"]
    return found


def run(tree: Path, folder: Path, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    for name in ("scratch", "reported"):
        (folder / name).mkdir(exist_ok=True)
    command = ["unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "sh", "-c", RUN, "sh"]
    given = [folder / "scratch", tree, program, folder / "reported", *arguments]
    return subprocess.run(
        [*command, *map(str, given)], capture_output=True, text=True, check=False, timeout=LIMIT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_run_from_its_first_line_to_its_last(tree: Path, program: Path, tmp_path: Path) -> None:
    done = run(tree, tmp_path, program, "--phase", "base", "--set", "base_packages_extra=[jq]", "--verbose")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "reported/variables.json").read_text())["base_packages_extra"] == ["jq"]
    assert "Traceback" not in done.stderr


def test_the_role_looks_at_the_machine_and_judges_it(tree: Path, tmp_path: Path) -> None:
    real = tmp_path / "provision"
    real.write_bytes(release.provision_program(release.collection_files(CHECKOUT), "1.2.3", preset=0))
    done = run(tree, tmp_path, real, "--phase", "base")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is not supported; supported are Debian 12" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
