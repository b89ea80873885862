# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/lint: every linter side by side, one line each, all of them even when one fails."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from . import environments, rules
from .environments import variables
from .paths import CHECKOUT, NAME, NAMESPACE, cache, copied_tree, linked_tree, tracked_files

#: what a built collection may have at its top
SHIPPED = {
    "CHANGELOG.md", "CHANGELOG.rst", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "COPYING", "FILES.json", "LICENSES",
    "MAINTAINERS.md", "MANIFEST.json", "README.md", "REUSE.toml", "SECURITY.md", "changelogs", "docs", "extensions",
    "meta", "playbooks", "plugins", "roles",
}  # fmt: skip

#: ansible-test fetches this program from a host of its own; ensurepip's wheel does the same from the machine itself
GET_PIP = """\
import ensurepip, glob, os, sys, sysconfig
# Debian keeps the wheels outside of ensurepip
folders = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
folders += filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR"), "/usr/share/python-wheels"])
wheels = [wheel for folder in folders for wheel in sorted(glob.glob(os.path.join(folder, "pip-*.whl")))]
if not wheels:
    sys.exit("ensurepip of %s has no pip wheel; on Debian and Ubuntu install python3-venv" % sys.executable)
sys.path.insert(0, wheels[0])
from pip._internal.cli.main import main
arguments = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(main(["install", "--upgrade", "--force-reinstall"] + arguments))
"""
#: the names under which ansible-test 2.18 … 2.21 looks for it
GET_PIP_NAMES = ("get_pip_24_2.py", "get_pip_25_2.py")


@dataclass
class Job:
    """One running linter: its log file, and how it starts programs."""

    log: Path

    def write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as handle:
            handle.write(text)

    def run(self, command: list[str], folder: Path = CHECKOUT, environment: dict[str, str] | None = None) -> bool:
        """Run a program, its output goes to the log; True when it ended well."""
        self.write(f"+ {' '.join(command)}\n")
        with self.log.open("ab") as handle:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment or variables(),
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return done.returncode == 0

    def none(self, findings: list[str]) -> bool:
        """Log the findings of a check of ours; True when there are none."""
        self.write("".join(finding + "\n" for finding in findings))
        return not findings


@dataclass(frozen=True)
class Linter:
    """One line of `make lint`."""

    name: str
    run: Callable[[Job], bool]
    environments: list[str] = field(default_factory=lambda: ["main"])
    #: which lines of a failed linter's log are worth the terminal
    telling: str = ""


