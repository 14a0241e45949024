package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"keelson/internal/pods/pod"
)

// Compiler turns the text of a manifest into the static pod on this node.
type Compiler struct {
	NodeName string
	// AllowAPIReferences lets static pods refer to objects of the API server,
	// which is the gate PreventStaticPodAPIReferences turned off.
	AllowAPIReferences bool
	// MountSELinux is set if volumes are labelled when they are mounted, which
	// is the gate SELinuxMount.
	MountSELinux bool
}

// File compiles a manifest file. unknown are the fields that the API does not have; they
// are ignored, and the caller logs them.
func (m Compiler) File(path string, text []byte) (p *v1.Pod, unknown []string, err error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, nil, err
	}
	switch head, err := typeMeta(asJSON); {
	case err != nil:
		return nil, nil, err
	case head != aPod:
		return nil, nil, fmt.Errorf("not a pod: apiVersion %q kind %q, want v1 Pod", head.APIVersion, head.Kind)
	}
	p = new(v1.Pod)
	if unknown, err = decode(asJSON, p); err != nil {
		return nil, nil, err
	}
	p.TypeMeta = aPod
	return p, unknown, m.adopt(p, origin{host: m.NodeName, file: path})
}

// URL compiles the response of a server: a pod or a list of pods. The items of a list count as pods, regardless of
// their kind.
func (m Compiler) URL(url string, text []byte) ([]*v1.Pod, error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	head, err := typeMeta(asJSON)
	if err != nil {
		return nil, err
	}
	list := v1.PodList{Items: make([]v1.Pod, 1)}
	switch head {
	case aPod:
		_, err = decode(asJSON, &list.Items[0])
		list.Items[0].TypeMeta = aPod
	case aList:
		list.Items = nil
		_, err = decode(asJSON, &list)
	default:
		err = fmt.Errorf("neither a pod nor a list of pods: apiVersion %q kind %q, want v1 Pod or v1 PodList",
			head.APIVersion, head.Kind)
	}
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if err := m.adopt(p, origin{url: url}); err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

var (
	aPod  = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	aList = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
)

// typeMeta reads the apiVersion and kind of a document. Unlike those of all other
// fields, the case of the two names does not matter. The group of pods has no
// name, so "/v1" is "v1".
func typeMeta(asJSON []byte) (metav1.TypeMeta, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(asJSON, &head); err != nil {
		return metav1.TypeMeta{}, fmt.Errorf("malformed manifest: %w", err)
	}
	return metav1.TypeMeta{Kind: head.Kind, APIVersion: strings.TrimPrefix(head.APIVersion, "/")}, nil
}

// toJSON converts YAML to JSON. Text that begins like JSON has to be JSON.
func toJSON(text []byte) ([]byte, error) {
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, errors.New("the file is empty")
	}
	b, err := yaml.ToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("malformed manifest: %s",
			strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	return b, nil
}

// decode decodes JSON into a pod or a list of pods. unknown are the errors about fields
// that are unknown or duplicate.
func decode(asJSON []byte, into any) (unknown []string, err error) {
	strict, err := kjson.UnmarshalStrict(asJSON, into)
	if err != nil {
		return nil, fmt.Errorf("malformed manifest: %w", err)
	}
	for _, e := range strict {
		unknown = append(unknown, e.Error())
	}
	return unknown, nil
}

// adopt sets a static pod's identity on this node and the defaults, and validates it.
// Fields that only the API server may set are dropped (docs/decisions/0115).
func (m Compiler) adopt(p *v1.Pod, from origin) error {
	if p.Name == "" {
		return errors.New("invalid pod: metadata.name: Required value: name is needed for the pod")
	}
	setDefaults(p)
	if p.UID == "" {
		p.UID = manifestUID(p, from)
	}
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = p.Spec.DeprecatedServiceAccount
	}
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	p.Name += "-" + strings.ToLower(m.NodeName)
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	p.Spec.NodeName = m.NodeName
	if from.url == "" {
		p.Spec.Tolerations = tolerateNoExecute(p.Spec.Tolerations)
	}
	p.Annotations = maps.Clone(p.Annotations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for _, name := range formerInitContainers {
		delete(p.Annotations, name)
	}
	p.Annotations[pod.AnnotationConfigHash] = string(p.UID)
	if err := m.check(p); err != nil {
		return err
	}
	delete(p.Annotations, pod.AnnotationConfigMirror)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = nil, nil
	p.ResourceVersion, p.OwnerReferences, p.Finalizers = "", nil, nil
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	return nil
}

// tolerateNoExecute adds a toleration of every NoExecute taint: a static pod is not
// evicted by taints.
func tolerateNoExecute(tolerations []v1.Toleration) []v1.Toleration {
	all := v1.Toleration{
		Operator: v1.TolerationOpExists,
		Effect:   v1.TaintEffectNoExecute,
	}
	for i, t := range tolerations {
		if t.MatchToleration(&all) {
			tolerations[i] = all // without tolerationSeconds
			return tolerations
		}
	}
	return append(tolerations, all)
}

// check returns the errors that the API server would return for the pod.
func (m Compiler) check(p *v1.Pod) error {
	errs := m.validate(p)
	if m.AllowAPIReferences {
		errs = append(errs, neverInStatic(p)...)
	} else {
		errs = append(errs, apiReferences(p)...)
	}
	if len(errs) == 0 {
		return nil
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return fmt.Errorf("invalid pod: %w", errs.ToAggregate())
}
