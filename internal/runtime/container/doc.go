// Package container turns a pod's specification into sandboxes and containers of the runtime, one
// operation at a time: run a sandbox, start a container, stop it, remove it. The caller decides
// when.
//
// Most of it is pure translation. The files named after a part of a container (dns.go, env.go,
// security.go, resources.go …) turn specification and facts into CRI messages, and have table
// tests. The operations (sandbox.go, start.go, stop.go) gather the facts, create the few files a
// container needs (log directories, /etc/hosts, the termination log) and call the runtime.
//
// It reads ConfigMaps, Secrets and Services that environments refer to, the node's facts, and the
// host's resolv.conf and hosts files. It owns <root>/pods/<uid>/etc-hosts,
// <root>/pods/<uid>/containers and the directories of container logs.
//
// A Runner keeps no state of pods except for the preStop hooks under way. It caches the user of
// images by digest, which never changes. All methods are safe for concurrent use, also for one pod.
package container
