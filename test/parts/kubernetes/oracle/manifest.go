package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/capabilities"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
)

// manifest is the text of a static pod's manifest on a node.
type manifest struct {
	Text []byte `json:"text"`
	File string `json:"file,omitempty"` // its path; empty if the manifest comes from a URL
	URL  string `json:"url,omitempty"`
	Node string `json:"node"`

	Gates map[string]bool `json:"gates,omitempty"`
}

func (m *manifest) ask() answer {
	// The kubelet does this too before it reads manifests.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(m.Gates); err != nil {
		return answer{Refused: err.Error()}
	}
	defaults := func(log klog.Logger, pod *api.Pod) error {
		if m.URL != "" {
			return applyDefaults(log, pod, m.URL, false, m.Node)
		}
		return applyDefaults(log, pod, m.File, true, m.Node)
	}
	parsed, pod, err := tryDecodeSinglePod(klog.Background(), m.Text, defaults)
	if err == nil {
		return m.accepted(pod)
	}
	if m.URL == "" || parsed {
		return answer{Refused: err.Error()}
	}
	parsed, list, listErr := tryDecodePodList(klog.Background(), m.Text, defaults)
	if listErr != nil {
		if !parsed {
			listErr = fmt.Errorf("neither a pod (%w) nor a list of pods (%w)", err, listErr)
		}
		return answer{Refused: listErr.Error()}
	}
	var pods []*v1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return m.accepted(pods...)
}

func (m *manifest) accepted(pods ...*v1.Pod) answer {
	var a answer
	for _, p := range pods {
		b, err := json.Marshal(p)
		if err != nil {
			return answer{Refused: "encode pod: " + err.Error()}
		}
		mirror, err := m.mirror(p)
		if err != nil {
			return answer{Refused: "make mirror pod: " + err.Error()}
		}
		a.Pods, a.Mirrors = append(a.Pods, b), append(a.Mirrors, mirror)
	}
	return a
}

// mirror returns the request with which upstream creates the mirror pod of p.
func (m *manifest) mirror(p *v1.Pod) ([]byte, error) {
	server := new(recorder)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:          "http://api",
		Transport:     server,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		QPS:           -1,
	})
	if err != nil {
		return nil, err
	}
	err = kubepod.NewBasicMirrorClient(client, m.Node, nodes{}).CreateMirrorPod(context.Background(), p)
	return bytes.TrimSpace(server.body), err
}

// nodes is a lister that returns a node for every name.
type nodes struct{}

func (nodes) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "node-uid"}}, nil
}

// recorder is an API server that accepts every object and records the request.
type recorder struct{ body []byte }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	if r.body, err = io.ReadAll(req.Body); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusCreated,
		Header:     http.Header{"Content-Type": []string{"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(r.body)),
		Request:    req,
	}, nil
}
