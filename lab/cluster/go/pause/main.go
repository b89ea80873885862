// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Command pause holds the name spaces of a pod. It waits for a signal to end and buries what was left to it.
//
// For test pods it can also speak: "pause say TEXT…" prints the text first, "pause exit CODE" ends at once.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	// Before any output: the process that reads it may send a signal at once.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	arguments := os.Args[1:]
	if len(arguments) > 0 {
		switch arguments[0] {
		case "-v":
			fmt.Println("pause of kubenode.provision's lab")
			return
		case "say":
			fmt.Println(strings.Join(arguments[1:], " "))
		case "exit":
			code, err := strconv.Atoi(strings.Join(arguments[1:], ""))
			if err != nil {
				code = 1
			}
			os.Exit(code)
		}
	}
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if buried, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); buried <= 0 || err != nil {
				break
			}
		}
	}
}
