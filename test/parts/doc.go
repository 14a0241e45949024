// Package parts makes the real programs the tests stand on: container runtime,
// network plugins, etcd, control plane, upstream's kubelet, conformance suite.
//
// It owns the catalogue (what, which version, how it is built) and the cache
// folder outside the checkout where built parts live. Each part is pinned by a
// Go module of its own in a folder beside this file, so that the product's
// go.mod never names any of them; the version printed by a built part is
// checked against that pin before the part is put in place.
//
// The cache is keyed by name, version and a hash of everything that decides
// the result: go.mod, go.sum, the build flags and, for the few programs that have
// their source here, that source. A part is built in a
// temporary folder and renamed, under a lock file, so a build that is cut off
// leaves nothing that looks finished and two runs do not build the same thing.
//
//	KEELSON_CACHE         where built parts live ($XDG_CACHE_HOME/keelson)
//	KEELSON_PART_<NAME>   a folder with programs to use instead of a built part,
//	                      or "path" for the folder where PATH has them
//
// Debian is the second source: Unpack fetches packages of the running release
// and unpacks them into the cache, installing nothing.
package parts
