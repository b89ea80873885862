# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Every command installs what it needs first and says so; dev/ holds what is behind these targets.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PYTEST_ARGS ?=
# as one word of the shell, whatever is quoted in it
PYTEST_WORD = '$(subst ','\'',$(PYTEST_ARGS))'
SECONDS ?= 600

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what demo and tests need; 1 min, once
	@dev/setup --debian base,lab main

setup-go: # what demos with a control plane need beside it
	@dev/setup --debian base,lab,go main

demo: setup ## one machine from nothing to a verified new system, on the lab; 1 min, 2 more with empty caches
	@dev/demo

demo-fleet: setup ## twelve machines of which three fail, and the page that explains the run; ends with an error; 2 min
	@dev/demo fleet

demo-robot: setup ## two dedicated servers on the lab: image command under UEFI, installimage with RAID 1 and LVM; 16 min without KVM
	@dev/demo robot

demo-node: setup-go ## a machine becomes a Ready Kubernetes node of a real control plane and runs a pod; 8 min without KVM
	@dev/demo node

demo-site: setup-go ## two cloud machines and a dedicated one, from nothing to Ready nodes by one playbook; 5 min
	@dev/demo site

demo-images: setup ## live images for two hosts: served, compared byte for byte, booted until their Ignition is read; 1 min
	@dev/demo live-images

demo-image: setup-go ## node images: a prebaked snapshot, a node of it without downloads, its tarball on a dedicated server; 3 min
	@dev/demo node-images

test: ## whether the product works: every default test, once; 10 to 13 min on two cores, 3 more with empty caches
	@dev/test default --pytest=$(PYTEST_WORD)

test-unit: ## the unit tests alone: no root, no lab; 2 min
	@dev/setup main
	@dev/run pytest -q -n 3 tests/unit $(PYTEST_ARGS)

test-long: ## everything else, in parts that passed on this tree are not run again: dev/test --list; 200 min
	@dev/test long

test-long-%: ## one part of it: units-CORE, artefact-CORE, machines, fleet, node, qemu, random, walk, faults, awx; 1 to 60 min, dev/test --list says which
	@dev/test $* --pytest=$(PYTEST_WORD)

fuzz: ## property tests with random data for SECONDS (600); a finding becomes an @example in its test
	@dev/fuzz $(SECONDS) $(PYTEST_ARGS)

lint: ## every linter, lint-NAME runs one; 9 min
	@dev/lint

lint-%:
	@dev/lint $*

bench: ## every benchmark, results in build/bench; bench-NAME runs one
	@dev/setup --debian base,lab,go,bench main
	@dev/bench

bench-%:
	@dev/setup --debian base,lab,go,bench main
	@dev/bench $*

docs: ## the HTML documentation in build/docs
	@dev/setup main
	@dev/docs

commands: ## the image commands in build/image-commands, one file each, for CAPH and others that run them
	@dev/image-commands

provision: ## the program `provision` in build/: base and join on a machine itself, one file
	@dev/provision

image-server: ## the program `image-server` in build/: live images over HTTP, one file for Debian and Ubuntu
	@dev/image-server

release: ## the files of a release in dist/: collection, programs, image commands, the wheel of the lab, SHA256SUMS; 1 min
	@dev/setup main
	@dev/release

lock: ## renew requirements/*.txt from requirements/*.in
	@dev/lock

clean: ## remove build results (the cache stays: see CONTRIBUTING.md)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .ansible tests/output

.PHONY: help setup setup-go demo demo-fleet demo-robot demo-node demo-site demo-images demo-image test test-unit test-long fuzz lint bench docs commands provision image-server release lock clean
