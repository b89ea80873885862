# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several tests need."""

from hypothesis import settings

#: examples may take their time: the machine may have other work
unhurried = settings(deadline=None)

#: a certificate made by OpenSSL for these tests
CA = """\
-----BEGIN CERTIFICATE-----
MIIBjTCCATOgAwIBAgIUC0kgmBN7MNVpNoRIalO3OmZudPMwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQa3ViZW5vZGUgdGVzdCBDQTAgFw0yNjExMjExNDA3NTNaGA8y
MTI2MTAyODE0MDc1M1owGzEZMBcGA1UEAwwQa3ViZW5vZGUgdGVzdCBDQTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABANL5fuFN50dDuam28/+uCr8CU/YFeFBnvuF
zVj9UVOQMHTzhI4m9kKde52Mx1uuo3U3kUL7h6ZYe8UwU5WpzcajUzBRMB0GA1Ud
DgQWBBRsuDYq38OBeoHvAL++Gnm++ZPOyjAfBgNVHSMEGDAWgBRsuDYq38OBeoHv
AL++Gnm++ZPOyjAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQCs
adRw1CYFbAPj8kLtXpPHkA6LVxuTNC3yI+VMQzb/zQIgXuKLAf+sAC9zf0SdXdnH
dp/XNGBqsc8T5Tcmx9BiXIU=
-----END CERTIFICATE-----
"""
