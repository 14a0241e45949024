package device

import (
	"cmp"
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

	"keelson/internal/host/checkpoint"
	record "keelson/internal/resources/device/checkpoint"
	"keelson/internal/resources/numa"
)

// nodeWithoutTopology is the NUMA node in the checkpoint of devices without a known node.
const nodeWithoutTopology = -1

// HasCheckpoint reports whether an agent has written a device manager checkpoint in dir.
func HasCheckpoint(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for checkpoint of devices: %w", err)
	}
	return true, nil
}

// load restores the checkpoint. One that cannot be used is set aside; the error contains its new name.
func (p *Manager) load(now time.Time) error {
	path := p.path(stateFile)
	if err := checkpoint.Sweep(path); err != nil {
		return err
	}
	content, err := checkpoint.Read(path)
	if err == nil && content == nil {
		return nil
	}
	var held []record.PodDevicesEntry
	var there map[string][]string
	if err == nil {
		held, there, err = record.DecodeDevices(content)
	}
	claims := map[types.UID]*podDevices{}
	if err == nil {
		claims, err = decodePodDevices(held)
	}
	if err != nil {
		return checkpoint.PutAside(path, err)
	}
	if st, err := os.Stat(path); err == nil && st.ModTime().Before(p.cfg.Booted) {
		p.removeStopped(claims)
	}
	p.allocated = claims
	for name := range there {
		// The plugin lists its devices when it registers again.
		p.resources[name] = &resource{stopped: now}
	}
	return nil
}

// removeStopped removes allocations of pods that are not running. It is called for a checkpoint that is older than the
// boot. A pod that runs nevertheless was started after the boot, by an agent whose clock was not set yet. For other
// pods the plugins have to allocate again.
func (p *Manager) removeStopped(claims map[types.UID]*podDevices) {
	running, err := p.cfg.Running()
	if err != nil {
		p.cfg.Log.Warn("failed to list running pods; allocations from before the boot are kept", "err", err)
		return
	}
	maps.DeleteFunc(claims, func(uid types.UID, _ *podDevices) bool { return !running[uid] })
}

func decodePodDevices(held []record.PodDevicesEntry) (map[types.UID]*podDevices, error) {
	out := map[types.UID]*podDevices{}
	for _, e := range held {
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" || len(e.DeviceIDs) == 0 {
			return nil, fmt.Errorf("decode devices: an entry of pod %q, container %q, resource %q is incomplete",
				e.PodUID,
				e.ContainerName, e.ResourceName)
		}
		h := &allocation{nodes: map[string][]int{}, answer: &deviceapi.ContainerAllocateResponse{}}
		if err := proto.Unmarshal(e.AllocResp, h.answer); err != nil {
			return nil, fmt.Errorf("decode what a plugin answered for container %s of pod %s: %w", e.ContainerName,
				e.PodUID,
				err)
		}
		for _, node := range slices.Sorted(maps.Keys(e.DeviceIDs)) {
			for _, id := range e.DeviceIDs[node] {
				h.ids = append(h.ids, id)
				if node >= 0 && node < numa.MaxNodes {
					h.nodes[id] = append(h.nodes[id], int(node))
				}
			}
		}
		slices.Sort(h.ids)
		h.ids = slices.Compact(h.ids)
		uid := types.UID(e.PodUID)
		cl := out[uid]
		if cl == nil {
			cl = &podDevices{turn: make(chan struct{}, 1), byContainer: map[string]map[string]*allocation{}}
			out[uid] = cl
		}
		if cl.byContainer[e.ContainerName] == nil {
			cl.byContainer[e.ContainerName] = map[string]*allocation{}
		}
		cl.byContainer[e.ContainerName][e.ResourceName] = h
	}
	return out, nil
}

// save writes the checkpoint if it is out of date.
func (p *Manager) save() error {
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
		text, err = record.EncodeDevices(held, there)
	}
	if err == nil {
		err = checkpoint.Write(p.path(stateFile), text)
	}
	if err != nil {
		p.mu.Lock()
		p.unsaved = true
		p.mu.Unlock()
		return fmt.Errorf("write checkpoint of devices: %w", err)
	}
	return nil
}

// recordLocked returns the content of the checkpoint. Devices without an answer of the plugin are left out.
func (p *Manager) recordLocked() (held []record.PodDevicesEntry, there map[string][]string, err error) {
	for uid, cl := range p.allocated {
		for container, resources := range cl.byContainer {
			for name, h := range resources {
				if h.answer == nil {
					continue
				}
				answer, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.answer)
				if err != nil {
					return nil, nil, fmt.Errorf("encode what a plugin answered: %w", err)
				}
				at := record.DevicesPerNUMA{}
				for _, id := range h.ids {
					if len(h.nodes[id]) == 0 {
						at[nodeWithoutTopology] = append(at[nodeWithoutTopology], id)
					}
					for _, n := range h.nodes[id] {
						at[int64(n)] = append(at[int64(n)], id)
					}
				}
				held = append(held, record.PodDevicesEntry{
					PodUID:        string(uid),
					ContainerName: container,
					ResourceName:  name,
					DeviceIDs:     at,
					AllocResp:     answer,
				})
			}
		}
	}
	slices.SortFunc(held, func(a, b record.PodDevicesEntry) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerName, b.ContainerName),
			cmp.Compare(a.ResourceName, b.ResourceName))
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
