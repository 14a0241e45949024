// Package pods is the room of pods: which pods are desired, which pods run, and how the desired state is reached.
//
// desired holds the specifications, which manifest compiles where they come from files; observed holds what the runtime
// has. podsync has a worker for each pod, and podplan decides what the worker does next. admission admits pods, and
// allocation keeps what is allocated to them. probe probes containers, status writes the statuses of pods to the API
// server, explain and timeline show why a pod is in its state. pod has the types that all of them use. panics limits a
// panic to the pod whose sync caused it.
//
// It holds no code of its own.
package pods
