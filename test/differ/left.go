package differ

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// leftBound is how long both agents may take to clean up after removed pods: upstream's agent
// garbage-collects containers and log directories once a minute.
const leftBound = 3 * time.Minute

// left waits until neither side has leftovers of the pods of a history, at most for leftBound, and reports
// the leftovers. They are a difference if only one side has them.
func (p *play) left(ctx context.Context) error {
	end := time.Now().Add(leftBound)
	for {
		var lists [2][]string
		for i, s := range p.sides {
			var err error
			if lists[i], err = s.left(); err != nil {
				return err
			}
		}
		if len(lists[0])+len(lists[1]) == 0 {
			return nil
		}
		if time.Now().After(end) {
			p.result.Left = [2][]string{lists[0], lists[1]}
			for i, whose := range []string{"ours", "theirs"} {
				p.say("%s leaves %d: %.300q", whose, len(lists[i]), lists[i])
			}
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// left lists what is left of pods on one side: in the runtime, in the agent's root directory, logs,
// mounts and cgroups.
func (s *side) left() (list []string, err error) {
	for _, p := range s.runtime.Pods() {
		list = append(list, "sandbox of "+p.Name)
		for range p.Containers {
			list = append(list, "container of "+p.Name)
		}
	}
	for what, dir := range map[string]string{
		"directory": filepath.Join(s.kubelet.Root, "pods"), "log directory": filepath.Join(s.rig.Dir, "pod-logs"),
	} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("see what is left: %w", err)
		}
		for _, e := range entries {
			list = append(list, what+" "+e.Name())
		}
	}
	mounts, err := s.mounts()
	if err != nil {
		return nil, err
	}
	groups, err := s.cgroups()
	if err != nil {
		return nil, err
	}
	kept, err := s.runtime.left()
	if err != nil {
		return nil, err
	}
	list = slices.Concat(list, mounts, groups, kept)
	slices.Sort(list)
	return list, nil
}

// mounts are those below the directories of pods.
func (s *side) mounts() (list []string, err error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("see what is mounted: %w", err)
	}
	defer file.Close()
	below := filepath.Join(s.kubelet.Root, "pods") + "/"
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 4 && strings.HasPrefix(f[4], below) {
			list = append(list, "mount "+f[4])
		}
	}
	return list, lines.Err()
}

// cgroups are those of pods, in any hierarchy.
func (s *side) cgroups() (list []string, err error) {
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + s.rig.Name + "/kubepods*")
	if err != nil {
		return nil, err
	}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
				list = append(list, "cgroup "+path)
				return filepath.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("see what cgroups are left: %w", err)
		}
	}
	return list, nil
}
