// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Prints as JSON what the kubelet of the module's Kubernetes takes: its flags, and the fields of its configuration.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	_ "k8s.io/component-base/logs/json/register" // which has flags of its own
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
)

// types that read JSON by their own code
var custom = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":        "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":            "time",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":        "quantity",
	"k8s.io/apimachinery/pkg/api/resource.QuantityValue":   "quantity",
	"k8s.io/component-base/logs/api/v1.TimeOrMetaDuration": "duration|int",
}

func main() {
	flags, err := flags()
	if err == nil {
		found := map[string]interface{}{"flags": flags, "fields": kind(reflect.TypeOf(v1beta1.KubeletConfiguration{}))}
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func flags() (map[string]string, error) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	configuration, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	options.NewKubeletFlags().AddFlags(set)
	options.AddKubeletConfigFlags(set, configuration)
	options.AddGlobalFlags(set)
	found := map[string]string{"help": "current"} // which the command itself adds
	set.VisitAll(func(flag *pflag.Flag) {
		state := "current"
		if flag.Deprecated != "" {
			state = "deprecated"
		}
		found[strings.ReplaceAll(flag.Name, "_", "-")] = state
	})
	return found, nil
}

// kind is a type by what its JSON is: a name; a list of one; an object of its fields, or of "*" for any key.
func kind(of reflect.Type) interface{} {
	if name, is := custom[of.PkgPath()+"."+of.Name()]; is {
		return name
	}
	switch of.Kind() {
	case reflect.Ptr:
		return kind(of.Elem())
	case reflect.Bool, reflect.String:
		return of.Kind().String()
	case reflect.Float32, reflect.Float64:
		return "float"
	case reflect.Interface:
		return "any"
	case reflect.Slice:
		return []interface{}{kind(of.Elem())}
	case reflect.Map:
		return map[string]interface{}{"*": kind(of.Elem())}
	case reflect.Struct:
		return fields(of)
	}
	return "int"
}

func fields(of reflect.Type) map[string]interface{} {
	found := map[string]interface{}{}
	for number := 0; number < of.NumField(); number++ {
		field := of.Field(number)
		name := strings.Split(field.Tag.Get("json"), ",")[0]
		if name == "-" {
			continue
		}
		if name == "" && field.Anonymous {
			for inner, value := range fields(field.Type) {
				found[inner] = value
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		found[name] = kind(field.Type)
	}
	return found
}
