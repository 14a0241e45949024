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

// look is the last seen state of a life's pod, normalised; empty if the pod does not exist.
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

// flatPod is a pod without the fields that only the API server sets.
func (s *side) flatPod(p *corev1.Pod, uids []string) flat {
	p = p.DeepCopy()
	p.ManagedFields, p.ResourceVersion, p.UID = nil, "", ""
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return s.flatten(data, uids)
}

func (s *side) flatten(data []byte, uids []string) flat {
	f, err := flatten(data)
	if err != nil {
		panic(err) // json.Marshal made it
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

// key is a text for what a call does. Equal calls have equal keys on both sides.
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

// kept are the calls without those of garbage collection and log rotation.
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

// asked are the keys of the calls for a life, each once, sorted.
func (s *side) asked(l *Life) []string {
	t := s.record.track(l.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.asked)
}

// noteLocked adds a key to asked, and reports whether it is new.
func (t *track) noteLocked(key string) bool {
	i, known := slices.BinarySearch(t.asked, key)
	if !known {
		t.asked = slices.Insert(t.asked, i, key)
	}
	return !known
}

// flatRequest is the content of a request.
func (s *side) flatRequest(r request, uids []string) flat {
	data, err := protojson.Marshal(r.message)
	if err != nil {
		panic(err) // it was decoded from a request
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

// sortOptions sorts the DNS options of a sandbox: upstream's agent merges them in a random
// order.
func sortOptions(v any) {
	request, _ := v.(map[string]any)
	config, _ := request["config"].(map[string]any)
	dns, _ := config["dnsConfig"].(map[string]any)
	if options, ok := dns["options"].([]any); ok {
		slices.SortFunc(options, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// decode converts the values of environment variables, which are bytes, to text.
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
