# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image URLs: what Go's url.ParseRequestURI takes, and what of them may be shown."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import masking
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.image_url import (
    InvalidImageURL,
    check_image_url,
)

TAKEN = [
    "https://images.example.com/debian.raw.zst",
    "https://images.example.com/debian.raw.zst#sha256=00ff",
    "oci://registry.example.com/images/node:v1",
    "http://foo.com",
    "http://foo.com/",
    "http://foo.com?q=%zz",
    "HTTP://FOO.COM:80/x",
    "/path",
    "/",
    "//not.a.user@%66%6f%6f.com/just/a/path/also",
    "//not.a.user@not.a.host/just/a/path",
    "*",
    "http://192.168.0.1/",
    "http://192.168.0.1:8080/",
    "http://192.168.0.1:/",
    "http://[fe80::1]/",
    "http://[fe80::1]:8080/",
    "http://[fe80::1%25en0]/",
    "http://[fe80::1%25en0]:8080/",
    "http://[fe80::1%25%65%6e%301-._~]/",
    "http://[::ffff:192.0.2.1]/x",
    "http://[::]/",
    "http://user:password@host/",
    "http://a!$&'()*+,;=-_.~b@host/",
    "http://[::1]?x",
    "foo:",
    "mailto:user@example.com",
    "http://host/path with spaces",
    "http://host/%41%e4%20",
    "http://%C3%BC.example/",
    "http://bücher.example/ü",
    "http://!$&'()*+,;=hello!:1/path",
    'http://a<b>"c/',
    "https:///path",
    "https:/path",
    "1http:/x/../y".replace("1http", "h1+.-"),
]
REFUSED = {
    "": "it is empty",
    "foo.html": "neither an absolute URL",
    "../dir/": "neither an absolute URL",
    " http://foo.com": "neither an absolute URL",
    "images.example.com/debian.raw": "neither an absolute URL",
    "1http://x": "neither an absolute URL",
    "?x=/y": "neither an absolute URL",
    "#/x": "neither an absolute URL",
    ":foo": "the scheme before the first colon is missing",
    "http://192.168.0.%31/": "the escape %31",
    "http://192.168.0.%31:8080/": "the escape %31",
    "http://%41:8080/": "the escape %41",
    "http://[fe80::%31]/": "the escape %31",
    "http://[fe80::%31]:8080/": "the escape %31",
    "http://[fe80::%31%25en0]/": "the escape %31",
    "http://[fe80::1%en0]/": "needs two hexadecimal digits",
    "http://[fe80::1%25%0aen0]/": "the zone of the IPv6 address holds the escape",
    "http://[fe80::1%25]/": "the zone of the IPv6 address is empty",
    "http://[::1": "']'",
    "http://[1.2.3.4]/": "not an IPv6 address",
    "http://[::1::]/": "not an IPv6 address",
    "http://[1:2:3:4:5:6:7]/": "not an IPv6 address",
    "http://[::12345]/": "not an IPv6 address",
    "http://[::1.2.3.256]/": "not an IPv6 address",
    "http://[::1.2.3.04]/": "not an IPv6 address",
    "http://[1:2:3:4:5:6:7::8]/": "not an IPv6 address",
    "http://[:1::2]/": "not an IPv6 address",
    "http://x[::1]/": "'[' inside of the host",
    "http://::1/": "the port after the host",
    "http://a:1:2/": "the port after the host",
    "http://host:x/": "the port after the host",
    "http://host:80a/": "the port after the host",
    "http://[::1]x/": "the port after the host",
    "http://a b.com/": "the host holds ' '",
    "http://a|b/": "the host holds '|'",
    "http://a\\b/": "the host holds",
    "http://host#sha256=00": "the host holds '#'",
    "http://us\\er:pass@host/": "the user info before '@'",
    "http://us er@host/": "the user info before '@'",
    "http://user:%zz@host/": "needs two hexadecimal digits",
    "http://host/%": "needs two hexadecimal digits",
    "http://host/%1": "needs two hexadecimal digits",
    "http://host/%zz": "needs two hexadecimal digits",
    "http://host/x#%zz": "needs two hexadecimal digits",
    "http://foo.com/\x7f": "a control character",
    "http://foo.com/a\nb": "a control character",
    "http://foo.com/\x00": "a control character",
    "\thttp://foo.com": "a control character",
}
USERINFO = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=", min_size=4, max_size=20)
WORD = st.text(string.ascii_letters + string.digits, min_size=4, max_size=20)


