# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms, limits, lock-out and descriptions of dedicated servers, without a lab."""

from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.robot import model, routes_dedicated
from lab.robot.model import SpecError
from lab.robot.robot_http import LIMITS, Form, Limits, Lockout, RobotError
from tests.key_pairs import public_key

ROUTE = "POST /wol/{server}"
#: A busy host is no failure.
unhurried = settings(deadline=None)


class TestForms:
    @unhurried
    @given(st.dictionaries(st.text("abc_", min_size=1), st.text(min_size=1)))
    def test_every_field_comes_back(self, fields):
        form = Form(urlencode(fields))
        assert {name: form.text(name) for name in fields} == fields

    @unhurried
    @given(st.lists(st.text(min_size=1)))
    def test_lists_come_back_however_they_are_written(self, values):
        plain = urlencode([("key[]", value) for value in values])
        indexed = urlencode([(f"key[{index}]", value) for index, value in enumerate(values)])
        assert Form(plain).many("key") == Form(indexed).many("key") == values

    @unhurried
    @given(st.text())
    def test_any_body_is_bearable(self, text):
        Form(text).many("key")

    def test_too_many_fields_count_as_none(self):
        assert Form("&".join(["a=1"] * 1001)).text("a") == ""

    def test_everything_missing_is_named(self):
        with pytest.raises(RobotError) as refusal:
            Form("b=1&c=").require("a", "b", "c")
        assert refusal.value.body()["error"]["missing"] == ["a", "c"]


class TestLimits:
    @unhurried
    @given(st.lists(st.floats(0, 1000), max_size=200))
    def test_never_more_than_the_limit_within_any_hour(self, pauses):
        now, taken = 0.0, []
        limits = Limits(lambda: now)
        for pause in pauses:
            now += pause
            left = limits.remaining(ROUTE)
            try:
                limits.take(ROUTE)
            except RobotError:
                assert left == 0
            else:
                assert left > 0
                taken.append(now)
        for first in taken:
            assert sum(first <= at < first + 3600 for at in taken) <= LIMITS[ROUTE]

    def test_routes_do_not_share(self):
        limits = Limits(lambda: 0.0)
        limits.leave(ROUTE, 0)
        limits.take("GET /wol/{server}")
        limits.take("GET ")
        with pytest.raises(RobotError):
            limits.take(ROUTE)

    def test_a_shorter_window_begins_with_the_next_request(self):
        now = 0.0
        limits = Limits(lambda: now)
        limits.leave(ROUTE, 1, 8)
        now = 100.0
        assert limits.remaining(ROUTE) == 1
        limits.take(ROUTE)
        with pytest.raises(RobotError):
            limits.take(ROUTE)
        now = 108.0
        assert limits.remaining(ROUTE) == LIMITS[ROUTE]
        limits.take(ROUTE)


class TestLockout:
    @unhurried
    @given(st.lists(st.tuples(st.booleans(), st.floats(0, 700)), max_size=60))
    def test_like_a_plain_model(self, logins):
        now, failures, until = 0.0, [], -1.0
        lockout = Lockout(lambda: now)
        for good, pause in logins:
            now += pause
            assert lockout.locked_out("a") == (now < until)
            assert not lockout.locked_out("b")
            if now < until:
                continue
            if good:
                lockout.succeeded("a")
                failures = []
                continue
            lockout.failed("a")
            failures = [at for at in failures if now - at < 600] + [now]
            if len(failures) == 3:
                failures, until = [], now + 600


class TestKeys:
    @pytest.mark.parametrize("make", [model.make_host_keys, model.make_public_host_keys])
    def test_rsa_size_is_of_the_modulus(self, make):
        made = make()
        assert [key.type for key in made] == ["ECDSA", "ED25519", "RSA"]
        for key in made:
            parsed = routes_dedicated.parse_key("k", f"{key.public} comment", 0.0)
            assert (parsed.type, parsed.size, parsed.data) == (key.type, key.size, key.public)

    @unhurried
    @given(st.text())
    def test_nonsense_is_refused(self, text):
        with pytest.raises(RobotError):
            routes_dedicated.parse_key("k", f"ssh-rsa {text}", 0.0)

    def test_fingerprints_may_be_written_without_colons(self):
        fingerprint = routes_dedicated.parse_key("k", public_key(), 0.0).fingerprint
        assert routes_dedicated.normal_fingerprint(fingerprint.replace(":", "").upper()) == fingerprint


