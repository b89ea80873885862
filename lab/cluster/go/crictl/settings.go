// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"time"

	"sigs.k8s.io/yaml"
)

const defaultConfig = "/etc/crictl.yaml"

var defaultEndpoints = []string{
	"unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock", "unix:///var/run/cri-dockerd.sock",
}

// settings are what the command line, the environment and the configuration file say together, in this order.
type settings struct {
	runtime string
	image   string
	timeout time.Duration
}

type configFile struct {
	RuntimeEndpoint   string `json:"runtime-endpoint"`
	ImageEndpoint     string `json:"image-endpoint"`
	Timeout           int    `json:"timeout"`
	Debug             bool   `json:"debug"`
	PullImageOnCreate bool   `json:"pull-image-on-create"`
	DisablePullOnRun  bool   `json:"disable-pull-on-run"`
}

// parseGlobal returns no settings when there is nothing to do but what it has printed.
func parseGlobal(arguments []string) (*settings, []string, error) {
	set := flag.NewFlagSet("crictl", flag.ExitOnError)
	set.Usage = usage
	config := os.Getenv("CRI_CONFIG_FILE")
	runtime, image := os.Getenv("CONTAINER_RUNTIME_ENDPOINT"), os.Getenv("IMAGE_SERVICE_ENDPOINT")
	var timeout time.Duration
	var debug, show, help bool
	for _, name := range []string{"config", "c"} {
		set.StringVar(&config, name, config, "configuration file")
	}
	for _, name := range []string{"runtime-endpoint", "r"} {
		set.StringVar(&runtime, name, runtime, "endpoint of the runtime service")
	}
	for _, name := range []string{"image-endpoint", "i"} {
		set.StringVar(&image, name, image, "endpoint of the image service")
	}
	for _, name := range []string{"timeout", "t"} {
		set.DurationVar(&timeout, name, timeout, "how long to wait for the server (0s: 2s)")
	}
	for _, name := range []string{"debug", "D"} {
		set.BoolVar(&debug, name, debug, "accepted, says nothing more")
	}
	for _, name := range []string{"version", "v"} {
		set.BoolVar(&show, name, show, "print the version")
	}
	for _, name := range []string{"help", "h"} {
		set.BoolVar(&help, name, help, "print this help")
	}
	if err := set.Parse(arguments); err != nil {
		return nil, nil, err
	}
	if show {
		fmt.Printf("crictl version %s\n", versionText())
		return nil, nil, nil
	}
	if help || set.NArg() == 0 {
		usage()
		return nil, nil, nil
	}
	file, err := readConfig(config)
	if err != nil {
		return nil, nil, err
	}
	result := settings{runtime: first(runtime, file.RuntimeEndpoint), image: first(image, file.ImageEndpoint)}
	result.timeout = timeout
	if result.timeout == 0 {
		result.timeout = time.Duration(file.Timeout) * time.Second
	}
	if result.timeout == 0 {
		result.timeout = 2 * time.Second
	}
	result.image = first(result.image, result.runtime)
	return &result, set.Args(), nil
}

// readConfig reads the file that was asked for, or the default one where it exists.
func readConfig(path string) (configFile, error) {
	var file configFile
	text, err := ioutil.ReadFile(first(path, defaultConfig))
	if os.IsNotExist(err) && path == "" {
		return file, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &file)
	}
	if err != nil {
		return file, fmt.Errorf("load config file: %w", err)
	}
	return file, nil
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
