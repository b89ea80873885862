// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

func listContainers(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	var all bool
	var pod, state, id string
	name := set.String("name", "", "filter by a part of the name")
	set.StringVar(&id, "id", "", "filter by ID")
	for _, flag := range []string{"all", "a"} {
		set.BoolVar(&all, flag, false, "show all containers, not only running ones")
	}
	for _, flag := range []string{"pod", "p"} {
		set.StringVar(&pod, flag, "", "filter by pod ID")
	}
	for _, flag := range []string{"state", "s"} {
		set.StringVar(&state, flag, "", "filter by state: created, running, exited or unknown")
	}
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	if state == "" && !all {
		state = "running"
	}
	filter := runtime.ContainerFilter{Id: id, PodSandboxId: pod}
	if state != "" {
		value, known := runtime.ContainerState_value["CONTAINER_"+strings.ToUpper(state)]
		if !known {
			return fmt.Errorf("--state should be one of created, running, exited or unknown")
		}
		filter.State = &runtime.ContainerStateValue{State: runtime.ContainerState(value)}
	}
	var response runtime.ListContainersResponse
	if err := call.do(runtimeService, "ListContainers", true, &runtime.ListContainersRequest{Filter: &filter}, &response); err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	kept := response.Containers[:0]
	for _, container := range response.Containers {
		if strings.Contains(container.Metadata.Name, *name) {
			kept = append(kept, container)
		}
	}
	response.Containers = kept
	if print.quiet {
		for _, container := range kept {
			fmt.Println(container.Id)
		}
		return nil
	}
	if print.form != "table" {
		return printMessage(print, &response)
	}
	rows := [][]string{}
	for _, container := range kept {
		image := ""
		if container.Image != nil {
			image = short(container.Image.Image)
		}
		rows = append(rows, []string{
			short(container.Id), image, ago(container.CreatedAt),
			strings.Title(strings.ToLower(strings.TrimPrefix(container.State.String(), "CONTAINER_"))),
			container.Metadata.Name, fmt.Sprint(container.Metadata.Attempt), short(container.PodSandboxId),
			container.Labels["io.kubernetes.pod.name"],
		})
	}
	table([]string{"CONTAINER", "IMAGE", "CREATED", "STATE", "NAME", "ATTEMPT", "POD ID", "POD"}, rows)
	return nil
}

func inspectContainers(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "json")
	ids, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	for _, id := range ids {
		var response runtime.ContainerStatusResponse
		request := runtime.ContainerStatusRequest{ContainerId: id, Verbose: true}
		if err := call.do(runtimeService, "ContainerStatus", true, &request, &response); err != nil {
			return fmt.Errorf("getting the status of the container %q: %w", id, err)
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

func createContainer(call *call, arguments []string) error {
	names, err := needed(flagSet(call), arguments, 3)
	if err != nil {
		return err
	}
	var config runtime.ContainerConfig
	var pod runtime.PodSandboxConfig
	if err := readMessage(names[1], &config); err != nil {
		return err
	}
	if err := readMessage(names[2], &pod); err != nil {
		return err
	}
	var response runtime.CreateContainerResponse
	request := runtime.CreateContainerRequest{PodSandboxId: names[0], Config: &config, SandboxConfig: &pod}
	if err := call.do(runtimeService, "CreateContainer", false, &request, &response); err != nil {
		return fmt.Errorf("creating container: %w", err)
	}
	fmt.Println(response.ContainerId)
	return nil
}

func startContainers(call *call, arguments []string) error {
	return each(call, flagSet(call), arguments, "%s\n", func(id string) error {
		request := runtime.StartContainerRequest{ContainerId: id}
		return call.do(runtimeService, "StartContainer", true, &request, &runtime.StartContainerResponse{})
	})
}

func stopContainers(call *call, arguments []string) error {
	set := flagSet(call)
	var timeout int64
	for _, flag := range []string{"timeout", "t"} {
		set.Int64Var(&timeout, flag, 0, "seconds until the container is killed")
	}
	return each(call, set, arguments, "%s\n", func(id string) error {
		request := runtime.StopContainerRequest{ContainerId: id, Timeout: timeout}
		return call.do(runtimeService, "StopContainer", false, &request, &runtime.StopContainerResponse{})
	})
}

func removeContainers(call *call, arguments []string) error {
	set := flagSet(call)
	var force bool
	for _, flag := range []string{"force", "f"} {
		set.BoolVar(&force, flag, false, "stop containers that run first")
	}
	return each(call, set, arguments, "%s\n", func(id string) error {
		if force {
			request := runtime.StopContainerRequest{ContainerId: id}
			if err := call.do(runtimeService, "StopContainer", false, &request, &runtime.StopContainerResponse{}); err != nil {
				return err
			}
		}
		request := runtime.RemoveContainerRequest{ContainerId: id}
		return call.do(runtimeService, "RemoveContainer", true, &request, &runtime.RemoveContainerResponse{})
	})
}

func execInContainer(call *call, arguments []string) error {
	set := flagSet(call)
	for _, flag := range []string{"sync", "s"} {
		set.Bool(flag, true, "accepted: commands are always waited for")
	}
	timeout := set.Int64("timeout", 0, "seconds until the command is killed (0: never)")
	words, err := needed(set, arguments, 2)
	if err != nil {
		return err
	}
	var response runtime.ExecSyncResponse
	request := runtime.ExecSyncRequest{ContainerId: words[0], Cmd: words[1:], Timeout: *timeout}
	if err := call.do(runtimeService, "ExecSync", false, &request, &response); err != nil {
		return fmt.Errorf("execing command in container: %w", err)
	}
	os.Stdout.Write(response.Stdout)
	os.Stderr.Write(response.Stderr)
	if response.ExitCode != 0 {
		return fmt.Errorf("command terminated with exit code %d", response.ExitCode)
	}
	return nil
}

// each does one thing for every ID on the command line; the first failure ends it.
func each(call *call, set *flag.FlagSet, arguments []string, done string, do func(id string) error) error {
	ids, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := do(id); err != nil {
			return fmt.Errorf("%s %q: %w", call.name, id, err)
		}
		fmt.Printf(done, id)
	}
	return nil
}

// readMessage reads a description in JSON or YAML; names it does not know are an error.
func readMessage(path string, target interface{}) error {
	text, err := ioutil.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(text, target)
	}
	if err != nil {
		return fmt.Errorf("load config %s: %w", path, err)
	}
	return nil
}
