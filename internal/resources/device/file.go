package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/node/checkpoint"
	"keelson/internal/resources/topology"
)

// nowhereKnown stands in the file for the NUMA node of devices of which none is known.
const nowhereKnown = -1

// Recorded reports whether an agent has written its file of devices in dir.
func Recorded(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the file of devices: %w", err)
	}
	return true, nil
}

// load takes up what the file says. A file that cannot be used is put aside, and the
// failure tells where.
func (p *Pool) load(now time.Time) error {
	path := p.path(stateFile)
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	content, err := checkpoint.Read(path)
	if err == nil && content == nil {
		return nil
	}
	var held []checkpoint.PodDevicesEntry
	var there map[string][]string
	if err == nil {
		held, there, err = checkpoint.DecodeDevices(content)
	}
	claims := map[types.UID]*claim{}
	if err == nil {
		claims, err = claimsOf(held)
	}
	if err != nil {
		return checkpoint.PutAside(path, err)
	}
	if st, err := os.Stat(path); err == nil && st.ModTime().Before(p.cfg.Booted) {
		p.dropEnded(claims)
	}
	p.claims = claims
	for name := range there {
		// Whether they are still there their plugin has to say.
		p.resources[name] = &resource{stopped: now}
	}
	return nil
}

// dropEnded leaves of what was given before the machine was started what pods have that
// run, and so were started since: its clock was set meanwhile. To others plugins have to
// say anew what they are to be given.
func (p *Pool) dropEnded(claims map[types.UID]*claim) {
	running, err := p.cfg.Running()
	if err != nil {
		p.cfg.Log.Warn("cannot tell which pods run since the machine was started; all keep their devices", "err", err)
		return
	}
	maps.DeleteFunc(claims, func(uid types.UID, _ *claim) bool { return !running[uid] })
}

func claimsOf(held []checkpoint.PodDevicesEntry) (map[types.UID]*claim, error) {
	out := map[types.UID]*claim{}
	for _, e := range held {
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" || len(e.DeviceIDs) == 0 {
			return nil, fmt.Errorf("decode devices: an entry of pod %q, container %q, resource %q names too little", e.PodUID, e.ContainerName, e.ResourceName)
		}
		h := &holding{nodes: map[string][]int{}, answer: &deviceapi.ContainerAllocateResponse{}}
		if err := proto.Unmarshal(e.AllocResp, h.answer); err != nil {
			return nil, fmt.Errorf("decode what a plugin answered for container %s of pod %s: %w", e.ContainerName, e.PodUID, err)
		}
		for _, node := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
			for _, id := range e.DeviceIDs[node] {
				h.ids = append(h.ids, id)
				if node >= 0 && node < topology.MaxNodes {
					h.nodes[id] = append(h.nodes[id], int(node))
				}
			}
		}
		slices.Sort(h.ids)
		h.ids = slices.Compact(h.ids)
		uid := types.UID(e.PodUID)
		cl := out[uid]
		if cl == nil {
			cl = &claim{turn: make(chan struct{}, 1), held: map[string]map[string]*holding{}}
			out[uid] = cl
		}
		if cl.held[e.ContainerName] == nil {
			cl.held[e.ContainerName] = map[string]*holding{}
		}
		cl.held[e.ContainerName][e.ResourceName] = h
	}
	return out, nil
}

// save writes the file, if it is older than what is known.
func (p *Pool) save() error {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	if !p.unsaved || !p.owned {
		p.mu.Unlock()
		return nil
	}
	p.unsaved = false
	held, there, err := p.recordLocked()
	p.mu.Unlock()
	var text []byte
	if err == nil {
		text, err = checkpoint.EncodeDevices(held, there)
	}
	if err == nil {
		err = checkpoint.Write(p.path(stateFile), text)
	}
	if err != nil {
		p.mu.Lock()
		p.unsaved = true
		p.mu.Unlock()
		return fmt.Errorf("write down devices: %w", err)
	}
	return nil
}

// recordLocked is what the file is to say. What no plugin has answered for is left
// out: nobody has it yet.
func (p *Pool) recordLocked() (held []checkpoint.PodDevicesEntry, there map[string][]string, err error) {
	for uid, cl := range p.claims {
		for container, resources := range cl.held {
			for name, h := range resources {
				if h.answer == nil {
					continue
				}
				answer, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.answer)
				if err != nil {
					return nil, nil, fmt.Errorf("encode what a plugin answered: %w", err)
				}
				at := checkpoint.DevicesPerNUMA{}
				for _, id := range h.ids {
					if len(h.nodes[id]) == 0 {
						at[nowhereKnown] = append(at[nowhereKnown], id)
					}
					for _, n := range h.nodes[id] {
						at[int64(n)] = append(at[int64(n)], id)
					}
				}
				held = append(held, checkpoint.PodDevicesEntry{PodUID: string(uid), ContainerName: container, ResourceName: name, DeviceIDs: at, AllocResp: answer})
			}
		}
	}
	slices.SortFunc(held, func(a, b checkpoint.PodDevicesEntry) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerName, b.ContainerName), cmp.Compare(a.ResourceName, b.ResourceName))
	})
	there = map[string][]string{}
	for name, r := range p.resources {
		there[name] = []string{}
		for _, id := range slices.Sorted(maps.Keys(r.devices)) {
			if r.healthy(id) {
				there[name] = append(there[name], id)
			}
		}
	}
	return held, there, nil
}

// sleep waits. It reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
