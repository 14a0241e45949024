package crisuite

import (
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testImages(t *testing.T, s *suite) {
	res, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: s.Image}})
	if err != nil || res.Image == nil {
		t.Fatalf("the suite's image %s: %v, %v", s.Image, res, err)
	}
	if res.Image.Size == 0 || len(res.Image.RepoTags) == 0 {
		t.Errorf("incomplete image %v", res.Image)
	}
	same, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: res.Image.Id}})
	if err != nil || same.Image.GetId() != res.Image.Id {
		t.Errorf("by id: %v, %v", same, err)
	}
	list, err := s.im.ListImages(s.ctx(t), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Images, func(i *cri.Image) bool { return i.Id == res.Image.Id }) {
		t.Error("the list lacks the suite's image")
	}

	missing := &cri.ImageSpec{Image: "registry.invalid/no/such:image"}
	none, err := s.im.ImageStatus(s.ctx(t), &cri.ImageStatusRequest{Image: missing})
	if err != nil || none.Image != nil {
		t.Errorf("status of a missing image: %v, %v", none, err)
	}
	if _, err := s.im.RemoveImage(s.ctx(t), &cri.RemoveImageRequest{Image: missing}); err != nil {
		t.Errorf("removing a missing image: %v", err)
	}
	_, err = s.im.PullImage(s.ctx(t), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "NOT A REFERENCE"}})
	wantError(t, "pulling a malformed reference", err)

	fs, err := s.im.ImageFsInfo(s.ctx(t), &cri.ImageFsInfoRequest{})
	if err != nil || len(fs.ImageFilesystems) == 0 || fs.ImageFilesystems[0].GetFsId().GetMountpoint() == "" ||
		fs.ImageFilesystems[0].Timestamp <= 0 {
		t.Errorf("ImageFsInfo: %v, %v", fs, err)
	}

	p := s.runPod(t)
	st := s.status(t, s.create(t, p, s.script(t, p, "main", serve)))
	if st.ImageId != res.Image.Id && !s.Old {
		t.Errorf("the container's image id is %s, the image's is %s", st.ImageId, res.Image.Id)
	}
}
