// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func showVersion(call *call, arguments []string) error {
	if _, err := needed(flagSet(call), arguments, 0); err != nil {
		return err
	}
	var response runtime.VersionResponse
	if err := call.do(runtimeService, "Version", true, &runtime.VersionRequest{}, &response); err != nil {
		return fmt.Errorf("getting the runtime version: %w", err)
	}
	fmt.Println("Version: ", response.Version)
	fmt.Println("RuntimeName: ", response.RuntimeName)
	fmt.Println("RuntimeVersion: ", response.RuntimeVersion)
	fmt.Println("RuntimeApiVersion: ", response.RuntimeApiVersion)
	return nil
}

func showInfo(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "json")
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	var response runtime.StatusResponse
	request := runtime.StatusRequest{Verbose: !print.quiet}
	if err := call.do(runtimeService, "Status", true, &request, &response); err != nil {
		return fmt.Errorf("getting status of runtime: %w", err)
	}
	return print.status(response.Status, response.Info)
}
