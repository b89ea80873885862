# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surveys for AWX have what AWX takes, and answers that the playbooks take."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.provision.plugins.filter.internal import internal
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import awx, specification

#: What AWX calls its kinds of questions.
KINDS = {"text", "password", "integer", "float", "multiplechoice", "multiselect"}


@pytest.mark.parametrize("playbook", sorted(specification.playbooks()))
def test_every_playbook_has_a_survey_that_awx_takes(playbook):
    found = awx.survey(playbook)
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {"name", "description", "spec"}
    assert found["spec"] or playbook.startswith("node")
    for question in found["spec"]:
        assert question["type"] in KINDS
        assert question["required"] is False
        assert question["question_name"]
        assert "`" not in question["question_description"]
        assert "](" not in question["question_description"]
        # an answer that no person gave would count more than the inventory
        assert "default" not in question
        assert ("choices" in question) == question["type"].startswith("multi")


ANSWERS = {"text": "a", "password": "a", "integer": 1, "float": 1.5}


@pytest.mark.parametrize("playbook", sorted(specification.playbooks()))
def test_every_answer_is_a_value_of_its_variable(playbook):
    for question in awx.survey(playbook)["spec"]:
        variable = specification.variables()[question["variable"]]
        choices = question.get("choices", [])
        answers = (
            choices if question["type"] == "multiplechoice" else [choices] if choices else [ANSWERS[question["type"]]]
        )
        assert [specification.wrong_kind(variable, answer) for answer in answers] == [""] * len(answers)


def test_secrets_are_asked_as_passwords_and_dictionaries_not_at_all():
    questions = {one["variable"]: one for one in awx.survey("robot_installimage")["spec"]}
    assert questions["kubenode_crypt_password"]["type"] == "password"
    assert "kubenode_partitions" not in questions
    assert "kubenode_root_device_hints" not in questions
    # consent is given for one run, by a person who names what may go
    assert "kubenode_wipe" not in questions
    assert "kubenode_reinstall" not in questions


def test_questions_may_be_chosen_and_what_must_be_answered_is_first():
    found = internal(
        "hcloud_image_url", "survey", ["kubenode_location", "kubenode_server_type"], ["kubenode_server_type"]
    )
    assert [(one["variable"], one["required"]) for one in found["spec"]] == [
        ("kubenode_server_type", True),
        ("kubenode_location", False),
    ]


@pytest.mark.parametrize("name", ["kubenode_wipe", "kubenode_zzz", "kubenode_labels"])
def test_what_no_question_can_give_is_an_error(name):
    with pytest.raises(ValueError, match=f"{name}: no question of hcloud_image_url can give it"):
        awx.survey("hcloud_image_url", [name])
    with pytest.raises(ValueError, match="'hcloud_nothing' takes no variables; use one of "):
        awx.survey("hcloud_nothing")
