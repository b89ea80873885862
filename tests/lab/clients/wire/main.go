// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

// wire holds answers against the types that hcloud-go decodes them into, field by field: what is absent, what no
// field takes, what has another type. It reads lines of {"method", "path", "body"} and prints what does not fit.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strings"

	"wire/schema"
)

var types = []struct {
	pattern string
	value   any
}{
	{`GET /actions/N`, schema.ActionGetResponse{}},
	{`GET /actions|GET /\w+/actions|GET /\w+/N/actions`, schema.ActionListResponse{}},
	{`GET /servers`, schema.ServerListResponse{}},
	{`POST /servers`, schema.ServerCreateResponse{}},
	{`(GET|PUT) /servers/N`, schema.ServerGetResponse{}},
	{`DELETE /servers/N`, schema.ServerDeleteResponse{}},
	{`POST /servers/N/actions/enable_rescue`, schema.ServerActionEnableRescueResponse{}},
	{`POST /servers/N/actions/reset_password`, schema.ServerActionResetPasswordResponse{}},
	{`POST /servers/N/actions/create_image`, schema.ServerActionCreateImageResponse{}},
	{`POST /servers/N/actions/rebuild`, schema.ServerActionRebuildResponse{}},
	{`POST /(servers|images|load_balancers)/N/actions/\w+|DELETE /load_balancers/N`, schema.ActionGetResponse{}},
	{`GET /server_types`, schema.ServerTypeListResponse{}},
	{`GET /server_types/N`, schema.ServerTypeGetResponse{}},
	{`GET /locations`, schema.LocationListResponse{}},
	{`GET /locations/N`, schema.LocationGetResponse{}},
	{`GET /isos`, schema.ISOListResponse{}},
	{`GET /pricing`, schema.PricingGetResponse{}},
	{`GET /images`, schema.ImageListResponse{}},
	{`(GET|PUT) /images/N`, schema.ImageGetResponse{}},
	{`GET /ssh_keys`, schema.SSHKeyListResponse{}},
	{`POST /ssh_keys`, schema.SSHKeyCreateResponse{}},
	{`(GET|PUT) /ssh_keys/N`, schema.SSHKeyGetResponse{}},
	{`GET /primary_ips`, schema.PrimaryIPListResponse{}},
	{`GET /primary_ips/N`, schema.PrimaryIPGetResponse{}},
	{`GET /placement_groups`, schema.PlacementGroupListResponse{}},
	{`POST /placement_groups`, schema.PlacementGroupCreateResponse{}},
	{`(GET|PUT) /placement_groups/N`, schema.PlacementGroupGetResponse{}},
	{`GET /networks`, schema.NetworkListResponse{}},
	{`POST /networks`, schema.NetworkCreateResponse{}},
	{`(GET|PUT) /networks/N`, schema.NetworkGetResponse{}},
	{`GET /firewalls`, schema.FirewallListResponse{}},
	{`POST /firewalls`, schema.FirewallCreateResponse{}},
	{`(GET|PUT) /firewalls/N`, schema.FirewallGetResponse{}},
	{`GET /volumes`, schema.VolumeListResponse{}},
	{`GET /load_balancer_types`, schema.LoadBalancerTypeListResponse{}},
	{`GET /load_balancer_types/N`, schema.LoadBalancerTypeGetResponse{}},
	{`GET /load_balancers`, schema.LoadBalancerListResponse{}},
	{`POST /load_balancers`, schema.LoadBalancerCreateResponse{}},
	{`(GET|PUT) /load_balancers/N`, schema.LoadBalancerGetResponse{}},
	{`GET /load_balancers/N/metrics`, schema.LoadBalancerGetMetricsResponse{}},
}

// What the API itself leaves out: fields of another kind of the same thing, and what it had until some day.
var left = map[string]bool{
	"LoadBalancerTarget.server":             true,
	"LoadBalancerTarget.label_selector":     true,
	"LoadBalancerTarget.ip":                 true,
	"LoadBalancerService.http":              true,
	"LoadBalancerServiceHealthCheck.http":   true,
	"PricingPrimaryIPTypePrice.datacenter":  true,
	"FirewallResource.label_selector":       true,
	"FirewallResource.applied_to_resources": true,
	"FirewallResource.server":               true,
}

// What is null where Go has a plain number.
var null = map[string]bool{"MetaPagination.previous_page": true, "MetaPagination.next_page": true}

var number = regexp.MustCompile(`/[0-9]+`)

type report map[string]bool

func (found report) say(path string, t reflect.Type, text string, v ...any) {
	found[fmt.Sprintf("%s (%s): %s", path, t, fmt.Sprintf(text, v...))] = true
}

func (found report) walk(path string, t reflect.Type, v any) {
	if t.Kind() == reflect.Pointer {
		if v != nil {
			found.walk(path, t.Elem(), v)
		}
		return
	}
	if v == nil && t.Kind() != reflect.Interface && t.Kind() != reflect.String {
		found.say(path, t, "null")
		return
	}
	if t.String() == "time.Time" {
		return
	}
	switch t.Kind() {
	case reflect.Slice:
		for _, item := range v.([]any) {
			found.walk(path+"[]", t.Elem(), item)
		}
	case reflect.Map:
		for _, item := range v.(map[string]any) {
			found.walk(path+"{}", t.Elem(), item)
		}
	case reflect.Struct:
		object, seen := v.(map[string]any), map[string]bool{}
		found.fields(path, t, object, seen)
		for name := range object {
			if !seen[name] {
				found.say(path+"."+name, t, "no field takes it")
			}
		}
	}
}

func (found report) fields(path string, t reflect.Type, object map[string]any, seen map[string]bool) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			found.fields(path, field.Type, object, seen)
			continue
		}
		seen[name] = true
		value, has := object[name]
		if has && !(value == nil && null[t.Name()+"."+name]) {
			found.walk(path+"."+name, field.Type, value)
		} else if !has && !strings.Contains(options, "omitempty") && !left[t.Name()+"."+name] {
			found.say(path+"."+name, t, "absent")
		}
	}
}

func (found report) check(method, path string, body json.RawMessage) {
	key := method + " " + number.ReplaceAllString(path, "/N")
	for _, one := range types {
		if !regexp.MustCompile(`^(` + one.pattern + `)$`).MatchString(key) {
			continue
		}
		t := reflect.TypeOf(one.value)
		if err := json.Unmarshal(body, reflect.New(t).Interface()); err != nil {
			found.say(key, t, "does not decode: %v", err)
			return
		}
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil {
			panic(err)
		}
		if meta, has := object["meta"]; has {
			found.walk(key+" meta", reflect.TypeOf(schema.Meta{}), meta)
			delete(object, "meta")
		}
		found.walk(key, t, object)
		return
	}
	found[key+": no type is known"] = true
}

func main() {
	found, lines := report{}, bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var answer struct {
			Method, Path string
			Body         json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			panic(err)
		}
		found.check(answer.Method, answer.Path, answer.Body)
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
	var sorted []string
	for line := range found {
		sorted = append(sorted, line)
	}
	sort.Strings(sorted)
	for _, line := range sorted {
		fmt.Println(line)
	}
}
