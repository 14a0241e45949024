package apisuite

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	suite "keelson/test/kit/apisuite"
	"keelson/test/rig"
)

// TestAPIServer runs the suite in both formats of requests and answers.
func TestAPIServer(t *testing.T) {
	r := rig.Start(t, rig.Options{NoRuntime: true, Cluster: true})
	// After a restart its watch cache does not have the first version any more.
	r.Cluster.KillAPIServer()
	if err := r.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, media := range map[string]string{
		"JSON":     "application/json",
		"protobuf": "application/vnd.kubernetes.protobuf",
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(r.Cluster.REST)
			config.ContentType, config.QPS = media, -1
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			suite.Run(t, client)
		})
	}
}
