// Package container turns a pod's specification into sandboxes and containers
// of the runtime, one verb at a time: run a sandbox, start a container, stop
// it, remove it. It decides nothing about when; the caller does.
//
// Most of it is translation, and pure: the files named after a part of a
// container (dns.go, env.go, security.go, resources.go …) turn specification
// and facts into what the runtime is told, and have tables for tests. The verbs
// (sandbox.go, start.go, stop.go, remove.go) gather the facts, make the few
// files a container needs — log directories, /etc/hosts, the termination log —
// and speak to the runtime.
//
// It reads the objects that environments refer to, the services of the
// namespace, the node's facts, and the host's resolv.conf and hosts files. It
// owns <root>/pods/<uid>/etc-hosts, <root>/pods/<uid>/containers and the
// directories of container logs.
//
// A Runner keeps no state of pods. Its one memory is which user an image runs
// as, which an image's digest settles for ever. All methods may be called at
// the same time, also for one pod.
package container