def copy_variables(folder: Path, name: str = "main") -> dict[str, str]:
    """Variables under which tools find a copy of the collection instead of the checkout."""
    trees = variables()["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[1:]
    return variables(name, trees=[folder.parents[2], *map(Path, trees)])


def ansible_test(core: str, name: str) -> Linter:
    """Sanity tests of one ansible-core; there are no ignore files."""

    def run(job: Job) -> bool:
        folder = copied_tree(core)
        ignores = sorted(str(path.relative_to(folder)) for path in folder.glob("tests/sanity/ignore-*"))
        environment = variables(name, trees=[folder.parents[2]], every_python=True)
        environment["HOME"] = str(_home(core))
        clean = job.none([path + ": sanity ignore files are not allowed here" for path in ignores])
        return job.run(["ansible-test", "sanity", "--color", "no"], folder, environment) and clean

    return Linter("sanity-" + core, run, ["main", name], telling=r"ERROR|FATAL|Traceback|\w+Error:")


def _home(core: str) -> Path:
    """A home folder for ansible-test, so that nothing is put into the user's own and cores do not meet."""
    folder = cache() / ("ansible-test-" + core)
    downloads = folder / ".ansible" / "test" / "cache"
    downloads.mkdir(parents=True, exist_ok=True)
    for name in GET_PIP_NAMES:
        (downloads / name).write_text(GET_PIP, encoding="utf-8")
    _keep_pip_settings(folder)
    return folder


def _keep_pip_settings(folder: Path) -> None:
    """ansible-test passes HOME to pip but no PIP_ variables; the user's mirror settings must still reach it."""
    settings = {
        name[len("PIP_") :].lower().replace("_", "-"): value
        for name, value in sorted(os.environ.items())
        if name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_PROXY", "PIP_TRUSTED_HOST")
    }
    target = folder / ".config" / "pip" / "pip.conf"
    for own in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        if own.exists() and not settings:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(own.read_bytes())
            target.chmod(0o600)
            return
    if settings:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(
            "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8"
        )


def ansible_lint(job: Job) -> bool:
    folder = copied_tree("lint")
    return job.run(["ansible-lint", "--offline", "--strict", "--nocolor"], folder, copy_variables(folder))


def importer(job: Job) -> bool:
    """Build the collection and import it as Galaxy would; a warning counts as a finding."""
    folder = copied_tree("importer")
    output = folder.parents[2] / "built"
    build = ["ansible-galaxy", "collection", "build", "--force", "--output-path", str(output), str(folder)]
    if not job.run(build):
        return False
    tarball = max(output.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(tarball) as archive:
        strangers = sorted({name.split("/")[0] for name in archive.getnames()} - SHIPPED)
    clean = job.none([f"galaxy.yml: build_ignore lacks {name}" for name in strangers])
    environment = copy_variables(folder, "importer")
    configuration = output / "galaxy-importer.cfg"
    configuration.write_text("[galaxy-importer]\nLOG_LEVEL_MAIN = INFO\nRUN_ANSIBLE_LINT = False\n", encoding="utf-8")
    environment["GALAXY_IMPORTER_CONFIG"] = str(configuration)
    imported = job.run(["python", "-m", "galaxy_importer.main", str(tarball)], output, environment)
    warnings = [line for line in job.log.read_text(encoding="utf-8").splitlines() if line.startswith("WARNING")]
    return imported and not warnings and clean


def ruff(job: Job) -> bool:
    """Rules and format; programs without a suffix are named one by one."""
    names = [name for name in tracked_files() if not name.endswith(".py")]
    extra = [name for name in names if rules.language(CHECKOUT, name) == "python"]
    checked = job.run(["ruff", "check", "--force-exclude", "--output-format", "concise", ".", *extra])
    return (
        job.run(["ruff", "format", "--check", "--output-format", "concise", "--force-exclude", ".", *extra]) and checked
    )


def words(job: Job) -> bool:
    """Words that no file may have, and plain words for readers."""
    names = tracked_files()
    return job.none(rules.forbidden_words(CHECKOUT, names) + rules.plain_words(CHECKOUT, names))


def yamllint(job: Job) -> bool:
    names = [name for name in tracked_files() if name.endswith((".yml", ".yaml")) or name == ".ansible-lint"]
    return job.run(["yamllint", "--strict", "--format", "parsable", *names])


def docs(job: Job) -> bool:
    folder = copied_tree("docs")
    # antsibull-docs refuses folders others may write to
    folder.chmod(0o755)
    command = ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=all"]
    command += ["--disallow-unknown-collection-refs", "--check-extra-docs-refs", "."]
    return job.run(command, folder, copy_variables(folder))


def changelog(job: Job) -> bool:
    folder = copied_tree("changelog")
    return job.run(["antsibull-changelog", "lint"], folder, copy_variables(folder))


def shellcheck(job: Job) -> bool:
    return job.run(["shellcheck", *(name for name in tracked_files() if rules.language(CHECKOUT, name) == "sh")])


def mypy(job: Job) -> bool:
    """Types of all Python sources but the tests; plugins go by the name they import each other by."""
    tree = linked_tree()
    packages = ["lab", "dev", "provision", f"ansible_collections.{NAMESPACE}.{NAME}.plugins"]
    command = ["mypy", "--cache-dir", str(CHECKOUT / "build" / "mypy"), "--show-absolute-path"]
    for package in packages:
        command += ["-p", package]
    path = os.pathsep.join([str(tree), str(CHECKOUT)])
    clean = job.run(command, environment=dict(variables(), MYPYPATH=path))
    log = job.log.read_text(encoding="utf-8")
    for folder in (tree / "ansible_collections" / NAMESPACE / NAME, CHECKOUT):
        # findings name files relative to the checkout, as those of other linters do
        log = re.sub(f"(?m)^{re.escape(str(folder))}/", "", log)
    job.log.write_text(log, encoding="utf-8")
    return clean


#: the longest first, so that two cores end together
LINTERS = [
    ansible_test("2.19", "main"),
    ansible_test("2.18", "core-2.18"),
    ansible_test("2.20", "core-2.20"),
    ansible_test("2.21", "core-2.21"),
    Linter("ansible-lint", ansible_lint),
    Linter("galaxy-importer", importer, ["main", "importer"]),
    Linter("mypy", mypy),
    Linter("docs", docs),
    Linter("reuse", lambda job: job.run(["reuse", "lint", "--quiet"]) or job.run(["reuse", "lint", "--lines"])),
    Linter("changelog", changelog),
    Linter("yamllint", yamllint),
    Linter("shellcheck", shellcheck),
    Linter("ruff", ruff),
    Linter("borders", lambda job: job.none(rules.crossings(CHECKOUT, tracked_files()))),
    Linter("numbers", lambda job: job.none(rules.numbers(CHECKOUT, tracked_files()))),
    Linter("words", words),
    Linter("length", lambda job: job.none(rules.too_long(CHECKOUT, tracked_files()))),
]


LOGS = CHECKOUT / "build" / "lint"
#: lines of a failed linter's log shown in the terminal; the rest is in the file
SHOWN = 60


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen linters; 0 when all are content."""
    parser = argparse.ArgumentParser(prog="dev/lint", description=__doc__.partition(": ")[2])
    parser.add_argument("--list", action="store_true", help="print the linters' names")
    parser.add_argument("names", nargs="*", metavar="LINTER", help="default: all")
    chosen = parser.parse_args(arguments)
    known = {linter.name: linter for linter in LINTERS}
    if chosen.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error(f"linter {unknown[0]} is unknown; there are {', '.join(known)}")
    linters = [known[name] for name in dict.fromkeys(chosen.names)] or LINTERS
    _prepare(linters)
    return _run(linters)


def _prepare(linters: list[Linter]) -> None:
    """Make all environments first, so that the linters' times are their own."""
    environments.ensure_debian(["base"])
    for name in dict.fromkeys(name for linter in linters for name in linter.environments):
        environments.ensure(name)
    environments.variables()


def _run(linters: list[Linter]) -> int:
    """Run side by side, print each result as it comes."""
    LOGS.mkdir(parents=True, exist_ok=True)
    start, failed = time.monotonic(), []
    with ThreadPoolExecutor(max_workers=max(2, min(4, os.cpu_count() or 2))) as pool:
        running = {pool.submit(_one, linter): linter for linter in linters}
        for future in as_completed(running):
            linter = running[future]
            good, seconds, log = future.result()
            print(f"{'ok' if good else 'FAIL':<4} {linter.name:<16} {seconds:5.1f} s", flush=True)
            if not good:
                failed.append(linter.name)
                _show(log, linter.telling)
    verdict = "failed: " + ", ".join(failed) if failed else "all content"
    print(f"lint: {len(linters)} linters in {time.monotonic() - start:.0f} s, {verdict}")
    return 1 if failed else 0


def _one(linter: Linter) -> tuple[bool, float, Path]:
    """One linter, its log and its time; a fault of its own counts as a finding."""
    log = LOGS / (linter.name + ".log")
    log.write_text("", encoding="utf-8")
    start = time.monotonic()
    job = Job(log)
    try:
        good = linter.run(job)
    except (OSError, ValueError, SyntaxError) as error:
        job.write(f"{type(error).__name__}: {error}\n")
        good = False
    return good, time.monotonic() - start, log


def _show(log: Path, telling: str) -> None:
    """The telling lines of a failed linter's log, or its end when there are none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    chosen = [line for line in lines if re.search(telling, line)] or lines
    for line in chosen[-SHOWN:]:
        print("     | " + line)
    if len(chosen[-SHOWN:]) < len(lines):
        print(f"     | the whole log: {log.relative_to(CHECKOUT)}")
