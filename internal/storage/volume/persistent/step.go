package persistent

import (
	"errors"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// Step is what is done to a file system, and to a device, in upstream's words.
type Step struct{ mount, mapped string }

// The steps that plugins name themselves. Other errors are those of staging and publishing.
var (
	StepInit   = Step{"MountVolume.NewMounter initialization", "MapVolume.NewBlockVolumeMapper initialization"}
	StepAttach = Step{"MountVolume.WaitForAttach", "MapVolume.WaitForAttach"}
)

var (
	stepAffinity = Step{"MountVolume.NodeAffinity check", "MapVolume.NodeAffinity check"}
	stepOptions  = Step{"MountVolume.MountOptionSupport check", ""} // of file systems only
	stepOnePod   = Step{"MountVolume.SetUp", "MapVolume.SetUpDevice"}
	stepStage    = Step{"MountVolume.MountDevice", "MapVolume.SetUpDevice"}
	stepMount    = Step{"MountVolume.SetUp", "MapVolume.MapPodDevice"}
	stepFollow   = Step{"", "MapVolume.EvalHostSymlinks"} // of devices only
	stepMap      = Step{"", "MapVolume.MapBlockVolume"}   // likewise
)

const stepAttach = "AttachVolume.Attach"

// of is the step's name for this volume.
func (s Step) of(r Request) string {
	if r.Block {
		return s.mapped
	}
	return s.mount
}

// Failed names the step that failed, unless the error does.
func Failed(r Request, s Step, err error) error {
	var named *volume.Failure
	if err == nil || errors.As(err, &named) {
		return err
	}
	f := &volume.Failure{
		Step:   s.of(r),
		Volume: r.Name,
		Reason: pod.EventFailedMount,
		Err:    err,
	}
	if r.Block {
		f.Reason = pod.EventFailedMapVolume
	}
	return f
}
