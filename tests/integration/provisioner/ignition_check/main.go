// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Reads each Ignition configuration that is named by CoreOS's own library, and prints what it has to say of it.
package main

import (
	"encoding/json"
	"os"

	"github.com/coreos/ignition/v2/config"
)

func main() {
	found := map[string][]string{}
	for _, name := range os.Args[1:] {
		data, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		parsed, report, err := config.Parse(data)
		said := []string{}
		for _, entry := range report.Entries {
			said = append(said, entry.String())
		}
		if err != nil {
			said = append(said, err.Error())
		} else if parsed.Ignition.Version == "" {
			said = append(said, "it has no version")
		}
		found[name] = said
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}
