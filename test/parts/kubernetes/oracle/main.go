// Command oracle prints how upstream's kubelet interprets manifests, configuration files and flags. It calls upstream's
// own functions. It reads questions from standard input and writes an answer to each, in order, as lines of JSON.
//
// If upstream ends its process for an input, this process ends too.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/component-base/logs/json/register" // the format json
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// question is one input.
type question struct {
	Manifest *manifest `json:"manifest,omitempty"`
	Config   *settings `json:"config,omitempty"`
}

// answer is upstream's result for a question.
type answer struct {
	// Refused is upstream's error; empty when it accepts the input.
	Refused string `json:"refused,omitempty"`
	// Stage is the step that rejected the configuration: flags, files, validation, start or exit.
	Stage string `json:"stage,omitempty"`

	Pods    []json.RawMessage `json:"pods,omitempty"`    // the pods of a manifest
	Mirrors []json.RawMessage `json:"mirrors,omitempty"` // as they are sent to the API server

	Kubelet json.RawMessage `json:"kubelet,omitempty"` // the configuration as /configz shows it
	Flags   map[string]any  `json:"flags,omitempty"`   // settings that exist only on the command line
	Gates   map[string]bool `json:"gates,omitempty"`
}

func main() {
	versionAsked := flag.Bool("version", false, "print the version of Kubernetes and exit")
	certs := flag.String("cert-dir", "", "directory for the certificate that upstream makes when it is given none")
	flag.Parse()
	if *versionAsked {
		fmt.Println(version.Get().GitVersion)
		return
	}
	// The UID of a static pod is a hash of its manifest. If the manifest has a time, the time zone is a part of the
	// hash once this process has loaded it. A kubelet has loaded it, because it writes logs. This line loads it here.
	_ = time.Now().Local().String()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := serve(os.Stdin, os.Stdout, *certs); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers each question. Before each one it resets the feature gates to their defaults.
func serve(in io.Reader, out io.Writer, certs string) error {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	d := json.NewDecoder(in)
	w := bufio.NewWriter(out)
	e := json.NewEncoder(w)
	for {
		var q question
		switch err := d.Decode(&q); {
		case err == io.EOF:
			return w.Flush()
		case err != nil:
			return fmt.Errorf("read question: %w", err)
		}
		utilfeature.DefaultMutableFeatureGate = gates.DeepCopy()
		utilfeature.DefaultFeatureGate = utilfeature.DefaultMutableFeatureGate
		var a answer
		switch {
		case q.Manifest != nil:
			a = q.Manifest.ask()
		case q.Config != nil:
			a = q.Config.ask(certs)
		}
		if err := e.Encode(a); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
}