class TestSpecs:
    def test_defaults(self):
        ((number, spec),) = model.numbered(model.parse([{}]), ())
        assert (number, spec.product, spec.powered, spec.uefi, spec.image) == (2000001, "AX41-NVMe", True, False, None)
        first, second = spec.disk_specs(number)
        assert (first.kind, first.size_bytes, second.size_bytes) == ("nvme", 8 << 30, 8 << 30)
        assert first.wwn.startswith("eui.")
        assert (first.serial, first.wwn) != (second.serial, second.wwn)

    def test_numbers_are_given_around_those_asked_for(self):
        found = model.numbered(model.parse([{}, {"number": 2000002}, {}]), {2000001})
        assert [number for number, _spec in found] == [2000003, 2000002, 2000004]

    @unhurried
    @given(st.lists(st.integers(1, model.MAX_NUMBER), min_size=2, max_size=20, unique=True))
    def test_made_up_identities_never_meet(self, numbers):
        entries = [{"number": number, "disks": [{"size": "1G", "kind": "sata"}] * 15} for number in numbers]
        disks = [disk for number, spec in model.numbered(model.parse(entries), ()) for disk in spec.disk_specs(number)]
        assert len({disk.wwn for disk in disks}) == len({disk.serial for disk in disks}) == len(disks)
        assert {len(disk.wwn) for disk in disks} == {18}
        assert max(len(disk.serial) for disk in disks) <= 20

    def test_everything_can_be_said(self):
        disk = {
            "size": "1T",
            "kind": "sata",
            "serial": "Z1",
            "wwn": "0x5002538d40aa0001",
            "model": "ST 1",
            "rotational": True,
        }
        (spec,) = model.parse({"number": 1, "uefi": True, "swaps_letters": True, "disks": [disk], "reset": ["hw"]})
        (made,) = spec.disk_specs(1)
        assert (made.size_bytes, made.serial, made.wwn, made.model, made.rotational) == (
            1 << 40,
            "Z1",
            "0x5002538d40aa0001",
            "ST 1",
            True,
        )

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("text", "dedicated machine 1"),
            ({"nmae": "a"}, "unknown key 'nmae'"),
            ({"name": "a", "cores": "2"}, "('a'): cores '2'"),
            ({"number": 0}, "number 0"),
            ({"number": 60_000_000}, "number 60000000"),
            ({"disks": []}, "disks []"),
            ({"disks": [{"size": "8G", "kind": "scsi"}]}, "disks.0.kind 'scsi'"),
            ({"disks": [{"size": "8 GB", "kind": "sata"}]}, "'8 GB' is no size"),
            ({"disks": [{"size": "1000001", "kind": "sata"}]}, "whole sectors"),
            ({"disks": [{"size": True, "kind": "sata"}]}, "no size"),
            ({"disks": [{"size": "8G", "kind": "sata", "wwn": "eui.0000000000000001"}]}, "wwn 'eui.0000000000000001'"),
            ({"disks": [{"size": "8G", "kind": "nvme", "rotational": True}]}, "does not rotate"),
            ({"disks": [{"size": "8G", "kind": "nvme", "lable": 1}]}, "unknown key 'disks.0.lable'"),
            ({"reset": ["hw", "hw"]}, "names a type twice"),
            ({"reset": ["soft"]}, "reset.0 'soft'"),
        ],
    )
    def test_one_clear_error(self, entry, said):
        with pytest.raises(SpecError) as error:
            model.parse([entry])
        assert said in str(error.value)

    @pytest.mark.parametrize(
        ("entries", "said"),
        [
            ([{"number": 5}, {"number": 5}], "server number 5 is taken"),
            ([{"number": 9}], "server number 9 is taken"),
            ([{"disks": [{"size": "1G", "kind": "sata", "serial": "A"}] * 2}], "two disks have the serial 'A'"),
        ],
    )
    def test_what_meets_is_refused(self, entries, said):
        with pytest.raises(SpecError, match=said):
            model.numbered(model.parse(entries), {9})

    def test_no_list(self):
        with pytest.raises(SpecError, match="must be a list"):
            model.parse("a")
