# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper that removes trees: links, mounts and bind mounts of the same file system are met and left."""

import ast
import os

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files

from .conftest import intact

IMPORT = "from ansible_collections.kubenode.provision.plugins.module_utils._common import safe_files"


def test_a_tree_goes_and_its_links_are_not_followed(tmp_path, precious):
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/file").write_text("x")
    os.symlink(precious, tree / "a/link")
    os.mkfifo(tree / "pipe")
    assert safe_files.remove(str(tree)) == []
    assert not tree.exists()
    assert intact(precious)


def test_a_link_goes_and_what_it_shows_stays(tmp_path, precious):
    os.symlink(precious, tmp_path / "link")
    assert safe_files.remove(str(tmp_path / "link")) == []
    assert not os.path.lexists(tmp_path / "link")
    os.symlink(precious, tmp_path / "again")
    with pytest.raises(OSError):
        safe_files.empty(str(tmp_path / "again"))
    assert intact(precious)


def test_what_is_not_there_is_no_error(tmp_path):
    assert safe_files.remove(str(tmp_path / "nothing")) == []
    assert safe_files.remove(str(tmp_path / "no/parent")) == []


def test_a_tree_that_is_too_deep_is_an_error_and_no_crash(tmp_path):
    parent = os.open(tmp_path, os.O_RDONLY)
    for _level in range(300):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    with pytest.raises(OSError, match="folders in each other"):
        safe_files.remove(str(tmp_path / "d"))


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "bind", "file"])
def test_mounts_are_left_with_the_folders_above_them(tmp_path, precious, in_namespace, kind):
    tree = tmp_path / "tree"
    (tree / "a/on").mkdir(parents=True)
    (tree / "a/other").write_text("x")
    (tree / "a/mask").write_text("x")
    target = tree / ("a/mask" if kind == "file" else "a/on")
    mount = {
        "tmpfs": f"mount -t tmpfs none {target} && cp -a {precious}/. {target}",
        "bind": f"mount --bind {precious} {target}",
        "file": f"mount --bind {precious}/file {target}",
    }[kind]
    out = in_namespace(
        f"""
        {IMPORT}
        import os
        sh({mount!r})
        left = safe_files.remove({str(tree)!r})
        shown = {str(target)!r}
        names = sorted(os.listdir(shown)) if os.path.isdir(shown) else open(shown).read()
        print((left, names, os.path.exists({str(tree / "a/other")!r})))
        """
    )
    left, names, other = ast.literal_eval(out)
    assert left == [str(target)]
    assert names == ("precious" if kind == "file" else ["deep", "file"])
    assert not other
    assert intact(precious)


@pytest.mark.root
def test_a_mount_point_is_emptied_only_when_it_is_named_itself(tmp_path, in_namespace):
    out = in_namespace(
        f"""
        {IMPORT}
        import os
        folder = {str(tmp_path)!r}
        sh("mount -t tmpfs none " + folder)
        os.chdir(folder)
        sh("mkdir -p a/b m && touch x && mount -t tmpfs none m && touch m/kept")
        first = safe_files.remove(folder), sorted(os.listdir(folder))
        print((first, safe_files.empty(folder), os.listdir(folder), os.listdir(folder + "/m")))
        """
    )
    folder = str(tmp_path)
    assert ast.literal_eval(out) == (([folder], ["a", "m", "x"]), [folder + "/m"], ["m"], ["kept"])
