package inputs

import (
	"embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/manifest"
)

//go:embed testdata/manifests
var manifestFiles embed.FS

const (
	nodeName    = "node-1"
	manifestURL = "http://manifests.example/pods"
)

// Manifests generates manifests and compares how both kubelets read them.
type Manifests struct {
	oracle *Oracle
	bases  []base
	words  map[string][]any
}

// base is a valid document.
type base struct {
	name string
	text []byte
	typ  reflect.Type
}

// manifestCase is everything from which one input is made.
type manifestCase struct {
	base    int
	changes []uint64 // a seed for each mutation
	scratch uint64   // 0 for none
	asJSON  bool
	url     bool
	refs    bool   // static pods may refer to objects of the API server
	name    string // of the pod before the changes; empty: that of the base
}

// NewManifests reads the valid manifests.
func NewManifests(o *Oracle) (*Manifests, error) {
	m := &Manifests{
		oracle: o,
		words:  map[string][]any{},
	}
	files, err := manifestFiles.ReadDir("testdata/manifests")
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	v := &values{words: m.words}
	for _, f := range files {
		text, err := manifestFiles.ReadFile(path.Join("testdata/manifests", f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		b := base{
			name: f.Name(),
			text: text,
			typ:  reflect.TypeFor[v1.Pod](),
		}
		if f.Name() == "list.yaml" {
			b.typ = reflect.TypeFor[v1.PodList]()
		}
		m.bases = append(m.bases, b)
		v.learn(parse(text, b.typ).root, b.typ)
	}
	return m, nil
}

// draw generates the input of this number.
func (m *Manifests) draw(seed uint64, n int) manifestCase {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	c := manifestCase{
		base:   rng.IntN(len(m.bases)),
		asJSON: rng.IntN(3) == 0,
		url:    rng.IntN(5) == 0,
		refs:   rng.IntN(2) == 0,
	}
	if m.bases[c.base].typ == reflect.TypeFor[v1.PodList]() {
		c.url = true
	}
	for range 1 + max(0, rng.IntN(6)-3) {
		c.changes = append(c.changes, rng.Uint64())
	}
	if rng.IntN(15) == 0 {
		c.changes, c.scratch = nil, rng.Uint64()|1
	}
	return c
}

// text returns the text of an input, and the changes that were made.
func (m *Manifests) text(c manifestCase) (text []byte, did []string) {
	b := m.bases[c.base]
	d := parse(b.text, b.typ)
	d.did = []string{b.name}
	if meta, ok := d.root["metadata"].(map[string]any); ok && c.name != "" {
		meta["name"] = c.name
	}
	for _, seed := range c.changes {
		d.mutate(&values{
			rng:   rand.New(rand.NewPCG(seed, 0)),
			words: m.words,
		})
	}
	text = d.text(c.asJSON)
	if c.scratch != 0 {
		var what string
		text, what = scratch(rand.New(rand.NewPCG(c.scratch, 0)), text)
		d.did = append(d.did, what)
	}
	if c.url {
		d.did = append(d.did, "by URL")
	}
	if c.refs {
		d.did = append(d.did, "with references")
	}
	return text, d.did
}

// Try compares one input. It returns nil when both kubelets agree.
func (m *Manifests) Try(seed uint64, n int) (*Difference, error) {
	c := m.draw(seed, n)
	d, err := m.try(c)
	if d == nil || err != nil {
		return nil, err
	}
	// The smallest list of changes that still shows a difference.
	for i := 0; i < len(c.changes) && len(c.changes) > 1; {
		less := c
		less.changes = slices.Delete(slices.Clone(c.changes), i, i+1)
		smaller, err := m.try(less)
		if err != nil {
			return nil, err
		}
		if smaller == nil {
			i++
			continue
		}
		c, d = less, smaller
	}
	d.Seed, d.Number = seed, n
	return d, nil
}

func (m *Manifests) try(c manifestCase) (*Difference, error) {
	text, did := m.text(c)
	d, err := m.compare(text, c.url, c.refs)
	if d != nil {
		d.Did = did
	}
	return d, err
}

// compare compares how both kubelets read a text.
func (m *Manifests) compare(text []byte, url, refs bool) (*Difference, error) {
	q := ManifestQuestion{
		Text:  text,
		Node:  nodeName,
		Gates: map[string]bool{"PreventStaticPodAPIReferences": !refs},
	}
	if url {
		q.URL = manifestURL
	} else {
		q.File = "/etc/kubernetes/manifests/pod.yaml"
	}
	theirs, err := m.oracle.Ask(Question{Manifest: &q})
	if err != nil {
		return nil, err
	}
	pods, ourErr := ours(q, refs)
	d := &Difference{
		Input:  string(text),
		Theirs: theirs.Refused,
	}
	if ourErr != nil {
		d.Ours = ourErr.Error()
	}
	switch {
	case (d.Ours == "") != (d.Theirs == ""):
		return d, nil
	case d.Ours != "":
		return nil, nil
	case len(pods) != len(theirs.Pods):
		d.Changed = []string{fmt.Sprintf("ours %d pods, upstream's %d", len(pods), len(theirs.Pods))}
		return d, nil
	}
	for i, p := range pods {
		pod, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("encode pod: %w", err)
		}
		mirror, err := json.Marshal(desired.MirrorOf(p, &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: nodeName,
			UID:  "node-uid",
		}}))
		if err != nil {
			return nil, fmt.Errorf("encode mirror pod: %w", err)
		}
		for _, c := range compare(pod, theirs.Pods[i], "apiVersion", "kind") {
			d.Changed = append(d.Changed, "pod "+c)
		}
		// An API server ignores the UID and the status of an object that it creates.
		for _, c := range compare(mirror, theirs.Mirrors[i], "apiVersion", "kind", "metadata.uid", "status") {
			d.Changed = append(d.Changed, "mirror "+c)
		}
	}
	if len(d.Changed) == 0 {
		return nil, nil
	}
	return d, nil
}

// ours returns the pods that this kubelet reads from a manifest. A panic counts as
// an error.
func ours(q ManifestQuestion, refs bool) (pods []*v1.Pod, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("PANIC: %v", r)
		}
	}()
	m := manifest.Compiler{
		NodeName:           q.Node,
		AllowAPIReferences: refs,
	}
	if q.URL != "" {
		return m.URL(q.URL, q.Text)
	}
	p, _, err := m.File(q.File, q.Text)
	return []*v1.Pod{p}, err
}
