// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Command crictl asks a container runtime about its pods, containers and images.
//
// It has the commands, flags and configuration file of the program of this name that the lab's nodes, roles and
// tests use. The runtime's interface and gRPC are Debian's packages of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
)

// version is patched in the built program (see lab/cluster/programs.py); its length must not change.
var version = "@KUBENODE-CRICTL-VERSION@--------"

type command struct {
	summary string
	run     func(call *call, arguments []string) error
}

var commands = map[string]command{
	"images":   {"list images", listImages},
	"info":     {"show the runtime's status and configuration", showInfo},
	"inspecti": {"show images", inspectImages},
	"pods":     {"list pods", listPods},
	"ps":       {"list containers", listContainers},
	"pull":     {"pull an image", pullImage},
	"rmi":      {"remove images", removeImages},
	"version":  {"show the runtime's version", showVersion},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "FATA[0000] %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	settings, rest, err := parseGlobal(arguments)
	if err != nil {
		return err
	}
	if settings == nil { // help or version, which needs no runtime
		return nil
	}
	found, known := commands[rest[0]]
	if !known {
		return fmt.Errorf("No help topic for '%s'", rest[0])
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return found.run(&call{settings: *settings, ctx: ctx, name: rest[0]}, rest[1:])
}

func usage() {
	fmt.Printf("NAME:\n   crictl - client for CRI\n\nUSAGE:\n   crictl [global options] command [command options] [arguments...]\n\n")
	fmt.Printf("VERSION:\n   %s\n\nCOMMANDS:\n", versionText())
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("   %-10s %s\n", name, commands[name].summary)
	}
}

func versionText() string {
	return strings.TrimRight(version, "\x00")
}

// flags of one command; parse prints its help to the user who asks for it.
func flagSet(call *call) *flag.FlagSet {
	return flag.NewFlagSet("crictl "+call.name, flag.ExitOnError)
}

// needed parses the flags and returns the arguments, at least the given number of them.
func needed(set *flag.FlagSet, arguments []string, least int) ([]string, error) {
	if err := set.Parse(apart(set, arguments)); err != nil {
		return nil, err
	}
	if set.NArg() < least {
		return nil, fmt.Errorf("%s: %d arguments are missing", set.Name(), least-set.NArg())
	}
	return set.Args(), nil
}

// apart takes flags of one letter that are written together apart: -aq is -a -q.
func apart(set *flag.FlagSet, arguments []string) []string {
	result := []string{}
	for index, word := range arguments {
		if !strings.HasPrefix(word, "-") || word == "--" {
			return append(result, arguments[index:]...)
		}
		if letters := word[1:]; together(set, letters) {
			for _, letter := range letters {
				result = append(result, "-"+string(letter))
			}
			continue
		}
		result = append(result, word)
		if !valueless(set, word) && !strings.Contains(word, "=") && index+1 < len(arguments) {
			// The next word is this flag's value, whatever it looks like.
			return append(append(result, arguments[index+1]), apart(set, arguments[index+2:])...)
		}
	}
	return result
}

func together(set *flag.FlagSet, letters string) bool {
	if len(letters) < 2 || set.Lookup(letters) != nil {
		return false
	}
	for _, letter := range letters {
		if !valueless(set, "-"+string(letter)) {
			return false
		}
	}
	return true
}

func valueless(set *flag.FlagSet, word string) bool {
	found := set.Lookup(strings.TrimLeft(word, "-"))
	if found == nil {
		return false
	}
	boolean, ok := found.Value.(interface{ IsBoolFlag() bool })
	return ok && boolean.IsBoolFlag()
}
