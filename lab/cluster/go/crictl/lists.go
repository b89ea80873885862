// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func listContainers(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	var all bool
	for _, flag := range []string{"all", "a"} {
		set.BoolVar(&all, flag, false, "show all containers, not only running ones")
	}
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	filter := runtime.ContainerFilter{}
	if !all {
		filter.State = &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING}
	}
	var response runtime.ListContainersResponse
	if err := call.do(runtimeService, "ListContainers", true, &runtime.ListContainersRequest{Filter: &filter}, &response); err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	ids, rows := []string{}, [][]string{}
	for _, container := range response.Containers {
		image := ""
		if container.Image != nil {
			image = short(container.Image.Image)
		}
		ids = append(ids, container.Id)
		rows = append(rows, []string{
			short(container.Id), image, ago(container.CreatedAt), state(container.State.String(), "CONTAINER_"),
			container.Metadata.Name, fmt.Sprint(container.Metadata.Attempt), short(container.PodSandboxId),
			container.Labels["io.kubernetes.pod.name"],
		})
	}
	header := []string{"CONTAINER", "IMAGE", "CREATED", "STATE", "NAME", "ATTEMPT", "POD ID", "POD"}
	return print.list(ids, &response, header, rows)
}

func listPods(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	var response runtime.ListPodSandboxResponse
	if err := call.do(runtimeService, "ListPodSandbox", true, &runtime.ListPodSandboxRequest{}, &response); err != nil {
		return fmt.Errorf("listing pod sandboxes: %w", err)
	}
	ids, rows := []string{}, [][]string{}
	for _, pod := range response.Items {
		ids = append(ids, pod.Id)
		rows = append(rows, []string{
			short(pod.Id), ago(pod.CreatedAt), state(pod.State.String(), "SANDBOX_"), pod.Metadata.Name,
			pod.Metadata.Namespace, fmt.Sprint(pod.Metadata.Attempt), first(pod.RuntimeHandler, "(default)"),
		})
	}
	header := []string{"POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"}
	return print.list(ids, &response, header, rows)
}

func state(text, prefix string) string {
	return strings.Title(strings.ToLower(strings.TrimPrefix(text, prefix)))
}
