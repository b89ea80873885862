// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeService = "runtime.v1.RuntimeService"
	imageService   = "runtime.v1.ImageService"
)

// call is one run of one command: its settings and its connections.
type call struct {
	settings settings
	ctx      context.Context
	name     string
	links    map[string]*grpc.ClientConn
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
	return link.Invoke(ctx, fmt.Sprintf("/%s/%s", service, method), request, response)
}

func (call *call) link(service string) (*grpc.ClientConn, error) {
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
		var found *grpc.ClientConn
		if found, err = call.dial(candidate, service); err == nil {
			if call.links == nil {
				call.links = map[string]*grpc.ClientConn{}
			}
			call.links[service] = found
			return found, nil
		}
	}
	return nil, err
}

// dial connects and finds out whether the server has the service.
func (call *call) dial(endpoint, service string) (*grpc.ClientConn, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	ctx, cancel := context.WithTimeout(call.ctx, call.settings.timeout)
	defer cancel()
	dialer := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	connection, err := grpc.DialContext(
		ctx, path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dialer), grpc.WithBlock(),
		grpc.FailOnNonTempDialError(true), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect endpoint '%s', make sure you are running as root and the endpoint has been started: %w", endpoint, err)
	}
	if service == imageService {
		err = connection.Invoke(ctx, "/"+service+"/ImageStatus",
			&runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: "-"}}, &runtime.ImageStatusResponse{})
	} else {
		err = connection.Invoke(ctx, "/"+service+"/Version", &runtime.VersionRequest{}, &runtime.VersionResponse{})
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return nil, fmt.Errorf("validate service connection: validate CRI v1 API for endpoint %q: %w", endpoint, err)
	case codes.DeadlineExceeded, codes.Unavailable:
		return nil, fmt.Errorf("validate service connection: endpoint '%s' does not answer within %s: %w", endpoint, call.settings.timeout.Round(time.Millisecond), err)
	}
	return connection, nil
}
