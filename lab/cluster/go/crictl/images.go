// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func listImages(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	names, err := needed(set, arguments, 0)
	if err != nil {
		return err
	}
	var response runtime.ListImagesResponse
	request := runtime.ListImagesRequest{Filter: &runtime.ImageFilter{Image: &runtime.ImageSpec{Image: first(names...)}}}
	if err := call.do(imageService, "ListImages", true, &request, &response); err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	sort.Slice(response.Images, func(a, b int) bool { return label(response.Images[a]) < label(response.Images[b]) })
	ids, rows := []string{}, [][]string{}
	for _, image := range response.Images {
		ids = append(ids, image.Id)
		for _, tag := range tags(image) {
			colon := strings.LastIndex(tag, ":")
			size := fmt.Sprintf("%.3gMB", float64(image.Size)/1e6)
			rows = append(rows, []string{tag[:colon], tag[colon+1:], short(image.Id), size})
		}
	}
	return print.list(ids, &response, []string{"IMAGE", "TAG", "IMAGE ID", "SIZE"}, rows)
}

func tags(image *runtime.Image) []string {
	if len(image.RepoTags) == 0 {
		return []string{"<none>:<none>"}
	}
	return image.RepoTags
}

func label(image *runtime.Image) string {
	return tags(image)[0] + image.Id
}

func (call *call) status(name string) (*runtime.ImageStatusResponse, error) {
	var response runtime.ImageStatusResponse
	request := runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}, Verbose: true}
	if err := call.do(imageService, "ImageStatus", true, &request, &response); err != nil {
		return nil, fmt.Errorf("image status for %q request: %w", name, err)
	}
	if response.Image == nil {
		return nil, fmt.Errorf("no such image %q present", name)
	}
	return &response, nil
}

func inspectImages(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "json")
	names, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	for _, name := range names {
		response, err := call.status(name)
		if err != nil {
			return err
		}
		if err := print.status(response.Image, response.Info); err != nil {
			return err
		}
	}
	return nil
}

func pullImage(call *call, arguments []string) error {
	set := flagSet(call)
	credentials := set.String("creds", os.Getenv("CRICTL_CREDS"), "USER:PASSWORD for the registry")
	auth := set.String("auth", os.Getenv("CRICTL_AUTH"), "base64 of USER:PASSWORD for the registry")
	names, err := needed(set, arguments, 1)
	if err != nil {
		return err
	}
	request := runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: names[0]}}
	if *credentials != "" {
		parts := strings.SplitN(*credentials, ":", 2)
		request.Auth = &runtime.AuthConfig{Username: parts[0], Password: strings.Join(parts[1:], "")}
	} else if *auth != "" {
		request.Auth = &runtime.AuthConfig{Auth: *auth}
	}
	var response runtime.PullImageResponse
	if err := call.do(imageService, "PullImage", false, &request, &response); err != nil {
		return fmt.Errorf("pulling image: %w", err)
	}
	fmt.Printf("Image is up to date for %s\n", response.ImageRef)
	return nil
}

func removeImages(call *call, arguments []string) error {
	names, err := needed(flagSet(call), arguments, 1)
	if err != nil {
		return err
	}
	for _, name := range names {
		status, err := call.status(name)
		if err != nil {
			return err
		}
		request := runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: status.Image.Id}}
		if err := call.do(imageService, "RemoveImage", true, &request, &runtime.RemoveImageResponse{}); err != nil {
			return fmt.Errorf("removing image %q: %w", name, err)
		}
		for _, tag := range append(tags(status.Image), status.Image.RepoDigests...) {
			fmt.Printf("Deleted: %s\n", tag)
		}
	}
	return nil
}
