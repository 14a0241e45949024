// Package pods is the room of pods: which should run, which do, and what is done to make the one the other.
//
// desired holds the specifications, which manifest compiles where they come from files; observed holds what the
// runtime has. podsync has a worker for each pod, which asks podplan what to do next. admission admits pods, and
// allocation keeps what they were granted. probe probes containers, status shows pods to the API server, explain and
// timeline say why a pod is where it is. pod is the vocabulary of all of them. panics contains panics in the work for
// one pod.
//
// It holds no code of its own.
package pods
