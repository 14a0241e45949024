// Package provider implements credential provider plugins: programs that read the name of an image
// from standard input and write registry credentials to standard output.
//
// It owns the cache of the plugins' responses, which is in memory only. It reads the configuration
// from a file or directory at startup. Credentials and tokens never appear in the log or in errors,
// but what a plugin writes to standard error does.
//
// Concurrent pulls with the same cache key share one run of a plugin. Lock order: plugin.mu only.
package provider
