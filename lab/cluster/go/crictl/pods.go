// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func listPods(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	id := set.String("id", "", "filter by ID")
	name := set.String("name", "", "filter by a part of the name")
	namespace := set.String("namespace", "", "filter by a part of the namespace")
	var state string
	for _, flag := range []string{"state", "s"} {
		set.StringVar(&state, flag, "", "filter by state: ready or notready")
	}
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	filter := runtime.PodSandboxFilter{Id: *id}
	if state != "" {
		value, known := runtime.PodSandboxState_value["SANDBOX_"+strings.ToUpper(state)]
		if !known {
			return fmt.Errorf("--state should be ready or notready")
		}
		filter.State = &runtime.PodSandboxStateValue{State: runtime.PodSandboxState(value)}
	}
	var response runtime.ListPodSandboxResponse
	if err := call.do(runtimeService, "ListPodSandbox", true, &runtime.ListPodSandboxRequest{Filter: &filter}, &response); err != nil {
		return fmt.Errorf("listing pod sandboxes: %w", err)
	}
	kept := response.Items[:0]
	for _, pod := range response.Items {
		if strings.Contains(pod.Metadata.Name, *name) && strings.Contains(pod.Metadata.Namespace, *namespace) {
			kept = append(kept, pod)
		}
	}
	response.Items = kept
	if print.quiet {
		for _, pod := range kept {
			fmt.Println(pod.Id)
		}
		return nil
	}
	if print.form != "table" {
		return printMessage(print, &response)
	}
	rows := [][]string{}
	for _, pod := range kept {
		state := strings.Title(strings.ToLower(strings.TrimPrefix(pod.State.String(), "SANDBOX_")))
		rows = append(rows, []string{
			short(pod.Id), ago(pod.CreatedAt), state, pod.Metadata.Name, pod.Metadata.Namespace,
			fmt.Sprint(pod.Metadata.Attempt), first(pod.RuntimeHandler, "(default)"),
		})
	}
	table([]string{"POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME"}, rows)
	return nil
}

func printMessage(print output, source proto.Message) error {
	value, err := message(source)
	if err != nil {
		return err
	}
	return print.print(value)
}

func inspectPods(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "json")
	ids, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	for _, id := range ids {
		var response runtime.PodSandboxStatusResponse
		request := runtime.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true}
		if err := call.do(runtimeService, "PodSandboxStatus", true, &request, &response); err != nil {
			return fmt.Errorf("getting the pod sandbox status for %q: %w", id, err)
		}
		status, err := message(response.Status)
		if err != nil {
			return err
		}
		result := map[string]interface{}{"status": status}
		withInfo(result, response.Info)
		if err := print.print(result); err != nil {
			return err
		}
	}
	return nil
}

func runPod(call *call, arguments []string) error {
	set := flagSet(call)
	var handler string
	for _, flag := range []string{"runtime", "r"} {
		set.StringVar(&handler, flag, "", "runtime handler")
	}
	files, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	var config runtime.PodSandboxConfig
	if err := readMessage(files[0], &config); err != nil {
		return err
	}
	var response runtime.RunPodSandboxResponse
	request := runtime.RunPodSandboxRequest{Config: &config, RuntimeHandler: handler}
	if err := call.do(runtimeService, "RunPodSandbox", false, &request, &response); err != nil {
		return fmt.Errorf("run pod sandbox: %w", err)
	}
	fmt.Println(response.PodSandboxId)
	return nil
}

func stopPods(call *call, arguments []string) error {
	return each(call, flagSet(call), arguments, "Stopped sandbox %s\n", func(id string) error {
		request := runtime.StopPodSandboxRequest{PodSandboxId: id}
		return call.do(runtimeService, "StopPodSandbox", false, &request, &runtime.StopPodSandboxResponse{})
	})
}

func removePods(call *call, arguments []string) error {
	set := flagSet(call)
	var force bool
	for _, flag := range []string{"force", "f"} {
		set.BoolVar(&force, flag, false, "stop pods that run first")
	}
	return each(call, set, arguments, "Removed sandbox %s\n", func(id string) error {
		if force {
			request := runtime.StopPodSandboxRequest{PodSandboxId: id}
			if err := call.do(runtimeService, "StopPodSandbox", false, &request, &runtime.StopPodSandboxResponse{}); err != nil {
				return err
			}
		}
		request := runtime.RemovePodSandboxRequest{PodSandboxId: id}
		return call.do(runtimeService, "RemovePodSandbox", false, &request, &runtime.RemovePodSandboxResponse{})
	})
}
