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

func (call *call) images(name string) ([]*runtime.Image, error) {
	var response runtime.ListImagesResponse
	request := runtime.ListImagesRequest{Filter: &runtime.ImageFilter{Image: &runtime.ImageSpec{Image: name}}}
	if err := call.do(imageService, "ListImages", true, &request, &response); err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	sort.Slice(response.Images, func(a, b int) bool { return label(response.Images[a]) < label(response.Images[b]) })
	return response.Images, nil
}

func listImages(call *call, arguments []string) error {
	set, print := flagSet(call), output{}
	print.register(set, "table")
	var verbose bool
	for _, flag := range []string{"verbose", "v"} {
		set.BoolVar(&verbose, flag, false, "print everything about each image")
	}
	digests := set.Bool("digests", false, "show digests")
	whole := set.Bool("no-trunc", false, "show IDs as a whole")
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	images, err := call.images(set.Arg(0))
	if err != nil {
		return err
	}
	switch {
	case print.quiet:
		for _, image := range images {
			fmt.Println(image.Id)
		}
		return nil
	case verbose:
		for _, image := range images {
			fmt.Printf("ID: %s\nRepoTags: %s\nRepoDigests: %s\nSize: %d\nPinned: %t\n\n", image.Id,
				strings.Join(image.RepoTags, " "), strings.Join(image.RepoDigests, " "), image.Size, image.Pinned)
		}
		return nil
	case print.form != "table":
		return printMessage(print, &runtime.ListImagesResponse{Images: images})
	}
	header := []string{"IMAGE", "TAG", "IMAGE ID", "SIZE"}
	if *digests {
		header = []string{"IMAGE", "TAG", "DIGEST", "IMAGE ID", "SIZE"}
	}
	rows := [][]string{}
	for _, image := range images {
		id, digest := short(image.Id), "<none>"
		if *whole {
			id = image.Id
		}
		if len(image.RepoDigests) > 0 {
			digest = image.RepoDigests[0][strings.LastIndex(image.RepoDigests[0], "@")+1:]
		}
		size := fmt.Sprintf("%.3gMB", float64(image.Size)/1e6)
		for _, tag := range tags(image) {
			colon := strings.LastIndex(tag, ":")
			row := []string{tag[:colon], tag[colon+1:], id, size}
			if *digests {
				row = []string{tag[:colon], tag[colon+1:], digest, id, size}
			}
			rows = append(rows, row)
		}
	}
	table(header, rows)
	return nil
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
		status, err := message(response.Image)
		if err != nil {
			return err
		}
		result := map[string]interface{}{"status": status}
		withInfo(result, response.Info)
		if err := print.print(result); err != nil {
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
	set := flagSet(call)
	var all, prune bool
	for _, flag := range []string{"all", "a"} {
		set.BoolVar(&all, flag, false, "remove all images")
	}
	for _, flag := range []string{"prune", "q"} {
		set.BoolVar(&prune, flag, false, "remove all unused images")
	}
	if _, err := needed(set, arguments, 0); err != nil {
		return err
	}
	names := set.Args()
	if all || prune {
		images, err := call.images("")
		if err != nil {
			return err
		}
		used, err := call.usedImages(prune)
		if err != nil {
			return err
		}
		for _, image := range images {
			if !used[image.Id] && !(prune && image.Pinned) {
				names = append(names, image.Id)
			}
		}
	} else if len(names) == 0 {
		return fmt.Errorf("crictl rmi: name the images, or --all or --prune")
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

func (call *call) usedImages(wanted bool) (map[string]bool, error) {
	used := map[string]bool{}
	if !wanted {
		return used, nil
	}
	var response runtime.ListContainersResponse
	if err := call.do(runtimeService, "ListContainers", true, &runtime.ListContainersRequest{}, &response); err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	for _, container := range response.Containers {
		used[container.ImageRef] = true
	}
	return used, nil
}
