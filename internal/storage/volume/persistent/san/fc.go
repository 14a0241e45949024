package san

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume/persistent"
)

type fc struct{ node }

func (fc) name() string { return "kubernetes.io/fc" }

func (fc) check() error { return nil }

func fcSource(s persistent.Spec) *v1.FCVolumeSource {
	switch {
	case s.PV != nil:
		return s.PV.Spec.FC
	case s.Inline != nil:
		return s.Inline.FC
	}
	return nil
}

// describe names disks and directories as upstream does: by target and LUN, or by WWID.
func (fc) describe(s persistent.Spec) (*record, error) {
	src := fcSource(s)
	if src == nil {
		return nil, nil
	}
	r := &record{
		Name:     s.Name,
		Block:    s.Block,
		WWNs:     src.TargetWWNs,
		fsType:   src.FSType,
		readOnly: s.ForReading(src.ReadOnly),
	}
	var err error
	for _, w := range src.TargetWWNs {
		err = errors.Join(err, checkWord("WWN", w))
	}
	for _, w := range src.WWIDs {
		w = strings.ReplaceAll(w, " ", "_") // as udev does
		err = errors.Join(err, checkWord("WWID", w))
		r.WWIDs = append(r.WWIDs, w)
	}
	switch {
	case err != nil:
		return nil, err
	case len(r.WWNs) > 0 && src.Lun != nil:
		r.LUN, r.WWIDs = *src.Lun, nil
		r.ID, r.Key = fmt.Sprintf("kubernetes.io/fc/%v:%d", src.TargetWWNs, r.LUN), fmt.Sprintf("%s-lun-%d", r.WWNs[0],
			r.LUN)
	case len(r.WWIDs) > 0:
		r.ID, r.Key = fmt.Sprintf("kubernetes.io/fc/%v", src.WWIDs), r.WWIDs[0]
	default:
		return nil, errors.New("FC volume names neither targetWWNs and lun nor wwids")
	}
	return r, nil
}

// attach rescans the adapters if the disk is not present.
func (n fc) attach(ctx context.Context, r record, _ map[string]string) error {
	if got, err := n.paths(r); err != nil || len(got) > 0 {
		return err
	}
	hosts, err := filepath.Glob(n.sys("class/fc_host/host*"))
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		return notFound(errors.New("no Fibre Channel adapter is on this node"))
	}
	for _, h := range hosts {
		if err := os.WriteFile(n.sys("class/scsi_host", filepath.Base(h), "scan"), []byte("- - -"), 0o200); err != nil {
			return fmt.Errorf("look for disks: %w", err)
		}
	}
	got, err := await(ctx, deviceTimeout, func() ([]string, error) { return n.paths(r) })
	if err != nil || len(got) > 0 {
		return err
	}
	return notFound(errors.Join(fmt.Errorf("no fc disk found: %s", r.Key), ctx.Err()))
}

// notFound gives an error upstream's text for a disk that was not found.
func notFound(err error) error { return pod.ShowAs("no fc disk found", err) }

func (n fc) paths(r record) ([]string, error) {
	dir, matches := n.dev("disk/by-path"), func(name string) bool {
		for _, w := range r.WWNs {
			if strings.HasSuffix(name, fmt.Sprintf("-fc-0x%s-lun-%d", strings.ToLower(w), r.LUN)) {
				return true
			}
		}
		return false
	}
	if len(r.WWIDs) > 0 {
		dir, matches = n.dev("disk/by-id"), func(name string) bool {
			for _, w := range r.WWIDs {
				if name == "scsi-"+w {
					return true
				}
			}
			return false
		}
	}
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range all {
		if matches(e.Name()) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return present(out)
}

// detach removes the disk from the kernel.
func (n fc) detach(ctx context.Context, r record, _ []record) error {
	paths, err := n.paths(r)
	if err != nil {
		return err
	}
	disks, err := n.flush(ctx, paths)
	if err != nil {
		return err
	}
	return n.deleteDisks(disks)
}
