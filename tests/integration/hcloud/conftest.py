# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs our modules the way a user does, against a lab over real HTTP."""

from collections.abc import Iterator

import pytest

from tests.integration.accounts import CloudAccount


class Project(CloudAccount):
    """A project of the Cloud API, and our modules for it."""

    def machine(self, name: str, **more: object) -> dict[str, object]:
        """A machine as hcloud_machine takes it."""
        return {"name": name, "server_type": "cx23", "location": "fsn1", "ssh_keys": [self.key_name], **more}


@pytest.fixture
def project(lab_dry, tmp_path) -> Iterator[Project]:
    """A project with one SSH key and no servers; machines keep their power state only."""
    project = Project(lab_dry, tmp_path, "deploy")
    yield project
    project.stop()


@pytest.fixture
def real_project(lab_nspawn, tmp_path) -> Iterator[Project]:
    """A project whose machines really boot."""
    project = Project(lab_nspawn, tmp_path)
    yield project
    project.close()
