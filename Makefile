# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Every command installs what it needs first and says so; dev/ holds what is behind these targets.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PYTEST_ARGS ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what demo and tests need
	@dev/setup --debian base,lab main

demo: ## one machine from nothing to a verified new system, on the lab
	@dev/setup --debian base,lab main
	@dev/demo

demo-robot: ## two dedicated servers on the lab: image command under UEFI, installimage with RAID 1 and LVM
	@dev/setup --debian base,lab main
	@dev/demo-robot

demo-node: ## a machine becomes a Ready Kubernetes node of a real control plane and runs a pod
	@dev/setup --debian base,lab,cluster main
	@dev/demo-node

demo-images: ## live images for two hosts: served, compared byte for byte, booted until their Ignition is read
	@dev/setup --debian base,lab main
	@dev/demo-images

demo-image: ## node images: a prebaked snapshot, a node of it without downloads, its tarball on a dedicated server
	@dev/setup --debian base,lab,cluster main
	@dev/demo-image

test: ## every test: unit tests on three ansible-cores, then everything on the lab
	@dev/setup --debian base,lab,cluster,test main core-2.18 core-2.21
	@mkdir -p build && dev/run python -m lab cluster build >build/cluster.log 2>&1 & # tests of the cluster wait for it
	@dev/test unit 2.18
	@dev/test unit 2.21
	@dev/test all 2.19 $(PYTEST_ARGS)

test-unit: ## the unit tests on three ansible-cores; no root, no lab
	@dev/setup main core-2.18 core-2.21
	@dev/test unit 2.18
	@dev/test unit 2.21
	@dev/test unit 2.19 $(PYTEST_ARGS)

lint: ## every linter; lint-NAME runs one
	@dev/lint

lint-%:
	@dev/lint $*

bench: ## every benchmark, results in build/bench; bench-NAME runs one
	@dev/setup --debian base,lab,bench main
	@dev/bench

bench-%:
	@dev/setup --debian base,lab,bench main
	@dev/bench $*

docs: ## the HTML documentation in build/docs
	@dev/setup main docs
	@dev/docs

commands: ## the image commands in playbooks/files, from their sources in commands/
	@dev/assemble

provision: ## the program `provision` in build/: base and join on a machine itself, one file
	@dev/provision

image-server: ## the program `image-server` in build/: live images over HTTP, one file for Debian and Ubuntu
	@dev/image-server

lock: ## renew requirements/*.txt from requirements/*.in
	@dev/lock

clean: ## remove build results (the cache stays: see CONTRIBUTING.md)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .ansible tests/output

.PHONY: help setup demo demo-robot demo-node demo-images demo-image test test-unit lint bench docs commands provision image-server lock clean
