package desired

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"keelson/internal/pods/pod"
)

// Manifest turns the text of a manifest into the pod it asks for on this node.
type Manifest struct {
	NodeName string
	// AllowAPIReferences lets static pods refer to objects of the API server,
	// which is the gate PreventStaticPodAPIReferences turned off.
	AllowAPIReferences bool
}

// File reads a file's text. unknown are the fields that no pod has; they are
// ignored, and worth a word in the log.
func (m Manifest) File(path string, text []byte) (p *v1.Pod, unknown []string, err error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, nil, err
	}
	p, unknown, err = decodePod(asJSON)
	if err != nil {
		return nil, nil, err
	}
	m.adopt(p, origin{host: m.NodeName, file: path}, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	return p, unknown, m.check(p)
}

// URL reads the answer of a server: a pod or a list of them.
func (m Manifest) URL(url string, text []byte) ([]*v1.Pod, error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &head); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	// The list's items need not repeat their kind.
	docs, single := head.Items, head.Kind != "PodList"
	if single {
		docs = []json.RawMessage{asJSON}
	}
	var pods []*v1.Pod
	for i, doc := range docs {
		if !single {
			doc = withKind(doc)
		}
		p, _, err := decodePod(doc)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		m.adopt(p, origin{url: url})
		if err := m.check(p); err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func withKind(doc json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil || fields == nil {
		return doc // the decoder will say what is wrong
	}
	if fields["kind"] == nil {
		fields["kind"], fields["apiVersion"] = json.RawMessage(`"Pod"`), json.RawMessage(`"v1"`)
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return doc
	}
	return out
}

func toJSON(text []byte) ([]byte, error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, errors.New("the file is empty")
	}
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("malformed manifest: %s", strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	return b, nil
}

func decodePod(asJSON []byte) (*v1.Pod, []string, error) {
	p := new(v1.Pod)
	strict, err := kjson.UnmarshalStrict(asJSON, p)
	if err != nil {
		return nil, nil, fmt.Errorf("malformed manifest: %w", err)
	}
	if p.APIVersion != "v1" || p.Kind != "Pod" {
		return nil, nil, fmt.Errorf("not a pod: apiVersion %q kind %q, want v1 Pod", p.APIVersion, p.Kind)
	}
	var unknown []string
	for _, e := range strict {
		unknown = append(unknown, e.Error())
	}
	return p, unknown, nil
}

// adopt gives a pod from outside its identity on this node, and the defaults.
func (m Manifest) adopt(p *v1.Pod, from origin, tolerations ...v1.Toleration) {
	setDefaults(p)
	if p.UID == "" {
		p.UID = manifestUID(p, from)
	}
	p.Annotations = maps.Clone(p.Annotations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	// What only the API server may say.
	delete(p.Annotations, pod.AnnotationConfigMirror)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = nil, nil
	p.ResourceVersion, p.OwnerReferences, p.Finalizers = "", nil, nil
	p.Annotations[pod.AnnotationConfigHash] = string(p.UID)
	if p.Name != "" {
		p.Name += "-" + strings.ToLower(m.NodeName)
	}
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	p.Spec.NodeName = m.NodeName
	p.Spec.Tolerations = append(p.Spec.Tolerations, tolerations...)
	p.Status = v1.PodStatus{Phase: v1.PodPending}
}

// check refuses what the API server would.
func (m Manifest) check(p *v1.Pod) error {
	errs := validate(p)
	if !m.AllowAPIReferences {
		errs = append(errs, apiReferences(p)...)
	}
	if len(errs) == 0 {
		return nil
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return fmt.Errorf("invalid pod: %w", errs.ToAggregate())
}

// digest tells whether text that was read before has changed.
func digest(text []byte) [sha256.Size]byte { return sha256.Sum256(text) }
