package allocation

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/host/checkpoint"
)

// envelope is a state file: the state as text, and the checksum of that text.
type envelope struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

type entries struct {
	Entries map[types.UID]Resources `json:"entries"`
}

func encode(pods map[types.UID]Resources) ([]byte, error) {
	data, err := json.Marshal(entries{pods})
	if err != nil {
		return nil, fmt.Errorf("encode resources of pods: %w", err)
	}
	return json.Marshal(envelope{Data: string(data), Checksum: checkpoint.Sum(string(data))})
}

func decode(content []byte) (map[types.UID]Resources, error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	if sum := checkpoint.Sum(e.Data); sum != e.Checksum {
		return nil, fmt.Errorf("decode state: the checksum is %d, the file says %d", sum, e.Checksum)
	}
	var s entries
	if err := json.Unmarshal([]byte(e.Data), &s); err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	for uid, r := range s.Entries {
		if uid == "" || r.Containers == nil {
			return nil, errors.New("decode state: an entry names no pod or no containers")
		}
	}
	if s.Entries == nil {
		s.Entries = map[types.UID]Resources{}
	}
	return s.Entries, nil
}

// load reads a state file. An unusable one is moved aside, and the error has its new path.
func load(path string) (map[types.UID]Resources, error) {
	none := map[types.UID]Resources{}
	if err := checkpoint.Sweep(path); err != nil {
		return none, err
	}
	content, err := checkpoint.Read(path)
	if err == nil && content == nil {
		return none, nil
	}
	if err == nil {
		var pods map[types.UID]Resources
		if pods, err = decode(content); err == nil {
			return pods, nil
		}
	}
	return none, checkpoint.PutAside(path, err)
}
