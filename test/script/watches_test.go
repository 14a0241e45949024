package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"keelson/test/kit/apiproxy"
)

// manyPods is how many pods share objects.
const manyPods = 40

// Upstream has one watch for each ConfigMap and each Secret that any pod of the
// node refers to, preceded by a list. Here there is also at most one watch for each
// object, for any number of references to it, and there are no lists.
func TestOneWatchForEachObject(t *testing.T) {
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		objects := map[string]int{"configmaps": 1, "secrets": 2} // every pod refers to that of the CA
		put := func(kind, name, more string) {
			r.Scenario.Files[name+".yaml"] = "apiVersion: v1\nkind: " + kind + "\ndata: {a: Yg==}\n" + more
			r.Must(t, "put", name+".yaml")
		}
		put("ConfigMap", "kube-root-ca.crt", "")
		put("Secret", "shared-s", "")
		put("Secret", "pull", "")
		for i := range 4 {
			put("ConfigMap", fmt.Sprintf("m%d", i), "")
			objects["configmaps"]++
		}
		put("ConfigMap", "fixed", "immutable: true\n")
		r.Proxy.Reset()
		var names []string
		for i := range manyPods {
			name := fmt.Sprintf("p%02d", i)
			names = append(names, name)
			r.Pod(t, name, fmt.Sprintf(`spec:
  imagePullSecrets: [{name: pull}]
  containers:
  - name: main
    envFrom: [{configMapRef: {name: m%[1]d}}, {secretRef: {name: shared-s}}]
    env: [{name: X, valueFrom: {configMapKeyRef: {name: m%[1]d, key: a}}}]
    volumeMounts: [{name: m, mountPath: /m}, {name: all, mountPath: /all}, {name: f, mountPath: /f}]
  volumes:
  - {name: m, configMap: {name: m%[1]d}}
  - {name: f, configMap: {name: fixed}}
  - name: all
    projected:
      sources:
      - {configMap: {name: kube-root-ca.crt}}
      - {configMap: {name: m%[1]d}}
      - {secret: {name: shared-s}}
`, i%4))
		}
		for _, name := range names {
			r.Must(t, "wait", name, "Ready", "within=60")
		}
		time.Sleep(10 * time.Minute)
		counts := r.Proxy.Counts()
		// The immutable object was watched until it was read, and is not watched any more.
		for resource, want := range map[string]int{
			"configmaps": objects["configmaps"] + 1,
			"secrets":    objects["secrets"],
		} {
			if got := counts[apiproxy.Key{Verb: "watch", Resource: resource}]; got > want {
				t.Errorf("%d watches of %s were opened for %d objects in use", got, resource, want)
			}
			if got := counts[apiproxy.Key{
				Verb:     "list",
				Resource: resource,
			}] + counts[apiproxy.Key{Verb: "get", Resource: resource}]; got > 0 {
				t.Errorf("%d reads of %s beside the watches", got, resource)
			}
			if got := openWatches(r.World, resource); got > objects[resource] {
				t.Errorf("%d watches of %s are open, want one for each of %d objects that can change", got, resource,
					objects[resource])
			}
		}
		for resource := range objects {
			if openWatches(r.World, resource) == 0 {
				t.Errorf("no watch of %s is open, so nothing was shown", resource)
			}
		}

		// A watch ends with the last pod that needs it.
		for _, name := range names {
			r.Must(t, "delete", name)
		}
		for _, name := range names {
			r.Must(t, "wait", name, "gone", "within=60")
		}
		time.Sleep(time.Minute)
		for resource := range objects {
			if got := openWatches(r.World, resource); got > 0 {
				t.Errorf("%d watches of %s are open without a pod: %s", got, resource,
					strings.TrimSpace(r.Proxy.Summary()))
			}
		}
	})
}

// openWatches is the number of watches of a resource that have not ended.
func openWatches(w *World, resource string) int {
	n := 0
	for _, q := range w.Asked("watch", resource) {
		if q.End.IsZero() {
			n++
		}
	}
	return n
}
