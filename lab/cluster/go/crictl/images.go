// Copyright (c) 2026 kubenode.provision authors
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/golang/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image has what this program shows of an image; "pinned" is younger than the interface's package in this tree.
type image struct {
	Id          string   `protobuf:"bytes,1,opt,name=id,proto3" json:"id"`
	RepoTags    []string `protobuf:"bytes,2,rep,name=repo_tags,json=repoTags,proto3" json:"repoTags"`
	RepoDigests []string `protobuf:"bytes,3,rep,name=repo_digests,json=repoDigests,proto3" json:"repoDigests"`
	Bytes       uint64   `protobuf:"varint,4,opt,name=size,proto3" json:"size,string"`
	Username    string   `protobuf:"bytes,6,opt,name=username,proto3" json:"username"`
	Pinned      bool     `protobuf:"varint,8,opt,name=pinned,proto3" json:"pinned"`
}

func (one *image) Reset()         { *one = image{} }
func (one *image) String() string { return one.Id }
func (*image) ProtoMessage()      {}

type imageList struct {
	Images []*image `protobuf:"bytes,1,rep,name=images,proto3" json:"images"`
}

func (list *imageList) Reset()         { *list = imageList{} }
func (list *imageList) String() string { return fmt.Sprint(list.Images) }
func (*imageList) ProtoMessage()       {}

type imageStatus struct {
	Image *image            `protobuf:"bytes,1,opt,name=image,proto3"`
	Info  map[string]string `protobuf:"bytes,2,rep,name=info,proto3" protobuf_key:"bytes,1,opt,name=key,proto3" protobuf_val:"bytes,2,opt,name=value,proto3"`
}

func (status *imageStatus) Reset()         { *status = imageStatus{} }
func (status *imageStatus) String() string { return fmt.Sprint(status.Image) }
func (*imageStatus) ProtoMessage()         {}

var _ = []proto.Message{&image{}, &imageList{}, &imageStatus{}}

func (call *call) images(name string) ([]*image, error) {
	var response imageList
	request := runtime.ListImagesRequest{Filter: &runtime.ImageFilter{Image: &runtime.ImageSpec{Image: name}}}
	if err := call.do(imageService, "ListImages", true, &request, &response); err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	for _, image := range response.Images { // empty lists, not null
		image.RepoTags = append([]string{}, image.RepoTags...)
		image.RepoDigests = append([]string{}, image.RepoDigests...)
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
				strings.Join(image.RepoTags, " "), strings.Join(image.RepoDigests, " "), image.Bytes, image.Pinned)
		}
		return nil
	case print.form != "table":
		return print.print(map[string]interface{}{"images": append([]*image{}, images...)})
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
		size := fmt.Sprintf("%.3gMB", float64(image.Bytes)/1e6)
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

func tags(image *image) []string {
	if len(image.RepoTags) == 0 {
		return []string{"<none>:<none>"}
	}
	return image.RepoTags
}

func label(image *image) string {
	return tags(image)[0] + image.Id
}

func (call *call) status(name string) (*imageStatus, error) {
	var response imageStatus
	request := runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}, Verbose: true}
	if err := call.do(imageService, "ImageStatus", true, &request, &response); err != nil {
		return nil, fmt.Errorf("image status for %q request: %w", name, err)
	}
	if response.Image == nil {
		return nil, fmt.Errorf("no such image %q present", name)
	}
	response.Image.RepoTags = append([]string{}, response.Image.RepoTags...)
	response.Image.RepoDigests = append([]string{}, response.Image.RepoDigests...)
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
		status, err := call.status(name)
		if err != nil {
			return err
		}
		result := map[string]interface{}{"status": status.Image}
		withInfo(result, status.Info)
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
