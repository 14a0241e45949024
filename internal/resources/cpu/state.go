package cpu

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/host/checkpoint"
)

// state is the assignment of CPUs to containers, and the shared pool.
type state struct {
	shared   cpuset.CPUSet
	assigned map[types.UID]map[string]cpuset.CPUSet
}

func (s state) clone() state {
	own := make(map[types.UID]map[string]cpuset.CPUSet, len(s.assigned))
	for uid, containers := range s.assigned {
		own[uid] = maps.Clone(containers)
	}
	return state{s.shared, own}
}

// assignedTo returns the exclusive CPUs of a container.
func (s state) assignedTo(uid types.UID, container string) (cpuset.CPUSet, bool) {
	set, has := s.assigned[uid][container]
	return set, has
}

func (s state) put(uid types.UID, container string, set cpuset.CPUSet) {
	if s.assigned[uid] == nil {
		s.assigned[uid] = map[string]cpuset.CPUSet{}
	}
	s.assigned[uid][container] = set
}

// exclusive returns all exclusive CPUs.
func (s state) exclusive() cpuset.CPUSet {
	all := cpuset.New()
	for _, containers := range s.assigned {
		for _, set := range containers {
			all = all.Union(set)
		}
	}
	return all
}

// file is the format of the checkpoint, which is the same as upstream's. The checksum covers its fields in this order.
type file struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

// fileWithPods is the format of agents that support pod-level CPU assignments, an alpha feature.
type fileWithPods struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    podEntries                   `json:"podEntries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

type podEntries map[string]struct{}

// isFileWithPods reports whether the checkpoint has the format of fileWithPods and no pod-level assignments. This agent
// does not support those.
func isFileWithPods(f file, content []byte, recorded checkpoint.Checksum) bool {
	l := fileWithPods{f.PolicyName, f.DefaultCPUSet, f.Entries, podEntries{}, 0}
	return json.Unmarshal(content, &l) == nil && len(l.PodEntries) == 0 && recorded == l.sum()
}

func (l fileWithPods) sum() checkpoint.Checksum {
	l.Checksum = 0
	return checkpoint.SumAs(&l, upstreamType, "cpu.podEntries)", "state.PodCPUAssignments)")
}

// upstreamType is upstream's name of the type, which the checksum covers.
const upstreamType = "state.CPUManagerCheckpoint"

// fileV1 is the first format, whose entries are by container ID only. Current agents do not write it.
type fileV1 struct {
	PolicyName    string              `json:"policyName"`
	DefaultCPUSet string              `json:"defaultCpuSet"`
	Entries       map[string]string   `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum `json:"checksum"`
}

func encode(policy string, s state) ([]byte, error) {
	f := file{PolicyName: policy, DefaultCPUSet: s.shared.String(), Entries: map[string]map[string]string{}}
	for uid, containers := range s.assigned {
		entry := map[string]string{}
		for name, set := range containers {
			entry[name] = set.String()
		}
		f.Entries[string(uid)] = entry
	}
	f.Checksum = checkpoint.SumAs(&f, upstreamType)
	return json.Marshal(f)
}

// decode parses the checkpoint of an agent with the same policy.
func decode(policy string, content []byte, whose FindContainer) (state, error) {
	f := file{Entries: map[string]map[string]string{}}
	if err := json.Unmarshal(content, &f); err != nil {
		if s, old := decodeV1(policy, content, whose); old == nil {
			return s, nil
		}
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	sum := f.Checksum
	f.Checksum = 0
	if err := verifyChecksum(sum, checkpoint.SumAs(&f, upstreamType)); err != nil && !isFileWithPods(f, content, sum) {
		return state{}, err
	}
	s, err := parseState(policy, f.PolicyName, f.DefaultCPUSet)
	if err != nil {
		return state{}, err
	}
	for uid, containers := range f.Entries {
		for name, text := range containers {
			set, err := cpuset.Parse(text)
			if err != nil {
				return state{}, fmt.Errorf("decode state: could not parse cpuset %q for container %q in pod %q: %w",
					text, name,
					uid, err)
			}
			s.put(types.UID(uid), name, set)
		}
	}
	return s, nil
}

// FindContainer resolves a container ID of the runtime.
type FindContainer func(id string) (uid types.UID, container string, known bool)

// decodeV1 parses the first format. CPUs of containers that the runtime no longer has are returned to the shared
// pool.
func decodeV1(policy string, content []byte, whose FindContainer) (state, error) {
	f := fileV1{Entries: map[string]string{}}
	if err := json.Unmarshal(content, &f); err != nil {
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	sum := f.Checksum
	f.Checksum = 0
	if err := verifyChecksum(sum, checkpoint.SumAs(&f, upstreamType)); err != nil {
		return state{}, err
	}
	s, err := parseState(policy, f.PolicyName, f.DefaultCPUSet)
	if err != nil {
		return state{}, err
	}
	for id, text := range f.Entries {
		set, err := cpuset.Parse(text)
		if err != nil {
			return state{}, fmt.Errorf("decode state: could not parse cpuset %q for container ID %q: %w", text, id, err)
		}
		if uid, name, known := whose(id); known {
			s.put(uid, name, set)
		} else {
			s.shared = s.shared.Union(set)
		}
	}
	return s, nil
}

// verifyChecksum verifies the checksum. The first agents wrote none.
func verifyChecksum(recorded, sum checkpoint.Checksum) error {
	if recorded != 0 && recorded != sum {
		return fmt.Errorf("decode state: the checksum is %d, the file says %d", sum, recorded)
	}
	return nil
}

func parseState(policy, written, shared string) (state, error) {
	if written != policy {
		return state{}, fmt.Errorf("configured policy %q differs from state checkpoint policy %q", policy, written)
	}
	set, err := cpuset.Parse(shared)
	if err != nil {
		return state{}, fmt.Errorf("decode state: could not parse default cpu set %q: %w", shared, err)
	}
	return state{set, map[types.UID]map[string]cpuset.CPUSet{}}, nil
}
