package differ

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/fakecri"
)

// look is a life's pod as it was last seen, normalised; empty if it is not there.
func (s *side) look(l *Life) flat {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || t.pod == nil {
		return flat{}
	}
	if t.looked != t.pod {
		t.looked, t.looks = t.pod, s.flatPod(t.pod, t.uids)
	}
	return t.looks
}

// flatPod is a pod without what the API server alone says of it.
func (s *side) flatPod(p *corev1.Pod, uids []string) flat {
	p = p.DeepCopy()
	p.ManagedFields, p.ResourceVersion, p.UID = nil, "", ""
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // it came as JSON
	}
	return s.flatten(data, uids)
}

func (s *side) flatten(data []byte, uids []string) flat {
	f, err := flatten(data)
	if err != nil {
		panic(err) // it was marshalled just now
	}
	out := make(flat, len(f))
	for k, v := range f {
		out[s.normal(k, uids)] = s.normal(v, uids)
	}
	return out
}

func (t *track) knownUIDs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.uids)
}

// podsOf are a life's sandboxes with their containers.
func (s *side) podsOf(l *Life) []fakecri.Pod { return s.runtime.PodsNamed(s.ns + "/" + s.podName(l)) }

// key says what a call does, in words that are the same on both sides.
func (r request) key() string {
	what := r.Method
	if r.Container != "" {
		what += " " + r.Container
	}
	switch r.Method {
	case "StopContainer":
		what += fmt.Sprintf("#%d within %d s", r.Attempt, r.Timeout)
	case "CreateContainer", "StartContainer", "UpdateContainerResources":
		what += fmt.Sprintf("#%d", r.Attempt)
	case "RunPodSandbox", "StopPodSandbox", "UpdatePodSandboxResources":
		what += fmt.Sprintf("#%d", r.Attempt)
	case "PullImage":
		what += " " + r.Image
	case "ExecSync":
		what += fmt.Sprintf("#%d %v within %d s", r.Attempt, r.Command, r.Timeout)
	}
	if r.Err != "" {
		what += " fails"
	}
	return what
}

func (r request) kept() bool {
	return r.Method != "RemoveContainer" && r.Method != "RemovePodSandbox" && r.Method != "ReopenContainerLog"
}

// kept are the calls that belong to a pod's life and not to collecting garbage.
func (t *track) kept() (list []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if c.kept() {
			list = append(list, c)
		}
	}
	return list
}

// asked are the calls for a life, each once, in order of their names.
func (s *side) asked(l *Life) []string {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.asked)
}

// noteLocked adds a call to those that were asked for, and reports whether it is new.
func (t *track) noteLocked(key string) bool {
	i, known := slices.BinarySearch(t.asked, key)
	if !known {
		t.asked = slices.Insert(t.asked, i, key)
	}
	return !known
}

// flatRequest is what a request says.
func (s *side) flatRequest(r request, uids []string) flat {
	data, err := protojson.Marshal(r.message)
	if err != nil {
		panic(err) // it came over the wire
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		panic(err)
	}
	sortOptions(v)
	out := flat{}
	out.add("", decode(v))
	res := flat{}
	for k, v := range out {
		if k == "podSandboxId" || k == "containerId" || strings.HasPrefix(k, "sandboxConfig.") {
			continue // that of RunPodSandbox again
		}
		res[s.normal(k, uids)] = s.normal(v, uids)
	}
	return res
}

// sortOptions puts the DNS options of a sandbox in order: upstream's agent merges them in
// one of its own at each start.
func sortOptions(v any) {
	request, _ := v.(map[string]any)
	config, _ := request["config"].(map[string]any)
	dns, _ := config["dnsConfig"].(map[string]any)
	if options, ok := dns["options"].([]any); ok {
		slices.SortFunc(options, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// decode makes text of the values of environment variables, which are bytes.
func decode(v any) any {
	switch v := v.(type) {
	case map[string]any:
		key, isVariable := v["key"].(string)
		value, isText := v["value"].(string)
		if isVariable && isText && key != "" && len(v) == 2 {
			if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
				v["value"] = string(raw)
			}
			return v
		}
		for k, e := range v {
			v[k] = decode(e)
		}
	case []any:
		for i, e := range v {
			v[i] = decode(e)
		}
	}
	return v
}
