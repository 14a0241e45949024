// Package fakeapi is a small Kubernetes API server for tests: the resources that
// a kubelet reads and writes, with resource versions, list and watch (field
// and label selectors, bookmarks, streaming lists), create, update, patch
// (strategic merge, merge, JSON), delete with preconditions, graceful deletion
// of pods, status subresources, tokens and reviews, in JSON and protobuf. It passes
// the suite of test/kit/apisuite together with the real API server.
//
// It authenticates no client, authorises everything unless configured otherwise,
// validates only what a kubelet could send wrongly, and runs no controllers and no
// scheduler.
//
// All state lives in memory behind one mutex (Server.mu). Objects in the store
// are never changed in place: a write stores a new one, so that readers and
// watchers share them. The server is an http.Handler; Client and RESTConfig
// reach it without a network, also in virtual time.
package fakeapi
