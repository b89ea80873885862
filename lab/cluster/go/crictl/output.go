// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// output is how a command's result is printed: table, json or yaml, or only the names.
type output struct {
	form  string
	quiet bool
}

func (output *output) register(set *flag.FlagSet, form string) {
	output.form = form
	for _, name := range []string{"output", "o"} {
		set.StringVar(&output.form, name, form, "json, yaml or table")
	}
	for _, name := range []string{"quiet", "q"} {
		set.BoolVar(&output.quiet, name, false, "print only IDs")
	}
}

// message turns a message into what its JSON form says; fields without a value are there, too.
func message(source proto.Message) (interface{}, error) {
	text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(source)
	if err != nil {
		return nil, err
	}
	var result interface{}
	err = json.Unmarshal(text, &result)
	return result, err
}

func (output *output) print(value interface{}) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	switch output.form {
	case "json":
		fmt.Println(string(text))
	case "yaml":
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		fmt.Print(string(text))
	default:
		return fmt.Errorf("unsupported output format %q", output.form)
	}
	return nil
}

func table(header []string, rows [][]string) {
	writer := tabwriter.NewWriter(os.Stdout, 20, 1, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(writer, strings.Join(row, "\t"))
	}
	writer.Flush()
}

// list prints the result of a listing: the IDs alone, the whole message, or a table.
func (output *output) list(ids []string, source proto.Message, header []string, rows [][]string) error {
	if output.quiet {
		for _, id := range ids {
			fmt.Println(id)
		}
		return nil
	}
	if output.form == "table" {
		table(header, rows)
		return nil
	}
	value, err := message(source)
	if err != nil {
		return err
	}
	return output.print(value)
}

// status prints a status and the runtime's own words beside it; each of these is JSON, or else plain text.
func (output *output) status(source proto.Message, info map[string]string) error {
	status, err := message(source)
	if err != nil {
		return err
	}
	result := map[string]interface{}{"status": status}
	for key, text := range info {
		var value interface{}
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		result[key] = value
	}
	return output.print(result)
}

func short(id string) string {
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) > 13 {
		return id[:13]
	}
	return id
}

func ago(nanoseconds int64) string {
	return time.Since(time.Unix(0, nanoseconds)).Round(time.Second).String() + " ago"
}
