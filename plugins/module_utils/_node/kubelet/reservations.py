# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a kubelet keeps back from pods, by the size of the machine (pure).

The steps are those of Google's GKE, which image-builder uses too:
https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
"""

from __future__ import annotations

_MIB = 1024 * 1024
_GIB = 1024 * _MIB

#: (size of the step in bytes, part of it that is reserved in thousandths)
_MEMORY_STEPS = ((4 * _GIB, 250), (4 * _GIB, 200), (8 * _GIB, 100), (112 * _GIB, 60), (None, 20))
#: (number of CPUs in the step, thousandths of a CPU that each of them gives)
_CPU_STEPS = ((1, 60), (1, 10), (2, 5), (None, 2.5))
_SMALL_MEMORY = 255 * _MIB
_PIDS = 1000
#: A tenth of the disk, within these bounds.
_LEAST_DISK, _MOST_DISK = 512 * _MIB, 5 * _GIB


def memory_reserved(memory):
    """Bytes to reserve on a machine of ``memory`` bytes."""
    if memory < _GIB:
        return min(_SMALL_MEMORY, memory // 4)
    return int(sum(part * share for part, share in _parts(memory, _MEMORY_STEPS)) // 1000)


def cpu_reserved(cpus):
    """Thousandths of a CPU to reserve on a machine with ``cpus`` CPUs."""
    return int(sum(part * share for part, share in _parts(cpus, _CPU_STEPS)))


def auto_reserved(cpus, memory, disk):
    """kubeReserved for ``cpus``, ``memory`` bytes and ``disk`` free bytes below /var (None: not known)."""
    reserved = {
        "cpu": "%dm" % cpu_reserved(cpus),
        "memory": "%dMi" % (memory_reserved(memory) // _MIB),
        "pid": str(_PIDS),
    }
    if disk:
        reserved["ephemeral-storage"] = "%dMi" % (min(max(disk // 10, _LEAST_DISK), _MOST_DISK, disk // 2) // _MIB)
    return reserved


def _parts(total, steps):
    rest = total
    for size, share in steps:
        part = rest if size is None else min(rest, size)
        yield part, share
        rest -= part
