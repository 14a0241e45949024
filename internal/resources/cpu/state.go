package cpu

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"keelson/internal/node/checkpoint"
)

// state is which CPUs are whose.
type state struct {
	shared cpuset.CPUSet
	own    map[types.UID]map[string]cpuset.CPUSet
}

func (s state) clone() state {
	own := make(map[types.UID]map[string]cpuset.CPUSet, len(s.own))
	for uid, containers := range s.own {
		own[uid] = maps.Clone(containers)
	}
	return state{s.shared, own}
}

// of are the CPUs that the container has for itself.
func (s state) of(uid types.UID, container string) (cpuset.CPUSet, bool) {
	set, has := s.own[uid][container]
	return set, has
}

func (s state) put(uid types.UID, container string, set cpuset.CPUSet) {
	if s.own[uid] == nil {
		s.own[uid] = map[string]cpuset.CPUSet{}
	}
	s.own[uid][container] = set
}

// exclusive are the CPUs that anybody has for itself.
func (s state) exclusive() cpuset.CPUSet {
	all := cpuset.New()
	for _, containers := range s.own {
		for _, set := range containers {
			all = all.Union(set)
		}
	}
	return all
}

// file is the state as it is written, and as upstream's agent writes it: its fields
// are what the checksum is over, in this order.
type file struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

// latest is the file as agents write it whose pods can have CPUs together, which is an
// alpha feature.
type latest struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	PodEntries    podEntries                   `json:"podEntries,omitempty"`
	Checksum      checkpoint.Checksum          `json:"checksum"`
}

type podEntries map[string]struct{}

// isLatest reports whether the file is of that form, with nothing in it that this
// agent would not know what to do with.
func isLatest(f file, content []byte, said checkpoint.Checksum) bool {
	l := latest{f.PolicyName, f.DefaultCPUSet, f.Entries, podEntries{}, 0}
	return json.Unmarshal(content, &l) == nil && len(l.PodEntries) == 0 && said == l.sum()
}

func (l latest) sum() checkpoint.Checksum {
	l.Checksum = 0
	return checkpoint.SumAs(&l, upstreamType, "cpu.podEntries)", "state.PodCPUAssignments)")
}

// upstreamType is what the file is called where it comes from.
const upstreamType = "state.CPUManagerCheckpoint"

// earliest is the file as it was before containers were told apart by their pods;
// nobody writes it any more.
type earliest struct {
	PolicyName    string              `json:"policyName"`
	DefaultCPUSet string              `json:"defaultCpuSet"`
	Entries       map[string]string   `json:"entries,omitempty"`
	Checksum      checkpoint.Checksum `json:"checksum"`
}

func encode(policy string, s state) ([]byte, error) {
	f := file{PolicyName: policy, DefaultCPUSet: s.shared.String(), Entries: map[string]map[string]string{}}
	for uid, containers := range s.own {
		entry := map[string]string{}
		for name, set := range containers {
			entry[name] = set.String()
		}
		f.Entries[string(uid)] = entry
	}
	f.Checksum = checkpoint.SumAs(&f, upstreamType)
	return json.Marshal(f)
}

// decode reads the state that an agent with the same policy has left.
func decode(policy string, content []byte, whose Whose) (state, error) {
	f := file{Entries: map[string]map[string]string{}}
	if err := json.Unmarshal(content, &f); err != nil {
		if s, old := decodeEarliest(policy, content, whose); old == nil {
			return s, nil
		}
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	sum := f.Checksum
	f.Checksum = 0
	if err := agree(sum, checkpoint.SumAs(&f, upstreamType)); err != nil && !isLatest(f, content, sum) {
		return state{}, err
	}
	s, err := begin(policy, f.PolicyName, f.DefaultCPUSet)
	if err != nil {
		return state{}, err
	}
	for uid, containers := range f.Entries {
		for name, text := range containers {
			set, err := cpuset.Parse(text)
			if err != nil {
				return state{}, fmt.Errorf("decode state: could not parse cpuset %q for container %q in pod %q: %w", text, name, uid, err)
			}
			s.put(types.UID(uid), name, set)
		}
	}
	return s, nil
}

// Whose tells which container of which pod has one of the runtime's IDs.
type Whose func(id string) (uid types.UID, container string, known bool)

// decodeEarliest reads the earliest form, whose entries are by the runtime's IDs of
// containers. What a container had that the runtime does not know any more is shared.
func decodeEarliest(policy string, content []byte, whose Whose) (state, error) {
	f := earliest{Entries: map[string]string{}}
	if err := json.Unmarshal(content, &f); err != nil {
		return state{}, fmt.Errorf("decode state: %w", err)
	}
	sum := f.Checksum
	f.Checksum = 0
	if err := agree(sum, checkpoint.SumAs(&f, upstreamType)); err != nil {
		return state{}, err
	}
	s, err := begin(policy, f.PolicyName, f.DefaultCPUSet)
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

// agree compares checksums. Agents before there were any said nothing.
func agree(said, sum checkpoint.Checksum) error {
	if said != 0 && said != sum {
		return fmt.Errorf("decode state: the checksum is %d, the file says %d", sum, said)
	}
	return nil
}

func begin(policy, written, shared string) (state, error) {
	if written != policy {
		return state{}, fmt.Errorf("configured policy %q differs from state checkpoint policy %q", policy, written)
	}
	set, err := cpuset.Parse(shared)
	if err != nil {
		return state{}, fmt.Errorf("decode state: could not parse default cpu set %q: %w", shared, err)
	}
	return state{set, map[types.UID]map[string]cpuset.CPUSet{}}, nil
}
