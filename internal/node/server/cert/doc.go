// Package cert holds the certificates of the node's server as they are on disk:
// its own pair, and the authorities of its callers.
//
// Files are looked at when a handshake or a request needs them, at most once a
// second, and read again when they changed. There is no watch and no timer: a
// node nobody talks to does nothing. A file that became unreadable leaves the
// last good content in force, and is complained about once.
package cert
