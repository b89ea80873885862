#!/bin/sh
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The head of the program `provision`: finds a Python that can run the zip archive behind these lines.
fits() { command -v "$1" >/dev/null 2>&1 && "$1" -I -c 'import sys, lzma, ssl; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1; }
for python in ${KUBENODE_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /opt/kubenode/python/bin/python3; do
    if fits "$python"; then
        exec "$python" -I "$0" "$@"
    fi
done
# shellcheck disable=SC1091 # every supported system has it
ID='' ID_LIKE='' && [ -r /etc/os-release ] && . /etc/os-release
case " $ID $ID_LIKE " in
    *" flatcar "*) way="unpack a standalone Python to /opt/kubenode/python (see docs/provision.md)" ;;
    *" amzn "*) way="dnf install python3.11" ;;
    *" rhel "* | *" fedora "* | *" centos "*) way="dnf install python3.12" ;;
    *" ubuntu "* | *" debian "*) way="apt-get install python3.11 (Ubuntu 22.04), else apt-get install python3" ;;
    *) way="install it, or name one by KUBENODE_PYTHON=/path/to/python3" ;;
esac
echo "provision: Python 3.11 to 3.14 is needed and none was found: $way" >&2
exit 1
# what follows is the archive
