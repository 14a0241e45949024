// Package parts builds the real programs that the tests need: container runtime,
// network plugins, etcd, control plane, upstream's kubelet, conformance suite.
//
// It owns the catalogue (each part's version and build settings) and the cache
// folder of built parts, which is outside the checkout. Each part is pinned by a
// Go module of its own in a folder beside this file, so that the product's
// go.mod does not name any of them. A built part must print the pinned version
// before it is moved to its place in the cache.
//
// The key in the cache is the name, the version and a hash of all inputs of the
// build: go.mod, go.sum, the build flags and, for the few programs whose source
// is here, that source. A part is built in a temporary folder and then renamed,
// under a lock file. So an interrupted build never looks complete, and two runs
// do not build the same part.
//
//	KEELSON_CACHE         the cache folder (default: $XDG_CACHE_HOME/keelson)
//	KEELSON_PART_<NAME>   a folder with programs to use instead of a built part,
//	                      or "path" for the folder where PATH has them
//
// Debian is the second source: Unpack fetches packages of the running release
// and unpacks them into the cache. It installs nothing.
package parts
