// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/golang/protobuf/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeService = "RuntimeService"
	imageService   = "ImageService"
)

// call is one run of one command: its settings, its connections, and the version of the interface that answered.
type call struct {
	settings settings
	ctx      context.Context
	name     string
	links    map[string]link
}

type link struct {
	connection *grpc.ClientConn
	prefix     string // runtime.v1 or runtime.v1alpha2: both have the same messages on the wire
}

// do sends one request; limited ones end after the timeout of the settings.
func (call *call) do(service, method string, limited bool, request, response proto.Message) error {
	link, err := call.link(service)
	if err != nil {
		return err
	}
	ctx := call.ctx
	if limited {
		limitedCtx, cancel := context.WithTimeout(ctx, call.settings.timeout)
		defer cancel()
		ctx = limitedCtx
	}
	return link.connection.Invoke(ctx, link.method(service, method), request, response)
}

func (link link) method(service, method string) string {
	return fmt.Sprintf("/%s.%s/%s", link.prefix, service, method)
}

func (call *call) link(service string) (link, error) {
	endpoint := call.settings.runtime
	if service == imageService {
		endpoint = call.settings.image
	}
	if known, ok := call.links[service]; ok {
		return known, nil
	}
	endpoints := defaultEndpoints
	if endpoint != "" {
		endpoints = []string{endpoint}
	}
	var err error
	for _, candidate := range endpoints {
		var found link
		if found, err = call.dial(candidate, service); err == nil {
			if call.links == nil {
				call.links = map[string]link{}
			}
			call.links[service] = found
			return found, nil
		}
	}
	return link{}, err
}

// dial connects and finds out which version of the interface the server speaks.
func (call *call) dial(endpoint, service string) (link, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	ctx, cancel := context.WithTimeout(call.ctx, call.settings.timeout)
	defer cancel()
	dialer := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	connection, err := grpc.DialContext(
		ctx, path, grpc.WithInsecure(), grpc.WithContextDialer(dialer), grpc.WithBlock(),
		grpc.FailOnNonTempDialError(true), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
	)
	if err != nil {
		return link{}, fmt.Errorf("connect endpoint '%s', make sure you are running as root and the endpoint has been started: %w", endpoint, err)
	}
	for _, prefix := range []string{"runtime.v1", "runtime.v1alpha2"} {
		found := link{connection, prefix}
		if service == imageService {
			err = connection.Invoke(ctx, found.method(service, "ImageStatus"),
				&runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: "-"}}, &runtime.ImageStatusResponse{})
		} else {
			err = connection.Invoke(ctx, found.method(service, "Version"), &runtime.VersionRequest{}, &runtime.VersionResponse{})
		}
		switch status.Code(err) {
		case codes.Unimplemented:
			continue
		case codes.DeadlineExceeded, codes.Unavailable:
			return link{}, fmt.Errorf("validate service connection: endpoint '%s' does not answer within %s: %w", endpoint, call.settings.timeout.Round(time.Millisecond), err)
		}
		return found, nil
	}
	return link{}, fmt.Errorf("validate service connection: CRI %s API is not implemented for endpoint %q: %w", strings.ToLower(service), endpoint, err)
}