@pytest.mark.parametrize("url", TAKEN)
def test_what_go_takes_is_taken(url):
    assert check_image_url(url) == url


@pytest.mark.parametrize(("url", "why"), REFUSED.items(), ids=repr)
def test_what_go_refuses_is_refused(url, why):
    with pytest.raises(InvalidImageURL) as refusal:
        check_image_url(url)
    assert why in str(refusal.value)


@given(st.text(max_size=40))
def test_nothing_else_than_a_refusal_is_ever_raised(text):
    for url in (text, "http://" + text, "http://[" + text + "]/"):
        try:
            assert check_image_url(url) == url
        except InvalidImageURL as refusal:
            assert str(refusal)


@given(st.text(st.characters(codec="utf-8", exclude_characters="%", min_codepoint=0x20), max_size=30))
def test_any_path_without_escapes_and_controls_is_taken(path):
    if "\x7f" not in path:
        assert check_image_url("https://host/" + path)


@given(USERINFO, USERINFO, WORD, WORD, WORD)
def test_what_is_recorded_holds_no_credentials(user, password, path, query, fragment):
    url = f"https://{user}:{password}@host.example:8080/{path}?token={query}#sha256={fragment}"
    check_image_url(url)
    assert image_url.redact(url) == f"https://host.example:8080/{path}"
    secrets = masking.of_url(url)
    assert password in secrets
    assert f"token={query}" in secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/images/a.raw?x#y", "/images/a.raw"),
        ("//user@host/x", "//host/x"),
        ("oci://registry/a@sha256:00", "oci://registry/a@sha256:00"),
        ("docker:user:secret@host", "docker:host"),
        ("oci:repository@sha256:00", "oci:repository@sha256:00"),
        ("https://u:p@ss@host/x", "https://host/x"),
        ("*", "*"),
        ("https//user:secret@host/x", "…@host/x"),
        ("user:secret@host/x", "user:host/x"),
        ("/images/a:b@c.raw", "/images/a:b@c.raw"),
        ("images/a@b.raw", "images/a@b.raw"),
    ],
)
def test_redaction_keeps_what_is_no_credential(url, shown):
    assert image_url.redact(url) == shown


HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("url", "digest"),
    [
        (f"https://x/a#sha256={HEX}", f"sha256:{HEX}"),
        (f"https://x/a?b=c#grow=no&sha256={HEX.upper()}", f"sha256:{HEX}"),
        (f"/images/a#sha512={HEX}{HEX}", f"sha512:{HEX}{HEX}"),
        (f"oci://x/a:v1@sha256:{HEX}#grow=no", f"sha256:{HEX}"),
        (f"OCI://x/a@sha512:{HEX}{HEX}", f"sha512:{HEX}{HEX}"),
    ],
)
def test_a_digest_in_the_url_is_found(url, digest):
    assert image_url.digest_in(url) == digest


@pytest.mark.parametrize(
    "url",
    [
        "https://x/a", "https://x/a#sha256=none", f"https://x/a?sha256={HEX}", f"https://x/sha256={HEX}",
        f"https://x/a#sha256={HEX[:-1]}", f"https://x/a#sha1={HEX}", f"https://x/a@sha256:{HEX}", "oci://x/a:v1",
        f"oci://x/a:v1#sha256={HEX}", f"oci://x@sha256:{HEX}/a:v1", "", f"https://x/a#sha256={HEX}\n",
    ],
)  # fmt: skip
def test_what_pins_nothing_is_no_digest(url):
    assert image_url.digest_in(url) == ""
